"""Comparison of states by the numbers in their arrays."""

from __future__ import annotations

import numpy as np

from coterie import codec
from coterie.types import Array

#: Maximum difference between two states that should be equal, relative to the change of the state.
AGREEMENT = 1e-5


def distance(one: object, other: object, kinds: str = "f") -> float:
    """Euclidean distance of two states; infinite if their shapes differ."""
    a, b = vector(one, kinds), vector(other, kinds)
    return float(np.linalg.norm(a - b)) if a.shape == b.shape else float("inf")


def change_of(after: object, before: object, kinds: str = "f") -> float:
    """How much a state has changed: the distance; if its shape has changed, its norm."""
    whole = distance(after, before, kinds)
    return whole if np.isfinite(whole) else float(np.linalg.norm(vector(after, kinds)))


def vector(state: object, kinds: str = "f") -> Array:
    """All finite numbers in the arrays of a state, by kind of dtype; by default only floats."""
    # Infinite values are markers, such as a loss before any training.
    kept = [np.asarray(a, np.float64).reshape(-1) for a in codec.arrays(state) if np.asarray(a).dtype.kind in kinds]
    whole: Array = np.concatenate([np.zeros(0), *kept])
    finite: Array = whole[np.isfinite(whole)]
    return finite


def freeze(value: object) -> None:
    """Make all arrays in a value read-only."""
    for array in codec.arrays(value):
        if isinstance(array, np.ndarray) and array.ndim:
            array.setflags(write=False)
