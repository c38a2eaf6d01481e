"""Types that many parts share; nothing here computes anything."""

from __future__ import annotations

from typing import Any, Literal, NewType, TypeAlias

import numpy as np
import numpy.typing as npt

ClientId = NewType("ClientId", str)

#: A NumPy array of any type (JAX arrays appear only inside works).
Array: TypeAlias = npt.NDArray[Any]

#: A model's parameters: a nested dict of arrays. Keys are traversed in sorted order.
Params: TypeAlias = dict[str, Any]

#: Several models of one shape, stacked along a leading axis of every array.
Bank: TypeAlias = dict[str, Any]

#: Which of a client's examples: all for training; a validation share of those; the others of those; for testing.
Part = Literal["fit", "held", "rest", "test"]
PARTS: tuple[Part, ...] = ("fit", "held", "rest", "test")

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
