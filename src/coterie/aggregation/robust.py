"""Robust aggregation: means that a limited number of malicious models cannot move far.

    coordinate median     the median of each coordinate                  Yin et al., ICML 2018, arXiv:1803.01498
    geometric median      argmin_w Σ_i ‖w_i - w‖, Weiszfeld's algorithm  Pillutla et al., 2022, arXiv:1912.13445
    Krum                  the model closest to J - f - 2 neighbors       Blanchard et al., 2017, arXiv:1703.02757
    multi-Krum            the mean of the J - f models with the lowest scores
    norm clipping         c + mean_i (w_i - c)·min(1, τ/‖w_i - c‖)       Karimireddy et al., ICML 2021, arXiv:2012.10333

J is the number of models, f = ⌊byzantine_fraction · J⌋ the assumed number of malicious ones. All models have the same
weight, because a malicious client could choose the number of samples that it reports.

Departures. Clipping is around the coordinate median c of the given models instead of the last round's result, so that
only the models are needed; τ is the median of the distances to c if it is not given. Weiszfeld's step divides by
max(‖w_i - w‖, ν), where ν is a millionth of the largest initial distance. Krum's theorem requires J > 2f + 2; with
fewer models, the nearest max(1, J - f - 2) are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import numpy as np

from coterie import tree
from coterie.aggregation.means import count, trimmed_mean, uniform_mean, weighted_mean
from coterie.bounds import Bound, check
from coterie.errors import SpecError
from coterie.types import Array, Bank

Tree = TypeVar("Tree", Bank, Array)

#: Aggregation rule.
Rule = Literal["mean", "trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"]

_STEPS = 100  # maximum number of Weiszfeld iterations; it usually converges much earlier
_NEAR = 1e-6


@dataclass(frozen=True)
class Aggregation:
    """Aggregation of models on the server, the same for every method.

    Attributes:
        rule: Aggregation rule: the plain mean, or a robust rule that tolerates malicious models.
        byzantine_fraction: Largest fraction of malicious models per cluster that the rule tolerates: the fraction
            trimmed at each end, or f of Krum.
        max_norm: Maximum distance of a model from the coordinate median with `norm-clip`; 0: the median of the
            distances.
    """

    rule: Rule = "mean"
    byzantine_fraction: Annotated[float, Bound(at_least=0, below=0.5)] = 0.3
    max_norm: Annotated[float, Bound(at_least=0)] = 0.0

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "aggregation")

    def of(self, bank: Tree, weights: Array) -> Tree:
        """The aggregated model. Models of weight 0 are ignored; only the plain mean uses the other weights."""
        if self.rule == "mean":
            return weighted_mean(bank, weights)
        bank = _take(bank, np.flatnonzero(np.asarray(weights) > 0))
        if self.rule == "trimmed-mean":
            return trimmed_mean(bank, self.byzantine_fraction)
        if self.rule == "median":
            return coordinate_median(bank)
        if self.rule == "geometric-median":
            return geometric_median(bank)
        if self.rule == "norm-clip":
            return clipped_mean(bank, self.max_norm)
        n_byzantine = math.floor(self.byzantine_fraction * count(bank) + 1e-9)  # 0.29 * 100 is 28.999999999999996
        return krum(bank, n_byzantine, keep=1 if self.rule == "krum" else count(bank) - n_byzantine)


def coordinate_median(bank: Tree) -> Tree:
    """The median of each coordinate.

    Args:
        bank: Models along the leading axis.

    Raises:
        SpecError: If the bank is empty or its arrays differ in length.
    """
    n_models = count(bank)
    # A trimmed mean of the one or two values in the middle.
    return trimmed_mean(bank, ((n_models - 1) // 2) / n_models)


def geometric_median(bank: Tree) -> Tree:
    """The geometric median: the point with the smallest sum of distances to all models.

    Args:
        bank: Models along the leading axis.

    Raises:
        SpecError: If the bank is empty or its arrays differ in length.
    """
    count(bank)
    rows = _rows(bank)
    middle = rows.mean(axis=0)
    nearest = _NEAR * float(np.linalg.norm(rows - middle, axis=1).max())
    if nearest == 0:
        return _take(bank, 0)
    for _ in range(_STEPS):
        pull = 1.0 / np.maximum(np.linalg.norm(rows - middle, axis=1), nearest)
        step = (pull / pull.sum()) @ rows - middle
        middle = middle + step
        if np.linalg.norm(step) <= nearest:
            break
    return _like(bank, middle)


def krum(bank: Tree, n_byzantine: int, *, keep: int = 1) -> Tree:
    """The mean of the models with the lowest Krum scores (sum of squared distances to the nearest neighbors).

    Args:
        bank: Models along the leading axis.
        n_byzantine: f, the assumed number of malicious models.
        keep: Number of models to average: 1 for Krum, more for multi-Krum. Ties go to the first model.

    Raises:
        SpecError: If the bank is invalid, or `n_byzantine` or `keep` is out of range.
    """
    n_models = count(bank)
    if not 0 <= n_byzantine < n_models:
        raise SpecError(f"n_byzantine must be at least 0 and below the number of models, {n_models}, got {n_byzantine}")
    if not 1 <= keep <= n_models:
        raise SpecError(f"keep must be between 1 and the number of models, {n_models}, got {keep}")
    rows = _rows(bank)
    rows = rows - rows.mean(axis=0)  # centered, so that rounding in the products does not hide the differences
    products = rows @ rows.T
    squares = np.maximum(np.add.outer(np.diag(products), np.diag(products)) - 2 * products, 0.0)
    np.fill_diagonal(squares, np.inf)
    n_neighbors = max(1, min(n_models - n_byzantine - 2, n_models - 1))
    scores = np.sort(squares, axis=1)[:, :n_neighbors].sum(axis=1) if n_models > 1 else np.zeros(1)
    best = np.sort(np.argsort(scores, kind="stable")[:keep])
    return _take(bank, best[0]) if keep == 1 else uniform_mean(_take(bank, best))


def clipped_mean(bank: Tree, max_norm: float = 0.0) -> Tree:
    """The mean of the models after their distances to the coordinate median are clipped.

    Args:
        bank: Models along the leading axis.
        max_norm: τ, the maximum distance; 0: the median of the distances.

    Raises:
        SpecError: If the bank is empty or its arrays differ in length.
    """
    count(bank)
    rows = _rows(bank)
    median = np.median(rows, axis=0)
    offsets = rows - median
    distances = np.linalg.norm(offsets, axis=1)
    limit = max_norm or float(np.median(distances))
    shrink = np.minimum(1.0, np.divide(limit, distances, out=np.ones(len(rows)), where=distances > 0))
    return _like(bank, median + (shrink[:, None] * offsets).mean(axis=0))


def _take(bank: Tree, rows: int | Array) -> Tree:
    return tree.map(lambda leaf: np.array(leaf[rows]), bank)


def _rows(bank: Bank | Array) -> Array:
    """(models, d) in float64."""
    leaves = [np.asarray(leaf, np.float64) for leaf in tree.leaves(bank)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _like(bank: Tree, flat: Array) -> Tree:
    """A flat model as a tree with the structure of the bank."""
    ends = np.cumsum([leaf[0].size for leaf in tree.leaves(bank)])
    parts = iter(np.split(flat, ends[:-1]))
    return tree.map(lambda leaf: next(parts).reshape(leaf.shape[1:]).astype(leaf.dtype), bank)
