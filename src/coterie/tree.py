"""Models as trees of arrays, and banks of models stacked along a leading axis.

A tree is a nested dict with arrays as leaves, visited in the sorted order of its keys, as JAX visits it; a bare array
is a tree of one leaf. The functions work on NumPy arrays and, inside works, on JAX arrays alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from coterie.types import Array, Bank, Params

T = TypeVar("T")


def map(fn: Callable[..., Any], tree: T, *others: Any) -> T:
    """The tree of `fn(leaf, ...)` over trees of one structure."""
    if isinstance(tree, dict):
        made: Any = {key: map(fn, tree[key], *(other[key] for other in others)) for key in sorted(tree)}
    else:
        made = fn(tree, *others)
    result: T = made
    return result


def map_paths(fn: Callable[..., Any], tree: T, *others: Any, above: str = "") -> T:
    """As `map`, with the path of each leaf before it."""
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
    """Each leaf with its path, keys joined by a slash; the empty path for a bare array."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from paths(tree[key], f"{above}/{key}" if above else key)
    else:
        yield above, tree


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree, in the order of their paths."""
    return [leaf for _, leaf in paths(tree)]


def size(tree: Params) -> int:
    """How many numbers a model holds."""
    return sum(int(np.prod(leaf.shape)) for leaf in leaves(tree))


def nbytes(tree: Any) -> int:
    """How many bytes the arrays of a tree hold."""
    return sum(int(np.asarray(leaf).nbytes) for leaf in leaves(tree))


def host(tree: T) -> T:
    """The same tree as NumPy arrays; shares memory with JAX arrays on the CPU."""
    return map(np.asarray, tree)


def same(one: Any, other: Any) -> bool:
    """Whether two trees are equal to the bit, in structure, types and values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, dict) or isinstance(other, dict):
        return False
    a, b = np.asarray(one), np.asarray(other)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def finite(tree: Any) -> bool:
    """Whether every number in the tree is finite."""
    return all(bool(np.isfinite(leaf).all()) for leaf in leaves(tree) if np.asarray(leaf).dtype.kind == "f")


def norm(tree: Params) -> float:
    """The l2 norm over all parameters jointly, in float64."""
    return float(np.sqrt(sum(float(np.square(leaf, dtype=np.float64).sum()) for leaf in leaves(tree))))


def merge(tree: Params, part: Params) -> Params:
    """The tree with the leaves of a part of it in place of its own."""
    merged = dict(tree)
    for key, value in part.items():
        merged[key] = merge(tree[key], value) if isinstance(value, dict) else value
    return merged


def flatten(tree: Params) -> Array:
    """All numbers of a model as one vector, in the order of the paths."""
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in leaves(tree)])


def unflatten(vector: Array, like: Params) -> Params:
    """The model of `like`'s structure that `flatten` would turn into this vector."""
    if vector.shape != (size(like),):
        raise ValueError(f"A model of {size(like)} parameters cannot be made of a vector of shape {vector.shape}")
    taken = 0

    def take_leaf(leaf: Array) -> Array:
        nonlocal taken
        part = vector[taken : taken + leaf.size]
        taken += leaf.size
        return part.reshape(leaf.shape).astype(leaf.dtype)

    result: Params = map(take_leaf, like)
    return result


def stack(trees: Iterable[T]) -> T:
    """A bank of these models."""
    models = list(trees)
    if not models:
        raise ValueError("A bank needs at least one model")
    bank: T = map(lambda *leaf: np.stack(leaf), *models)
    return bank


def concatenate(banks: Sequence[T]) -> T:
    """One bank of the rows of several."""
    bank: T = banks[0] if len(banks) == 1 else map(lambda *leaf: np.concatenate(leaf), *banks)
    return bank


def rows(bank: Bank | Array) -> int:
    """How many models a bank holds."""
    return int(leaves(bank)[0].shape[0])


def row(bank: T, index: Any) -> T:
    """One model of a bank."""
    model: T = map(lambda leaf: leaf[index], bank)
    return model


def take(bank: T, indices: Any) -> T:
    """The bank of these rows, in this order."""
    return row(bank, np.asarray(indices, np.int64))


def flatten_rows(bank: Bank) -> Array:
    """Each model of a bank as one row of a matrix."""
    return np.concatenate([_flat(np.asarray(leaf)) for leaf in leaves(bank)], axis=1)


def where_rows(mask: Array, yes: Bank, no: Bank) -> Bank:
    """Row by row, the model of `yes` where the mask is true, else that of `no`."""
    bank: Bank = map(lambda a, b: np.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), yes, no)
    return bank


def row_distances(bank: Bank, other: Bank) -> Array:
    """The l2 distance between the models of two banks, row by row, in float64."""
    squares = [
        _flat(np.square(np.asarray(a, np.float64) - b)).sum(axis=1)
        for a, b in zip(leaves(bank), leaves(other), strict=True)
    ]
    total: Array = np.sqrt(np.sum(squares, axis=0))
    return total


def _flat(leaf: Array) -> Array:
    """One row for each model; counted, since of no models -1 could be anything."""
    return leaf.reshape(len(leaf), math.prod(leaf.shape[1:]))
