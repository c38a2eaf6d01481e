"""Means of a bank of models, and the exchange between the models of groups.

A bank is a nested dict of arrays, or one plain array, with a leading axis of models. Everything here is a pure
function of NumPy arrays: sums run in float64, results have the type of what came in, arguments stay as they are.

    weighted mean, FedAvg      Σ_i p_i w_i / Σ_i p_i
    trimmed mean, SR-FCA       per coordinate: drop the b lowest and the b highest of J, b = ⌊β J⌋, average the rest
    mixing, FedGroup           w_j ← (w_j + η_g Σ_{l≠j} w_l/‖w_l‖) / (1 + η_g Σ_{l≠j} 1/‖w_l‖)

FedAvg is arXiv:1602.05629, FedGroup arXiv:2010.06870 and SR-FCA "An Improved Federated Clustering Algorithm with
Model-based Clustering". `rate` is η_g, `beta` is β.

Departures from the papers. SR-FCA divides by (1 - 2β) J, which is the number of values left only if β J is whole; we
divide by that number. FedGroup prints the mixing without its denominator, which pushes every model outwards in each
round; with it we follow the authors' code, and the printed form is `form="paper"`.
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

__all__ = ["MixForm", "mix_groups", "trimmed_mean", "uniform_mean", "weighted_mean"]

Tree = TypeVar("Tree", Bank, Array)

#: How groups mix: divided by the sum of the weights, or as printed.
MixForm = Literal["normalized", "paper"]

# Sorting in blocks of this size keeps the work in the cache of a core; two blocks are under way at a time.
_BLOCK_BYTES = 1 << 18
_THREADS = 2


def weighted_mean(bank: Tree, weights: Sequence[float] | Array) -> Tree:
    """The mean model, each model counting by its share of the weights.

    A model of weight 0 does not enter the sum at all, so that its values need not even be finite.

    Args:
        bank: Models along the leading axis.
        weights: One number for each model, finite and not negative, at least one of them positive.

    Raises:
        SpecError: If the bank is empty or uneven, or the weights do not fit.
    """
    n_models = count(bank)
    weight = np.asarray(weights, dtype=np.float64)
    if weight.shape != (n_models,):
        raise SpecError(f"weights must be one number for each of the {n_models} models, got shape {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise SpecError(f"weights must be finite and not negative, got {weight.tolist()}")
    if not weight.any():
        raise SpecError("weights are all 0: at least one must be positive; for equal shares use uniform_mean")
    # By a power of two, which changes no digit: the sum of weights near the largest float would overflow.
    weight = np.ldexp(weight, -np.frexp(weight.max())[1])

    def mean(leaf: Array) -> Array:
        total = np.zeros(leaf.shape[1:])
        for i in np.flatnonzero(weight):
            total += weight[i] * leaf[i]
        # Divided in the end, as sums of replies are that come in one by one: to the bit the same mean.
        total /= weight.sum()
        return total

    return reduce(mean, bank)


def uniform_mean(bank: Tree) -> Tree:
    """The mean model, every model counting the same.

    Raises:
        SpecError: If the bank is empty or uneven.
    """
    count(bank)
    return reduce(lambda leaf: leaf.mean(axis=0, dtype=np.float64), bank)


def trimmed_mean(bank: Tree, beta: float) -> Tree:
    """The mean model after the lowest and the highest values of each coordinate are dropped.

    Of J models, b = ⌊β J⌋ values go at each end. If none would be left, it is the plain mean. A value that is not a
    number counts as the highest, so up to b broken models do no harm. The order of the models does not matter, to
    the last bit.

    Args:
        bank: Models along the leading axis.
        beta: Share to drop at each end, 0 ≤ β < 0.5.

    Raises:
        SpecError: If the bank is empty or uneven, or `beta` is out of range.
    """
    n_models = count(bank)
    if not 0 <= beta < 0.5:
        raise SpecError(f"beta must be at least 0 and less than 0.5, got {beta}")
    drop = math.floor(beta * n_models + 1e-9)  # 0.29 * 100 is 28.999999999999996
    if n_models - 2 * drop < 1:
        drop = 0
    return reduce(lambda leaf: _mean_of_middle(leaf, drop), bank)


def mix_groups(bank: Tree, rate: float, form: MixForm = "normalized") -> Tree:
    """The models of groups after each took in some of the direction of every other one.

    All groups mix from the same snapshot, the bank as given. The norm of a model is taken over all its parameters
    jointly; a model of norm 0 has no direction and contributes nothing.

    Args:
        bank: One model for each group along the leading axis.
        rate: η_g, finite and not negative; 0 leaves every model as it is.
        form: "normalized" divides by the sum of the weights, as the authors' code does; "paper" does not.

    Raises:
        SpecError: If the bank is empty or uneven, or `rate` or `form` is not allowed.
    """
    n_groups = count(bank)
    if not (math.isfinite(rate) and rate >= 0):
        raise SpecError(f"rate must be finite and at least 0, got {rate}")
    if form not in get_args(MixForm):
        raise SpecError(unknown("form of mixing", form, get_args(MixForm)))
    if rate == 0 or n_groups == 1:
        return reduce(lambda leaf: leaf, bank)
    norms = np.sqrt(sum(_squares(np.asarray(leaf)) for leaf in tree.leaves(bank)))
    pull = np.divide(rate, norms, out=np.zeros(n_groups), where=norms != 0)
    weights = np.tile(pull, (n_groups, 1))  # row j: what goes into group j
    np.fill_diagonal(weights, 1.0)
    if form == "normalized":
        weights /= weights.sum(axis=1, keepdims=True)

    def mix(leaf: Array) -> Array:
        rows = leaf.reshape(n_groups, -1).astype(np.float64)
        return (weights @ rows).reshape(leaf.shape)

    return reduce(mix, bank)


def _mean_of_middle(leaf: Array, drop: int) -> Array:
    """The mean of each coordinate without its `drop` lowest and highest values."""
    n_models = len(leaf)
    flat = leaf.reshape(n_models, -1)
    out = np.empty(flat.shape[1])
    width = max(1, _BLOCK_BYTES // (n_models * leaf.itemsize))

    def block(start: int) -> None:
        # One coordinate a row: NumPy sorts contiguous rows with vector instructions, several times faster than it
        # partitions them. `copy` because a transposed view may already be contiguous, and the sort is in place.
        rows = flat[:, start : start + width].T.copy()
        rows.sort(axis=1)
        out[start : start + width] = rows[:, drop : n_models - drop].mean(axis=1, dtype=np.float64)

    starts = range(0, flat.shape[1], width)
    if len(starts) <= 1:
        for start in starts:
            block(start)
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(block, starts))  # the list brings an exception of a thread to light
    return out.reshape(leaf.shape[1:])


def _squares(leaf: Array) -> Array:
    """The sum of squares of each model's part in this array."""
    return np.array([np.sum(np.square(row, dtype=np.float64)) for row in leaf])


def count(bank: Bank | Array) -> int:
    """How many models the bank holds; refuses what is not a bank."""
    n_models = None
    for path, value in tree.paths(bank):
        name, leaf = f"bank[{path!r}]" if path else "bank", np.asarray(value)
        if leaf.ndim == 0:
            raise SpecError(f"{name} is a single number: every array of a bank needs a leading axis of models")
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
    """The tree of `fn(leaf)`, each a new array of the type that went in, also where a single number is left."""
    return tree.map(lambda leaf: np.asarray(fn(np.asarray(leaf))).astype(np.asarray(leaf).dtype), bank)
