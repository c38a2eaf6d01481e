"""Class subspaces: in which directions a client's examples of each class lie. What PACFL and FLAG compare.

    X_c = U Σ Vᵀ,   U_c = the first p columns of U          X_c is (inputs, n_c), the n_c examples of class c, uncentred

U_c comes as rows, (p, inputs) in float32, one array for each class in the order of their numbers, without rows for a
class that the client does not have. It is found from the smaller of the Gram matrices X_cᵀX_c and X_cX_cᵀ, whose
eigenvalues are σ²; directions with σ below 1e-6 of the largest are rounding there, and left out. The largest entry of
each is positive, for singular vectors have no sign of their own. Examples that are all 0 have no direction, and their
class counts as absent.

A budget of directions of all classes together is dealt out by their sizes, by largest remainder, the lowest class
first among equals; what a class has not got goes to the others. So all of it is dealt as far as there are directions,
and a client with any has at least one. A class that gets none counts as absent.

The size of a class goes along only with `counted_subspaces`. But where p follows from a share or a budget, p itself
tells that size to within 1/share examples, or n/budget; with a fixed number of `vectors` it tells that of small classes
alone, which have fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from coterie.clients.schema import Ragged, Schema, Settings, Values
from coterie.clients.work import Work
from coterie.codec import state
from coterie.errors import SpecError
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array

# σ² up to this share of the largest is none: a Gram matrix cannot tell it from rounding.
_RANK = 1e-12


@state
@dataclass(frozen=True)
class Subspaces:
    """How many directions of each class, and of what.

    Attributes:
        share: p = max(1, round(share·n_c)), where neither of the following is given.
        vectors: p, the same for all classes; 0 for none.
        budget: So many in all, p close to budget·n_c/n; 0 for none.
        inputs: Of the inputs as the model is fed with them, normalized by the task; or as they are stored.
    """

    share: float = 0.01
    vectors: int = 0
    budget: int = 0
    inputs: Literal["model", "raw"] = "model"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not 0 < self.share <= 1:
            raise SpecError(f"The share of directions must be above 0 and at most 1, got {self.share}")
        for name in ("vectors", "budget"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise SpecError(f"{name} must be a whole number of at least 0, got {value!r}")
        if self.vectors and self.budget:
            raise SpecError(f"Give vectors of each class or a budget of all, not both: {self.vectors}, {self.budget}")
        if self.inputs not in ("model", "raw"):
            raise SpecError(f"inputs must be one of 'model', 'raw', got {self.inputs!r}")

    def most(self, of: int) -> int:
        """How many directions at the most of a class of so many examples; with a budget, all of it."""
        return self.budget or self.vectors or max(1, round(self.share * of))


def deal(budget: int, sizes: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """How many directions of each class, of these numbers of examples and of directions: a budget in all."""
    given, total = [0] * len(sizes), sum(sizes)
    for _ in range(min(budget, sum(ranks))):
        # To whom most is lacking: n·(budget·n_c/n - p_c), in whole numbers, so that equals are equal.
        lacking = {c: budget * sizes[c] - given[c] * total for c in range(len(sizes)) if given[c] < ranks[c]}
        given[max(lacking, key=lambda c: (lacking[c], -c))] += 1
    return given


def basis(rows: Array, p: int) -> Array:
    """The first p left singular vectors of the transpose of a matrix, as rows; fewer where its rank is lower."""
    from scipy.linalg import eigh

    x = np.asarray(rows, np.float64)
    n, inputs = x.shape
    size = min(n, inputs)
    count = min(p, size)
    if not count or not x.any():
        return np.zeros((0, inputs), np.float32)
    values, vectors = eigh(x @ x.T if n < inputs else x.T @ x, subset_by_index=[size - count, size - 1])
    kept = values > _RANK * values[-1]
    found = vectors[:, kept][:, ::-1]  # the largest first
    if n < inputs:
        found = np.linalg.qr(x.T @ (found / np.sqrt(values[kept][::-1])))[0]  # rounding leaves them a little askew
    # Rounded, so that among equally large entries the first decides and not the last bit.
    leader = np.round(np.abs(found), 9).argmax(axis=0)
    found = found * np.where(found[leader, np.arange(found.shape[1])] < 0, -1.0, 1.0)
    return np.ascontiguousarray(found.T, np.float32)


def _bases(task: Task, x: Array, y: Array, seed: Seed, *, how: Subspaces) -> dict[str, Any]:
    if task.classes is None:
        raise SpecError(f"Model {task.name} predicts numbers: there are no classes to give directions of")
    inputs = np.asarray(x, np.float32)
    if how.inputs == "model" and task.normalize is not None:
        inputs = np.asarray(task.normalize(inputs), np.float32)
    flat = inputs.reshape(len(y), math.prod(task.shape))
    parts = [flat[y == label] for label in range(task.classes)]
    bases = [basis(part, how.most(len(part))) for part in parts]
    if how.budget:
        dealt = deal(how.budget, [len(part) for part in parts], [len(rows) for rows in bases])
        bases = [rows[:p] for rows, p in zip(bases, dealt, strict=True)]
    return {"bases": bases}


def _counted(task: Task, x: Array, y: Array, seed: Seed, *, how: Subspaces) -> dict[str, Any]:
    found = _bases(task, x, y, seed, how=how)
    return {**found, "counts": np.bincount(y, minlength=len(found["bases"])).astype(np.int32)}


_TAKES: dict[str, Schema] = {"how": Settings(Subspaces)}
_BASES: dict[str, Schema] = {"bases": Ragged("float32", ("rows", "inputs"), most="classes", purpose="subspaces")}

#: The directions of each class, and nothing about its size.
class_subspaces = Work("class_subspaces", takes=_TAKES, gives=_BASES, plain=_bases)

#: The directions and the size of each class.
counted_subspaces = Work(
    "counted_subspaces",
    takes=_TAKES,
    gives={**_BASES, "counts": Values("int32", ("classes",), purpose="labels")},
    plain=_counted,
)
