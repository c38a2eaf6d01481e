"""Builds the site: `make docs`, or `python -m sitebuilder` with docs/ on the path."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from coterie.runs.record import RunRecord
from sitebuilder import demonstration, drawing, equations, figures, links, pictures, tutorials
from sitebuilder.pages import stage
from sitebuilder.paths import DOCS, PAGES, SITE, WORK, fingerprint, write

Result = TypeVar("Result")
_STARTED = time.monotonic()


def step(what: str, work: Callable[[], Result]) -> Result:
    """Do one step of the build, and say what it is and how long it took."""
    print(f"{what} …", file=sys.stderr, flush=True)
    started = time.monotonic()
    result = work()
    print(f"    {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return result


def draw(records: dict[str, Path]) -> Path:
    """Draw all figures and pictures, once for each state of the sources; returns their folder."""
    here = Path(__file__).parent
    drawn_by = [here / f"{name}.py" for name in ("demonstration", "drawing", "figures", "pictures")]
    folder = WORK / f"drawn-{fingerprint(*drawn_by)}"
    captions = folder / "captions.json"
    if captions.exists():
        return folder
    compared = {name: RunRecord.read(records[name]) for name in ("oracle", "fedavg")}
    words = {}
    for name, path in records.items():
        record = RunRecord.read(path)
        drawing.save(figures.method_figure(record, compared), folder / "methods" / "figures" / name)
        words[name] = figures.caption(record)
    for name, picture in pictures.all_pictures(records).items():
        drawing.save(picture, folder / "explanation" / "pictures" / name)
    write(captions, json.dumps(words))
    return folder


def write_pages(drawn: Path) -> None:
    """Write all pages but the tutorials, with the figures beside them."""
    captions = json.loads((drawn / "captions.json").read_text(encoding="utf-8"))

    def figure(name: str) -> str:
        text = f"{name} on the demonstration: accuracy over rounds, and the cluster of each client"
        return f"{drawing.shown(f'figures/{name}', text)}\n\n{captions[name]}"

    stage(figure=figure)
    shutil.copytree(drawn, PAGES, dirs_exist_ok=True, ignore=shutil.ignore_patterns("captions.json"))


def configuration() -> Path:
    """The configuration of Zensical: absolute folders, existing pages, and the style sheet of KaTeX if it is there."""
    given: dict[str, Any] = yaml.safe_load((DOCS / "mkdocs.yml").read_text(encoding="utf-8"))
    given |= {"docs_dir": "docs/pages", "site_dir": "site", "nav": _present(given["nav"])}
    given["plugins"][-1]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(DOCS.parent / "src")]
    if equations.available():
        given["extra_css"].append(equations.STYLE_SHEET)
    path = WORK.parent / "mkdocs.yml"
    write(path, yaml.safe_dump(given, sort_keys=False, allow_unicode=True))
    return path


def _present(entries: list[Any]) -> list[Any]:
    """The entries of a navigation whose pages exist."""
    kept = []
    for entry in entries:
        ((title, target),) = entry.items() if isinstance(entry, dict) else ((None, entry),)
        if isinstance(target, list):
            kept += [{title: inside}] if (inside := _present(target)) else []
        elif (PAGES / target).exists():
            kept.append(entry)
        else:
            print(f"    {target} is in the navigation but not written yet", file=sys.stderr)
    return kept


def render() -> None:
    """Run Zensical; its messages are shown if it fails or finds an issue."""
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [str(program), "build", "--clean", "-f", str(configuration())], capture_output=True, text=True, check=False
    )
    if done.returncode or "issue" in done.stdout + done.stderr:
        print(done.stdout, done.stderr, file=sys.stderr)
    if done.returncode:
        raise SystemExit("Zensical failed; its messages are above")


def main() -> int:
    """Build the site; returns 1 if it has broken links."""
    with tutorials.started() as running:  # most of the time of one of them is waiting
        records = step(
            "running tutorials, and the demonstration with every method, for the figures", demonstration.records
        )
        drawn = step("drawing", lambda: draw(records))
        step("writing pages", lambda: write_pages(drawn))
        missing = step("waiting for tutorials", lambda: tutorials.build(running))
    step("rendering with Zensical", render)
    if equations.available():
        number = step("typesetting equations with KaTeX", lambda: equations.typeset(SITE))
        print(f"    {number} equations", file=sys.stderr)
    else:
        print("npm or KaTeX is missing: equations are shown as LaTeX", file=sys.stderr)
    broken = step("checking links", lambda: links.broken_in_site(SITE))
    for name in missing:
        print(f"the tutorial {name} was not run: its extra is not installed", file=sys.stderr)
    print("".join(f"broken: {each}\n" for each in broken), end="", file=sys.stderr)
    print(f"{SITE / 'index.html'} ({time.monotonic() - _STARTED:.0f} s); show it with: make docs-serve")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
