"""Settings inside compiled work: numbers are traced, so that a decaying rate compiles once; a zero is compiled away.

`split` takes a frozen dataclass apart into a hashable structure and the numbers to trace; `join` puts it together
again with whatever stands for those numbers. A float that is exactly 0 belongs to the structure: code asks
`off(settings.mu)` and leaves the term out, so that FedProx with μ = 0 is FedAvg to the bit and costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.types import Array


def off(value: Any) -> bool:
    """Whether a setting is switched off: exactly 0, known while compiling."""
    return isinstance(value, int | float) and value == 0


def split(settings: Any) -> tuple[Any, list[float]]:
    """The structure of a settings dataclass, hashable, and its numbers in the order of the fields.

    Settings that have a method `for_body` say there what the compiled body needs of them.
    """
    if hasattr(settings, "for_body"):
        settings = settings.for_body()
    fields = [(field.name, getattr(settings, field.name)) for field in dataclasses.fields(settings)]
    traced = [name for name, value in fields if isinstance(value, float) and value != 0.0]
    fixed = tuple((name, value) for name, value in fields if name not in traced)
    return (type(settings), fixed, tuple(traced)), [getattr(settings, name) for name in traced]


def join(structure: Any, numbers: Any) -> Any:
    """The settings of this structure with these numbers, which may be traced."""
    kind, fixed, traced = structure
    made = object.__new__(kind)  # not the constructor: its checks cannot look at traced numbers
    for name, value in (*fixed, *zip(traced, numbers, strict=True)):
        object.__setattr__(made, name, value)
    return made


def split_all(settings: Mapping[str, Any]) -> tuple[Any, dict[str, Array]]:
    """Several settings by name: their structures, hashable, and their numbers as arrays to trace."""
    parts = {name: split(value) for name, value in sorted(settings.items())}
    structures = tuple((name, structure) for name, (structure, _) in parts.items())
    return structures, {name: np.array(numbers, np.float32) for name, (_, numbers) in parts.items()}


def join_all(structures: Any, numbers: Any) -> dict[str, Any]:
    """The settings that `split_all` took apart, with whatever stands for their numbers."""
    return {name: join(structure, list(numbers[name])) for name, structure in structures}
