"""Make docs/methods: a page about each method, from its docstring, its settings, and what it was seen to ask.

python docs/build.py            write the pages
python docs/build.py --check    say which are not up to date; exit code 1 if any
"""

from __future__ import annotations

import sys
from pathlib import Path

from coterie.cli.methods import own_settings
from coterie.methods import METHODS, descriptions, documentation
from coterie.runs.method_card import card

PAGES = Path(__file__).parent / "methods"


def page(name: str) -> str:
    """The page about one method."""
    title, _, text = documentation(name).partition("\n")
    seen = card(name)
    settings = [
        f"| `{each.key}` | {_cell(each.default)} | {_cell(each.type)} | {_cell(each.means)} |"
        for each in own_settings(name)
    ]
    asks = [
        f"| {ask.when}{', beyond the cohort' if ask.beyond else ''} | `{ask.work}` | {_names(ask.sent)} "
        f"| {_names(ask.single)} | {_names(ask.summed)} |"
        for ask in seen.asks
    ]
    parts = [
        f"# {name}",
        title,
        # As it stands: equations are laid out by hand.
        f"```\n{text.strip()}\n```" if text.strip() else "",
        "## Settings",
        "\n".join(["| setting | default | allowed | meaning |", "|---|---|---|---|", *settings])
        if settings
        else "It has no settings of its own.",
        "## What it costs and what the server sees",
        "Seen in a run of 25 rounds with these defaults on 15 clients of four planted kinds, in cohorts of 8, and one\n"
        "newcomer; the model is a logistic regression with 104 parameters. Costs are in models of that size.",
        "\n".join(f"- {line}" for line in seen.sentences()),
        "\n".join(["| when | asked to | sent | seen of each client | seen as a sum |", "|---|---|---|---|---|", *asks]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def index() -> str:
    """The page that lists the others."""
    lines = [f"| [{name}]({name}.md) | {_cell(text)} |" for name, text in descriptions().items() if name in METHODS]
    made = "Made by `make docs` from the docstrings, settings and asks of the methods."
    return "\n".join(["# Methods", "", made, "", "| name | what it is |", "|---|---|", *lines]) + "\n"


def _names(values: object) -> str:
    assert isinstance(values, dict)
    return ", ".join(f"{name} ({_cell(what)})" for name, what in values.items()) or "–"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def pages(names: list[str]) -> dict[str, str]:
    """File name → text."""
    return {"README.md": index()} | {f"{name}.md": page(name) for name in names}


def main() -> int:
    made = pages(list(METHODS))
    PAGES.mkdir(exist_ok=True)
    there = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    stale = sorted(name for name in {*made, *there} if made.get(name) != there.get(name))
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{name} is not up to date: make docs" for name in stale))
        return bool(stale)
    for name in stale:
        if name in made:
            (PAGES / name).write_text(made[name], encoding="utf-8")
        else:
            (PAGES / name).unlink()
    print(f"{len(made)} pages in {PAGES}, {len(stale)} of them new or changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
