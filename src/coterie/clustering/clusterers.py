"""Clustering algorithms for points, distances and similarities.

    k-means           points → k clusters with the least squared distance to their centers (FedGroup with EDC)
    agglomerative     distances → merge the two nearest clusters until k are left or a distance threshold is reached
                      (FedGroup with MADC: complete; PACFL, FLAG: average up to a threshold)
    components        distances → connected components of the graph with an edge where D_ij ≤ λ (SR-FCA, ONE_SHOT)
    bipartition       similarities → min over c1 ∪ c2 of  max_{i∈c1, j∈c2} α_ij  (CFL)

k-means++ is Arthur and Vassilvitskii, SODA 2007, through scikit-learn; agglomeration and components are SciPy's. CFL is
Sattler, Müller, Samek, "Clustered Federated Learning", arXiv:1910.01991, equation (16): joining the most similar pairs
until two components are left, which is single linkage, solves it exactly. α is `S`, λ is `threshold`.

Labels are int64. Clusters are numbered by their smallest member: client 0 is always in cluster 0, and the same
partition always has the same labels.

Departures. The authors' code of CFL uses complete linkage, which does not solve (16); it is available as
`linkage="complete"`. What PACFL's code calls "average" linkage is "weighted" here: the mean of the distances of the two
merged clusters regardless of their sizes. The diagonal of `D` is ignored, because the cross-cluster loss of a client
with itself is not 0.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.errors import SpecError, unknown
from coterie.seeds import Seed
from coterie.threads import one_thread
from coterie.types import Array

__all__ = ["Linkage", "agglomerative", "bipartition", "components", "kmeans"]

#: Distance of two clusters: mean, minimum or maximum over their pairs, or the unweighted mean of the merged clusters.
Linkage = Literal["average", "single", "complete", "weighted"]

Labels = npt.NDArray[np.int64]

# The computed mean of distances that all equal the threshold may be a few bits above it.
_ROUNDING = 1e-12
# Clients that move at the same time could move forth and back for ever.
_MOVES = 20


def kmeans(
    E: npt.ArrayLike,
    k: int,
    seed: Seed,
    *,
    restarts: int = 10,
) -> tuple[Labels, npt.NDArray[np.float64]]:
    """Labels of the rows by k-means, and the centers of the clusters, (clusters, columns).

    No cluster is empty. There are fewer than k clusters if there are fewer than k distinct rows.

    Args:
        E: One point per client, (clients, columns).
        k: Number of clusters, at least 1.
        seed: Random seed of the k-means++ initializations.
        restarts: Number of initializations; the best result is returned.

    Raises:
        SpecError: If `E` is not a finite matrix, or `k` or `restarts` is invalid.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    points = array_checks.vectors(E, "E").astype(np.float64)
    wanted, starts = array_checks.whole(k, "k", 1), array_checks.whole(restarts, "restarts", 1)
    wanted = min(wanted, len(np.unique(points, axis=0)))
    if wanted == 1:
        labels = np.zeros(len(points), np.int64)
    else:
        state = int(seed.fold("kmeans").words(1)[0] >> np.uint64(32))
        model = KMeans(wanted, init="k-means++", n_init=starts, random_state=state)
        # scikit-learn warns if rows differ only in the last bits and it finds fewer clusters than asked for.
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = _by_smallest_member(model.fit(points).labels_)
    return labels, np.stack([points[labels == j].mean(axis=0) for j in range(labels.max() + 1)])


def agglomerative(
    D: npt.ArrayLike,
    k: int | None = None,
    threshold: float | None = None,
    linkage: Linkage | Literal["ward"] = "average",
) -> Labels:
    """Labels by agglomerative clustering: the two nearest clusters are merged repeatedly.

    Args:
        D: Distances, (clients, clients).
        k: Stop at this number of clusters. With k or fewer clients, every client is its own cluster.
        threshold: Stop if the two nearest clusters are farther apart than this. Give either `k` or `threshold`.
        linkage: Distance between clusters. "ward" minimizes the squared distances to the centers and is valid only for
            Euclidean distances.

    Raises:
        SpecError: If `D` is not a matrix of distances, or not exactly one of `k` and `threshold` is given.
    """
    from scipy.cluster import hierarchy

    if (k is None) == (threshold is None):
        raise SpecError("agglomerative needs either k or threshold, " + ("got both" if k is not None else "got none"))
    if linkage not in (*get_args(Linkage), "ward"):
        raise SpecError(unknown("linkage", linkage, (*get_args(Linkage), "ward")))
    distances = array_checks.distances(D)
    n_clients = len(distances)
    if k is not None:
        array_checks.whole(k, "k", 1)
    if threshold is not None:
        check_threshold(threshold)
    if n_clients == 1:
        return np.zeros(1, np.int64)
    merges = hierarchy.linkage(condensed(distances), linkage)  # sorted by distance
    if k is not None:
        return _after(merges, max(0, n_clients - k))
    assert threshold is not None
    return _after(merges, int((merges[:, 2] <= threshold * (1 + _ROUNDING)).sum()))


def components(D: npt.ArrayLike, threshold: float, min_size: int = 1) -> Labels:
    """Labels of the connected components of the graph with an edge where D_ij ≤ threshold.

    Args:
        D: Distances, (clients, clients).
        threshold: λ, the longest edge; at least 0.
        min_size: Clients in smaller components get the label -1.

    Raises:
        SpecError: If `D` is not a matrix of distances, or `threshold` or `min_size` is invalid.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    distances = array_checks.distances(D)
    check_threshold(threshold)
    min_size = array_checks.whole(min_size, "min_size", 1)
    _, found = connected_components(csr_array(distances <= threshold), directed=False)
    return numbered(found, np.bincount(found)[found] >= min_size)


def bipartition(
    S: npt.ArrayLike,
    linkage: Literal["single", "complete", "average"] = "single",
) -> Labels:
    """Labels 0 and 1 of the bipartition that minimizes the largest similarity between the two parts.

    With average linkage, it is the mean similarity, and then clients move, all at once, to the part with the higher
    mean similarity to them until none moves, as long as both parts have clients. A single large similarity does not
    decide then, so that noise in the similarities has less influence.

    Args:
        S: Similarities, (clients, clients), of at least two clients.
        linkage: "single" is the exact solution; "complete" reproduces the authors' code; "average" compares means.

    Raises:
        SpecError: If `S` is not symmetric and finite, has only one client, or `linkage` is unknown.
    """
    from scipy.cluster import hierarchy

    if linkage not in ("single", "complete", "average"):
        raise SpecError(unknown("linkage of a bipartition", linkage, ("single", "complete", "average")))
    similarities = array_checks.similarities(S)
    if len(similarities) < 2:
        raise SpecError("A bipartition needs at least 2 clients, got 1")
    # -S instead of 1 - S, which would round close similarities to the same distance.
    merges = hierarchy.linkage(condensed(-similarities), linkage)
    labels = _after(merges, len(similarities) - 2)
    return _moved_by_means(similarities, labels) if linkage == "average" else labels


def _moved_by_means(similarities: Array, labels: Labels) -> Labels:
    """Two parts after clients have moved to the part with the higher mean similarity to them; ties stay."""
    others = similarities - np.diag(np.diagonal(similarities))
    for _ in range(_MOVES):
        member = np.eye(2)[labels]  # (clients, parts)
        counts = np.maximum(member.sum(axis=0) - member, 1e-9)  # without the client itself
        means = np.where(counts >= 1, others @ member / counts, -np.inf)
        own = means[np.arange(len(labels)), labels]
        moved = np.where(means[np.arange(len(labels)), 1 - labels] > own, 1 - labels, labels)
        if len(np.unique(moved)) < 2 or np.array_equal(moved, labels):
            break
        labels = moved
    return _by_smallest_member(labels)


def check_threshold(threshold: float) -> None:
    """Validate a distance threshold; infinity is allowed."""
    if math.isnan(threshold) or threshold < 0:
        raise SpecError(f"threshold must not be negative or NaN, got {threshold}")


def condensed(distances: Array) -> Array:
    """The condensed form that SciPy expects: the entries above the diagonal, row by row."""
    return distances[np.triu_indices(len(distances), k=1)]


def numbered(found: Array, included: Array) -> Labels:
    """Labels of the included clients, numbered by the smallest member of each cluster; -1 for the others."""
    labels = np.full(len(found), -1, np.int64)
    labels[included] = _by_smallest_member(found[included])
    return labels


def _after(merges: Array, count: int) -> Labels:
    """Labels after the first `count` merges."""
    n_clients = len(merges) + 1
    root = np.arange(n_clients + count)
    for step in reversed(
        range(count)
    ):  # the last merge first: the root of a cluster is known before those of its parts
        root[merges[step, :2].astype(np.int64)] = root[n_clients + step]
    return _by_smallest_member(root[:n_clients])


def _by_smallest_member(labels: Array) -> Labels:
    """The same partition with clusters numbered 0, 1, … in the order of their smallest members."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int64)[inverse]
