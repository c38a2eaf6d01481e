"""Numbers and arrays as JSON values: rounded, without NaN."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from coterie.types import Array

#: Significant digits; more cannot be seen in a chart, and cost bytes.
DIGITS = 5


def number(value: Any, digits: int = DIGITS) -> float | int | None:
    """A number with few digits; None for NaN, infinity and None."""
    if value is None:
        return None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    found = float(value)
    if not math.isfinite(found):
        return None
    rounded = float(f"{found:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def numbers(values: Iterable[Any] | Array | None, digits: int = DIGITS) -> list[float | int | None] | None:
    """Numbers with few digits."""
    if values is None:
        return None
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return [number(value, digits) for value in plain]


def flags(values: Array | None) -> list[bool] | None:
    """True and false."""
    return None if values is None else [bool(value) for value in values]


def by_cluster(values: Mapping[int, Array]) -> dict[str, list[float | int | None] | None]:
    """Cluster, as text → numbers."""
    return {str(cluster): numbers(each) for cluster, each in values.items()}


def quantized(values: Array) -> tuple[str, float, float]:
    """A matrix as base64 of one byte per number, with the numbers that 0 and 255 stand for; NaN is 0."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    scaled = (np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    content = np.rint(255 * scaled).astype(np.uint8).tobytes()
    return base64.b64encode(content).decode("ascii"), low, high
