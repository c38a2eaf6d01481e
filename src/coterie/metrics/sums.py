"""Metrics that follow from sums over examples, so that clients need not send single predictions.

Sums are a dict of arrays with one entry per client on the leading axis. `add_up` adds up clients; each function of
`FROM_SUMS` returns one value per entry, NaN where the metric is not defined, as for a client without examples.

For classification, C classes:

    weight      Σ w                     (clients,)        w: sample weight, 1 without weights
    loss        Σ w·loss                (clients,)        the loss of the task
    hits        Σ w of correct ones     (clients, C)      per true class
    true        Σ w                     (clients, C)      per true class
    predicted   Σ w                     (clients, C)      per predicted class
    log_loss    Σ -w·log p(true class)  (clients,)
    brier       Σ w·||p - e_true||²     (clients,)
    bins        Σ w·(1, p_max, correct) (clients, 15, 3)  per bin of the confidence p_max, for `ece`

For regression:

    weight, loss                        as above
    squared     Σ w·(y - prediction)²   (clients,)
    absolute    Σ w·|y - prediction|    (clients,)
    mean        Σ w·y / Σ w             (clients,)
    spread      Σ w·(y - mean)²         (clients,)        not Σ w·y², whose digits cancel if the mean is large
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from coterie.metrics.validation import Vector
from coterie.types import Array

#: Name → array with one entry per client.
Sums: TypeAlias = Mapping[str, Array]

#: Number of bins of the expected calibration error.
BINS = 15


def add_up(sums: Sums) -> dict[str, Array]:
    """The sums over all clients, as those of one client."""
    exact = {name: np.asarray(value, np.float64) for name, value in sums.items()}
    total = {name: value.sum(axis=0, keepdims=True) for name, value in exact.items()}
    if "mean" in exact:
        # Σ w (y - m)² = Σ_i [spread_i + W_i (m_i - m)²], with the common mean m.
        weight = total["weight"]
        mean = np.divide((exact["weight"] * exact["mean"]).sum(keepdims=True), weight, where=weight > 0, out=0 * weight)
        between = exact["weight"] * (exact["mean"] - mean) ** 2
        total |= {"mean": mean, "spread": (exact["spread"] + between).sum(keepdims=True)}
    return total


def _ratio(above: Array, below: Array) -> Vector:
    """The quotient in float64; NaN where the divisor is 0."""
    above, below = np.broadcast_arrays(np.asarray(above, np.float64), np.asarray(below, np.float64))
    result: Vector = np.divide(above, below, out=np.full(below.shape, np.nan), where=below > 0)
    return result


def _mean_over(values: Vector, counts: Array) -> Vector:
    """Mean of the values over classes that count."""
    return _ratio(np.where(counts, values, 0.0).sum(axis=-1), counts.sum(axis=-1))


def _accuracy(sums: Sums) -> Vector:
    return _ratio(np.asarray(sums["hits"], np.float64).sum(axis=-1), sums["weight"])


def _balanced_accuracy(sums: Sums) -> Vector:
    return _mean_over(_ratio(sums["hits"], sums["true"]), np.asarray(sums["true"]) > 0)


def _macro_f1(sums: Sums) -> Vector:
    seen = np.asarray(sums["true"], np.float64) + np.asarray(sums["predicted"], np.float64)
    return _mean_over(_ratio(2 * np.asarray(sums["hits"], np.float64), seen), seen > 0)


def _brier(sums: Sums) -> Vector:
    # scikit-learn's scale: with two classes (1 - p)², which is half of the sum over both classes.
    scale = 0.5 if np.asarray(sums["hits"]).shape[-1] == 2 else 1.0
    return scale * _ratio(sums["brier"], sums["weight"])


def _ece(sums: Sums) -> Vector:
    bins = np.asarray(sums["bins"], np.float64)
    return _ratio(np.abs(bins[..., 2] - bins[..., 1]).sum(axis=-1), sums["weight"])


def _r2(sums: Sums) -> Vector:
    return 1.0 - _ratio(sums["squared"], sums["spread"])


#: Metric → its values from sums, one per client.
FROM_SUMS: dict[str, Callable[[Sums], Vector]] = {
    "loss": lambda sums: _ratio(sums["loss"], sums["weight"]),
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "macro_f1": _macro_f1,
    "log_loss": lambda sums: _ratio(sums["log_loss"], sums["weight"]),
    "brier": _brier,
    "ece": _ece,
    "rmse": lambda sums: np.sqrt(_ratio(sums["squared"], sums["weight"])),
    "mae": lambda sums: _ratio(sums["absolute"], sums["weight"]),
    "r2": _r2,
}
