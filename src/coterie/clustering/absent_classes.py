"""Whether a client lacks classes by chance: because it has few examples, not because its labels are different.

A client with n examples of classes with shares q_c lacks class c with probability p_c = (1 - q_c)^n. The number K of
classes that it lacks then has

    E K = Σ_c p_c,    Var K = Σ_c p_c + Σ_{c≠d} (1 - q_c - q_d)^n - (E K)²
    by chance:  K ≤ E K + 2.5 √Var K + 1

where q_c are the shares in the examples of all clients. For example, with ten equal classes and 36 examples E K = 0.23
and Var K = 0.20: up to two absent classes are chance, eight are not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.types import Array

__all__ = ["class_shares", "lacks_by_chance"]

_DEVIATIONS = 2.5


def class_shares(counts: npt.ArrayLike) -> Array:
    """q_c: the share of each class in the examples of all clients; (classes,)."""
    totals = np.asarray(counts, np.float64).sum(axis=0)
    shares: Array = totals / max(float(totals.sum()), 1.0)
    return shares


def lacks_by_chance(counts: npt.ArrayLike, shares: npt.ArrayLike) -> Array:
    """For each client, whether chance explains the number of classes that it lacks; (clients,).

    Args:
        counts: Number of examples of each class, (clients, classes).
        shares: q_c, (classes,). Classes with share 0, which no client has, do not count.
    """
    sizes = np.asarray(counts, np.float64)
    known = np.asarray(shares, np.float64) > 0
    q = np.asarray(shares, np.float64)[known]
    n = sizes.sum(axis=1)[:, None]
    absent = (sizes[:, known] == 0).sum(axis=1)
    expected = np.power(1 - q, n).sum(axis=1)
    both = np.clip(1 - q[:, None] - q[None], 0, 1)[~np.eye(len(q), dtype=bool)]  # probability of neither c nor d
    variance = np.maximum(expected + np.power(both, n).sum(axis=1) - np.square(expected), 0)
    by_chance: Array = absent <= expected + _DEVIATIONS * np.sqrt(variance) + 1
    return by_chance
