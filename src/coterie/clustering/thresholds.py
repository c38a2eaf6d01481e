"""From a threshold to clusters and back: the gap at which to cut, random pivots, joining the nearest, merging.

    gap        λ in the middle of the widest gap between the lengths at which components join, as λ grows
    quantile   λ = the ⌈q·P⌉-th of all P pairwise distances, counted from 0
    pivots     a random client with all its neighbors D_ij ≤ λ is a cluster; again among those who are left
    nearest    C(i) = argmin_c D_ic; clusters of fewer than t clients are dissolved, and these join the nearest other
    merge      connected components of the clusters with an edge where D_cc' ≤ λ

SR-FCA: Vardhan, Ghosh, Mazumdar, arXiv:2210.11538, algorithms 1, 2 and 4. λ is `threshold`, t is `min_size`, q `share`.
The first two are our own way and the published code's to find λ, pivots are what that code calls correlation
clustering.

Which gap? Components change only at the P' = n - 1 lengths at which two of them join, the edges of a minimum spanning
tree; a gap between two other distances moves nobody. The widest gap of all distances often lies among the largest ones,
between a pair of clusters and another pair. So the gap is sought between joins; and where it is cut, at least half of
the clients must be in components of t or more, since a λ at which most clients stand alone says nothing about them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.clustering import checks
from coterie.clustering.clusterers import Labels, check_threshold, components, condensed, numbered
from coterie.errors import SpecError
from coterie.seeds import Seed

__all__ = ["Gap", "merge", "nearest", "pairwise_quantile", "pivots", "widest_gap"]


class Gap(NamedTuple):
    """Where to cut.

    Attributes:
        threshold: The middle of the gap.
        low: The length of the last join below it.
        high: The length of the first join above it; the same as `low` where there is none.
    """

    threshold: float
    low: float
    high: float


def widest_gap(D: npt.ArrayLike, min_size: int = 2) -> Gap:
    """The widest gap between the lengths at which components join.

    Args:
        D: Distances, (clients, clients), of at least two clients.
        min_size: t: at the cut, at least half of the clients are in components of this size. Where no cut is like
            that, all clients are joined.

    Raises:
        SpecError: If `D` is not a matrix of distances of two clients or more, or `min_size` is not allowed.
    """
    from scipy.cluster import hierarchy

    distances = checks.distances(D)
    least = checks.whole(min_size, "min_size", 1)
    n_clients = len(distances)
    if n_clients < 2:
        raise SpecError("A gap needs the distances of at least 2 clients, got 1")
    joins = hierarchy.linkage(condensed(distances), "single")
    sizes = np.concatenate([np.ones(n_clients), joins[:, 3]]).astype(np.int64)
    within = np.where(sizes >= least, sizes, 0)  # how many clients of a component count as being in a cluster
    parts = joins[:, :2].astype(np.int64)
    covered = (n_clients if least == 1 else 0) + np.cumsum(within[n_clients:] - within[parts].sum(axis=1))
    lengths = joins[:, 2]
    gaps = np.where(2 * covered[:-1] >= n_clients, np.diff(lengths), -1.0)
    if not len(gaps) or gaps.max() < 0:
        return Gap(*[float(lengths[-1])] * 3)
    low = int(gaps.argmax())  # of equals the lowest
    middle = lengths[low] + (lengths[low + 1] - lengths[low]) / 2
    return Gap(float(middle), float(lengths[low]), float(lengths[low + 1]))


def pairwise_quantile(D: npt.ArrayLike, share: float) -> float:
    """The distance that this share of all pairs is below.

    Args:
        D: Distances, (clients, clients), of at least two clients.
        share: q, between 0 and 1.

    Raises:
        SpecError: If `D` is not a matrix of distances of two clients or more, or `share` is none.
    """
    distances = checks.distances(D)
    if len(distances) < 2:
        raise SpecError("A quantile needs the distances of at least 2 clients, got 1")
    if not 0 <= share <= 1:
        raise SpecError(f"share must lie between 0 and 1, got {share}")
    pairs = np.sort(condensed(distances))
    place = math.ceil(share * len(pairs) - 1e-9)  # 0.28 * 25 is 7.000000000000001
    return float(pairs[min(place, len(pairs) - 1)])


def pivots(D: npt.ArrayLike, threshold: float, seed: Seed, min_size: int = 1) -> Labels:
    """Labels of clusters around random clients, each with all its neighbors that are left.

    Args:
        D: Distances, (clients, clients).
        threshold: λ, how far a neighbor may be; not negative.
        seed: Where the order of the clients comes from.
        min_size: Clients in smaller clusters get the label -1.

    Raises:
        SpecError: If `D` is not a matrix of distances, or `threshold` or `min_size` is not allowed.
    """
    distances = checks.distances(D)
    check_threshold(threshold)
    least = checks.whole(min_size, "min_size", 1)
    found = np.full(len(distances), -1, np.int64)
    for pivot in seed.fold("pivots").permutation(len(distances)):
        if found[pivot] < 0:
            found[(found < 0) & (distances[pivot] <= threshold)] = pivot  # D_ii is 0: the pivot itself, too
    return numbered(found, np.bincount(found, minlength=len(found))[found] >= least)


def nearest(D: npt.ArrayLike, min_size: int = 1) -> Labels:
    """The nearest cluster of each client, none of them with fewer than so many clients; ties go to the lowest number.

    If all clusters would be dissolved, all clients join the largest.

    Args:
        D: Distances of clients to clusters, (clients, clusters).
        min_size: t: smaller clusters are dissolved.

    Raises:
        SpecError: If `D` is no such matrix or not finite, or `min_size` is not allowed.
    """
    distances = checks.vectors(D, "D")
    least = checks.whole(min_size, "min_size", 1)
    labels: Labels = distances.argmin(axis=1).astype(np.int64)
    sizes = np.bincount(labels, minlength=distances.shape[1])
    surviving = np.flatnonzero(sizes >= least)
    if not len(surviving):
        surviving = np.array([sizes.argmax()])
    homeless = ~np.isin(labels, surviving)
    labels[homeless] = surviving[distances[np.ix_(homeless, surviving)].argmin(axis=1)]
    return labels


def merge(labels: npt.ArrayLike, D: npt.ArrayLike, threshold: float) -> tuple[Labels, list[list[int]]]:
    """Labels after clusters that are near enough became one, and for each new cluster the old ones that it is made of.

    Clusters that nobody is in are left out. The others are numbered anew in the order of their smallest old number,
    so that whoever keeps a model for each old number knows which is whose.

    Args:
        labels: The cluster of each client.
        D: Distances of all clusters, (clusters, clusters).
        threshold: λ; not negative.

    Raises:
        SpecError: If `D` is not a matrix of distances, `labels` are not its rows, or `threshold` is not allowed.
    """
    distances, old = checks.distances(D), np.asarray(labels)
    if not len(old) or not 0 <= old.min() <= old.max() < len(distances):
        raise SpecError(f"labels must be clusters from 0 to {len(distances) - 1}, at least one")
    used, place = np.unique(old, return_inverse=True)
    joined = components(distances[np.ix_(used, used)], threshold)
    return joined[place], [used[joined == j].tolist() for j in range(joined.max() + 1)]
