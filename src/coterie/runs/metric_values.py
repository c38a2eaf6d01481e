"""Values of metrics over all clients, per cluster and per client, from sums or from predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from coterie.clients.metric_scores import softmax
from coterie.errors import SpecError
from coterie.metrics import CLASSIFICATION, FROM_SUMS, REGRESSION, Metric, Sums, add_up
from coterie.types import Array

#: `pooled`: computed over the examples of all clients; `client mean`: mean of the values of clients.
How = Literal["pooled", "client mean"]


@dataclass(frozen=True)
class MetricValues:
    """A metric of one evaluation; NaN where it is not defined.

    Attributes:
        value: Over all clients.
        clients: Value of each client.
        clusters: Cluster → value over its clients.
        how: How `value` and `clusters` are computed.
        greater_is_better: Whether a higher value is better.
    """

    value: float
    clients: Array
    clusters: Mapping[int, float]
    how: How
    greater_is_better: bool

    def to_row(self) -> dict[str, Any]:
        """The entry of a line in `rounds.jsonl`; null where the metric is not defined."""
        known = np.sort(self.clients[np.isfinite(self.clients)])
        worst_first = known if self.greater_is_better else known[::-1]
        n_worst = max(1, math.floor(0.1 * len(known) + 1e-9))
        clusters = [value for value in self.clusters.values() if math.isfinite(value)]
        return {
            "value": _number(self.value),
            "mean": float(known.mean()) if len(known) else None,
            "worst_tenth": float(worst_first[:n_worst].mean()) if len(known) else None,
            "per_cluster": {str(cluster): _number(value) for cluster, value in self.clusters.items()},
            "cluster_gap": max(clusters) - min(clusters) if clusters else None,
            "how": self.how,
            "greater_is_better": self.greater_is_better,
        }


@dataclass(frozen=True)
class Predictions:
    """The predictions for the examples of one client.

    Attributes:
        outputs: (n, classes) logits; or (n, 1) predictions of a regression.
        labels: (n,) labels or targets.
        weights: (n,) sample weights; None: the data have none.
    """

    outputs: Array
    labels: Array
    weights: Array | None = None

    @classmethod
    def joined(cls, parts: Sequence[Predictions]) -> Predictions:
        """The predictions for the examples of several clients."""
        weights = [each.weights for each in parts if each.weights is not None]
        return cls(
            np.concatenate([each.outputs for each in parts]),
            np.concatenate([each.labels for each in parts]),
            np.concatenate(weights) if weights else None,
        )


def from_sums(names: Sequence[str], sums: Sums, rows: Array, greater: Mapping[str, bool]) -> dict[str, MetricValues]:
    """Metrics from the sums of each client.

    Args:
        names: The metrics.
        sums: The sums, one entry per client.
        rows: Cluster of each client; -1: none.
        greater: Metric → whether a higher value is better.
    """
    total = add_up(sums)
    by_cluster = {
        int(row): add_up({name: value[rows == row] for name, value in sums.items()})
        for row in np.unique(rows[rows >= 0])
    }
    return {
        name: MetricValues(
            float(FROM_SUMS[name](total)[0]),
            FROM_SUMS[name](sums),
            {row: float(FROM_SUMS[name](each)[0]) for row, each in by_cluster.items()},
            "pooled",
            greater[name],
        )
        for name in names
    }


def from_predictions(
    metrics: Mapping[str, Metric], clients: Sequence[Predictions], rows: Array, classes: int | None
) -> dict[str, MetricValues]:
    """Metrics from the predictions of each client.

    A metric that raises an exception for the examples of some clients or clusters is not defined there.

    Args:
        metrics: The metrics.
        clients: The predictions, one entry per client.
        rows: Cluster of each client; -1: none.
        classes: Number of classes; None for regression.

    Raises:
        SpecError: If a metric fails on the examples of all clients together.
    """
    clusters = {
        int(row): [each for each, own in zip(clients, rows, strict=True) if own == row] for row in np.unique(rows)
    }
    clusters.pop(-1, None)
    found = {}
    for name, metric in metrics.items():
        value = _caller(name, metric, classes)
        found[name] = MetricValues(
            value(Predictions.joined(clients)) if clients else math.nan,
            np.array([_or_nan(value, each) for each in clients], np.float64),
            {row: _or_nan(value, Predictions.joined(members)) for row, members in clusters.items()},
            "pooled",
            metric.greater_is_better,
        )
    return found


def from_clients(values: Array, rows: Array, *, greater_is_better: bool) -> MetricValues:
    """A metric that clients computed: its mean over clients.

    Args:
        values: Value of each client; NaN where it is not defined.
        rows: Cluster of each client; -1: none.
        greater_is_better: Whether a higher value is better.
    """

    def mean(some: Array) -> float:
        known = some[np.isfinite(some)].astype(np.float64)
        return float(known.mean()) if len(known) else math.nan

    clusters = {int(row): mean(values[rows == row]) for row in np.unique(rows[rows >= 0])}
    return MetricValues(mean(values), values, clusters, "client mean", greater_is_better)


def _caller(name: str, metric: Metric, classes: int | None) -> Callable[[Predictions], float]:
    """A function that computes a metric of some predictions; NaN without examples."""
    built_in = name in CLASSIFICATION or name in REGRESSION

    def call(given: Predictions) -> float:
        if not len(given.labels):
            return math.nan
        labels = given.labels
        if classes is None:
            predictions = given.outputs[:, 0].astype(np.float64)
        else:
            labels = labels.astype(np.int64)
            needs_labels = metric.needs == "labels"
            predictions = given.outputs.argmax(axis=1) if needs_labels else softmax(given.outputs)
        weights = (given.weights,) if built_in else ()  # functions of users take two arguments
        try:
            return float(metric.function(labels, predictions, *weights))
        except Exception as fault:
            raise SpecError(
                f"Metric {name!r} failed: {type(fault).__name__}: {fault}. It gets labels of shape {labels.shape} and "
                f"predictions of shape {predictions.shape}, and must return a number"
            ) from fault

    return call


def _or_nan(value: Callable[[Predictions], float], given: Predictions) -> float:
    try:
        return value(given)
    except SpecError:  # such as a metric that needs two classes, on a client with one
        return math.nan


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
