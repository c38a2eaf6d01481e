"""Comparison of many subspaces at once: bases of unequal size in one array, and functions of all pairs.

With the bases of all clients stacked in one matrix, a single product holds every Q_iᵀQ_j as a small block. Missing
vectors are zeros, which add singular values of 0 to a block and change no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError
from coterie.types import Array

Matrix = npt.NDArray[np.float64]

# Columns whose independent part is at most this fraction of their length count as linearly dependent.
_RANK = 1e-6
# Maximum number of entries of one product: 32 MB.
_NUMBERS = 2**22
# Maximum number of clients that are multiplied with all others in one product. Pairs within it are computed twice.
_CLIENTS = 16


@dataclass(frozen=True, eq=False)
class Stack:
    """The bases of several clients.

    Attributes:
        rows: (clients, vectors, inputs), padded with zeros.
        count: Number of vectors of each client, (clients,).
    """

    rows: Matrix
    count: npt.NDArray[np.int64]

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """Whether each client has at least one vector, (clients,)."""
        return self.count > 0

    def largest(self, others: Stack) -> Matrix:
        """σ_max(Q_iᵀQ_j), (clients, others)."""

        def top(blocks: Matrix) -> Matrix:
            if 0 in blocks.shape:
                return np.zeros(blocks.shape[:2])
            if 1 in blocks.shape[2:]:
                return np.asarray(np.sqrt(np.square(blocks).sum(axis=(2, 3))))
            transposed = blocks.swapaxes(2, 3)
            gram = blocks @ transposed if blocks.shape[2] <= blocks.shape[3] else transposed @ blocks
            return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[..., -1], 0.0)))

        return self._pairs(others, lambda blocks, first, second: top(blocks))

    def closest(self, others: Stack, *, signed: bool) -> Matrix:
        """The largest entry of Q_iᵀQ_j, or of its absolute values, (clients, others); 0 for clients without vectors."""

        def largest_entry(blocks: Matrix, first: Array, second: Array) -> Matrix:
            entries = blocks if signed else np.abs(blocks)
            real = _real(first, blocks.shape[2])[:, None, :, None] & _real(second, blocks.shape[3])[None, :, None]
            largest = np.where(real, entries, -np.inf).max(axis=(2, 3), initial=-np.inf)
            return np.where(np.isfinite(largest), largest, 0.0)

        return self._pairs(others, largest_entry)

    def summed_angles(self, others: Stack) -> Matrix:
        """The sum of all principal angles, (clients, others), in degrees; 90 for clients without vectors."""

        def total(blocks: Matrix, first: Array, second: Array) -> Matrix:
            n_angles = np.minimum(first[:, None], second[None])
            if 0 in blocks.shape:
                return np.full(blocks.shape[:2], 90.0)
            values = np.linalg.svd(blocks, compute_uv=False)  # largest first
            angles = np.rad2deg(np.arccos(np.clip(values, 0.0, 1.0)))
            summed = np.where(_real(n_angles, angles.shape[2]), angles, 0.0).sum(axis=2)
            return np.where(n_angles > 0, summed, 90.0)

        return self._pairs(others, total)

    def _pairs(self, others: Stack, of: Callable[[Matrix, Array, Array], Matrix]) -> Matrix:
        """Apply `of` to the blocks (vectors, vectors) of all pairs; within one stack, each pair is computed once."""
        within = others is self
        (n_first, p, inputs), (n_second, q, _) = self.rows.shape, others.rows.shape
        out = np.empty((n_first, n_second))
        height = max(1, min(_CLIENTS, _NUMBERS // max(1, n_second * p * q)))
        for start in range(0, n_first, height):
            first = slice(start, start + height)
            second = slice(start if within else 0, None)
            left, right = self.rows[first], others.rows[second]
            if p and q:
                product = left.reshape(-1, inputs) @ right.reshape(-1, inputs).T
            else:  # no client has a vector, and the number of inputs may be unknown
                product = np.zeros((len(left) * p, len(right) * q))
            blocks = product.reshape(len(left), p, len(right), q).swapaxes(1, 2)
            out[first, second] = of(blocks, self.count[first], others.count[second])
        if within:  # copy the upper half to the lower one, so that the matrix is exactly symmetric
            lower = np.tril_indices(n_first, k=-1)
            out[lower] = out.T[lower]
        return out


def stacked(bases: Sequence[npt.ArrayLike | None], *, orthonormal: bool = True, name: str = "") -> Stack:
    """The bases of several clients in one stack, in float64.

    Args:
        bases: Client → columns, (inputs, vectors); None or no columns if it has none.
        orthonormal: Whether to replace the columns by an orthonormal basis of their span; otherwise by unit vectors.
        name: Name of the class, for error messages.

    Raises:
        SpecError: If a basis is not a finite real matrix, or the numbers of inputs differ.
    """
    columns = [_checked(basis, client, name) for client, basis in enumerate(bases)]
    inputs = sorted({len(each) for each in columns if each.shape[1]})
    if len(inputs) > 1:
        raise SpecError(f"Bases must have the same number of inputs (rows), got {inputs[0]} and {inputs[-1]}")
    made = _orthonormal(columns) if orthonormal else [_unit(each) for each in columns]
    count = np.array([each.shape[1] for each in made], np.int64)
    rows = np.zeros((len(made), count.max(initial=0), inputs[0] if inputs else 0))
    for client, each in enumerate(made):
        if each.shape[1]:
            rows[client, : each.shape[1]] = each.T
    return Stack(rows, count)


def _checked(basis: npt.ArrayLike | None, client: int, name: str) -> Array:
    array = np.zeros((0, 0)) if basis is None else np.asarray(basis)
    which = f"The basis of client {client}" + (f" for {name}" if name else "")
    if array.ndim != 2:
        raise SpecError(f"{which} must be a matrix (inputs, vectors), got shape {array.shape}")
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise SpecError(f"{which} must hold finite real numbers, got type {array.dtype} with invalid entries")
    return array


def _orthonormal(columns: list[Array]) -> list[Matrix]:
    """An orthonormal basis of the span of each; bases of the same shape in one call."""
    made: list[Matrix] = [np.zeros((len(each), 0)) for each in columns]
    for width in {each.shape[1] for each in columns} - {0}:
        places = [place for place, each in enumerate(columns) if each.shape[1] == width]
        batch = np.stack([columns[place] for place in places]).astype(np.float64)
        lengths = np.sqrt(np.square(batch).sum(axis=1, keepdims=True))
        q, r = np.linalg.qr(batch / np.where(lengths > 0, lengths, 1.0))
        full = np.abs(np.diagonal(r, axis1=1, axis2=2)).min(axis=1) > _RANK
        for place, found, spans, own in zip(places, q, full, batch, strict=True):
            made[place] = found if spans and width <= len(own) else _span(own)
    return made


def _span(columns: Matrix) -> Matrix:
    """An orthonormal basis of the span of linearly dependent columns."""
    vectors, values, _ = np.linalg.svd(_unit(columns), full_matrices=False)
    return vectors[:, values > _RANK * values.max(initial=0.0)]


def _unit(columns: Array) -> Matrix:
    """The columns scaled to length 1, without zero columns."""
    wide = columns.astype(np.float64)
    lengths = np.sqrt(np.square(wide).sum(axis=0))
    return np.asarray(wide[:, lengths > 0] / lengths[lengths > 0])


def _real(count: Array, width: int) -> npt.NDArray[np.bool_]:
    """Mask of the vectors that are not padding: (..., width)."""
    return np.arange(width) < np.asarray(count)[..., None]
