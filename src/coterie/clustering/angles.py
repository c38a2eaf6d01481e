"""Angles between clients, in degrees: of the subspaces of their examples, and of the directions in which they move.

PACFL (Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin, "Efficient Distribution Similarity Identification in
Clustered Federated Learning via Principal Angles Between Client Data Subspaces", AAAI 2023, arXiv:2209.10526):

    subspace         arccos σ_max(Q_iᵀQ_j), the smallest principal angle; Q_i an orthonormal basis of the columns of U_i
    sum              Σ_k arccos σ_k(Q_iᵀQ_j), of all min(p_i, p_j) principal angles
    pairwise_abs     arccos max |U_iᵀU_j|, the smallest angle between two vectors, of either sign
    pairwise_signed  arccos max U_iᵀU_j, as in the published code, though singular vectors have no sign of their own

FLAG (openreview.net/forum?id=8OrXrdPbef), which compares class by class and looks at updates, too:

    (2)  G_ij = arccos cos(Δ_i, Δ_j)
    (3)  V'_ijc = arccos σ_max of U_c^i and U_c^j; 180 if one of both has class c, 0 if none has

U_i is `bases[i]`, (inputs, vectors), U_c^i is `bases[i][c]`; either may have no columns, or be None. Departures, where
the papers say nothing: a client without any vector is at 90° to all others in PACFL, and so is one that does not move
in (2). All pairs come from one product of all bases and the singular values of many small blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from coterie.clustering import checks
from coterie.clustering.measures import cosine
from coterie.clustering.subspaces import Stack, stacked
from coterie.errors import SpecError, unknown
from coterie.threads import one_thread
from coterie.types import Array

__all__ = ["ClassBases", "PairAngle", "by_class", "class_angles", "classes_of", "pacfl_angles", "update_angles"]

Matrix = npt.NDArray[np.float64]

#: The columns that span a client's examples; None for none.
Columns: TypeAlias = npt.ArrayLike | None

#: Client → class → the columns that span its examples of that class; classes may be left off at the end.
ClassBases: TypeAlias = Sequence[Sequence[Columns]]

#: PACFL's angle between two clients.
PairAngle = Literal["subspace", "sum", "pairwise_abs", "pairwise_signed"]

_ONE_HAS, _NONE_HAS = 180.0, 0.0
_THREADS = 2


def pacfl_angles(
    bases: Sequence[Columns], angle: PairAngle = "subspace", *, others: Sequence[Columns] | None = None
) -> Matrix:
    """PACFL's angles of all pairs of clients, (clients, clients); or of clients and others, (clients, others).

    Args:
        bases: Client → the columns that span its examples, which need not be orthogonal.
        angle: Which.
        others: The columns of others to compare with.

    Raises:
        SpecError: If bases do not fit together, or the angle is not known.
    """
    if angle not in get_args(PairAngle):
        raise SpecError(unknown("angle", angle, get_args(PairAngle)))
    straight = angle in ("subspace", "sum")
    with one_thread():
        mine = stacked(bases, orthonormal=straight)
        theirs = mine if others is None else stacked(others, orthonormal=straight)
        if angle == "sum":
            found = mine.summed_angles(theirs)
        elif angle == "subspace":
            found = _degrees(mine.largest(theirs))
        else:
            found = _degrees(mine.closest(theirs, signed=angle == "pairwise_signed"))
    if others is None:
        np.fill_diagonal(found, 0.0)
    return found


def class_angles(first: ClassBases, second: ClassBases) -> Matrix:
    """V' of FLAG: angles between two sets of clients, class by class, (first, second, classes).

    Args:
        first: Client → class → columns of the one set.
        second: Those of the other.

    Raises:
        SpecError: If bases do not fit together.
    """
    found = np.zeros((len(first), len(second), classes_of(first, second)))
    for c, angles in enumerate(by_class(first, second)):
        found[:, :, c] = angles
    return found


def by_class(first: ClassBases, second: ClassBases) -> Iterator[Matrix]:
    """V' class by class, in their order; never more matrices at a time than threads."""

    def of(bases: ClassBases, c: int) -> Stack:
        return stacked([client[c] if c < len(client) else None for client in bases], name=f"class {c}")

    def one(c: int) -> Matrix:
        mine = of(first, c)
        theirs = mine if second is first else of(second, c)
        both = mine.there[:, None] & theirs.there[None]
        one_has = mine.there[:, None] ^ theirs.there[None]
        return np.where(both, _degrees(mine.largest(theirs)), np.where(one_has, _ONE_HAS, _NONE_HAS))

    n_classes = classes_of(first, second)
    with one_thread(), ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, n_classes, _THREADS):
            yield from pool.map(one, range(start, min(start + _THREADS, n_classes)))


def classes_of(*sets: ClassBases) -> int:
    """How many classes there are: as many as the longest list has."""
    return max((len(client) for bases in sets for client in bases), default=0)


def update_angles(U: npt.ArrayLike, others: npt.ArrayLike | None = None) -> Matrix:
    """G of FLAG: angles between the updates of all pairs of clients, (clients, clients); or of clients and others.

    Args:
        U: One vector for each client, (clients, d).
        others: Those of others to compare with.

    Raises:
        SpecError: If either is no such matrix or not finite, or their lengths differ.
    """
    if others is None:
        return _degrees(cosine(U))
    first, second = checks.vectors(U), checks.vectors(others, "others")
    if first.shape[1] != second.shape[1]:
        raise SpecError(f"Updates must be of one length, got {first.shape[1]} and {second.shape[1]} numbers")
    return _degrees(cosine(np.concatenate([first, second]))[: len(first), len(first) :])


def _degrees(cosines: Array) -> Matrix:
    angles: Matrix = np.rad2deg(np.arccos(np.clip(cosines, -1.0, 1.0)))
    return angles
