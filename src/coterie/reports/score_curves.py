"""Scores over rounds: of all clients, quantiles over clients, of each cluster; and the sizes of clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.runs.client_results import ClientResults
from coterie.runs.early_stopping import primary_value
from coterie.runs.record import JsonObject
from coterie.runs.summary import evaluated_rounds, number_at
from coterie.types import Array

#: Name in the band → quantile over clients.
QUANTILES = {"p10": 0.10, "p25": 0.25, "p50": 0.50, "p75": 0.75, "p90": 0.90}

#: Metrics that are shown in percent.
_PERCENT = ("accuracy", "balanced_accuracy")


@dataclass(frozen=True)
class PrimaryMetric:
    """The metric by which a run is judged.

    Attributes:
        name: Name in the record.
        label: Name for people.
        greater_is_better: Whether a higher value is better.
        percent: Whether it is a fraction that is shown in percent.
    """

    name: str
    label: str
    greater_is_better: bool
    percent: bool

    def text(self, value: float | None) -> str:
        """A value in words: `92.8 %`, or four significant digits."""
        if value is None or not np.isfinite(value):
            return "–"
        return f"{100 * value:.1f} %" if self.percent else f"{value:.4g}"


@dataclass(frozen=True)
class Curves:
    """Scores over the evaluated rounds; entry i of each array belongs to `round[i]`, NaN where there is no value.

    Attributes:
        round: Evaluated rounds, from 1.
        primary: Primary metric over all test examples.
        loss: Mean test loss.
        mean: Mean of the primary metric over clients.
        worst_tenth: Its mean over the worst tenth of clients.
        band: Name of a quantile, such as `p10` → the quantile of the primary metric over clients.
        per_cluster: Cluster → primary metric of its clients.
        coverage: Fraction of clients to which the method has assigned a model.
        validation: Primary metric on validation examples; None if the run does not validate.
        adjusted_rand: Agreement with the true clusters; None if they are not known.
        training_round: Rounds that were trained, from 1.
        train_loss: Mean training loss in each of these.
        discrepancy: Mean distance of the local models to their cluster's model in each of these.
        other: Other metrics of the run → value over all clients.
    """

    round: Array
    primary: Array
    loss: Array
    mean: Array
    worst_tenth: Array
    band: Mapping[str, Array]
    per_cluster: Mapping[int, Array]
    coverage: Array
    validation: Array | None
    adjusted_rand: Array | None
    training_round: Array
    train_loss: Array
    discrepancy: Array
    other: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """Number of clients in each cluster over the evaluated rounds.

    Attributes:
        round: Evaluated rounds, from 1.
        clusters: Cluster → number of clients; clusters that are always empty are left out.
        unassigned: Number of clients with the fallback model.
    """

    round: Array
    clusters: Mapping[int, Array]
    unassigned: Array


def primary_metric(spec: Mapping[str, Mapping[str, Any]], rows: Sequence[JsonObject]) -> PrimaryMetric:
    """The primary metric of a run."""
    name = str(spec["run"].get("primary_metric", "accuracy"))
    if name == "auto":  # the spec of a server before clients have joined
        name = "accuracy" if any(row.get("accuracy") for row in rows) else "loss"
    entries = [(row.get("metrics") or {}).get(name) for row in rows]
    greater = next((bool(entry["greater_is_better"]) for entry in entries if entry), name != "loss")
    label = {"loss": "test loss"}.get(name, name.replace("_", " "))
    return PrimaryMetric(name, label, greater, name in _PERCENT)


def client_scores(results: ClientResults, metric: PrimaryMetric) -> Array:
    """The primary metric of each client; NaN where it is not defined."""
    if metric.name == "accuracy" and results.correct is not None:
        return results.accuracy
    found = results.metrics.get(metric.name)
    return np.asarray(results.loss if found is None else found, np.float64)


def curves_of(rows: Sequence[JsonObject], evaluations: Mapping[int, ClientResults], metric: PrimaryMetric) -> Curves:
    """The curves of a run.

    Args:
        rows: The lines of the record.
        evaluations: Round, from 1 → results of each client.
        metric: The primary metric.
    """
    places = {t + 1: place for t, place in evaluated_rounds(rows).items()}
    lines = [rows[place] for place in places.values()]
    scores = {t: client_scores(results, metric) for t, results in evaluations.items()}
    band = {name: _over(places, {t: _quantile(each, q) for t, each in scores.items()}) for name, q in QUANTILES.items()}
    trained = [row for row in rows if row["stage"] == "train"]
    validation = _array(primary_value(line.get("validation") or {}, metric.name) for line in lines)
    agreement = _array(number_at(line, ("truth", "adjusted_rand")) for line in lines)
    names = dict.fromkeys(name for line in lines for name in line.get("metrics") or {} if name != metric.name)
    return Curves(
        round=np.array(list(places), np.int64),
        primary=_array(primary_value(line, metric.name) for line in lines),
        loss=_array(number_at(line, ("test_loss",)) for line in lines),
        mean=_over(places, {t: _mean(each) for t, each in scores.items()}),
        worst_tenth=_over(places, {t: worst_tenth(each, metric) for t, each in scores.items()}),
        band=band,
        per_cluster=_per_cluster(lines, metric, [evaluations.get(t) for t in places]),
        coverage=_array(number_at(line, ("coverage",)) for line in lines),
        validation=None if np.isnan(validation).all() else validation,
        adjusted_rand=None if np.isnan(agreement).all() else agreement,
        training_round=np.array([row["t"] + 1 for row in trained], np.int64),
        train_loss=_array(number_at(row, ("loss",)) for row in trained),
        discrepancy=_array(number_at(row, ("discrepancy",)) for row in trained),
        other={name: _array(number_at(line, ("metrics", name, "value")) for line in lines) for name in names},
    )


def sizes_of(rows: Sequence[JsonObject]) -> Sizes:
    """The sizes of clusters over the evaluated rounds."""
    places = evaluated_rounds(rows)
    entries = [rows[place].get("clusters") or {} for place in places.values()]
    sizes = [entry.get("sizes") or [] for entry in entries]
    width = max(map(len, sizes), default=0)
    table = np.array([[*each, *[0] * (width - len(each))] for each in sizes], np.int64).reshape(len(sizes), width)
    return Sizes(
        round=np.array([t + 1 for t in places], np.int64),
        clusters={cluster: table[:, cluster] for cluster in range(width) if table[:, cluster].any()},
        unassigned=np.array([entry.get("unassigned") or 0 for entry in entries], np.int64),
    )


def worst_tenth(scores: Array, metric: PrimaryMetric) -> float:
    """Mean over the worst tenth of clients, at least one; NaN without a score."""
    known = np.sort(scores[~np.isnan(scores)])
    if not len(known):
        return float("nan")
    count = max(1, math.floor(0.1 * len(known) + 1e-9))  # as in coterie.metrics.worst_share_accuracy
    return float(np.mean(known[:count] if metric.greater_is_better else known[-count:]))


def _per_cluster(
    lines: Sequence[JsonObject], metric: PrimaryMetric, results: Sequence[ClientResults | None]
) -> dict[int, Array]:
    """Cluster → primary metric over rounds."""
    if metric.name == "loss":
        entries = [{} if each is None else _losses(each) for each in results]
    else:
        where = [line.get("accuracy") if metric.name == "accuracy" else None for line in lines]
        where = [a or (line.get("metrics") or {}).get(metric.name) for a, line in zip(where, lines, strict=True)]
        entries = [(entry or {}).get("per_cluster") or {} for entry in where]
    clusters = sorted({int(cluster) for entry in entries for cluster in entry})
    return {cluster: _array(entry.get(str(cluster)) for entry in entries) for cluster in clusters}


def _losses(results: ClientResults) -> dict[str, float]:
    """Cluster → mean test loss over its test examples."""
    found = {}
    for cluster in np.unique(results.cluster[results.cluster >= 0]).tolist():
        mine = (results.cluster == cluster) & (results.total > 0)
        if mine.any():
            found[str(cluster)] = float(np.average(results.loss[mine], weights=results.total[mine]))
    return found


def _quantile(scores: Array, q: float) -> float:
    known = scores[~np.isnan(scores)]
    return float(np.quantile(known, q)) if len(known) else float("nan")


def _mean(scores: Array) -> float:
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else float("nan")


def _over(places: Mapping[int, int], values: Mapping[int, float]) -> Array:
    return np.array([values.get(t, np.nan) for t in places], np.float64)


def _array(values: Any) -> Array:
    return np.array([np.nan if value is None else float(value) for value in values], np.float64)
