"""Class subspaces: the leading singular vectors of a client's examples of each class, as used by PACFL and FLAG.

    X_c = U Σ Vᵀ,   U_c = the first p columns of U      X_c is (inputs, n_c): the n_c examples of class c, not centered

U_c is sent as rows, (p, inputs) in float32: one array per class in class order, with no rows for a class that the
client does not have. It is computed from the smaller of the Gram matrices X_cᵀX_c and X_cX_cᵀ, whose eigenvalues are
σ². Directions with σ below 1e-6 of the largest cannot be distinguished from rounding and are omitted. Singular vectors
have no sign, so the largest entry of each is made positive. If all examples of a class are 0, the class counts as
absent.

A budget for all classes together is allocated in proportion to class sizes by largest remainder; ties go to the lowest
class. If a class has fewer directions than allocated, the other classes get the rest. So the whole budget is used if
there are enough directions, and a client that has any direction sends at least one. A class without directions counts
as absent.

Class sizes are sent only by `counted_subspaces`. However, if p is derived from a share or a budget, p itself reveals
the class size to within 1/share or n/budget examples. With a fixed number of `vectors` it reveals only the sizes of
classes that have fewer examples than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from coterie.bounds import Bound, check
from coterie.clients.schema import Ragged, Schema, Settings, Values
from coterie.clients.work import Work
from coterie.codec import state
from coterie.errors import SpecError
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array

# Eigenvalues σ² up to this fraction of the largest count as 0: a Gram matrix cannot distinguish them from rounding.
_RANK = 1e-12


@state
@dataclass(frozen=True)
class Subspaces:
    """Number of directions p of each class, and the inputs they are computed from.

    Attributes:
        share: Number of directions as a share of the class size: p = max(1, round(share·n_c)). Ignored if `vectors` or
            `budget` is set.
        vectors: Number of directions of every class (p); 0: use `share`.
        budget: Number of directions of all classes together, p close to budget·n_c/n; 0: no budget.
        inputs: `model`: inputs as the model receives them, normalized by the task. `raw`: inputs as stored.
    """

    share: Annotated[float, Bound(above=0, at_most=1)] = 0.01
    vectors: Annotated[int, Bound(at_least=0)] = 0
    budget: Annotated[int, Bound(at_least=0)] = 0
    inputs: Literal["model", "raw"] = "model"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "subspaces")
        if self.vectors and self.budget:
            raise SpecError(f"Set vectors (per class) or budget (all classes), not both: {self.vectors}, {self.budget}")

    def max_vectors(self, n: int) -> int:
        """Maximum number of directions of a class with n examples; with a budget, the whole budget."""
        return self.budget or self.vectors or max(1, round(self.share * n))


def allocate(budget: int, sizes: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """Number of directions of each class, `budget` in all.

    Args:
        budget: Number of directions of all classes together.
        sizes: Number of examples of each class.
        ranks: Number of directions that each class has.
    """
    allocated, total = [0] * len(sizes), sum(sizes)
    for _ in range(min(budget, sum(ranks))):
        # The remainder n·(budget·n_c/n - p_c) in integers, so that ties are exact.
        remainder = {c: budget * sizes[c] - allocated[c] * total for c in range(len(sizes)) if allocated[c] < ranks[c]}
        allocated[max(remainder, key=lambda c: (remainder[c], -c))] += 1
    return allocated


def basis(rows: Array, p: int) -> Array:
    """The first p left singular vectors of the transposed matrix, as rows; fewer if its rank is lower."""
    from scipy.linalg import eigh

    x = np.asarray(rows, np.float64)
    n, inputs = x.shape
    size = min(n, inputs)
    count = min(p, size)
    if not count or not x.any():
        return np.zeros((0, inputs), np.float32)
    values, vectors = eigh(x @ x.T if n < inputs else x.T @ x, subset_by_index=[size - count, size - 1])
    kept = values > _RANK * values[-1]
    found = vectors[:, kept][:, ::-1]  # largest first
    if n < inputs:
        found = np.linalg.qr(x.T @ (found / np.sqrt(values[kept][::-1])))[0]  # QR restores exact orthogonality
    # Rounded, so that among equally large entries the first decides and not the last bit.
    leader = np.round(np.abs(found), 9).argmax(axis=0)
    found = found * np.where(found[leader, np.arange(found.shape[1])] < 0, -1.0, 1.0)
    return np.ascontiguousarray(found.T, np.float32)


def _bases(task: Task, x: Array, y: Array, seed: Seed, *, how: Subspaces) -> dict[str, Any]:
    if task.classes is None:
        raise SpecError(f"Model {task.name} is a regression: class subspaces need classes")
    inputs = np.asarray(x, np.float32)
    if how.inputs == "model" and task.normalize is not None:
        inputs = np.asarray(task.normalize(inputs), np.float32)
    flat = inputs.reshape(len(y), math.prod(task.shape))
    parts = [flat[y == label] for label in range(task.classes)]
    bases = [basis(part, how.max_vectors(len(part))) for part in parts]
    if how.budget:
        allocated = allocate(how.budget, [len(part) for part in parts], [len(rows) for rows in bases])
        bases = [rows[:p] for rows, p in zip(bases, allocated, strict=True)]
    return {"bases": bases}


def _counted(task: Task, x: Array, y: Array, seed: Seed, *, how: Subspaces) -> dict[str, Any]:
    found = _bases(task, x, y, seed, how=how)
    return {**found, "counts": np.bincount(y, minlength=len(found["bases"])).astype(np.int32)}


def _halved(task: Task, x: Array, y: Array, seed: Seed, *, how: Subspaces) -> dict[str, Any]:
    """The directions of two random halves of the examples."""
    order = seed.fold("halves").permutation(len(y))
    halves = {"first": np.sort(order[: len(y) // 2]), "second": np.sort(order[len(y) // 2 :])}
    return {name: _bases(task, x[chosen], y[chosen], seed, how=how)["bases"] for name, chosen in halves.items()}


_TAKES: dict[str, Schema] = {"how": Settings(Subspaces)}
_BASES: dict[str, Schema] = {"bases": Ragged("float32", ("rows", "inputs"), max_items="classes", purpose="subspaces")}

#: The directions of each class, without class sizes.
class_subspaces = Work("class_subspaces", takes=_TAKES, gives=_BASES, plain=_bases, trains=False)

#: The directions and the sizes of the classes.
counted_subspaces = Work(
    "counted_subspaces",
    takes=_TAKES,
    gives={**_BASES, "counts": Values("int32", ("classes",), purpose="labels")},
    plain=_counted,
    trains=False,
)

_HALF = Ragged("float32", ("rows", "inputs"), max_items="classes", purpose="noise_floor")

#: The directions of each class in two random halves of the examples, to measure how much they depend on the examples.
halved_subspaces = Work(
    "halved_subspaces", takes=_TAKES, gives={"first": _HALF, "second": _HALF}, plain=_halved, trains=False
)
