"""Lossy compression of updates: 8-bit integers with one scale per array, or the entries of largest magnitude.

    int8     C(a) = s · round(a / s),    s = max|a| / 127 for each array of the model
    top-k    C(a)_i = a_i if |a_i| is among the k largest, otherwise 0

Updates are vectors here, one row per client: the arrays of a model one after another. Everything is computed in
float32, so that a client and the server get the same bytes. A row that is not finite stays so: the server rejects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.types import Array

#: Largest level of int8; -128 is not used, so that the levels are symmetric.
LEVELS = 127


def quantized(updates: Array, sizes: Sequence[int]) -> dict[str, Array]:
    """Updates as 8-bit levels; halves are rounded to even levels.

    Args:
        updates: (rows, d) float32.
        sizes: Number of entries of each array of the model.

    Returns:
        `levels`, (rows, d) int8, and `scales`, (rows, arrays) float32.
    """
    ends = np.cumsum(sizes)
    parts = [updates[:, end - size : end] for end, size in zip(ends, sizes, strict=True)]
    largest = np.stack([np.abs(part).max(axis=1, initial=0) for part in parts], axis=1)  # (rows, arrays)
    scales = (largest / np.float32(LEVELS)).astype(np.float32)
    usable = np.isfinite(scales) & (scales > 0)
    with np.errstate(invalid="ignore", over="ignore"):
        ratios = updates / np.repeat(np.where(usable, scales, np.float32(1)), sizes, axis=1)
        rounded = np.clip(np.rint(ratios), -LEVELS, LEVELS)
    levels = np.where(np.repeat(usable, sizes, axis=1), rounded, 0).astype(np.int8)
    return {"levels": levels, "scales": scales}


def largest_entries(updates: Array, k: int) -> dict[str, Array]:
    """The k entries of largest magnitude of each row; of equal ones those with the lowest index.

    Args:
        updates: (rows, d) float32.
        k: Number of entries to keep, from 1 to d.

    Returns:
        `indices`, (rows, k) int32, increasing, and `values`, (rows, k) float32.
    """
    magnitudes = np.abs(updates)
    magnitudes[np.isnan(magnitudes)] = np.inf  # kept, so that the server sees it
    indices = np.stack([_largest(row, k) for row in magnitudes])
    return {"indices": indices, "values": np.take_along_axis(updates, indices, axis=1)}


def _largest(magnitudes: Array, k: int) -> Array:
    threshold = np.partition(magnitudes, len(magnitudes) - k)[len(magnitudes) - k]
    above = np.flatnonzero(magnitudes > threshold)
    equal = np.flatnonzero(magnitudes == threshold)[: k - len(above)]
    return np.sort(np.concatenate([above, equal])).astype(np.int32)


def decompressed(coded: Mapping[str, Array], sizes: Sequence[int]) -> Array:
    """C(a) as (rows, d) float32, from what `quantized` or `largest_entries` returned.

    Args:
        coded: The compressed updates.
        sizes: Number of entries of each array of the model.
    """
    if "levels" in coded:
        with np.errstate(invalid="ignore", over="ignore"):  # a scale that is not finite makes its array so
            product: Array = coded["levels"].astype(np.float32) * np.repeat(coded["scales"], sizes, axis=1)
        return product
    updates = np.zeros((len(coded["values"]), sum(sizes)), np.float32)
    np.put_along_axis(updates, coded["indices"].astype(np.int64), coded["values"], axis=1)
    return updates
