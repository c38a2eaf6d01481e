"""Validation of the inputs of metrics: values and clusters of clients, curves over rounds."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError
from coterie.types import Array

#: One number per client.
Values: TypeAlias = Mapping[Any, float] | Sequence[float] | Array
#: Cluster of each client.
Assignment: TypeAlias = Mapping[Any, SupportsIndex | None] | Sequence[SupportsIndex | None] | Array

Vector: TypeAlias = npt.NDArray[np.float64]


def aligned(first: Values, second: Values, name: str, other: str) -> tuple[Vector, Vector]:
    """Two arguments with one value per client, in the same order of clients."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        if unmatched := sorted(map(str, first.keys() ^ second.keys())):
            raise SpecError(
                f"{name} and {other} must have the same clients; only in one of them: {', '.join(unmatched)}"
            )
        first, second = [first[client] for client in second], list(second.values())
    elif isinstance(first, Mapping) or isinstance(second, Mapping):
        raise SpecError(f"{name} and {other} must both be mappings by client, or both be sequences")
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.ndim != 1 or one.shape != two.shape:
        raise SpecError(f"{name} and {other} need one number for each client, got shapes {one.shape} and {two.shape}")
    return one, two


def row_of(values: Sequence[float] | Array, name: str) -> Vector:
    """A one-dimensional array of at least one number, all finite."""
    curve = np.asarray(values, dtype=np.float64)
    if curve.ndim != 1 or not len(curve):
        raise SpecError(f"{name} must be one-dimensional with at least one number, got shape {curve.shape}")
    if not np.isfinite(curve).all():
        raise SpecError(f"{name} must be finite, entry {int(np.flatnonzero(~np.isfinite(curve))[0])} is not")
    return curve


def cluster_of(value: SupportsIndex | None) -> int | None:
    """The number of a cluster, or None for no cluster."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError as error:
        raise SpecError(f"A cluster is a whole number from 0, or None or -1 for none, got {value!r}") from error
    if number < -1:
        raise SpecError(f"A cluster is a whole number from 0, or None or -1 for none, got {number}")
    return None if number == -1 else number
