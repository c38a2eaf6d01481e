"""Means that a few bad models cannot pull away.

    coordinate median     per coordinate the middle value              Yin et al., ICML 2018, arXiv:1803.01498
    geometric median      argmin_w Σ_i ‖w_i - w‖, by Weiszfeld's steps   Pillutla et al., 2022, arXiv:1912.13445
    Krum                  the model nearest to its J - f - 2 nearest    Blanchard et al., NeurIPS 2017, arXiv:1703.02757
    multi-Krum            the mean of the J - f models of lowest score
    clipping              c + mean_i (w_i - c)·min(1, τ/‖w_i - c‖)       Karimireddy et al., ICML 2021, arXiv:2012.10333

J models, f = ⌊share · J⌋ of them taken to be bad. Every model counts the same, however many examples its client says
that it has: a number that a bad client could choose.

Departures. Clipping is around the coordinate median c of the models at hand, where the paper has the last round's
result, so that it needs to know nothing but the models; τ is the median of the distances to c where none is given.
Weiszfeld's step divides by max(‖w_i - w‖, ν) with ν a millionth of the largest first distance. Krum's theorem wants
J > 2f + 2; with fewer, the nearest J - f - 2, but at least one, are counted all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from coterie import tree
from coterie.aggregation.means import count, trimmed_mean, uniform_mean, weighted_mean
from coterie.errors import SpecError
from coterie.types import Array, Bank

Tree = TypeVar("Tree", Bank, Array)

#: How a group's models become one.
Rule = Literal["mean", "trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"]

_STEPS = 100  # of Weiszfeld's; it stops long before where models agree
_NEAR = 1e-6


@dataclass(frozen=True)
class Aggregation:
    """How models are averaged, whatever the method.

    Attributes:
        rule: The plain mean, or one that some bad models cannot pull away.
        byzantine_fraction: Largest fraction of malicious models per cluster that the rule tolerates: the fraction
            trimmed at each end, or f of Krum.
        max_norm: With `norm-clip`: how far a model may be from the middle; 0 for the median of the distances.
    """

    rule: Rule = "mean"
    byzantine_fraction: float = 0.3
    max_norm: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.rule not in get_args(Rule):
            raise SpecError(
                f"aggregation.rule must be one of {', '.join(map(repr, get_args(Rule)))}, got {self.rule!r}"
            )
        if not 0 <= self.byzantine_fraction < 0.5:
            raise SpecError(
                f"aggregation.byzantine_fraction must be at least 0 and less than 0.5, got {self.byzantine_fraction}"
            )
        if not 0 <= self.max_norm < math.inf:
            raise SpecError(f"aggregation.max_norm must be finite and not negative, got {self.max_norm}")

    def of(self, bank: Tree, weights: Array) -> Tree:
        """One model of several, of which those of weight 0 count for nothing; the others alike, but in a plain mean."""
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
        bad = _share_of(self.byzantine_fraction, count(bank))
        return krum(bank, bad, keep=1 if self.rule == "krum" else count(bank) - bad)


def coordinate_median(bank: Tree) -> Tree:
    """The middle value of each coordinate, the mean of the two middle ones where their number is even."""
    n_models = count(bank)
    # Trimmed to the one or two values in the middle.
    return trimmed_mean(bank, ((n_models - 1) // 2) / n_models)


def geometric_median(bank: Tree) -> Tree:
    """The model whose distances to all models have the smallest sum."""
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


def krum(bank: Tree, bad: int, *, keep: int = 1) -> Tree:
    """The mean of the models that are nearest to their neighbors.

    Args:
        bank: Models along the leading axis.
        bad: f: how many of them may be bad.
        keep: How many of the best to average: 1 for Krum, more for multi-Krum. Ties go to the first.
    """
    n_models = count(bank)
    if not 0 <= bad < n_models or not 1 <= keep <= n_models:
        raise SpecError(f"Of {n_models} models, bad must be less and keep between 1 and all, got {bad} and {keep}")
    rows = _rows(bank)
    rows = rows - rows.mean(axis=0)  # what is common to all would drown their differences in the products
    products = rows @ rows.T
    squares = np.maximum(np.add.outer(np.diag(products), np.diag(products)) - 2 * products, 0.0)
    np.fill_diagonal(squares, np.inf)
    near = max(1, min(n_models - bad - 2, n_models - 1))
    scores = np.sort(squares, axis=1)[:, :near].sum(axis=1) if n_models > 1 else np.zeros(1)
    best = np.sort(np.argsort(scores, kind="stable")[:keep])
    return _take(bank, best[0]) if keep == 1 else uniform_mean(_take(bank, best))


def clipped_mean(bank: Tree, norm: float = 0.0) -> Tree:
    """The mean of the models after those that are far from the coordinate median were brought nearer to it.

    Args:
        bank: Models along the leading axis.
        norm: τ, the largest distance; 0 for the median of the distances.
    """
    count(bank)
    rows = _rows(bank)
    middle = np.median(rows, axis=0)
    away = rows - middle
    distances = np.linalg.norm(away, axis=1)
    most = norm or float(np.median(distances))
    shrink = np.minimum(1.0, np.divide(most, distances, out=np.ones(len(rows)), where=distances > 0))
    return _like(bank, middle + (shrink[:, None] * away).mean(axis=0))


def _share_of(share: float, n_models: int) -> int:
    return math.floor(share * n_models + 1e-9)  # 0.29 * 100 is 28.999999999999996


def _take(bank: Tree, places: Any) -> Tree:
    return tree.map(lambda leaf: np.array(leaf[places]), bank)


def _rows(bank: Bank | Array) -> Array:
    """(models, d) in float64."""
    leaves = [np.asarray(leaf, np.float64) for leaf in tree.leaves(bank)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _like(bank: Tree, flat: Array) -> Tree:
    """A flat model in the shape of those of the bank."""
    ends = np.cumsum([leaf[0].size for leaf in tree.leaves(bank)])
    parts = iter(np.split(flat, ends[:-1]))
    return tree.map(lambda leaf: next(parts).reshape(leaf.shape[1:]).astype(leaf.dtype), bank)
