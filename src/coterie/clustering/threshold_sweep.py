"""The distinct partitions of agglomerative clustering at decreasing thresholds, as FLAG tries them.

    for α = 1, 1-s, …: agglomerate while D ≤ α; of equal partitions the largest α is kept

s is `step`; D is scaled to [0, 1].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.clustering.clusterers import Linkage, agglomerative
from coterie.types import Array

__all__ = ["threshold_partitions"]


def threshold_partitions(
    D: npt.ArrayLike, step: float, linkage: Linkage = "average", *, singletons: bool = True
) -> tuple[tuple[float, ...], Array]:
    """The largest threshold of each distinct partition, and its labels, (partitions, clients); fewest clusters first.

    Args:
        D: Distances within [0, 1], (clients, clients).
        step: s, the step from one threshold to the next.
        linkage: Distance between clusters.
        singletons: Whether 0 is the last threshold, where only clients at distance 0 are joined.
    """
    count = int(np.ceil(1 / step - 1e-9))
    thresholds = [round(1 - k * step, 12) for k in range(count)]  # 0.3, not 0.30000000000000004
    found: dict[int, tuple[float, Array]] = {}  # partitions are nested: equal numbers of clusters mean equal partitions
    for alpha in [*thresholds, 0.0] if singletons else thresholds:
        labels = agglomerative(D, threshold=alpha, linkage=linkage)
        found.setdefault(int(labels.max()), (alpha, labels))
    kept = [found[number] for number in sorted(found)]
    return tuple(alpha for alpha, _ in kept), np.stack([labels for _, labels in kept])
