"""Types shared by many modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NewType, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import jax

ClientId = NewType("ClientId", str)

#: A NumPy array of any dtype.
Array: TypeAlias = npt.NDArray[Any]

#: A JAX array inside the traced functions of a work.
TracedArray: TypeAlias = "jax.Array"

#: Parameters of a model: a nested dict of arrays, traversed in the sorted order of the keys.
Params: TypeAlias = dict[str, Any]

#: Several models of the same structure, stacked along a leading axis of every array.
Bank: TypeAlias = dict[str, Any]

#: A part of a client's examples: `fit` all training examples, `held` the validation share of them, `rest` the training
#: examples outside of that share, `test` the test examples.
Part = Literal["fit", "held", "rest", "test"]
PARTS: tuple[Part, ...] = ("fit", "held", "rest", "test")

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
