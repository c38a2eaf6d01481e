"""The page of a method: the text in docs/methods, and what is generated around it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from coterie.cli.about import own_settings
from coterie.methods import METHODS, documentation
from coterie.runs.method_card import CLIENTS, COHORT, ROUNDS, Card, shipped_card
from sitebuilder.paths import DOCS
from sitebuilder.reference import cell, method_settings_table

_SOURCES = {
    r"arXiv:(\d{4}\.\d{5})": r"[arXiv:\1](https://arxiv.org/abs/\1)",
    r"doi:(10\.\d+/[\w.]+\w)": r"[doi:\1](https://doi.org/\1)",
    r"(?<!/)\b(openreview\.net/forum\?id=\w+)": r"[\1](https://\1)",
    r"(?<![\w/`])methods/(\w+\.py)": r"[methods/\1](../code/src/coterie/methods/\1.md)",
    r"(?<![\w/`])clustering/(\w+\.py)": r"[clustering/\1](../code/src/coterie/clustering/\1.md)",
}


def page(name: str, figure: str) -> str:
    """The page of one method.

    Args:
        name: Its name.
        figure: Markdown of its figure, with a caption.
    """
    title, _, text = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8").partition("\n")
    card = shipped_card(name)
    assert card is not None, f"{name} has no card; run: make cards"
    module = METHODS[name].partition(":")[0].rpartition(".")[2]
    parts = [
        title,
        f"`{name}` · [paper](#paper-and-notes) · [code](../code/src/coterie/methods/{module}.py.md) · "
        f"[settings](#settings) · [what the server sees](#traffic-and-privacy)",
        text.strip(),
        "## On the demonstration",
        figure,
        "## Settings",
        settings_of(name),
        "## Traffic and privacy",
        traffic(card),
        "## Paper and notes",
        notes(documentation(name)),
    ]
    return "\n\n".join(parts) + "\n"


def settings_of(name: str) -> str:
    """The table of a method's own settings."""
    if not own_settings(name):
        return "This method has no settings of its own. [All methods share these](../reference/settings.md)."
    shared = "Settings that all methods share are in the [reference](../reference/settings.md)."
    return f"{method_settings_table(name)}\n\n{shared}"


def traffic(card: Card) -> str:
    """What is sent, and what the server sees."""
    asks = [
        f"| {ask.when}{', also outside the cohort' if ask.outside_cohort else ''} | `{ask.work}` | {_names(ask.sent)} "
        f"| {_names(ask.received)} | {_names(ask.aggregated)} |"
        for ask in card.exchanges
    ]
    intro = (
        f"Measured in a run of {ROUNDS} rounds with default settings: {CLIENTS - 1} clients in four true clusters, "
        f"{COHORT} clients per round, one newcomer, and a logistic regression with 104 parameters. "
        "The unit `models` is the size of its parameters."
    )
    head = [
        "| when | work | sent to clients | received from each client | received as a sum |",
        "|---|---|---|---|---|",
    ]
    return "\n\n".join([intro, "\n".join(f"- {line}" for line in card.sentences()), "\n".join([*head, *asks])])


def notes(text: str) -> str:
    """Paper, symbols and departures: the docstring of a method without its first line and its equations."""
    parts = []
    for paragraph in text.split("\n\n")[1:]:
        if not paragraph.startswith("    "):
            parts.append(_linked(_markdown(paragraph)))
        elif parts and parts[-1].endswith(":"):  # equations, which the page has typeset
            parts[-1] += " see [the equations](#equations)."
    return "\n\n".join(parts)


def _markdown(paragraph: str) -> str:
    """A paragraph of a docstring as Markdown: one line, with special characters escaped outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(paragraph.split()))
    escaped = [part if part.startswith("`") else re.sub(r"([\\*_\[\]<>|#])", r"\\\1", part) for part in parts]
    joined = "".join(escaped)
    return re.sub(r"^(Departures[^.:]*[.:])", r"**\1**", joined)


def _linked(text: str) -> str:
    for pattern, link in _SOURCES.items():
        text = re.sub(pattern, link, text)
    return re.sub(r"(?:methods|clustering)/\w*\\_\w*\.py", _code_link, text)


def _code_link(match: re.Match[str]) -> str:
    """A link to a module whose name has an underscore, which is escaped in the text."""
    return f"[{match[0]}](../code/src/coterie/{match[0].replace(chr(92), '')}.md)"


def _names(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({cell(what)})" for name, what in values.items()) or "–"
