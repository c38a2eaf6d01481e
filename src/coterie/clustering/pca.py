"""Principal component scores: one vector for each client in as few columns as hold most of their variance.

With X the centered rows (clients, d) and X Xᵀ = A diag(λ) Aᵀ, the scores are A diag(√λ), (clients, columns), and the
distances between them are those of the rows but for what the dropped columns held. That Gram matrix is
(clients, clients), so that for d ≫ clients no component of length d is ever formed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.clustering import checks
from coterie.errors import SpecError
from coterie.threads import one_thread

__all__ = ["principal_scores"]

# A product in blocks of this many columns makes no float64 copy of a large U.
_COLUMNS = 2048
# Shares that are equal on paper may come out a few bits apart.
_ROUNDING = 1e-12


def principal_scores(U: npt.ArrayLike, share: float) -> npt.NDArray[np.float64]:
    """Scores of the clients in the fewest principal components that hold a share of the variance, (clients, columns).

    There is at least one column, of zeros where all rows are alike. In each column the largest entry is positive.

    Args:
        U: One vector for each client, (clients, d).
        share: How much of the variance to keep, 0 < share ≤ 1.

    Raises:
        SpecError: If `U` is not such a matrix or not finite, or `share` is not allowed.
    """
    from scipy.linalg import eigh

    rows = checks.vectors(U)
    if not 0 < share <= 1:
        raise SpecError(f"share must be greater than 0 and at most 1, got {share}")
    n_clients = len(rows)
    largest = max(float(rows.max()), -float(rows.min()))
    if not largest or n_clients == 1:
        return np.zeros((n_clients, 1))
    gram = np.zeros((n_clients, n_clients))
    with one_thread():
        for start in range(0, rows.shape[1], _COLUMNS):
            block = rows[:, start : start + _COLUMNS].astype(np.float64) / largest  # squares stay within range
            block -= block[0].copy()  # first, so that equal rows become exactly 0
            block -= block.mean(axis=0)
            gram += block @ block.T
        values, vectors = eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]  # the largest first
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
