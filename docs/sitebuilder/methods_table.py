"""The table that compares what methods need, cost and reveal; from their cards and settings."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.cli.about import own_settings
from coterie.methods import METHODS
from coterie.runs.method_card import Card, shipped_card

#: Methods without clusters.
_ONE_MODEL = ("fedavg", "fedprox", "global", "fedsim", "perfedavg", "local")
#: Methods that find the number of clusters although no setting says so.
_FINDS = ("cfl", "flhc", "pacfl", "flag", "srfca", "oneshotifca")


def comparison_table() -> str:
    """A Markdown table with a row per method."""
    rows = []
    for name in METHODS:
        card = shipped_card(name)
        assert card is not None, f"{name} has no card; run: make cards"
        cells = [
            f"[{name}]({'../methods/' + name}.md)",
            clusters(name),
            _models(card.round),
            _models(card.preparation),
            _models(card.newcomer),
            _individual(card),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    titles = ["method", "number of clusters", "per round", "preparation", "newcomer"]
    head = f"| {' | '.join([*titles, 'single models or data arrays at the server'])} |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def clusters(name: str) -> str:
    """Where the number of clusters comes from."""
    if name == "oracle":
        return "the true ones"
    if name in _ONE_MODEL:
        return "–"
    if name in _FINDS:
        return "found"
    given = {each.key: each.default for each in own_settings(name)}.get("method.clusters")
    return "found, or given" if given == "auto" else f"given (default {given})"


def _models(traffic: Mapping[str, tuple[float, float]]) -> str:
    """Down and up, in models."""
    down, up = (sum(way) for way in zip(*traffic.values(), strict=True)) if traffic else (0.0, 0.0)
    # Spaces that do not break: a number stays with its arrow.
    return f"{down:.3g}\N{NO-BREAK SPACE}↓\N{NO-BREAK SPACE} {up:.3g}\N{NO-BREAK SPACE}↑" if down or up else "–"


def _individual(card: Card) -> str:
    return ", ".join(card.individual) if card.individual else "never"
