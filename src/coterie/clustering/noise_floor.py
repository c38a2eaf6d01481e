"""Thresholds above a measured noise floor: the distance that noise alone puts between two clients of one cluster.

The floor φ is measured by the clients themselves, on their own examples (clients/noise_floor.py). Means of distances
above this limit are more than noise:

    limit = max(1.1 φ, (φ + median D) / 2)

SR-FCA's threshold λ is found with it: λ grows, and components join. λ stays below the first join of two components
whose mean distance is above the limit.

Single distances are too noisy to be compared with φ: the smallest of many distances between two clusters may be below
most distances within them, and then the distances at which components join show no gap. Means over all pairs of two
components show it. Joins of a component of fewer than t clients are not judged, because a mean over few pairs is as
noisy as they are; and at the cut at least half of the clients must be in components of t or more clients. Members of
one true cluster may differ by more than noise, for example in their label shares, so a limit close to the floor would
separate them: half of the way from the floor to the median distance does not. The price: clusters that differ less than
that are joined.

t is `min_size`, φ `floor`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.clustering.clusterers import condensed
from coterie.clustering.thresholds import Gap
from coterie.errors import SpecError

__all__ = ["first_gap_above_noise", "noise_limit"]


# For the accuracy of the floor.
_MARGIN = 1.1


def noise_limit(D: npt.ArrayLike, floor: float) -> float:
    """The largest mean distance that noise and differences within a cluster explain.

    Args:
        D: Distances, (clients, clients), of at least two clients.
        floor: φ.

    Raises:
        SpecError: If `D` is not a matrix of distances of at least two clients, or the floor is negative or not finite.
    """
    distances = array_checks.distances(D)
    if len(distances) < 2:
        raise SpecError("A noise limit needs the distances of at least 2 clients, got 1")
    if not (math.isfinite(floor) and floor >= 0):
        raise SpecError(f"floor must be a finite number of at least 0, got {floor}")
    return max(_MARGIN * floor, (floor + float(np.median(condensed(distances)))) / 2)


def first_gap_above_noise(D: npt.ArrayLike, floor: float, min_size: int = 2) -> Gap:
    """The gap below the first join of two components that differ by more than noise.

    If there is none, all clients are joined.

    Args:
        D: Distances, (clients, clients), of at least two clients.
        floor: φ, the distance that noise alone puts between two clients of one cluster.
        min_size: t: only joins of components of this size or larger are judged, and at the cut at least half of the
            clients are in such components.

    Raises:
        SpecError: If `D` is not a matrix of distances of at least two clients, or another argument is invalid.
    """
    from scipy.cluster import hierarchy

    distances, limit = array_checks.distances(D), noise_limit(D, floor)
    min_size = array_checks.whole(min_size, "min_size", 1)
    n_clients = len(distances)
    members = [[i] for i in range(n_clients)]
    covered, low = (n_clients if min_size == 1 else 0), 0.0
    for first, second, length, _ in hierarchy.linkage(condensed(distances), "single").tolist():
        one, two = members[int(first)], members[int(second)]
        judged = min(len(one), len(two)) >= min_size and 2 * covered >= n_clients
        if judged and length > low and distances[np.ix_(one, two)].mean() > limit:
            return Gap(low + (length - low) / 2, low, length)
        members.append(one + two)
        covered += sum(size * sign for size, sign in _sizes(one, two) if size >= min_size)
        low = length
    return Gap(low, low, low)


def _sizes(one: list[int], two: list[int]) -> list[tuple[int, int]]:
    """The sizes of the joined component, counted once, and of its parts, no longer counted."""
    return [(len(one) + len(two), 1), (len(one), -1), (len(two), -1)]
