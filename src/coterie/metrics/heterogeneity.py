"""How unlike clients are: their models, their examples, their gradients."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np

from coterie.errors import SpecError
from coterie.metrics.validation import Values, Vector, cluster_of, row_of
from coterie.types import Array, Bank


@dataclass(frozen=True)
class Discrepancy:
    """Mean distance of local models to the models of their groups."""

    total: float  # over the cohort
    by_group: Mapping[int, float]  # over the members of each group in the cohort; empty without groups


def discrepancy(
    local: Bank | Array,
    reference: Bank | Array,
    groups: Sequence[SupportsIndex | None] | Array | None = None,
) -> Discrepancy:
    """The mean of ‖w_i - w‖ over the cohort, and over each group's part of it.

    Args:
        local: Models of the cohort after local training, one a row.
        reference: For each row of `local` the model of that client's group, before or after aggregation.
        groups: The group of each row; a row without a group counts in the total only.
    """
    parts = list(_squared_distances(local, reference, "bank"))  # for each array, one number a row
    if len({len(part) for part in parts}) > 1:
        raise SpecError("All arrays of a bank need the same leading axis, one row for each client")
    if not parts or not len(parts[0]):
        raise SpecError("The bank is empty: it needs at least one array and one model")
    distance = np.sqrt(np.sum(parts, axis=0))
    members: defaultdict[int, list[float]] = defaultdict(list)
    if groups is not None:
        if len(groups) != len(distance):
            raise SpecError(f"groups needs one entry for each of the {len(distance)} models, got {len(groups)}")
        for group, value in zip(groups, distance, strict=True):
            if (cluster := cluster_of(group)) is not None:
                members[cluster].append(value)
    by_group = {group: float(np.mean(members[group])) for group in sorted(members)}
    return Discrepancy(total=float(distance.mean()), by_group=by_group)


@dataclass(frozen=True)
class PNI:
    """FedSim's Privacy-preserving Non-IID Index: how unlike the clients' examples are."""

    value: float
    scaled: float  # value / √(N - 1), comparable between federations of different size


def pni(rmse: Values) -> PNI:
    """The mean over clients of √(Σ_{j≠i} (RMSE_i - RMSE_j)²), where all clients were sent one random model.

    Args:
        rmse: `label_rmse` of that model on each client's training examples; average over many random models.
    """
    values = row_of(list(rmse.values()) if isinstance(rmse, Mapping) else rmse, "rmse")
    if len(values) < 2:
        raise SpecError("PNI compares clients: it needs the RMSE of at least two, got 1")
    if (values < 0).any():
        raise SpecError("rmse must not be negative")
    # With c = RMSE - mean, the sum over j is N c_i² + Σ_j c_j². The first subtraction makes equal values exactly 0.
    centered = values - values[0]
    centered -= centered.mean()
    mean = float(np.sqrt(len(values) * centered**2 + (centered**2).sum()).mean())
    return PNI(value=mean, scaled=mean / math.sqrt(len(values) - 1))


def label_rmse(predicted: Sequence[float] | Array, labels: Sequence[float] | Array) -> float:
    """The root of the mean squared difference between predicted and true class numbers, as PNI needs it.

    It depends on how classes are numbered.
    """
    guess, true = row_of(predicted, "predicted"), row_of(labels, "labels")
    if len(guess) != len(true):
        raise SpecError(f"predicted has {len(guess)} labels and labels has {len(true)}: they must be as many")
    return float(np.sqrt(np.mean((guess - true) ** 2)))


def gradient_dissimilarity(gradients: Array, samples: Sequence[float] | Array) -> float:
    """FedProx's (1/N) Σ_k ‖∇F_k(w) - ∇f(w)‖²: 0 where all clients pull the same way.

    Args:
        gradients: ∇F_k(w), over all examples of client k, one a row.
        samples: Examples of each client, by which ∇f(w), the mean gradient, is weighted.
    """
    rows, weights = np.asarray(gradients, np.float64), row_of(samples, "samples")
    if rows.ndim != 2 or len(rows) != len(weights) or not np.isfinite(rows).all():
        raise SpecError(f"gradients must be finite, a row for each of the {len(weights)} clients, got {rows.shape}")
    if (weights < 0).any() or not weights.any():
        raise SpecError("samples must not be negative, and not all 0")
    mean = weights @ rows / weights.sum()
    return float(np.square(rows - mean).sum(axis=1).mean())


def _squared_distances(one: Any, other: Any, name: str) -> Iterator[Vector]:
    """For each array of two banks the squared distance of their rows, keys in sorted order."""
    if isinstance(one, dict) and isinstance(other, dict):
        if odd := sorted(one.keys() ^ other.keys()):
            raise SpecError(f"local and reference must have the same arrays; only in one of them: {', '.join(odd)}")
        for key in sorted(one):
            yield from _squared_distances(one[key], other[key], f"{name}[{key!r}]")
        return
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape or a.ndim == 0:
        raise SpecError(f"local and reference need the same rows of models, {name} has shapes {a.shape} and {b.shape}")
    # Row by row, so that no copy of a whole bank in float64 is made.
    yield np.array([np.sum(np.square(np.subtract(x, y, dtype=np.float64))) for x, y in zip(a, b, strict=True)])
