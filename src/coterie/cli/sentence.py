"""What a comparison shows, in one sentence made of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.runs.compare import Comparison


def sentence(found: Comparison) -> str:
    """Whether clients fall into kinds, what a model for each kind gains, and who found the kinds."""
    accuracy = {row["method"]: row["accuracy"] for row in found.table if row["accuracy"] is not None}
    if not accuracy:
        return _by_loss(found)
    kinds = {label: _kind(found, label) for label in accuracy}
    one, clustered, oracle = (
        max((label for label in accuracy if kinds[label] == kind), key=accuracy.__getitem__, default=None)
        for kind in ("one", "clustered", "oracle")
    )
    truth = found.records[found.reference][0].summary["truth"]
    if truth is None or truth["clusters"] < 2 or one is None or (oracle is None and clustered is None):
        return _best(accuracy, one, clustered)
    own = oracle or clustered
    assert own is not None
    text = (
        f"Clients fall into {truth['clusters']} kinds: one model for all reaches {_percent(accuracy[one])}, "
        f"the model of its {'kind' if oracle else 'cluster'} {_percent(accuracy[own])}"
    )
    return f"{text}; {_found(found, clustered, accuracy)}." if clustered else f"{text}."


def _kind(found: Comparison, label: str) -> str:
    """`one` model for all; `alone`: every client its own; `oracle`; `clustered`."""
    summary = found.records[label][0].summary
    clusters: Mapping[str, Any] = summary["clusters"]
    if summary["method"] == "oracle":
        return "oracle"
    if len(clusters["sizes"]) > 1:
        return "clustered"
    return "alone" if clusters["adapted"] else "one"


def _found(found: Comparison, clustered: str, accuracy: Mapping[str, float]) -> str:
    rand = next(row["adjusted_rand"] for row in found.table if row["method"] == clustered)
    if rand >= 0.995:
        return f"{clustered} found the kinds (adjusted Rand {rand:.2f})"
    how = "found most of them" if rand >= 0.5 else "did not find them"
    return f"{clustered} {how} (adjusted Rand {rand:.2f}) and reaches {_percent(accuracy[clustered])}"


def _best(accuracy: Mapping[str, float], one: str | None, clustered: str | None) -> str:
    if one is not None and clustered is not None:
        points = 100 * (accuracy[clustered] - accuracy[one])
        gain = (
            f"{points:.0f} points more"
            if points >= 0.5
            else "no more"
            if points > -0.5
            else f"{-points:.0f} points less"
        )
        return (
            f"One model for all reaches {_percent(accuracy[one])} ({one}), "
            f"a model for each cluster {_percent(accuracy[clustered])} ({clustered}): {gain}."
        )
    order = sorted(accuracy, key=accuracy.__getitem__, reverse=True)
    rest = f", before {order[1]} with {_percent(accuracy[order[1]])}" if len(order) > 1 else ""
    return f"{order[0]} reaches {_percent(accuracy[order[0]])}{rest}."


def _by_loss(found: Comparison) -> str:
    losses = {row["method"]: row["test_loss"] for row in found.table if row["test_loss"] is not None}
    if not losses:
        return "No client has test examples, so there is nothing to compare by."
    order = sorted(losses, key=losses.__getitem__)
    rest = f", before {order[1]} with {losses[order[1]]:.4g}" if len(order) > 1 else ""
    return f"{order[0]} has the lowest test loss, {losses[order[0]]:.4g}{rest}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
