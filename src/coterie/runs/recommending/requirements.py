"""What a method needs and what it reveals to the server, from its settings and its card."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from coterie.methods import method_class
from coterie.runs.method_card import shipped_card
from coterie.runs.spec import method_options


def needs(name: str, options: Mapping[str, object]) -> list[str]:
    """What a method needs, in phrases.

    Args:
        name: Name of the method.
        options: Its settings that differ from the defaults.
    """
    settings = {**method_options(name), **options}
    found = []
    if any(each.metadata.get("run") == "truth" for each in dataclasses.fields(method_class(name))):
        found.append("the true clusters, which are known only in simulations")
    if (number := settings.get("clusters")) not in (None, "auto"):
        found.append(f"the number of clusters (here {number})")
    elif number == "auto" or getattr(method_class(name), "finds_clusters", False):
        found.append("no number of clusters: it finds one itself")
    card = shipped_card(name)
    if card is None:
        return found
    if card.preparation:
        found.append("a preparation with all clients before the first round, or between rounds")
    if any(ask.outside_cohort for ask in card.exchanges):
        found.append("all clients in some rounds, not only a sample")
    return found


def reveals(name: str) -> list[str]:
    """What the server sees of individual clients, in sentences; empty if it is not known."""
    card = shipped_card(name)
    return [] if card is None else card.seen_by_server()


def sees_individuals(name: str) -> str:
    """When the server sees models of individual clients, or arrays computed from their examples, in a word or two."""
    card = shipped_card(name)
    if card is None:
        return "unknown"
    return ", ".join(card.individual) if card.individual else "never"
