"""Agreement of found clusters with true clusters, cluster sizes, and migrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from coterie.errors import SpecError, unknown
from coterie.metrics.validation import Assignment, cluster_of

#: Matching of found clusters to true clusters.
MisclusteringVariant = Literal["majority", "hungarian"]


def misclustering(predicted: Assignment, truth: Assignment, variant: MisclusteringVariant = "majority") -> float:
    """Fraction of clients in a wrong cluster; a client without a cluster counts as wrong.

    Args:
        predicted: Found cluster of each client.
        truth: True cluster of each client.
        variant: "majority" (SR-FCA, Definition 3.1): each found cluster is matched to the most frequent true cluster
            among its members. This is 1 - purity and does not penalize too many clusters, so report their number, too.
            "hungarian": the best one-to-one matching of found and true clusters, which penalizes too many clusters.
    """
    if variant not in get_args(MisclusteringVariant):
        raise SpecError(unknown("variant of misclustering", variant, get_args(MisclusteringVariant)))
    pairs = _pairs(predicted, truth)
    together = Counter((found, true) for found, true in pairs if found is not None)
    rows = {found: i for i, found in enumerate(sorted({found for found, _ in together}))}
    columns = {true: i for i, true in enumerate(sorted({true for _, true in together}))}
    table = np.zeros((len(rows), len(columns)), dtype=np.int64)  # (predicted, true)
    for (found, true), count in together.items():
        table[rows[found], columns[true]] = count
    if not table.size:
        return 1.0
    if variant == "majority":
        fitting = table.max(axis=1).sum()
    else:
        from scipy.optimize import linear_sum_assignment

        fitting = table[linear_sum_assignment(table, maximize=True)].sum()
    return float(1 - fitting / len(pairs))


def adjusted_rand(predicted: Assignment, truth: Assignment) -> float:
    """Adjusted Rand index: 1 for the true clusters in any numbering, about 0 for random clusters.

    Clients without a cluster are ignored, so report the coverage, too.

    Args:
        predicted: Found cluster of each client.
        truth: True cluster of each client.
    """
    from sklearn.metrics import adjusted_rand_score

    found, true = _assigned(predicted, truth)
    return float(adjusted_rand_score(true, found))


def nmi(predicted: Assignment, truth: Assignment) -> float:
    """Normalized mutual information of found and true clusters, from 0 to 1.

    It is divided by the mean of the two entropies. Clients without a cluster are ignored, as in `adjusted_rand`.

    Args:
        predicted: Found cluster of each client.
        truth: True cluster of each client.
    """
    from sklearn.metrics import normalized_mutual_info_score

    found, true = _assigned(predicted, truth)
    return float(normalized_mutual_info_score(true, found))


@dataclass(frozen=True)
class ClusterStats:
    """Distribution of clients over clusters.

    Attributes:
        sizes: Number of clients in each cluster.
        non_empty: Number of clusters with clients.
        empties: Number of clusters without clients.
        unassigned: Number of clients without a cluster.
        collapsed: Whether there are several clusters of which at most one has clients.
    """

    sizes: tuple[int, ...]
    non_empty: int
    empties: int
    unassigned: int
    collapsed: bool


def cluster_stats(assignment: Assignment, k: int) -> ClusterStats:
    """Sizes of the clusters 0..k-1, and the numbers of empty clusters and of clients without a cluster.

    Args:
        assignment: Cluster of each client.
        k: Number of clusters.
    """
    if k < 1:
        raise SpecError(f"k must be at least 1, got {k}")
    given = assignment.values() if isinstance(assignment, Mapping) else assignment
    counts = Counter(cluster_of(value) for value in given)
    unassigned = counts.pop(None, 0)
    beyond = sorted(cluster for cluster in counts if cluster is not None and cluster >= k)
    if beyond:
        raise SpecError(f"Clusters are numbered from 0 to {k - 1}, got {beyond[0]}")
    non_empty = len(counts)
    return ClusterStats(
        sizes=tuple(counts[cluster] for cluster in range(k)),
        non_empty=non_empty,
        empties=k - non_empty,
        unassigned=unassigned,
        collapsed=k > 1 and non_empty <= 1,
    )


def migrations(before: Assignment, after: Assignment) -> int:
    """Number of clients that moved from one cluster to another.

    Getting a first cluster, or losing the last one, is not a migration.

    Args:
        before: Cluster of each client before.
        after: Cluster of each client after.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        moves = [(before[client], after[client]) for client in before if client in after]
    elif isinstance(before, Mapping) or isinstance(after, Mapping):
        raise SpecError("before and after must both be mappings by client, or both be sequences")
    elif len(before) != len(after):
        raise SpecError(f"before has {len(before)} clients and after has {len(after)}: they must be the same clients")
    else:
        moves = list(zip(before, after, strict=True))
    return sum(None not in (start := cluster_of(a), end := cluster_of(b)) and start != end for a, b in moves)


def _pairs(predicted: Assignment, truth: Assignment) -> list[tuple[int | None, int]]:
    """Found and true cluster of every client in `truth`."""
    if isinstance(predicted, Mapping) and isinstance(truth, Mapping):
        if missing := sorted(map(str, predicted.keys() - truth.keys())):
            raise SpecError(f"truth must contain every client of predicted; missing: {', '.join(missing)}")
        predicted, truth = [predicted.get(client) for client in truth], list(truth.values())
    elif isinstance(predicted, Mapping) or isinstance(truth, Mapping):
        raise SpecError("predicted and truth must both be mappings by client, or both be sequences")
    if len(predicted) != len(truth):
        raise SpecError(f"predicted has {len(predicted)} clients and truth has {len(truth)}: they must be the same")
    if not len(truth):
        raise SpecError("There are no clients: at least one is needed")
    pairs = []
    for found, value in zip(predicted, truth, strict=True):
        true = cluster_of(value)
        if true is None:
            raise SpecError("truth must have a cluster for every client, found one without")
        pairs.append((cluster_of(found), true))
    return pairs


def _assigned(predicted: Assignment, truth: Assignment) -> tuple[list[int], list[int]]:
    """Found and true clusters of the clients that have a found one."""
    pairs = [(found, true) for found, true in _pairs(predicted, truth) if found is not None]
    if not pairs:
        raise SpecError("No client has a cluster: at least one is needed to compare clusters")
    return [found for found, _ in pairs], [true for _, true in pairs]
