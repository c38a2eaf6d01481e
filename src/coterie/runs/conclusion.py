"""The closing sentences of a comparison, composed from its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison

#: Methods that train one model for all clients. Another method may end with one cluster, but does not belong here.
ONE_MODEL = frozenset({"fedavg", "fedprox", "fedsim", "global"})

#: Adjusted Rand index from which the true clusters count as found; it is shown as 1.00.
_FOUND = 0.995


def conclusion(comparison: Comparison) -> str:
    """Summarize the accuracy of one global model, of one model per true cluster, and of the clustered methods.

    If the true clusters are unknown: one global model against the best clustered method. For regression: test losses.
    Accuracies are those of the table: means of the last ten rounds. With another primary metric: the best two methods.
    """
    if comparison.headline not in ("last_ten", "test_loss"):
        return _by_metric(comparison)
    accuracy = {row["method"]: row["last_ten"] for row in comparison.table if row["last_ten"] is not None}
    if not accuracy:
        return _by_loss(comparison)
    # A method that serves all clients the fallback model says nothing about its clusters.
    served = {row["method"] for row in comparison.table if row.get("last_ten_coverage") != 0}
    accuracy = {label: value for label, value in accuracy.items() if label in served}
    if not accuracy:
        return "All clients were served the fallback model, so the methods cannot be compared."
    shown = {label: _percent(value) + _coverage(comparison, label) for label, value in accuracy.items()}
    kinds = {label: structure(comparison.records[label][0].summary) for label in accuracy}
    one, clustered, oracle = (
        max((label for label in accuracy if kinds[label] == kind), key=accuracy.__getitem__, default=None)
        for kind in ("one", "clustered", "oracle")
    )
    truth = comparison.records[comparison.reference][0].summary["truth"]
    if truth is None or truth["clusters"] < 2 or one is None or (oracle is None and clustered is None):
        return _best(accuracy, shown, one, clustered)
    sentences = [
        f"The clients form {truth['clusters']} clusters.",
        f"One model for all clients reaches {shown[one]} accuracy ({one})"
        + (f"; one model per true cluster reaches {shown[oracle]} (oracle)." if oracle else "."),
    ]
    if clustered:
        candidates = [label for label in accuracy if kinds[label] == "clustered"]
        sentences += _found(comparison, sorted(candidates, key=accuracy.__getitem__, reverse=True), shown)
    return " ".join(sentences)


def structure(summary: Mapping[str, Any]) -> str:
    """Kind of method of a run: `one` (one global model), `own` (a model per client), `oracle`, `clustered` or `other`.

    Args:
        summary: Summary of the run.
    """
    from coterie.methods import METHODS

    if summary["method"] in ONE_MODEL:
        return "one"
    if summary["method"] == "oracle":
        return "oracle"
    if summary["clusters"]["adapted"]:
        return "own"
    # A method of another package with one model may train one by design, or have found one cluster.
    return "clustered" if summary["method"] in METHODS or len(summary["clusters"]["sizes"]) > 1 else "other"


def _found(comparison: Comparison, clustered: Sequence[str], shown: Mapping[str, str]) -> list[str]:
    """The methods that found the true clusters, and the best method if it did not. `clustered`: best first."""
    index = {row["method"]: row["adjusted_rand"] for row in comparison.table if row["adjusted_rand"] is not None}
    clustered = [label for label in clustered if label in index]
    if not clustered:
        return []
    sentences = []
    best = clustered[0]
    if index[best] < _FOUND:
        how = "finds them in part" if index[best] >= 0.5 else "does not find them"
        sentences.append(f"{best} {how} (adjusted Rand index {index[best]:.2f}) and reaches {shown[best]}.")
    found = [label for label in clustered if index[label] >= _FOUND]
    if found:
        one = len(found) == 1
        reached = [shown[found[0]]] if len({shown[label] for label in found}) == 1 else [shown[each] for each in found]
        sentences.append(
            f"{_listed(found)} {'finds' if one else 'find'} these clusters (adjusted Rand index 1.00) and "
            f"{'reaches' if one else 'reach'} {_listed(reached)}."
        )
    return sentences


def _best(accuracy: Mapping[str, float], shown: Mapping[str, str], one: str | None, clustered: str | None) -> str:
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
            f"One model for all clients reaches {shown[one]} accuracy ({one}); "
            f"one model per cluster reaches {shown[clustered]} ({clustered}): {difference}."
        )
    order = sorted(accuracy, key=accuracy.__getitem__, reverse=True)
    if len(order) == 1:
        return f"{order[0]} reaches {shown[order[0]]} accuracy."
    second = f"followed by {order[1]} with {shown[order[1]]}"
    return f"{order[0]} has the highest accuracy, {shown[order[0]]}, {second}."


def _by_metric(comparison: Comparison) -> str:
    """The best two methods by a primary metric other than accuracy and loss."""
    name = comparison.headline
    values = {row["method"]: row[name] for row in comparison.table if row.get(name) is not None}
    if not values:
        return f"No run has a value of {name}, so the methods cannot be compared."
    order = sorted(values, key=values.__getitem__, reverse=comparison.higher_is_better)
    extreme = "highest" if comparison.higher_is_better else "lowest"
    second = f", followed by {order[1]} with {values[order[1]]:.4g}" if len(order) > 1 else ""
    return f"{order[0]} has the {extreme} {name}, {values[order[0]]:.4g}{second}."


def _by_loss(comparison: Comparison) -> str:
    losses = {row["method"]: row["test_loss"] for row in comparison.table if row["test_loss"] is not None}
    if not losses:
        return "No client has test examples, so the methods cannot be compared."
    order = sorted(losses, key=losses.__getitem__)
    second = f", followed by {order[1]} with {losses[order[1]]:.4g}" if len(order) > 1 else ""
    return f"{order[0]} has the lowest test loss, {losses[order[0]]:.4g}{second}."


def _coverage(comparison: Comparison, label: str) -> str:
    """The coverage of a method if it is below 1: its other clients are scored with the fallback model."""
    (covered,) = (row.get("last_ten_coverage") for row in comparison.table if row["method"] == label)
    return "" if covered is None or covered >= 1 else f" at a coverage of {_percent(covered)}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
