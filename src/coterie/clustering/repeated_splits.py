"""Clusters whose members would be found again with other examples: splits on which two halves of each client agree.

A cluster, at first all clients, is divided in two by average linkage (`bipartition`). Whether the division is more than
noise is decided by two halves A, B of each client's examples. For client i of the cluster,

    a_i = mean of D(A_i, j) over j ≠ i in part 1 - mean of D(A_i, j) over j ≠ i in part 2,    b_i likewise from B_i
    repeated:  r = corr(a, b) ≥ 0.65  and  z = artanh(r) √(n - 3) ≥ 4.5                       n: size of the cluster

In a cluster without structure the two parts follow the noise of the examples, the halves of a client have independent
noise, and r is near 0. The client itself is left out of the means, because it contains both halves. If the split is
repeated, the parts are divided in the same way; if not, the cluster stays whole. z is Fisher's test (1921): with few
clients r varies much. A part needs at least two clients, and a cluster of fewer than five is not divided.

Members of one true cluster may really differ, for example in their label shares, and then their halves agree. With
`least` above 0, parts are not divided whose mean distance is at most this share of the median distance of all clients.

D is `distances` between clients, D(A_i, j) is `first[i, j]`, D(B_i, j) `second[i, j]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.clustering.clusterers import Labels, bipartition, condensed
from coterie.errors import SpecError
from coterie.types import Array

__all__ = ["RepeatedSplits", "correlation", "is_repeated", "repeated_splits"]

_LEAST, _Z = 0.65, 4.5


class RepeatedSplits(NamedTuple):
    """Clusters, and the divisions that were tried.

    Attributes:
        labels: The cluster of each client, numbered by their first clients.
        tried: (size of the cluster, size of the smaller part, r) of each division, the first one of all clients.
    """

    labels: Labels
    tried: list[tuple[int, int, float]]


def repeated_splits(
    distances: npt.ArrayLike, first: npt.ArrayLike, second: npt.ArrayLike, least: float = 0.0
) -> RepeatedSplits:
    """Divide clients in two again and again, as long as both halves of their examples agree.

    Args:
        distances: D, (clients, clients).
        first: Distances of the first half of each client to all clients, (clients, clients).
        second: The same for the second half.
        least: Least mean distance between two parts, as a share of the median distance of all clients.

    Raises:
        SpecError: If `distances` is not a matrix of distances, or the others are not finite or of another size.
    """
    whole = array_checks.distances(distances)
    halves = [array_checks.vectors(each, name) for each, name in ((first, "first"), (second, "second"))]
    if any(each.shape != whole.shape for each in halves):
        raise SpecError(f"first and second must be {whole.shape}, like distances")
    limit = least * float(np.median(condensed(whole))) if len(whole) > 1 else 0.0
    labels, tried = np.zeros(len(whole), np.int64), []
    waiting = [np.arange(len(whole))]
    while waiting:
        cluster = waiting.pop()
        if len(cluster) < 5:
            continue
        square = np.ix_(cluster, cluster)
        side = bipartition(-whole[square], "average")
        smaller = int(min(side.sum(), len(side) - side.sum()))
        r = correlation(*(_leaning(half[square], side) for half in halves)) if smaller > 1 else 0.0
        tried.append((len(cluster), smaller, r))
        apart = float(whole[np.ix_(cluster[side == 0], cluster[side == 1])].mean())
        if apart > limit and is_repeated(r, len(cluster)):
            labels[cluster[side == 1]] = labels.max() + 1
            waiting += [cluster[side == 1], cluster[side == 0]]
    return RepeatedSplits(_numbered(labels), tried)


def correlation(first: Array, second: Array) -> float:
    """Pearson correlation over clients of what the two halves of their examples give; 0 if one of them is constant."""
    one, two = (np.asarray(each, np.float64) - np.mean(each, dtype=np.float64) for each in (first, second))
    norms = float(np.linalg.norm(one) * np.linalg.norm(two))
    return float(one @ two) / norms if norms else 0.0


def is_repeated(r: float, clients: int) -> bool:
    """Whether the halves of so many clients agree, and by more than chance."""
    if r < _LEAST:
        return False
    return bool(np.arctanh(min(r, 1 - 1e-12)) * np.sqrt(max(clients - 3, 0)) >= _Z)


def _leaning(distances: Array, side: Labels) -> Array:
    """Mean distance of each half to the first part minus that to the second, without the client itself."""
    others = distances - np.diag(np.diagonal(distances))
    member = np.eye(2)[side]
    means = others @ member / (member.sum(axis=0) - member)
    leaning: Array = means[:, 0] - means[:, 1]
    return leaning


def _numbered(labels: Labels) -> Labels:
    _, place, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(place))
    return rank[inverse].astype(np.int64)
