"""The closing sentences of a comparison, composed from its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.runs.compare import Comparison


def conclusion(comparison: Comparison) -> str:
    """Summarize the accuracy of one global model, of one model per true cluster, and of the best clustered method.

    If the true clusters are unknown: one global model against the best clustered method. For regression: test losses.
    """
    accuracy = {row["method"]: row["accuracy"] for row in comparison.table if row["accuracy"] is not None}
    if not accuracy:
        return _by_loss(comparison)
    structure = {label: _structure(comparison, label) for label in accuracy}
    one, clustered, oracle = (
        max((label for label in accuracy if structure[label] == kind), key=accuracy.__getitem__, default=None)
        for kind in ("one", "clustered", "oracle")
    )
    truth = comparison.records[comparison.reference][0].summary["truth"]
    if truth is None or truth["clusters"] < 2 or one is None or (oracle is None and clustered is None):
        return _best(accuracy, one, clustered)
    sentences = [
        f"The clients form {truth['clusters']} clusters.",
        f"One model for all clients reaches {_percent(accuracy[one])} accuracy ({one})"
        + (f"; one model per true cluster reaches {_percent(accuracy[oracle])} (oracle)." if oracle else "."),
    ]
    if clustered:
        candidates = [label for label in accuracy if structure[label] == "clustered"]
        sentences.append(_found(comparison, clustered, candidates, accuracy))
    return " ".join(sentences)


def _structure(comparison: Comparison, label: str) -> str:
    """Kind of method: `one` (one global model), `own` (a model per client), `oracle` or `clustered`."""
    summary = comparison.records[label][0].summary
    if summary["method"] == "oracle":
        return "oracle"
    if len(summary["clusters"]["sizes"]) > 1:
        return "clustered"
    return "own" if summary["clusters"]["adapted"] else "one"


def _found(comparison: Comparison, best: str, clustered: Sequence[str], accuracy: Mapping[str, float]) -> str:
    """Whether the best clustered method found the true clusters; methods with the same result are named, too."""
    index = {row["method"]: row["adjusted_rand"] for row in comparison.table}
    reached = _percent(accuracy[best])
    if index[best] < 0.995:
        how = "finds them in part" if index[best] >= 0.5 else "does not find them"
        return f"{best} {how} (adjusted Rand index {index[best]:.2f}) and reaches {reached}."
    equal = [label for label in clustered if index[label] >= 0.995 and _percent(accuracy[label]) == reached]
    if len(equal) == 1:
        return f"{best} finds these clusters (adjusted Rand index {index[best]:.2f}) and reaches {reached}."
    names = f"{', '.join(equal[:-1])} and {equal[-1]}"
    return f"{names} find these clusters (adjusted Rand index {index[best]:.2f}) and reach {reached}."


def _best(accuracy: Mapping[str, float], one: str | None, clustered: str | None) -> str:
    if one is not None and clustered is not None:
        points = round(100 * accuracy[clustered]) - round(100 * accuracy[one])  # as the sentence shows them
        difference = (
            f"{points:.0f} percentage points more"
            if points >= 0.5
            else "no difference"
            if points > -0.5
            else f"{-points:.0f} percentage points less"
        )
        return (
            f"One model for all clients reaches {_percent(accuracy[one])} accuracy ({one}); "
            f"one model per cluster reaches {_percent(accuracy[clustered])} ({clustered}): {difference}."
        )
    order = sorted(accuracy, key=accuracy.__getitem__, reverse=True)
    if len(order) == 1:
        return f"{order[0]} reaches {_percent(accuracy[order[0]])} accuracy."
    second = f"followed by {order[1]} with {_percent(accuracy[order[1]])}"
    return f"{order[0]} has the highest accuracy, {_percent(accuracy[order[0]])}, {second}."


def _by_loss(comparison: Comparison) -> str:
    losses = {row["method"]: row["test_loss"] for row in comparison.table if row["test_loss"] is not None}
    if not losses:
        return "No client has test examples, so the methods cannot be compared."
    order = sorted(losses, key=losses.__getitem__)
    second = f", followed by {order[1]} with {losses[order[1]]:.4g}" if len(order) > 1 else ""
    return f"{order[0]} has the lowest test loss, {losses[order[0]]:.4g}{second}."


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
