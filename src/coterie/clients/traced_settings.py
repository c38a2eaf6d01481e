"""Settings inside compiled works: floats are traced, so that a decaying learning rate compiles once.

`split` separates a frozen dataclass into a hashable structure and the numbers to trace; `join` rebuilds it with traced
numbers. A float that is exactly 0 belongs to the structure: code tests `off(settings.mu)` and omits the term, so that
FedProx with μ = 0 equals FedAvg to the bit at no cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.types import Array


def off(value: Any) -> bool:
    """Whether a setting is exactly 0 and not traced."""
    return isinstance(value, int | float) and value == 0


def split(settings: Any) -> tuple[Any, list[float]]:
    """The hashable structure of a settings dataclass, and its numbers in field order.

    If the settings have a method `for_body`, it returns the settings that the compiled body needs.
    """
    if hasattr(settings, "for_body"):
        settings = settings.for_body()
    fields = [(field.name, getattr(settings, field.name)) for field in dataclasses.fields(settings)]
    traced = [name for name, value in fields if isinstance(value, float) and value != 0.0]
    fixed = tuple((name, value) for name, value in fields if name not in traced)
    return (type(settings), fixed, tuple(traced)), [getattr(settings, name) for name in traced]


def join(structure: Any, numbers: Any) -> Any:
    """The settings with this structure and these numbers, which may be traced."""
    kind, fixed, traced = structure
    made = object.__new__(kind)  # not the constructor, which cannot validate traced numbers
    for name, value in (*fixed, *zip(traced, numbers, strict=True)):
        object.__setattr__(made, name, value)
    return made


def split_all(settings: Mapping[str, Any]) -> tuple[Any, dict[str, Array]]:
    """The hashable structures of several named settings, and their numbers as arrays to trace."""
    parts = {name: split(value) for name, value in sorted(settings.items())}
    structures = tuple((name, structure) for name, (structure, _) in parts.items())
    return structures, {name: np.array(numbers, np.float32) for name, (_, numbers) in parts.items()}


def join_all(structures: Any, numbers: Any) -> dict[str, Any]:
    """The settings that `split_all` separated, with these numbers."""
    return {name: join(structure, list(numbers[name])) for name, structure in structures}
