"""Heterogeneity of clients: distances of models, of examples and of gradients."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from coterie.errors import SpecError
from coterie.metrics.validation import Values, Vector, cluster_of, row_of
from coterie.types import Array, Bank


@dataclass(frozen=True)
class Discrepancy:
    """Mean distance of local models from the models of their clusters.

    Attributes:
        total: Mean over the cohort.
        by_group: Mean over the members of each cluster in the cohort; empty without `groups`.
    """

    total: float
    by_group: Mapping[int, float]


def discrepancy(
    local: Bank | Array,
    reference: Bank | Array,
    groups: Sequence[SupportsIndex | None] | Array | None = None,
) -> Discrepancy:
    """Mean of ‖w_i - w‖ over the cohort and over each cluster.

    Args:
        local: Models of the cohort after local training, one per row.
        reference: For each row of `local`, the model of the client's cluster, before or after aggregation.
        groups: Cluster of each row; a row without a cluster counts only in the total.
    """
    parts = list(_squared_distances(local, reference, "bank"))  # for each array, one number per row
    if len({len(part) for part in parts}) > 1:
        raise SpecError("All arrays of a bank need the same leading axis, one row per client")
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
    """FedSim's Privacy-preserving Non-IID Index of the clients' examples.

    Attributes:
        value: The index.
        scaled: value / √(N - 1), comparable between federations of different size.
    """

    value: float
    scaled: float


def pni(rmse: Values) -> PNI:
    """Non-IID index: the mean over clients of √(Σ_{j≠i} (RMSE_i - RMSE_j)²), for one random model sent to all clients.

    Args:
        rmse: `label_rmse` of that model on each client's training examples. The index should be averaged over many
            random models.
    """
    values = row_of(list(rmse.values()) if isinstance(rmse, Mapping) else rmse, "rmse")
    if len(values) < 2:
        raise SpecError("PNI compares clients: it needs the RMSE of at least two, got 1")
    if (values < 0).any():
        raise SpecError("rmse must be non-negative")
    # With c = RMSE - mean, the sum over j is N c_i² + Σ_j c_j². Subtracting values[0] makes equal values exactly 0.
    centered = values - values[0]
    centered -= centered.mean()
    mean = float(np.sqrt(len(values) * centered**2 + (centered**2).sum()).mean())
    return PNI(value=mean, scaled=mean / math.sqrt(len(values) - 1))


def label_rmse(predicted: Sequence[float] | Array, labels: Sequence[float] | Array) -> float:
    """Root mean squared difference between predicted and true class numbers, the input of `pni`.

    The result depends on the numbering of the classes.

    Args:
        predicted: Predicted class of each example.
        labels: True class of each example.
    """
    guess, true = row_of(predicted, "predicted"), row_of(labels, "labels")
    if len(guess) != len(true):
        raise SpecError(f"predicted has {len(guess)} labels and labels has {len(true)}: the numbers must be equal")
    return float(np.sqrt(np.mean((guess - true) ** 2)))


def gradient_dissimilarity(gradients: Array, samples: Sequence[float] | Array) -> float:
    """FedProx's gradient dissimilarity (1/N) Σ_k ‖∇F_k(w) - ∇f(w)‖²; 0 if all gradients are equal.

    Args:
        gradients: ∇F_k(w) over all examples of client k, one per row.
        samples: Number of examples of each client: weights of the mean gradient ∇f(w).
    """
    rows, weights = np.asarray(gradients, np.float64), row_of(samples, "samples")
    if rows.ndim != 2 or len(rows) != len(weights) or not np.isfinite(rows).all():
        raise SpecError(f"gradients must be finite, one row per client ({len(weights)}), got shape {rows.shape}")
    if (weights < 0).any() or not weights.any():
        raise SpecError("samples must be non-negative, and not all 0")
    mean = weights @ rows / weights.sum()
    return float(np.square(rows - mean).sum(axis=1).mean())


def _squared_distances(one: Bank | Array, other: Bank | Array, name: str) -> Iterator[Vector]:
    """For each array of two banks, in key order, the squared distances of corresponding rows."""
    if isinstance(one, dict) and isinstance(other, dict):
        if unmatched := sorted(one.keys() ^ other.keys()):
            raise SpecError(
                f"local and reference must have the same arrays; only in one of them: {', '.join(unmatched)}"
            )
        for key in sorted(one):
            yield from _squared_distances(one[key], other[key], f"{name}[{key!r}]")
        return
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape or a.ndim == 0:
        raise SpecError(f"local and reference need the same rows of models, {name} has shapes {a.shape} and {b.shape}")
    # Row by row, to avoid a float64 copy of the whole bank.
    yield np.array([np.sum(np.square(np.subtract(x, y, dtype=np.float64))) for x, y in zip(a, b, strict=True)])
