"""How well clusters were found, and how clients are spread over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from coterie.errors import SpecError, unknown
from coterie.metrics.validation import Assignment, cluster_of

#: How clusters are matched to true ones.
MisclusteringVariant = Literal["majority", "hungarian"]


def misclustering(predicted: Assignment, truth: Assignment, variant: MisclusteringVariant = "majority") -> float:
    """The share of clients in a wrong cluster; a client without a cluster is in a wrong one.

    "majority" (SR-FCA, Definition 3.1): each predicted cluster stands for the true cluster most frequent in it. That
    is 1 - purity and does not punish too many clusters, so give their number beside it.
    "hungarian": each predicted cluster stands for at most one true cluster and the other way round, such that most
    clients fit; too many clusters cost.
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
    """The adjusted Rand index: 1 for the true clusters under any names, about 0 for clusters drawn at random.

    Clients without a cluster are left out, as a clustering of a cohort says nothing about the others; give the
    coverage beside it.
    """
    from sklearn.metrics import adjusted_rand_score

    found, true = _assigned(predicted, truth)
    return float(adjusted_rand_score(true, found))


def nmi(predicted: Assignment, truth: Assignment) -> float:
    """The mutual information of predicted and true clusters over the mean of their entropies, from 0 to 1.

    Clients without a cluster are left out, as in `adjusted_rand`.
    """
    from sklearn.metrics import normalized_mutual_info_score

    found, true = _assigned(predicted, truth)
    return float(normalized_mutual_info_score(true, found))


@dataclass(frozen=True)
class ClusterStats:
    """How the clients are spread over the clusters."""

    sizes: tuple[int, ...]
    non_empty: int
    empties: int
    unassigned: int
    collapsed: bool  # several clusters were offered, and at most one has clients


def cluster_stats(assignment: Assignment, k: int) -> ClusterStats:
    """Sizes of the clusters 0..k-1 and what follows from them."""
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
    """How many clients went from one cluster to another; to get a first cluster, or lose it, is no migration."""
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
    """Predicted and true cluster of every client that the truth knows."""
    if isinstance(predicted, Mapping) and isinstance(truth, Mapping):
        if strange := sorted(map(str, predicted.keys() - truth.keys())):
            raise SpecError(f"truth must know every client of predicted; it lacks {', '.join(strange)}")
        predicted, truth = [predicted.get(client) for client in truth], list(truth.values())
    elif isinstance(predicted, Mapping) or isinstance(truth, Mapping):
        raise SpecError("predicted and truth must both be mappings by client, or both be sequences")
    if len(predicted) != len(truth):
        raise SpecError(f"predicted has {len(predicted)} clients and truth has {len(truth)}: they must be as many")
    if not len(truth):
        raise SpecError("There are no clients: at least one is needed")
    pairs = []
    for found, value in zip(predicted, truth, strict=True):
        true = cluster_of(value)
        if true is None:
            raise SpecError("truth must name a cluster for every client, found one without")
        pairs.append((cluster_of(found), true))
    return pairs


def _assigned(predicted: Assignment, truth: Assignment) -> tuple[list[int], list[int]]:
    """Predicted and true clusters of the clients that have a predicted one."""
    pairs = [(found, true) for found, true in _pairs(predicted, truth) if found is not None]
    if not pairs:
        raise SpecError("No client has a cluster: at least one is needed to compare clusters")
    return [found for found, _ in pairs], [true for _, true in pairs]
