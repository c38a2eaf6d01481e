"""Similarity measures between clients: cosine, MADC, EDC, distances and angles, from one vector per client.

    cosine            S_ij = ⟨Δ_i, Δ_j⟩ / (‖Δ_i‖ ‖Δ_j‖)
    MADC              MADC_ij = 1/(n-2) Σ_{z ∉ {i,j}} |S_iz - S_jz|
                              = (Σ_z |S_iz - S_jz| - |S_ii - S_ji| - |S_ij - S_jj|) / (n-2)
    EDC               e_i = (cos(Δ_i, v_1), …, cos(Δ_i, v_m)),    EDC_ij = 1/m ‖e_i - e_j‖₂
    principal angle   arccos σ_max(Q_Aᵀ Q_B), the smallest between two subspaces, in degrees

MADC and EDC are from FedGroup (Duan et al., "FedGroup: Efficient Clustered Federated Learning via Decomposed
Data-Driven Measure", arXiv:2010.06870, sections III-B and III-C), the angle is that of PACFL (arXiv:2209.10526) and
FLAG.

Δ_i is `U[i]`, n the number of clients, v_k the left singular vectors of Δᵀ (d × n), not centered. They are never
computed, because d ≫ n: with G = Δ Δᵀ = A diag(σ²) Aᵀ and r_i = ‖Δ_i‖, v_k = Σ_j A_jk Δ_j / σ_k, hence

    e_ik = Σ_j S_ij r_j A_jk / σ_k        (equal to A_ik σ_k / r_i, but as accurate for short Δ_i as for long ones).

In a cosine matrix both terms that MADC omits are 1 - S_ij, which is the form in FedGroup's code. Not specified in the
paper: a zero vector has cosine 0 to all others and 1 to itself; MADC of two clients is 1 - S_01; EDC has zero columns
if the rank is below m, where a σ_k below 1.5e-8·√n σ_1 counts as 0, because a Gram matrix cannot distinguish it from
rounding; the largest entry of each column of e is positive.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.errors import SpecError
from coterie.threads import one_thread
from coterie.types import Array

__all__ = ["cosine", "edc", "edc_embedding", "l1", "l2", "madc", "madc_of", "principal_angle"]

Matrix = npt.NDArray[np.float64]

# Products are computed in blocks of this many columns, so that no float64 copy of a large U is needed.
_COLUMNS = 2048
# Pairwise distances are computed in tiles of (rows, columns); two tiles fit into the second-level cache of a core.
_TILE = 64, 2048
_THREADS = 2
# Scaling by more than 2^1000 would overflow.
_MAX_BITS = 1000


def cosine(U: npt.ArrayLike) -> Matrix:
    """Cosine similarities of all pairs of clients, (clients, clients), within [-1, 1], with ones on the diagonal.

    Sums are in float64 over blocks of columns, without a float64 copy of `U`.

    Args:
        U: One vector per client, (clients, d).

    Raises:
        SpecError: If `U` is not a finite matrix.
    """
    return _cosine_and_norms(array_checks.vectors(U))[0]


def madc(U: npt.ArrayLike) -> Matrix:
    """Mean absolute differences of pairwise cosines (MADC), (clients, clients).

    Two clients are close if their cosines to all other clients are similar.

    Args:
        U: One vector per client, (clients, d).

    Raises:
        SpecError: If `U` is not a finite matrix.
    """
    return madc_of(cosine(U))


def madc_of(S: npt.ArrayLike) -> Matrix:
    """MADC from a matrix of cosine similarities; needs no memory besides the result.

    Args:
        S: Cosine similarities, (clients, clients).

    Raises:
        SpecError: If `S` is not square or not finite.
    """
    cosines = array_checks.square(S, "S")
    n_clients = len(cosines)
    if n_clients == 1:
        return np.zeros((1, 1))
    if n_clients == 2:
        distance = max(0.0, 1 - (cosines[0, 1] + cosines[1, 0]) / 2)
        return np.array([[0.0, distance], [distance, 0.0]])
    out = _pairwise(cosines, "cityblock")
    own = np.diagonal(cosines).copy()
    for start in range(0, n_clients, _TILE[0]):
        rows = slice(start, start + _TILE[0])
        out[rows] -= np.abs(cosines[rows] - own) + np.abs(cosines[:, rows].T - own[rows, None])
    out /= n_clients - 2
    np.fill_diagonal(out, 0.0)
    return np.maximum(out, 0.0, out=out)  # the difference of two equal sums may round below 0


def edc_embedding(U: npt.ArrayLike, m: int) -> Matrix:
    """Cosines between each client and the m leading singular vectors of all clients, (clients, m): input of k-means.

    Args:
        U: One vector per client, (clients, d).
        m: Number of directions, at least 1; columns beyond the rank of `U` are 0.

    Raises:
        SpecError: If `U` is not a finite matrix, or `m` is invalid.
    """
    from scipy.linalg import eigh

    updates = array_checks.vectors(U)
    columns = array_checks.whole(m, "m", 1)
    cosines, norms = _cosine_and_norms(updates)
    n_clients = len(cosines)
    out = np.zeros((n_clients, columns))
    if not norms.any():
        return out
    gram = cosines * norms[:, None] * norms
    top = min(columns, n_clients)
    with one_thread():
        values, vectors = eigh(gram, subset_by_index=[n_clients - top, n_clients - 1])
    values, vectors = values[::-1], vectors[:, ::-1]  # largest first
    rank = int((values > values[0] * n_clients * np.finfo(np.float64).eps).sum())
    embedding = cosines @ (norms[:, None] * vectors[:, :rank]) / np.sqrt(values[:rank])
    # Rounded, so that among equally large entries the first decides and not the last bit.
    leader = np.round(np.abs(embedding), 9).argmax(axis=0)
    embedding *= np.where(embedding[leader, np.arange(rank)] < 0, -1.0, 1.0)
    out[:, :rank] = np.clip(embedding, -1.0, 1.0)
    return out


def edc(U: npt.ArrayLike, m: int) -> Matrix:
    """Euclidean distances of decomposed cosines (EDC), divided by m, (clients, clients).

    Args:
        U: One vector per client, (clients, d).
        m: Number of directions, at least 1.

    Raises:
        SpecError: If `U` is not a finite matrix, or `m` is invalid.
    """
    embedding = edc_embedding(U, m)
    return np.divide(l2(embedding), embedding.shape[1])


def l1(U: npt.ArrayLike) -> Matrix:
    """l1 (city-block) distances of all pairs of clients, (clients, clients).

    Args:
        U: One vector per client, (clients, d).

    Raises:
        SpecError: If `U` is not a finite matrix.
    """
    return _pairwise(array_checks.vectors(U), "cityblock")


def l2(U: npt.ArrayLike) -> Matrix:
    """l2 (Euclidean) distances of all pairs of clients, (clients, clients); exactly 0 for equal vectors.

    Args:
        U: One vector per client, (clients, d).

    Raises:
        SpecError: If `U` is not a finite matrix, or its squares overflow.
    """
    # From differences and not from a Gram matrix, whose rounding would hide small distances between similar models.
    return np.sqrt(_pairwise(array_checks.vectors(U), "sqeuclidean"))


def principal_angle(A: npt.ArrayLike, B: npt.ArrayLike) -> float:
    """The smallest principal angle between the subspaces spanned by two sets of columns, in degrees from 0 to 90.

    The columns need not be orthogonal; their signs and order do not matter.

    Args:
        A: Vectors that span the first subspace, (features, vectors).
        B: Vectors that span the second subspace, with the same number of features.

    Raises:
        SpecError: If an argument is not a finite matrix or is all 0, or the numbers of features differ.
    """
    from scipy.linalg import subspace_angles

    first, second = array_checks.vectors(A, "A").astype(np.float64), array_checks.vectors(B, "B").astype(np.float64)
    if len(first) != len(second):
        raise SpecError(f"A and B must have the same number of features (rows), got {len(first)} and {len(second)}")
    for name, basis in (("A", first), ("B", second)):
        if not basis.any():
            raise SpecError(f"{name} is all 0: an angle needs at least one nonzero vector")
    return float(np.rad2deg(subspace_angles(first, second).min()))


def _cosine_and_norms(updates: Array) -> tuple[Matrix, Matrix]:
    """Cosines of all pairs, and the norms of the vectors divided by a power of two near the largest."""
    largest = np.maximum(updates.max(axis=1).astype(np.float64), -updates.min(axis=1).astype(np.float64))
    _, bits = np.frexp(largest)
    # Scaling by powers of two is exact, and squares of very large or small vectors stay in range.
    bits = np.maximum(bits, -_MAX_BITS)
    scale = np.ldexp(1.0, -bits)[:, None]

    def part(first: int) -> Matrix:
        total = np.zeros((len(updates), len(updates)))
        for start in range(first * _COLUMNS, updates.shape[1], _THREADS * _COLUMNS):
            block = updates[:, start : start + _COLUMNS].astype(np.float64)
            block *= scale
            total += block @ block.T
        return total

    # Each thread sums every second block, and the sums are added in order: the same bytes on any number of cores.
    with one_thread(), ThreadPoolExecutor(_THREADS) as pool:
        gram = functools.reduce(np.add, pool.map(part, range(_THREADS)))
    norms = np.sqrt(np.diagonal(gram))
    length = np.where(norms > 0, norms, 1.0)
    gram /= length[:, None] * length
    np.clip(gram, -1.0, 1.0, out=gram)
    np.fill_diagonal(gram, 1.0)
    return gram, np.ldexp(norms, bits - bits.max())


def _pairwise(rows: Array, metric: Literal["cityblock", "sqeuclidean"]) -> Matrix:
    """Distances of all pairs of rows, tile by tile."""
    from scipy.spatial.distance import cdist

    n_rows, (height, width) = len(rows), _TILE
    out = np.empty((n_rows, n_rows))

    def tile(corner: tuple[int, int]) -> None:
        one, two = (slice(start, start + height) for start in corner)
        parts = (slice(start, start + width) for start in range(0, rows.shape[1], width))
        total = functools.reduce(np.add, (cdist(rows[one, part], rows[two, part], metric) for part in parts))
        out[one, two] = total
        out[two, one] = total.T

    starts = range(0, n_rows, height)
    corners = [(one, two) for one in starts for two in starts if one <= two]
    if len(corners) == 1:
        tile(corners[0])
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(tile, corners))  # list() raises exceptions of the threads
    if not np.isfinite(out.max()):
        raise SpecError("U holds numbers so large that distances overflow: divide U by a constant")
    return out
