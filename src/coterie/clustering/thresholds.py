"""Choosing a distance threshold, and clustering with one: random pivots, nearest cluster, merging.

    gap        λ in the middle of the widest gap between the distances at which components join, as λ grows
    quantile   λ = the ⌈q·P⌉-th of all P pairwise distances, counted from 0
    pivots     a random client with all its neighbors D_ij ≤ λ is a cluster; repeated for the remaining clients
    nearest    C(i) = argmin_c D_ic; clusters of fewer than t clients are dissolved, and their clients join the nearest
               remaining cluster
    merge      connected components of the clusters with an edge where D_cc' ≤ λ

SR-FCA: Vardhan, Ghosh, Mazumdar, arXiv:2210.11538, algorithms 1, 2 and 4. λ is `threshold`, t is `min_size`, q `share`.
The gap is Coterie's own rule for λ. The quantile is the rule of the published code, which calls the pivots correlation
clustering.

The gap: components change only at the n - 1 distances at which two of them join, the edges of a minimum spanning tree,
so only gaps between these matter. The widest gap between all distances would often be among the largest ones, between
different pairs of clusters. In addition, at least half of the clients must be in components of t or more clients at the
cut, because a λ at which most clients are isolated is not informative.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.clustering.clusterers import Labels, check_threshold, components, condensed, numbered
from coterie.errors import SpecError
from coterie.seeds import Seed

__all__ = ["Gap", "merge", "nearest", "pairwise_quantile", "pivots", "widest_gap"]


class Gap(NamedTuple):
    """A threshold in a gap between the distances at which components join.

    Attributes:
        threshold: Middle of the gap.
        low: Distance of the last join below the gap.
        high: Distance of the first join above the gap; equal to `low` if there is none.
    """

    threshold: float
    low: float
    high: float


def widest_gap(D: npt.ArrayLike, min_size: int = 2) -> Gap:
    """The widest gap between the distances at which components join.

    Args:
        D: Distances, (clients, clients), of at least two clients.
        min_size: t: at the cut, at least half of the clients are in components of this size or larger. If there is no
            such cut, all clients are joined.

    Raises:
        SpecError: If `D` is not a matrix of distances of at least two clients, or `min_size` is invalid.
    """
    from scipy.cluster import hierarchy

    distances = array_checks.distances(D)
    min_size = array_checks.whole(min_size, "min_size", 1)
    n_clients = len(distances)
    if n_clients < 2:
        raise SpecError("A gap needs the distances of at least 2 clients, got 1")
    joins = hierarchy.linkage(condensed(distances), "single")
    sizes = np.concatenate([np.ones(n_clients), joins[:, 3]]).astype(np.int64)
    within = np.where(sizes >= min_size, sizes, 0)  # clients in components that are large enough
    parts = joins[:, :2].astype(np.int64)
    covered = (n_clients if min_size == 1 else 0) + np.cumsum(within[n_clients:] - within[parts].sum(axis=1))
    lengths = joins[:, 2]
    gaps = np.where(2 * covered[:-1] >= n_clients, np.diff(lengths), -1.0)
    if not len(gaps) or gaps.max() < 0:
        return Gap(*[float(lengths[-1])] * 3)
    low = int(gaps.argmax())  # ties go to the lowest gap
    middle = lengths[low] + (lengths[low + 1] - lengths[low]) / 2
    return Gap(float(middle), float(lengths[low]), float(lengths[low + 1]))


def pairwise_quantile(D: npt.ArrayLike, share: float) -> float:
    """A quantile of the distances of all pairs of clients.

    Args:
        D: Distances, (clients, clients), of at least two clients.
        share: q, the share of pairs below the quantile, between 0 and 1.

    Raises:
        SpecError: If `D` is not a matrix of distances of at least two clients, or `share` is invalid.
    """
    distances = array_checks.distances(D)
    if len(distances) < 2:
        raise SpecError("A quantile needs the distances of at least 2 clients, got 1")
    if not 0 <= share <= 1:
        raise SpecError(f"share must be between 0 and 1, got {share}")
    pairs = np.sort(condensed(distances))
    place = math.ceil(share * len(pairs) - 1e-9)  # 0.28 * 25 is 7.000000000000001
    return float(pairs[min(place, len(pairs) - 1)])


def pivots(D: npt.ArrayLike, threshold: float, seed: Seed, min_size: int = 1) -> Labels:
    """Labels of clusters around random pivots: each pivot with all its remaining neighbors.

    Args:
        D: Distances, (clients, clients).
        threshold: λ, the largest distance of a neighbor; at least 0.
        seed: Random seed of the order of the clients.
        min_size: Clients in smaller clusters get the label -1.

    Raises:
        SpecError: If `D` is not a matrix of distances, or `threshold` or `min_size` is invalid.
    """
    distances = array_checks.distances(D)
    check_threshold(threshold)
    min_size = array_checks.whole(min_size, "min_size", 1)
    found = np.full(len(distances), -1, np.int64)
    for pivot in seed.fold("pivots").permutation(len(distances)):
        if found[pivot] < 0:
            found[(found < 0) & (distances[pivot] <= threshold)] = pivot  # includes the pivot itself, because D_ii is 0
    return numbered(found, np.bincount(found, minlength=len(found))[found] >= min_size)


def nearest(D: npt.ArrayLike, min_size: int = 1) -> Labels:
    """The nearest cluster of each client, among clusters with at least `min_size` clients.

    Ties go to the lowest number. If all clusters are too small, all clients join the largest.

    Args:
        D: Distances of clients to clusters, (clients, clusters).
        min_size: t: smaller clusters are dissolved.

    Raises:
        SpecError: If `D` is not a finite matrix, or `min_size` is invalid.
    """
    distances = array_checks.vectors(D, "D")
    min_size = array_checks.whole(min_size, "min_size", 1)
    labels: Labels = distances.argmin(axis=1).astype(np.int64)
    sizes = np.bincount(labels, minlength=distances.shape[1])
    surviving = np.flatnonzero(sizes >= min_size)
    if not len(surviving):
        surviving = np.array([sizes.argmax()])
    dissolved = ~np.isin(labels, surviving)
    labels[dissolved] = surviving[distances[np.ix_(dissolved, surviving)].argmin(axis=1)]
    return labels


def merge(labels: npt.ArrayLike, D: npt.ArrayLike, threshold: float) -> tuple[Labels, list[list[int]]]:
    """Labels after merging clusters that are within the threshold, and the old clusters that make up each new one.

    Empty clusters are dropped. The others are renumbered in the order of their smallest old number.

    Args:
        labels: Cluster of each client.
        D: Distances between clusters, (clusters, clusters).
        threshold: λ; at least 0.

    Returns:
        The new label of each client, and for each new cluster the list of its old clusters.

    Raises:
        SpecError: If `D` is not a matrix of distances, `labels` are not indices of its rows, or `threshold` is invalid.
    """
    distances, old = array_checks.distances(D), np.asarray(labels)
    if not len(old) or not 0 <= old.min() <= old.max() < len(distances):
        raise SpecError(f"labels must be at least one number from 0 to {len(distances) - 1}")
    used, place = np.unique(old, return_inverse=True)
    joined = components(distances[np.ix_(used, used)], threshold)
    return joined[place], [used[joined == j].tolist() for j in range(joined.max() + 1)]
