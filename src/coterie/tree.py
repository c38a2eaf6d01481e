"""Trees of arrays: models, and banks of models stacked along a leading axis.

A tree is a nested dict with arrays as leaves. Leaves are visited in the sorted order of the keys, as in JAX. A bare
array is a tree with one leaf. The functions accept NumPy arrays and, inside works, JAX arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from coterie.types import Array, Bank, Params

T = TypeVar("T")

#: Number of entries whose differences are computed at a time: 1 MB in float64.
_ENTRIES_AT_A_TIME = 1 << 17


def map(fn: Callable[..., Any], tree: T, *others: Any) -> T:
    """Apply `fn` to corresponding leaves of trees with the same structure; returns the tree of the results."""
    if isinstance(tree, dict):
        made: Any = {key: map(fn, tree[key], *(other[key] for other in others)) for key in sorted(tree)}
    else:
        made = fn(tree, *others)
    result: T = made
    return result


def map_paths(fn: Callable[..., Any], tree: T, *others: Any, above: str = "") -> T:
    """Like `map`, with the path of the leaf as the first argument of `fn`."""
    if isinstance(tree, dict):
        made: Any = {
            key: map_paths(fn, tree[key], *(other[key] for other in others), above=f"{above}/{key}" if above else key)
            for key in sorted(tree)
        }
    else:
        made = fn(above, tree, *others)
    result: T = made
    return result


def paths(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs of (path, leaf); a path is the keys joined by slashes, empty for a bare array."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from paths(tree[key], f"{above}/{key}" if above else key)
    else:
        yield above, tree


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree, in path order."""
    return [leaf for _, leaf in paths(tree)]


def size(tree: Params) -> int:
    """Number of parameters of a model."""
    return sum(int(np.prod(leaf.shape)) for leaf in leaves(tree))


def nbytes(tree: Any) -> int:
    """Total size of the arrays of a tree in bytes."""
    return sum(int(np.asarray(leaf).nbytes) for leaf in leaves(tree))


def host(tree: T) -> T:
    """The tree with NumPy arrays as leaves; on the CPU they share memory with the JAX arrays."""
    return map(np.asarray, tree)


def same(one: Any, other: Any) -> bool:
    """Whether two trees have the same structure, dtypes and bytes."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, dict) or isinstance(other, dict):
        return False
    a, b = np.asarray(one), np.asarray(other)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def finite(tree: Any) -> bool:
    """Whether all floats in the tree are finite."""
    return all(bool(np.isfinite(leaf).all()) for leaf in leaves(tree) if np.asarray(leaf).dtype.kind == "f")


def norm(tree: Params) -> float:
    """The l2 norm of all parameters together, in float64."""
    return float(np.sqrt(sum(float(np.square(leaf, dtype=np.float64).sum()) for leaf in leaves(tree))))


def merge(tree: Params, part: Params) -> Params:
    """A copy of the tree with the leaves of `part` in place of its own."""
    merged = dict(tree)
    for key, value in part.items():
        merged[key] = merge(tree[key], value) if isinstance(value, dict) else value
    return merged


def flatten(tree: Params) -> Array:
    """All parameters of a model as one vector, in path order."""
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in leaves(tree)])


def unflatten(vector: Array, like: Params) -> Params:
    """The inverse of `flatten`: a model with the structure of `like` from a vector."""
    if vector.shape != (size(like),):
        raise ValueError(f"The vector must have {size(like)} entries, one for each parameter, got {vector.shape}")
    offset = 0

    def take_leaf(leaf: Array) -> Array:
        nonlocal offset
        part = vector[offset : offset + leaf.size]
        offset += leaf.size
        return part.reshape(leaf.shape).astype(leaf.dtype)

    result: Params = map(take_leaf, like)
    return result


def stack(trees: Iterable[T]) -> T:
    """Stack models of the same structure into a bank."""
    models = list(trees)
    if not models:
        raise ValueError("A bank needs at least one model")
    bank: T = map(lambda *leaf: np.stack(leaf), *models)
    return bank


def concatenate(banks: Sequence[T]) -> T:
    """One bank with the rows of all given banks."""
    bank: T = banks[0] if len(banks) == 1 else map(lambda *leaf: np.concatenate(leaf), *banks)
    return bank


def rows(bank: Bank | Array) -> int:
    """Number of models in a bank."""
    return int(leaves(bank)[0].shape[0])


def row(bank: T, index: Any) -> T:
    """One model of a bank."""
    model: T = map(lambda leaf: leaf[index], bank)
    return model


def unstack(bank: Bank | Array) -> list[Any]:
    """All models of a bank, as copies: a view of a row would keep the whole bank in memory."""
    return _unstacked(bank, rows(bank))


def _unstacked(bank: Any, count: int) -> list[Any]:
    if isinstance(bank, dict):
        names = sorted(bank)
        parts = [_unstacked(bank[name], count) for name in names]
        # A branch may be empty, as the state of an optimizer without one.
        return [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)] or [
            {} for _ in range(count)
        ]
    if np.ndim(bank) > 1:
        return [row.copy() for row in np.asarray(bank)]
    return [np.array(number) for number in np.asarray(bank)]


def take(bank: T, indices: Any) -> T:
    """A bank with these rows of another bank, in this order."""
    return row(bank, np.asarray(indices, np.int64))


def flatten_rows(bank: Bank) -> Array:
    """Matrix with one flattened model per row: (rows, parameters)."""
    return np.concatenate([_flat(np.asarray(leaf)) for leaf in leaves(bank)], axis=1)


def where_rows(mask: Array, yes: Bank, no: Bank) -> Bank:
    """Select rows: from `yes` where the mask is true, from `no` elsewhere."""
    bank: Bank = map(lambda a, b: np.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), yes, no)
    return bank


def row_distances(bank: Bank, other: Bank, rows: Sequence[int] | Array | None = None) -> Array:
    """The l2 distances between rows of two banks: squares of the differences are summed in float64.

    Args:
        bank: The models.
        other: The models that they are compared with.
        rows: The row of `other` for each model; None: the rows correspond, or `other` has one row for all.
    """
    pairs = zip(leaves(bank), leaves(other), strict=True)
    of = None if rows is None else np.asarray(rows, np.int64)
    squares = [_squared_distances(_flat(np.asarray(a)), _flat(np.asarray(b)), of) for a, b in pairs]
    total: Array = np.sqrt(np.sum(squares, axis=0))
    return total


def _squared_distances(a: Array, b: Array, rows: Array | None) -> Array:
    """Squared distances between rows. A few rows at a time, whose differences stay in the cache."""
    step = max(1, _ENTRIES_AT_A_TIME // max(a.shape[1], 1))
    b = np.broadcast_to(b, a.shape) if rows is None else b
    total, differences = np.zeros(len(a)), np.empty((min(step, len(a)), a.shape[1]))
    for first in range(0, len(a), step):
        chunk = slice(first, first + step)
        if rows is None:
            reference = b[chunk]
        elif step == 1:
            reference = b[rows[first]]  # a view, not a copy
        else:
            reference = b[rows[chunk]]
        # Subtracted in the dtype of the models, stored as float64.
        apart = np.subtract(a[chunk], reference, out=differences[: len(a[chunk])])
        total[chunk] = np.square(apart, out=apart).sum(axis=1)
    return total


def _flat(leaf: Array) -> Array:
    """One row per model. The width is computed, because reshape(0, -1) is ambiguous for an empty bank."""
    return leaf.reshape(len(leaf), math.prod(leaf.shape[1:]))
