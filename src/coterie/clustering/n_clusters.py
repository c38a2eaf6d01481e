"""Choosing the number of clusters.

`choose_n_clusters` scores every number of clusters k from 2 to `max_clusters` by one of

    silhouette   mean over clients of (b_i - a_i) / max(a_i, b_i), where a_i is the mean distance to the client's own
                 cluster and b_i to the nearest other one (Rousseeuw 1987); the smallest k within 0.02 of the best wins
    stability    mean adjusted Rand index, over pairs of subsamples of 80 %, between the clusterings of the clients in
                 both (Ben-Hur, Elisseeff, Guyon 2002); the largest k within 0.02 of the best wins
    eigengap     λ_{k+1} - λ_k of the normalized Laplacian of exp(-D²/2s²), where s is the median distance to the
                 n/(2 max_clusters)-th neighbor (von Luxburg 2007, section 8.3); the largest gap wins

Distances between noisy high-dimensional vectors, such as MADC, are far above 0 even for equal clients, and then the
silhouette does not separate two clusters that are close to each other. For distances, the median distance of a client
to its nearest neighbor is therefore subtracted from all of them before the silhouette is computed.

The result is **one cluster** unless the winner scores higher than data without clusters. A fixed threshold does not
work: k-means with two clusters has a silhouette near 0.6 on a normal sample on a line, near 0.3 in the plane, and near
0 in many dimensions. So the threshold is measured as in SigClust (Liu, Hayes, Nobel, Marron 2008): draw ten normal
samples with the same number of clients and the same principal variances (of `X`, or of the classical scaling of the
distances), cluster each into the winning number and score it. For the eigengap, which varies more and costs less, draw
thirty and drop the one with the largest gap. The threshold is

    max(floor, mean + 3 standard deviations of those scores)       at most 0.99 for stability, whose maximum is 1

with a floor of 0.25 for the silhouette (below it, no substantial structure: Kaufman and Rousseeuw 1990, table 2.4), 0.9
for stability and 0.1 for the eigengap, for which each sample contributes its largest gap. The threshold is reported as
the score of k = 1. Three or fewer clients are always one cluster. Data that are neither normal nor clustered, such as a
uniform square, may exceed the threshold of the eigengap.

`elbow` is FLAG's rule for the number of clusters from the scores of trial runs: with the partitions' sizes Z_s
ascending and their scores a_s, x_s = (Z_s - Z_1)/(Z_max - Z_1), y_s = clip((a_s - a_1)/(max a - a_1), 0, 1), take the
largest y_s - x_s, or Z_1 if max a - a_1 < 0.01. `sizes` is Z, `scores` is a.

`guarded_elbow` takes fewer clusters than the elbow if single clients do not show that they are worse. Each client has
several scores a_si, such as its accuracy and its negative loss. e is the largest elbow of all of them; with
d_i = a_ei - a_si and m clients, partition s is worse than e beyond noise if, for any score,

    mean(d) > 2 sd(d) / √m

and the smallest Z_s that is not worse is taken. The scores of one client in two partitions share most of their noise,
because its validation examples are the same, so that their difference has a smaller error than either mean. One
standard error is the rule of CART (Breiman et al. 1984, section 3.4.3); the elbow is the most favorable of several
partitions, which calls for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.clustering.clusterers import Linkage, agglomerative, kmeans
from coterie.clustering.measures import l2
from coterie.errors import SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

__all__ = ["Choice", "ChoiceRule", "ElbowRule", "choose_n_clusters", "elbow", "guarded_elbow"]

#: Score by which the number of clusters is chosen.
ChoiceRule = Literal["silhouette", "eigengap", "stability"]

#: FLAG's elbow, the best score, or the fewest clusters within 0.01 of the best score.
ElbowRule = Literal["elbow", "best", "tolerance"]

# Number of samples without clusters for the threshold.
_DRAWS: dict[str, int] = {"silhouette": 10, "eigengap": 30, "stability": 10}
_FLOOR: dict[str, float] = {"silhouette": 0.25, "eigengap": 0.1, "stability": 0.9}
_PAIRS, _SHARE = 5, 0.8
# Silhouettes and stabilities that differ by at most this count as equal.
_EQUAL = 0.02
# k-means restarts, the same for the data and for the samples they are compared with.
_RESTARTS = 3
_WORTHWHILE = 0.01
# Standard errors within which fewer clusters than at the elbow count as equally good.
_ERRORS = 2.0
_ROUNDING = 1e-12


class Choice(NamedTuple):
    """A number of clusters and the scores it is based on.

    Attributes:
        k: Number of clusters.
        scores: Score of each candidate; that of k = 1 is the threshold that the others must exceed.
    """

    k: int
    scores: dict[int, float]


Cluster = Callable[[Array, int, Seed], Array]


def choose_n_clusters(
    X: npt.ArrayLike,
    max_clusters: int,
    rule: ChoiceRule = "silhouette",
    *,
    seed: Seed,
    kind: Literal["embedding", "distances"] = "embedding",
    linkage: Linkage = "average",
) -> Choice:
    """The number of clusters, with the score of each candidate.

    Args:
        X: Points, (clients, columns), clustered by k-means; or distances, (clients, clients), clustered by
            agglomeration.
        max_clusters: Maximum number of clusters, at least 1.
        rule: Score; see the module docstring.
        seed: Random seed.
        kind: Whether `X` holds points or distances.
        linkage: Linkage of the agglomeration; only for distances.

    Raises:
        SpecError: If `X` is not a finite matrix of this kind, or an option is invalid.
    """
    if rule not in get_args(ChoiceRule):
        raise SpecError(unknown("rule", rule, get_args(ChoiceRule)))
    if kind not in ("embedding", "distances"):
        raise SpecError(unknown("kind of input", kind, ("embedding", "distances")))
    points = array_checks.vectors(X, "X").astype(np.float64) if kind == "embedding" else array_checks.distances(X, "X")
    largest = min(array_checks.whole(max_clusters, "max_clusters", 1), len(points) - 1)
    distances = l2(points) if kind == "embedding" else points
    if len(points) < 4 or largest < 2 or not distances.any():
        return Choice(1, {1: _FLOOR[rule]})

    def cluster(data: Array, k: int, own_seed: Seed) -> Array:
        if kind == "embedding":
            return kmeans(data, k, own_seed, restarts=_RESTARTS)[0]
        return agglomerative(data, k=k, linkage=linkage)

    def score(data: Array, pairwise: Array, candidates: Iterable[int], own_seed: Seed) -> dict[int, float]:
        if rule == "eigengap":
            return _eigengaps(pairwise, largest)
        if rule == "stability":
            return {k: _stability(data, k, cluster, own_seed.fold(k), kind == "distances") for k in candidates}
        denoised = pairwise if kind == "embedding" else _above_noise(pairwise)
        return {k: _silhouette(denoised, cluster(data, k, own_seed.fold(k))) for k in candidates}

    scores = score(points, distances, range(2, largest + 1), seed.fold("data"))
    winner = _winner(scores, rule)
    null = []
    for draw in range(_DRAWS[rule]):
        own_seed = seed.fold("draw", draw)
        sample = _without_clusters(distances, own_seed)
        pairwise = l2(sample)
        null.append(max(score(sample if kind == "embedding" else pairwise, pairwise, [winner], own_seed).values()))
    if rule == "eigengap":
        null = sorted(null)[:-1]  # one sample in a hundred has an outlier, whose gap would dominate the deviation
    threshold = max(_FLOOR[rule], float(np.mean(null) + 3 * np.std(null)))
    if rule == "stability":
        threshold = min(threshold, 0.99)
    return Choice(winner if scores[winner] > threshold else 1, {1: threshold, **scores})


def elbow(sizes: Sequence[int] | Array, scores: Sequence[float] | Array, rule: ElbowRule = "elbow") -> int:
    """The number of clusters beyond which more clusters improve the score only little.

    Args:
        sizes: Numbers of clusters of the partitions that were tried, all different, in any order.
        scores: Score of each partition, such as its validation accuracy.
        rule: "elbow": FLAG's rule. "best": the highest score; ties go to fewer clusters. "tolerance": the fewest
            clusters within 0.01 of the highest score.

    Raises:
        SpecError: If there is not one score per size, sizes repeat, or scores are not finite.
    """
    if rule not in get_args(ElbowRule):
        raise SpecError(unknown("rule", rule, get_args(ElbowRule)))
    counts = [array_checks.whole(size, "Each of sizes", 1) for size in sizes]
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(counts),) or not counts:
        raise SpecError(f"scores must be one number for each of the {len(counts)} sizes, got shape {values.shape}")
    if len(set(counts)) < len(counts):
        raise SpecError(f"sizes must all be different, got {counts}: remove the duplicates")
    if not np.isfinite(values).all():
        raise SpecError(f"scores must be finite, got {values.tolist()}")
    order = np.argsort(counts)
    size, values = np.asarray(counts)[order], values[order]
    gain = values.max() - values[0]
    if rule == "best":
        return int(size[values.argmax()])
    if rule == "tolerance":
        return int(size[(values >= values.max() - _WORTHWHILE - _ROUNDING).argmax()])
    if gain < _WORTHWHILE - _ROUNDING:
        return int(size[0])
    x = (size - size[0]) / (size[-1] - size[0])
    height = np.clip((values - values[0]) / gain, 0, 1) - x
    return int(size[(height >= height.max() - _ROUNDING).argmax()])  # ties go to fewer clusters


def guarded_elbow(sizes: Sequence[int] | Array, *scores: npt.ArrayLike) -> int:
    """The largest elbow of the mean scores, or the fewest clusters that are not worse than it beyond noise.

    Args:
        sizes: Numbers of clusters of the partitions that were tried, all different, in any order.
        scores: One or more scores of each client in each partition, (partitions, clients), higher is better, such as
            accuracies and negative losses; NaN where unknown.

    Raises:
        SpecError: If there is not one row per size, sizes repeat, or a partition has no known score.
    """
    tables = [np.asarray(table, dtype=np.float64) for table in scores]
    for table in tables:
        if table.ndim != 2 or not np.isfinite(table).any(axis=1).all():
            raise SpecError("scores must be (partitions, clients), with at least one known score in each partition")
    at_elbow = max(elbow(sizes, np.nanmean(table, axis=1)) for table in tables)
    best = list(sizes).index(at_elbow)
    fewer = sorted((int(size), s) for s, size in enumerate(sizes) if size < at_elbow)
    return next((size for size, s in fewer if not any(_is_worse(table[s], table[best]) for table in tables)), at_elbow)


def _is_worse(scores: Array, reference: Array) -> bool:
    """Whether the clients' scores are below the reference beyond noise; yes, if the noise of one client is unknown."""
    differences = (reference - scores)[np.isfinite(reference - scores)]
    if len(differences) < 2:
        return True
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return bool(differences.mean() > _ERRORS * error + _ROUNDING)


def _winner(scores: dict[int, float], rule: ChoiceRule) -> int:
    """The candidate with the best score; ties go to fewer clusters, for stability to more."""
    tolerance = _ROUNDING if rule == "eigengap" else _EQUAL
    tied = [k for k, score in scores.items() if score >= max(scores.values()) - tolerance]
    # Half of the true number is often as stable as the true number; twice the true number is not.
    return max(tied) if rule == "stability" else min(tied)


def _above_noise(distances: Array) -> Array:
    """The distances minus the median nearest-neighbor distance, clipped at 0."""
    others = distances + np.diag(np.full(len(distances), np.inf))
    denoised: Array = np.maximum(distances - np.median(others.min(axis=1)), 0.0)
    return denoised


def _silhouette(distances: Array, labels: Array) -> float:
    """The mean silhouette; -1 if there is only one cluster or one per client."""
    from sklearn.metrics import silhouette_score

    if not 1 < labels.max() + 1 < len(labels):
        return -1.0
    return float(silhouette_score(distances, labels, metric="precomputed"))


def _stability(points: Array, k: int, cluster: Cluster, seed: Seed, both: bool) -> float:
    """Mean adjusted Rand index between clusterings of two subsamples, on the clients that both contain.

    Args:
        points: Points or distances.
        k: Number of clusters.
        cluster: The clustering algorithm.
        seed: Random seed.
        both: Whether both rows and columns of `points` are clients, as in a matrix of distances.
    """
    from sklearn.metrics import adjusted_rand_score

    n_clients = len(points)
    size = max(k + 1, int(np.ceil(_SHARE * n_clients)))
    agreements = []
    for pair in range(_PAIRS):
        found = []
        for half in range(2):
            name = seed.fold("pair", pair, half)
            drawn = np.sort(name.sample(n_clients, min(size, n_clients)))
            labels = np.full(n_clients, -1)
            labels[drawn] = cluster(points[np.ix_(drawn, drawn)] if both else points[drawn], k, name)
            found.append(labels)
        shared = (found[0] >= 0) & (found[1] >= 0)
        # k-means returns fewer than k clusters if fewer points are distinct; such a k gets no credit for agreement.
        complete = min(labels.max() for labels in found) == k - 1
        agreements.append(adjusted_rand_score(found[0][shared], found[1][shared]) if complete else 0.0)
    return float(np.mean(agreements))


def _eigengaps(distances: Array, max_clusters: int) -> dict[int, float]:
    """λ_{k+1} - λ_k of the normalized Laplacian, for k from 2 to `max_clusters`."""
    n_clients = len(distances)
    neighbor = min(n_clients - 1, max(1, n_clients // (2 * max_clusters)))
    scale = float(np.median(np.partition(distances, neighbor, axis=1)[:, neighbor]))
    scale = max(scale, 1e-3 * float(distances.max()))  # with many equal clients, that neighbor is at distance 0
    affinity = np.exp(-0.5 * np.square(distances / scale))
    root = np.sqrt(affinity.sum(axis=1))
    values = np.sort(1 - np.linalg.eigvalsh(affinity / root[:, None] / root))
    return {k: float(values[k] - values[k - 1]) for k in range(2, max_clusters + 1)}


def _without_clusters(distances: Array, seed: Seed) -> Array:
    """A normal sample with one point per client and the principal variances of these distances."""
    squares = np.square(distances)
    centered = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean())
    values = np.linalg.eigvalsh(centered)[::-1]
    spread = np.sqrt(values[values > 1e-9 * values[0]] / len(distances))
    sample: Array = seed.generator().normal(size=(len(distances), len(spread))) * spread
    return sample
