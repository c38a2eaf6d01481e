"""Means of a bank of models, and mixing between the models of clusters.

A bank is a nested dict of arrays, or one plain array, with a leading axis of models. All functions are pure functions
of NumPy arrays: sums are in float64, results have the dtype of the input, arguments are not changed. A weighted mean is
the sum of the sums of fixed blocks of `BLOCK` models, added in order, so that machines that sum whole blocks give the
same bytes as one machine.

    weighted mean, FedAvg      Σ_i p_i w_i / Σ_i p_i
    trimmed mean, SR-FCA       per coordinate: drop the b lowest and the b highest of J, b = ⌊β J⌋, average the rest
    mixing, FedGroup           w_j ← (w_j + η_g Σ_{l≠j} w_l/‖w_l‖) / (1 + η_g Σ_{l≠j} 1/‖w_l‖)

FedAvg is arXiv:1602.05629, FedGroup arXiv:2010.06870 and SR-FCA "An Improved Federated Clustering Algorithm with
Model-based Clustering". `rate` is η_g, `beta` is β.

Departures from the papers. SR-FCA divides by (1 - 2β) J, which equals the number of remaining values only if β J is an
integer; here the divisor is that number. FedGroup's paper omits the denominator of the mixing, so that norms grow in
every round; the default follows the authors' code, and the form of the paper is `form="paper"`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar, get_args

import numpy as np

from coterie import tree
from coterie.errors import SpecError, unknown
from coterie.types import Array, Bank

__all__ = ["MixForm", "Trimming", "mix_groups", "trimmed_mean", "uniform_mean", "weighted_mean"]

Tree = TypeVar("Tree", Bank, Array)

#: Form of the mixing: divided by the sum of the weights, or as in the paper.
MixForm = Literal["normalized", "paper"]

#: Values that a trimmed mean drops: the same number at each end, or as in SR-FCA's published program.
Trimming = Literal["symmetric", "as_coded"]

#: Number of models that are summed before their sum is added to the total.
BLOCK = 32

# Values are sorted in blocks of this size, which fit into the cache of a core; two blocks at a time.
_BLOCK_BYTES = 1 << 18
_THREADS = 2


def weighted_mean(bank: Tree, weights: Sequence[float] | Array) -> Tree:
    """The weighted mean of the models.

    Models of weight 0 are ignored; their values need not be finite.

    Args:
        bank: Models along the leading axis.
        weights: One number per model, finite and non-negative, at least one positive.

    Raises:
        SpecError: If the bank is empty or its arrays differ in length, or the weights are invalid.
    """
    n_models = count(bank)
    weight = np.asarray(weights, dtype=np.float64)
    if weight.shape != (n_models,):
        raise SpecError(f"weights must be one number for each of the {n_models} models, got shape {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise SpecError(f"weights must be finite and not negative, got {weight.tolist()}")
    if not weight.any():
        raise SpecError("weights are all 0: at least one must be positive; for equal weights use uniform_mean")
    # Scaled by a power of two, which is exact, because the sum of very large weights would overflow.
    weight = np.ldexp(weight, -np.frexp(weight.max())[1])

    def mean(leaf: Array) -> Array:
        total = np.zeros(leaf.shape[1:])
        for first in range(0, n_models, BLOCK):
            used = first + np.flatnonzero(weight[first : first + BLOCK])
            if len(used):
                block = weight[used[0]] * leaf[used[0]].astype(np.float64)
                for i in used[1:]:
                    block += weight[i] * leaf[i]
                total += block
        # Divided at the end, like the running sums of replies, so that both give the same bytes.
        total /= weight.sum()
        return total

    return reduce(mean, bank)


def uniform_mean(bank: Tree) -> Tree:
    """The unweighted mean of the models.

    Raises:
        SpecError: If the bank is empty or its arrays differ in length.
    """
    count(bank)
    return reduce(lambda leaf: leaf.mean(axis=0, dtype=np.float64), bank)


def trimmed_mean(bank: Tree, beta: float, trimming: Trimming = "symmetric") -> Tree:
    """The coordinate-wise mean without the lowest and the highest values.

    Of J models, b = ⌊β J⌋ values are dropped at each end; if none would be left, the result is the plain mean. NaN
    counts as the highest value, so up to b models with NaN are harmless. The result does not depend on the order of the
    models, to the bit.

    Args:
        bank: Models along the leading axis.
        beta: Fraction to drop at each end, 0 ≤ β < 0.5.
        trimming: "symmetric": as above. "as_coded": as in SR-FCA's published program, the values from position ⌊β J⌋ to
            before position ⌊(1 - β) J⌋ are averaged, so that of ten values with β = 0.15 one low and two high ones are
            dropped; if fewer than two would be left, the result is the plain mean.

    Raises:
        SpecError: If the bank is empty or its arrays differ in length, or `beta` or `trimming` is invalid.
    """
    n_models = count(bank)
    if not 0 <= beta < 0.5:
        raise SpecError(f"beta must be at least 0 and less than 0.5, got {beta}")
    if trimming not in get_args(Trimming):
        raise SpecError(unknown("trimming", trimming, get_args(Trimming)))
    first = math.floor(beta * n_models + 1e-9)  # 0.29 * 100 is 28.999999999999996
    last = math.floor((1 - beta) * n_models + 1e-9) if trimming == "as_coded" else n_models - first
    if last - first < (2 if trimming == "as_coded" else 1):
        first, last = 0, n_models
    return reduce(lambda leaf: _mean_of_middle(leaf, first, last), bank)


def mix_groups(bank: Tree, rate: float, form: MixForm = "normalized") -> Tree:
    """The models of the clusters after mixing in the directions of all other clusters' models (FedGroup).

    All models are mixed from the same snapshot, the given bank. The norm of a model is over all its parameters; a model
    of norm 0 contributes nothing.

    Args:
        bank: One model per cluster along the leading axis.
        rate: η_g, finite and at least 0; 0 leaves the models unchanged.
        form: "normalized" divides by the sum of the weights, like the authors' code; "paper" does not.

    Raises:
        SpecError: If the bank is empty or its arrays differ in length, or `rate` or `form` is invalid.
    """
    n_clusters = count(bank)
    if not (math.isfinite(rate) and rate >= 0):
        raise SpecError(f"rate must be finite and at least 0, got {rate}")
    if form not in get_args(MixForm):
        raise SpecError(unknown("form of mixing", form, get_args(MixForm)))
    if rate == 0 or n_clusters == 1:
        return reduce(lambda leaf: leaf, bank)
    norms = np.sqrt(sum(_squares(np.asarray(leaf)) for leaf in tree.leaves(bank)))
    pull = np.divide(rate, norms, out=np.zeros(n_clusters), where=norms != 0)
    weights = np.tile(pull, (n_clusters, 1))  # row j: weights of the models that go into cluster j
    np.fill_diagonal(weights, 1.0)
    if form == "normalized":
        weights /= weights.sum(axis=1, keepdims=True)

    def mix(leaf: Array) -> Array:
        rows = leaf.reshape(n_clusters, -1).astype(np.float64)
        return (weights @ rows).reshape(leaf.shape)

    return reduce(mix, bank)


def _mean_of_middle(leaf: Array, first: int, last: int) -> Array:
    """The mean of each coordinate over its sorted values from `first` to before `last`."""
    n_models = len(leaf)
    flat = leaf.reshape(n_models, -1)
    out = np.empty(flat.shape[1])
    width = max(1, _BLOCK_BYTES // (n_models * leaf.itemsize))

    def block(start: int) -> None:
        # One row per coordinate: NumPy sorts contiguous rows with vector instructions, several times faster than
        # partitioning. `copy`, because the sort is in place and a transposed view may already be contiguous.
        rows = flat[:, start : start + width].T.copy()
        rows.sort(axis=1)
        out[start : start + width] = rows[:, first:last].mean(axis=1, dtype=np.float64)

    starts = range(0, flat.shape[1], width)
    if len(starts) <= 1:
        for start in starts:
            block(start)
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(block, starts))  # list() raises exceptions of the threads
    return out.reshape(leaf.shape[1:])


def _squares(leaf: Array) -> Array:
    """Sum of squares of each row."""
    return np.array([np.sum(np.square(row, dtype=np.float64)) for row in leaf])


def count(bank: Bank | Array) -> int:
    """Number of models in a bank; raises an error if it is not a valid bank."""
    n_models = None
    for path, value in tree.paths(bank):
        name, leaf = f"bank[{path!r}]" if path else "bank", np.asarray(value)
        if leaf.ndim == 0:
            raise SpecError(f"{name} is a scalar: every array of a bank needs a leading axis of models")
        if not np.issubdtype(leaf.dtype, np.floating):
            raise SpecError(f"{name} has type {leaf.dtype}: means need floating-point numbers, convert it first")
        if n_models is None:
            first, n_models = name, len(leaf)
        elif len(leaf) != n_models:
            raise SpecError(
                f"{first} has {n_models} models and {name} has {len(leaf)}: "
                "all arrays of a bank need the same leading axis"
            )
    if not n_models:
        raise SpecError("The bank is empty: it needs at least one array and one model")
    return n_models


def reduce(fn: Callable[[Array], Array], bank: Tree) -> Tree:
    """The tree of `fn(leaf)`, each a new array of the leaf's dtype."""
    return tree.map(lambda leaf: np.asarray(fn(np.asarray(leaf))).astype(np.asarray(leaf).dtype), bank)
