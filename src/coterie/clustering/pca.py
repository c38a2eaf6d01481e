"""Principal component scores: a projection of the clients' vectors that keeps a share of their variance.

With X the centered rows (clients, d) and X Xᵀ = A diag(λ) Aᵀ, the scores are A diag(√λ), (clients, columns). Distances
between scores are those between rows, up to the dropped variance. The Gram matrix is (clients, clients), so that no
component of length d is computed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.errors import SpecError
from coterie.threads import one_thread

__all__ = ["principal_scores"]

# Products are computed in blocks of this many columns, so that no float64 copy of a large U is needed.
_COLUMNS = 2048
# Shares that are mathematically equal may differ by a few bits.
_ROUNDING = 1e-12


def principal_scores(U: npt.ArrayLike, share: float) -> npt.NDArray[np.float64]:
    """Scores of the clients in the fewest principal components that explain a share of the variance.

    Args:
        U: One vector per client, (clients, d).
        share: Share of the variance to keep, 0 < share ≤ 1.

    Returns:
        Scores, (clients, columns). There is at least one column, of zeros if all rows are equal. The largest entry of
        each column is positive.

    Raises:
        SpecError: If `U` is not a finite matrix, or `share` is invalid.
    """
    from scipy.linalg import eigh

    rows = array_checks.vectors(U)
    if not 0 < share <= 1:
        raise SpecError(f"share must be greater than 0 and at most 1, got {share}")
    n_clients = len(rows)
    largest = max(float(rows.max()), -float(rows.min()))
    if not largest or n_clients == 1:
        return np.zeros((n_clients, 1))
    gram = np.zeros((n_clients, n_clients))
    with one_thread():
        for start in range(0, rows.shape[1], _COLUMNS):
            block = rows[:, start : start + _COLUMNS].astype(np.float64) / largest  # so that squares stay in range
            block -= block[0].copy()  # so that equal rows become exactly 0
            block -= block.mean(axis=0)
            gram += block @ block.T
        values, vectors = eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]  # largest first
    rank = int((values > max(values[0], 0.0) * n_clients * np.finfo(np.float64).eps).sum())
    if not rank:
        return np.zeros((n_clients, 1))
    held = np.cumsum(values[:rank])
    kept = int(np.searchsorted(held, share * held[-1] * (1 - _ROUNDING))) + 1
    scores = vectors[:, :kept] * np.sqrt(values[:kept]) * largest
    # Rounded, so that among equally large entries the first decides and not the last bit.
    leader = np.round(np.abs(scores) / np.abs(scores).max(axis=0), 9).argmax(axis=0)
    signed: npt.NDArray[np.float64] = scores * np.where(scores[leader, np.arange(kept)] < 0, -1.0, 1.0)
    return signed
