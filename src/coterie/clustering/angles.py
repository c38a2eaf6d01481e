"""Angles between clients, in degrees: between the subspaces of their examples, and between their updates.

PACFL (Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin, "Efficient Distribution Similarity Identification in
Clustered Federated Learning via Principal Angles Between Client Data Subspaces", AAAI 2023, arXiv:2209.10526):

    subspace         arccos σ_max(Q_iᵀQ_j), the smallest principal angle; Q_i an orthonormal basis of the columns of U_i
    sum              Σ_k arccos σ_k(Q_iᵀQ_j), the sum of all min(p_i, p_j) principal angles
    pairwise_abs     arccos max |U_iᵀU_j|, the smallest angle between two vectors, ignoring signs
    pairwise_signed  arccos max U_iᵀU_j, as in the published code, although singular vectors have no sign

FLAG (openreview.net/forum?id=8OrXrdPbef), which compares clients class by class and also compares updates:

    (2)  G_ij = arccos cos(Δ_i, Δ_j)
    (3)  V'_ijc = arccos σ_max(U_c^iᵀ U_c^j); 180 if only one of the clients has class c, 0 if neither has

U_i is `bases[i]`, (inputs, vectors), U_c^i is `bases[i][c]`; either may have no columns, or be None. Not specified in
the papers: in PACFL a client without vectors is at 90° to all others, and so is a client with a zero update in (2). All
pairs are computed from one product of all bases and the singular values of many small blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.clustering.measures import cosine
from coterie.clustering.subspaces import Stack, stacked
from coterie.errors import SpecError, unknown
from coterie.threads import one_thread
from coterie.types import Array

__all__ = ["ClassBases", "PairAngle", "by_class", "class_angles", "classes_of", "pacfl_angles", "update_angles"]

Matrix = npt.NDArray[np.float64]

#: Columns that span a client's examples; None: no examples.
Columns: TypeAlias = npt.ArrayLike | None

#: Client → class → columns that span its examples of that class; trailing classes may be omitted.
ClassBases: TypeAlias = Sequence[Sequence[Columns]]

#: PACFL's angle between two clients.
PairAngle = Literal["subspace", "sum", "pairwise_abs", "pairwise_signed"]

_ONLY_ONE, _NEITHER = 180.0, 0.0
_THREADS = 2


def pacfl_angles(
    bases: Sequence[Columns], angle: PairAngle = "subspace", *, others: Sequence[Columns] | None = None
) -> Matrix:
    """PACFL's angles between all pairs of clients, (clients, clients).

    Args:
        bases: Client → columns that span its examples; they need not be orthogonal.
        angle: Which angle; see the module docstring.
        others: Columns of the clients to compare with; the result is then (clients, others).

    Returns:
        Angles in degrees.

    Raises:
        SpecError: If the bases are invalid or differ in the number of inputs, or the angle is unknown.
    """
    if angle not in get_args(PairAngle):
        raise SpecError(unknown("angle", angle, get_args(PairAngle)))
    orthonormal = angle in ("subspace", "sum")
    with one_thread():
        stack = stacked(bases, orthonormal=orthonormal)
        other_stack = stack if others is None else stacked(others, orthonormal=orthonormal)
        if angle == "sum":
            found = stack.summed_angles(other_stack)
        elif angle == "subspace":
            found = _degrees(stack.largest(other_stack))
        else:
            found = _degrees(stack.closest(other_stack, signed=angle == "pairwise_signed"))
    if others is None:
        np.fill_diagonal(found, 0.0)
    return found


def class_angles(first: ClassBases, second: ClassBases) -> Matrix:
    """V' of FLAG: angles between two sets of clients for each class, (first, second, classes), in degrees.

    Args:
        first: Client → class → columns, of the first set.
        second: The same for the second set.

    Raises:
        SpecError: If the bases are invalid or differ in the number of inputs.
    """
    found = np.zeros((len(first), len(second), classes_of(first, second)))
    for c, angles in enumerate(by_class(first, second)):
        found[:, :, c] = angles
    return found


def by_class(first: ClassBases, second: ClassBases) -> Iterator[Matrix]:
    """V' for one class after the other; at most one matrix per thread is in memory."""

    def of(bases: ClassBases, c: int) -> Stack:
        return stacked([client[c] if c < len(client) else None for client in bases], name=f"class {c}")

    def one(c: int) -> Matrix:
        stack = of(first, c)
        other_stack = stack if second is first else of(second, c)
        both = stack.present[:, None] & other_stack.present[None]
        one_has = stack.present[:, None] ^ other_stack.present[None]
        return np.where(both, _degrees(stack.largest(other_stack)), np.where(one_has, _ONLY_ONE, _NEITHER))

    n_classes = classes_of(first, second)
    with one_thread(), ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, n_classes, _THREADS):
            yield from pool.map(one, range(start, min(start + _THREADS, n_classes)))


def classes_of(*sets: ClassBases) -> int:
    """Number of classes: the length of the longest list."""
    return max((len(client) for bases in sets for client in bases), default=0)


def update_angles(U: npt.ArrayLike, others: npt.ArrayLike | None = None) -> Matrix:
    """G of FLAG: angles between the updates of all pairs of clients, (clients, clients), in degrees.

    Args:
        U: One vector per client, (clients, d).
        others: Vectors of the clients to compare with, (others, d); the result is then (clients, others).

    Raises:
        SpecError: If an argument is not a finite matrix, or the lengths of the vectors differ.
    """
    if others is None:
        return _degrees(cosine(U))
    first, second = array_checks.vectors(U), array_checks.vectors(others, "others")
    if first.shape[1] != second.shape[1]:
        raise SpecError(f"Updates must have the same length, got {first.shape[1]} and {second.shape[1]}")
    return _degrees(cosine(np.concatenate([first, second]))[: len(first), len(first) :])


def _degrees(cosines: Array) -> Matrix:
    angles: Matrix = np.rad2deg(np.arccos(np.clip(cosines, -1.0, 1.0)))
    return angles
