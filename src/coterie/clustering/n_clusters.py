"""How many groups there are, if any.

`choose` scores every number of groups from 2 to `most` by one of

    silhouette   mean over clients of (b_i - a_i) / max(a_i, b_i), a_i the mean distance to one's own group, b_i to the
                 nearest other one (Rousseeuw 1987); the fewest groups within 0.02 of the best win
    stability    mean adjusted Rand index, over pairs of subsamples of 80 %, between the groupings of the clients that
                 both contain (Ben-Hur, Elisseeff, Guyon 2002); the largest k within 0.02 of the best wins
    eigengap     λ_{k+1} - λ_k of the normalized Laplacian of exp(-D²/2s²), s the median distance to the
                 n/(2 most)-th neighbor (von Luxburg 2007, section 8.3); the largest wins

Distances between noisy vectors in many dimensions, such as MADC, are far above 0 for equal clients, and the silhouette
then takes two groups that are near to each other for one. So for distances it counts what they exceed the noise by:
the median distance of a client to its nearest neighbor is taken off all of them.

`choose` says **one group** unless the winner beats what data without groups give. No fixed bar would do: k-means with
two groups gets a silhouette near 0.6 from a normal sample on a line, near 0.3 in the plane, near 0 in many dimensions.
So the bar is measured, as in SigClust (Liu, Hayes, Nobel, Marron 2008): draw ten normal samples (for the gap, which
varies more and costs less, thirty but the one with the largest) with the same number of clients and the same principal
variances (of `E`, or of the classical scaling of `D`), group each into the winner's number and score it. The bar is

    max(floor, mean + 3 standard deviations of those scores)       at most 0.99 for stability, whose best is 1

with a floor of 0.25 for the silhouette (below it, no substantial structure: Kaufman and Rousseeuw 1990, table 2.4), 0.9
for stability and 0.1 for the gap, where each sample gives its largest gap. The bar stands in the scores as that of
k = 1. Three clients or fewer are one group: no score says anything about them. A shape that is neither normal nor in
groups, such as a uniform square, may pass the bar of the eigengap.

`elbow` is FLAG's rule for the number of clusters from the goodness of trial runs: with the partitions' sizes Z_s
ascending and their scores a_s, x_s = (Z_s - Z_1)/(Z_max - Z_1), y_s = clip((a_s - a_1)/(max a - a_1), 0, 1), take the
largest y_s - x_s, or Z_1 if max a - a_1 < 0.01. `sizes` is Z, `scores` is a.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from coterie.clustering import checks
from coterie.clustering.clusterers import Linkage, agglomerative, kmeans
from coterie.clustering.measures import l2
from coterie.errors import SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

__all__ = ["Choice", "ChoiceRule", "ElbowRule", "choose", "elbow"]

#: By which score the number of groups is chosen.
ChoiceRule = Literal["silhouette", "eigengap", "stability"]

#: The elbow of FLAG, the best score, or the fewest clusters within 0.01 of it.
ElbowRule = Literal["elbow", "best", "tolerance"]

# Samples without groups that the winner is compared with.
_DRAWS: dict[str, int] = {"silhouette": 10, "eigengap": 30, "stability": 10}
_FLOOR: dict[str, float] = {"silhouette": 0.25, "eigengap": 0.1, "stability": 0.9}
_PAIRS, _SHARE = 5, 0.8
# Silhouettes, or stabilities, that are no further apart are equal.
_EQUAL = 0.02
# Scores of subsamples and of comparisons need no more starts; both sides of each comparison have as many.
_RESTARTS = 3
_WORTHWHILE = 0.01
_ROUNDING = 1e-12


class Choice(NamedTuple):
    """A number of groups and what it was decided on.

    Attributes:
        k: The number of groups.
        scores: The score of each candidate; that of k = 1 is the bar which the others have to pass.
    """

    k: int
    scores: dict[int, float]


Cluster = Callable[[Array, int, Seed], Array]


def choose(
    X: npt.ArrayLike,
    most: int,
    rule: ChoiceRule = "silhouette",
    *,
    seed: Seed,
    kind: Literal["embedding", "distances"] = "embedding",
    linkage: Linkage = "average",
) -> Choice:
    """The number of groups, with the score of each candidate.

    Args:
        X: Points, (clients, columns), which k-means will group; or distances, (clients, clients), for agglomeration.
        most: The largest number of groups to consider, at least 1.
        rule: Which score.
        seed: Where subsamples, starts and comparisons come from.
        kind: What `X` is.
        linkage: For distances: how groups will be merged.

    Raises:
        SpecError: If `X` is not what `kind` says or not finite, or an option is not allowed.
    """
    if rule not in get_args(ChoiceRule):
        raise SpecError(unknown("rule", rule, get_args(ChoiceRule)))
    if kind not in ("embedding", "distances"):
        raise SpecError(unknown("kind of input", kind, ("embedding", "distances")))
    points = checks.vectors(X, "X").astype(np.float64) if kind == "embedding" else checks.distances(X, "X")
    largest = min(checks.whole(most, "most", 1), len(points) - 1)
    distances = l2(points) if kind == "embedding" else points
    if len(points) < 4 or largest < 2 or not distances.any():
        return Choice(1, {1: _FLOOR[rule]})

    def cluster(at: Array, k: int, name: Seed) -> Array:
        if kind == "embedding":
            return kmeans(at, k, name, restarts=_RESTARTS)[0]
        return agglomerative(at, k=k, linkage=linkage)

    def score(at: Array, apart: Array, candidates: Iterable[int], name: Seed) -> dict[int, float]:
        if rule == "eigengap":
            return _eigengaps(apart, largest)
        if rule == "stability":
            return {k: _stability(at, k, cluster, name.fold(k), kind == "distances") for k in candidates}
        clear = apart if kind == "embedding" else _above_noise(apart)
        return {k: _silhouette(clear, cluster(at, k, name.fold(k))) for k in candidates}

    scores = score(points, distances, range(2, largest + 1), seed.fold("data"))
    winner = _winner(scores, rule)
    null = []
    for draw in range(_DRAWS[rule]):
        name = seed.fold("draw", draw)
        sample = _without_groups(distances, name)
        apart = l2(sample)
        null.append(max(score(sample if kind == "embedding" else apart, apart, [winner], name).values()))
    if rule == "eigengap":
        null = sorted(null)[:-1]  # one sample in a hundred has a stray point, and a gap that would decide alone
    bar = max(_FLOOR[rule], float(np.mean(null) + 3 * np.std(null)))
    if rule == "stability":
        bar = min(bar, 0.99)
    return Choice(winner if scores[winner] > bar else 1, {1: bar, **scores})


def elbow(sizes: Sequence[int] | Array, scores: Sequence[float] | Array, rule: ElbowRule = "elbow") -> int:
    """The number of clusters beyond which more of them hardly help.

    Args:
        sizes: Numbers of clusters of the partitions that were tried, all different, in any order.
        scores: How good each was, say, its validation accuracy.
        rule: "elbow"; or "best", the highest score, of equals the fewest clusters; or "tolerance", the fewest
            clusters within 0.01 of the highest score.

    Raises:
        SpecError: If sizes and scores do not fit, sizes repeat, or scores are not finite.
    """
    if rule not in get_args(ElbowRule):
        raise SpecError(unknown("rule", rule, get_args(ElbowRule)))
    counts = [checks.whole(size, "Each of sizes", 1) for size in sizes]
    good = np.asarray(scores, dtype=np.float64)
    if good.shape != (len(counts),) or not counts:
        raise SpecError(f"scores must be one number for each of the {len(counts)} sizes, got shape {good.shape}")
    if len(set(counts)) < len(counts):
        raise SpecError(f"sizes must all be different, got {counts}: of equal ones keep one")
    if not np.isfinite(good).all():
        raise SpecError(f"scores must be finite, got {good.tolist()}")
    order = np.argsort(counts)
    size, good = np.asarray(counts)[order], good[order]
    gain = good.max() - good[0]
    if rule == "best":
        return int(size[good.argmax()])
    if rule == "tolerance":
        return int(size[(good >= good.max() - _WORTHWHILE - _ROUNDING).argmax()])
    if gain < _WORTHWHILE - _ROUNDING:
        return int(size[0])
    x = (size - size[0]) / (size[-1] - size[0])
    height = np.clip((good - good[0]) / gain, 0, 1) - x
    return int(size[(height >= height.max() - _ROUNDING).argmax()])  # ties go to fewer clusters


def _winner(scores: dict[int, float], rule: ChoiceRule) -> int:
    """The candidate of 2 or more with the best score; ties go to fewer groups, among stable ones to more."""
    tolerance = _ROUNDING if rule == "eigengap" else _EQUAL
    tied = [k for k, score in scores.items() if score >= max(scores.values()) - tolerance]
    # Half of the true number is often as stable as the true number, twice the true number is not.
    return max(tied) if rule == "stability" else min(tied)


def _above_noise(distances: Array) -> Array:
    """The distances less that of the median client to its nearest neighbor; 0 at the least."""
    others = distances + np.diag(np.full(len(distances), np.inf))
    clear: Array = np.maximum(distances - np.median(others.min(axis=1)), 0.0)
    return clear


def _silhouette(distances: Array, labels: Array) -> float:
    """The mean silhouette; -1 where there is only one group, or as many as clients."""
    from sklearn.metrics import silhouette_score

    if not 1 < labels.max() + 1 < len(labels):
        return -1.0
    return float(silhouette_score(distances, labels, metric="precomputed"))


def _stability(points: Array, k: int, cluster: Cluster, seed: Seed, both: bool) -> float:
    """The mean agreement of groupings of two subsamples on what they share; `both`: rows and columns are clients."""
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
        # k-means finds fewer than k where fewer points are distinct: that k is none, however often it comes out so.
        complete = min(labels.max() for labels in found) == k - 1
        agreements.append(adjusted_rand_score(found[0][shared], found[1][shared]) if complete else 0.0)
    return float(np.mean(agreements))


def _eigengaps(distances: Array, most: int) -> dict[int, float]:
    """λ_{k+1} - λ_k of the normalized Laplacian, for k from 2 to `most`."""
    n_clients = len(distances)
    neighbor = min(n_clients - 1, max(1, n_clients // (2 * most)))
    reach = float(np.median(np.partition(distances, neighbor, axis=1)[:, neighbor]))
    reach = max(reach, 1e-3 * float(distances.max()))  # of many equal clients that neighbor is at distance 0
    alike = np.exp(-0.5 * np.square(distances / reach))
    root = np.sqrt(alike.sum(axis=1))
    values = np.sort(1 - np.linalg.eigvalsh(alike / root[:, None] / root))
    return {k: float(values[k] - values[k - 1]) for k in range(2, most + 1)}


def _without_groups(distances: Array, seed: Seed) -> Array:
    """As many points of a normal distribution with the principal variances of these distances."""
    squares = np.square(distances)
    centered = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean())
    values = np.linalg.eigvalsh(centered)[::-1]
    spread = np.sqrt(values[values > 1e-9 * values[0]] / len(distances))
    sample: Array = seed.generator().normal(size=(len(distances), len(spread))) * spread
    return sample
