"""What the functions of clustering refuse, in one place and in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError
from coterie.types import Array

# Matrices are looked at in blocks of rows, so that a check of a large one costs no second one.
_ROWS = 256
# Up to this share of the largest entry, two entries that should be equal may differ by rounding.
_SLACK = 1e-8


def vectors(values: npt.ArrayLike, name: str = "U") -> Array:
    """One vector for each client: a real matrix (clients, d) of at least one row and one column, all finite."""
    array = np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise SpecError(
            f"{name} must be a matrix (clients, numbers) with at least one of each, got shape {array.shape}"
        )
    _real(array, name)
    return array


def distances(values: npt.ArrayLike, name: str = "D") -> npt.NDArray[np.float64]:
    """A symmetric matrix of finite distances, none negative; whatever its diagonal says becomes 0."""
    array = similarities(values, name)
    np.fill_diagonal(array, 0.0)
    if array.min() < -_SLACK * array.max():
        raise SpecError(f"{name} must hold distances, which are never negative, got {array.min()}")
    return np.maximum(array, 0.0, out=array)


def similarities(values: npt.ArrayLike, name: str = "S") -> npt.NDArray[np.float64]:
    """A symmetric matrix of finite numbers, as a copy that is symmetric to the last bit."""
    array = square(values, name)
    largest = max(abs(array.max()), abs(array.min()))
    for start in range(0, len(array), _ROWS):
        rows = slice(start, start + _ROWS)
        gap = np.abs(array[rows] - array[:, rows].T).max()
        if gap > _SLACK * largest:
            raise SpecError(f"{name} must be symmetric, but {name}[i, j] and {name}[j, i] differ by up to {gap:.3g}")
    return array / 2 + array.T / 2  # halves first: a sum of two numbers near the largest float would overflow


def square(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """A square matrix of finite numbers, in float64; not necessarily a copy."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        raise SpecError(f"{name} must be a square matrix (clients, clients), got shape {array.shape}")
    _real(array, name)
    return array.astype(np.float64, copy=False)


def whole(value: Any, name: str, least: int) -> int:
    """A whole number that is not below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SpecError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def _real(array: Array, name: str) -> None:
    """Refuse what is not a real number or not finite, and name the first row that holds such."""
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise SpecError(f"{name} must hold real numbers, got type {array.dtype}")
    # The largest and the smallest tell, since NaN goes through both; a table of isfinite would cost memory.
    broken = ~(np.isfinite(array.max(axis=1)) & np.isfinite(array.min(axis=1)))
    if broken.any():
        raise SpecError(
            f"{name} must be finite, but {broken.sum()} of {len(array)} rows hold NaN or infinity, "
            f"the first is row {broken.argmax()}: leave these clients out"
        )
