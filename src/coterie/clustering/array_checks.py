"""Validation of the inputs of the clustering functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError
from coterie.types import Array

# Matrices are checked in blocks of rows, so that no copy of a large matrix is needed.
_ROWS = 256
# Tolerance for rounding, relative to the largest entry.
_SLACK = 1e-8


def vectors(values: npt.ArrayLike, name: str = "U") -> Array:
    """One vector per client: a finite real matrix (clients, d) with at least one row and one column."""
    array = np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise SpecError(
            f"{name} must be a matrix (clients, d) with at least one row and one column, got shape {array.shape}"
        )
    _real(array, name)
    return array


def distances(values: npt.ArrayLike, name: str = "D") -> npt.NDArray[np.float64]:
    """A symmetric matrix of finite, non-negative distances, as a copy with a zero diagonal."""
    array = similarities(values, name)
    np.fill_diagonal(array, 0.0)
    if array.min() < -_SLACK * array.max():
        raise SpecError(f"{name} must hold non-negative distances, got {array.min()}")
    return np.maximum(array, 0.0, out=array)


def similarities(values: npt.ArrayLike, name: str = "S") -> npt.NDArray[np.float64]:
    """A symmetric matrix of finite numbers, as an exactly symmetric copy."""
    array = square(values, name)
    largest = max(abs(array.max()), abs(array.min()))
    for start in range(0, len(array), _ROWS):
        rows = slice(start, start + _ROWS)
        gap = np.abs(array[rows] - array[:, rows].T).max()
        if gap > _SLACK * largest:
            raise SpecError(f"{name} must be symmetric, but {name}[i, j] and {name}[j, i] differ by up to {gap:.3g}")
    return array / 2 + array.T / 2  # halves first, because the sum of two very large numbers would overflow


def square(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """A square matrix of finite numbers in float64, not necessarily a copy."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        raise SpecError(f"{name} must be a square matrix (clients, clients), got shape {array.shape}")
    _real(array, name)
    return array.astype(np.float64, copy=False)


def whole(value: Any, name: str, minimum: int) -> int:
    """An integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise SpecError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    return int(value)


def _real(array: Array, name: str) -> None:
    """Raise an error if an entry is not a finite real number; names the first such row."""
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise SpecError(f"{name} must hold real numbers, got type {array.dtype}")
    # Maximum and minimum propagate NaN, and need less memory than isfinite of the whole matrix.
    broken = ~(np.isfinite(array.max(axis=1)) & np.isfinite(array.min(axis=1)))
    if broken.any():
        raise SpecError(
            f"{name} must be finite, but {broken.sum()} of {len(array)} rows hold NaN or infinity, "
            f"the first is row {broken.argmax()}: leave these clients out"
        )
