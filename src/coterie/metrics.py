"""What is measured of a run: accuracy, final scores, discrepancy, how well clusters were found, cost to a target.

Pure functions of NumPy arrays, sequences or mappings by client. Where two values belong to each client, both are
given in the same order, or both as mappings with the same clients. In an assignment, None or -1 stands for a client
without a cluster, and in a mapping a client may also be missing. Rounds are positions in a curve, from 0. Every
function raises `SpecError` for input that it cannot measure.

The measures come from FedGroup (arXiv:2010.06870), FlexCFL ("Flexible Clustered Federated Learning for Client-Level
Data Distribution Shift"), SR-FCA ("An Improved Federated Clustering Algorithm with Model-based Clustering") and
FedSim (doi:10.1016/j.neucom.2021.08.141).
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError, unknown
from coterie.types import Array, Bank

__all__ = [
    "PNI",
    "Assignment",
    "ClusterStats",
    "Discrepancy",
    "FinalRule",
    "MisclusteringVariant",
    "Values",
    "adjusted_rand",
    "bytes_to_target",
    "cluster_stats",
    "discrepancy",
    "final_score",
    "label_rmse",
    "mean_accuracy",
    "migrations",
    "misclustering",
    "nmi",
    "pni",
    "rounds_to_target",
    "training_loss",
    "weighted_accuracy",
    "worst_share_accuracy",
]

#: One number for each client.
Values: TypeAlias = Mapping[Any, float] | Sequence[float] | Array
#: The cluster of each client.
Assignment: TypeAlias = Mapping[Any, SupportsIndex | None] | Sequence[SupportsIndex | None] | Array

#: Which rounds make the score.
FinalRule = Literal["last_ten", "best", "last"]
#: How clusters are matched to true ones.
MisclusteringVariant = Literal["majority", "hungarian"]

_Vector: TypeAlias = npt.NDArray[np.float64]


# Accuracy and loss over clients


def weighted_accuracy(correct: Values, total: Values) -> float:
    """The share of all test examples that were classified correctly: Σ k_i / Σ m_i."""
    right, tested = _counts(correct, total)
    return float(right.sum() / tested.sum())


def mean_accuracy(correct: Values, total: Values) -> float:
    """The mean of the clients' accuracies k_i / m_i; a client without test examples is skipped."""
    right, tested = _counts(correct, total)
    return float((right / tested).mean())


def worst_share_accuracy(correct: Values, total: Values, share: float = 0.1) -> float:
    """The mean accuracy of the clients who fare worst; a client without test examples is skipped.

    Args:
        correct: k_i, correctly classified test examples of each client.
        total: m_i, test examples of each client.
        share: How many of the clients, 0 < share ≤ 1, rounded down to whole clients but at least one.
    """
    if not 0 < share <= 1:
        raise SpecError(f"share must be greater than 0 and at most 1, got {share}")
    right, tested = _counts(correct, total)
    n_worst = max(1, math.floor(share * len(tested) + 1e-9))
    return float(np.sort(right / tested)[:n_worst].mean())


def training_loss(losses: Values, samples: Values) -> float:
    """The mean of the clients' losses, weighted by their number of examples.

    A client without examples is skipped, whatever its loss.
    """
    loss, size = _aligned(losses, samples, "losses", "samples")
    if not (np.isfinite(size) & (size >= 0)).all():
        raise SpecError("samples must be finite and not negative")
    if not size.any():
        raise SpecError("No client has examples: a mean loss needs at least one")
    loss, size = loss[size > 0], size[size > 0]
    return float((loss * size).sum() / size.sum())


def final_score(
    curve: Sequence[float] | Array, rule: FinalRule = "last_ten", coverage: Sequence[float] | Array | None = None
) -> float:
    """The one number that stands for a curve of scores over rounds.

    Args:
        curve: A score for each round.
        rule: "last_ten" is the mean of the last ten rounds (of all, if there are fewer); "best" is the maximum, the
            papers' rule, which stops early on test examples; "last" is the last round.
        coverage: Share of clients with an assignment in each round; if given, rounds below 1 do not count.
    """
    if rule not in get_args(FinalRule):
        raise SpecError(unknown("rule for the final score", rule, get_args(FinalRule)))
    scores = _curve(curve, "curve")
    if coverage is not None:
        covered = _curve(coverage, "coverage")
        if len(covered) != len(scores):
            raise SpecError(f"coverage needs one number for each of the {len(scores)} rounds, got {len(covered)}")
        scores = scores[covered >= 1 - 1e-9]
        if not len(scores):
            raise SpecError("No round has coverage 1: train longer, or score without coverage")
    if rule == "best":
        return float(scores.max())
    return float(scores[-10:].mean() if rule == "last_ten" else scores[-1])


# How far the clients' models are from their groups'


@dataclass(frozen=True)
class Discrepancy:
    """Mean distance of local models to the models of their groups."""

    total: float  # over the cohort
    by_group: Mapping[int, float]  # over the members of each group in the cohort; empty without groups


def discrepancy(
    local: Bank | Array,
    reference: Bank | Array,
    groups: Sequence[SupportsIndex | None] | Array | None = None,
) -> Discrepancy:
    """The mean of ‖w_i - w‖ over the cohort, and over each group's part of it.

    Args:
        local: Models of the cohort after local training, one a row.
        reference: For each row of `local` the model of that client's group, before or after aggregation.
        groups: The group of each row; a row without a group counts in the total only.
    """
    parts = list(_squared_distances(local, reference, "bank"))  # for each array, one number a row
    if len({len(part) for part in parts}) > 1:
        raise SpecError("All arrays of a bank need the same leading axis, one row for each client")
    if not parts or not len(parts[0]):
        raise SpecError("The bank is empty: it needs at least one array and one model")
    distance = np.sqrt(np.sum(parts, axis=0))
    members: defaultdict[int, list[float]] = defaultdict(list)
    if groups is not None:
        if len(groups) != len(distance):
            raise SpecError(f"groups needs one entry for each of the {len(distance)} models, got {len(groups)}")
        for group, value in zip(groups, distance, strict=True):
            if (cluster := _cluster(group)) is not None:
                members[cluster].append(value)
    by_group = {group: float(np.mean(members[group])) for group in sorted(members)}
    return Discrepancy(total=float(distance.mean()), by_group=by_group)


# How well clusters were found


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
    counts = Counter(_cluster(value) for value in given)
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
    return sum(None not in (start := _cluster(a), end := _cluster(b)) and start != end for a, b in moves)


# How unlike the clients' examples are


@dataclass(frozen=True)
class PNI:
    """FedSim's Privacy-preserving Non-IID Index: how unlike the clients' examples are."""

    value: float
    scaled: float  # value / √(N - 1), comparable between federations of different size


def pni(rmse: Values) -> PNI:
    """The mean over clients of √(Σ_{j≠i} (RMSE_i - RMSE_j)²), where all clients were sent one random model.

    Args:
        rmse: `label_rmse` of that model on each client's training examples; average over many random models.
    """
    values = _curve(list(rmse.values()) if isinstance(rmse, Mapping) else rmse, "rmse")
    if len(values) < 2:
        raise SpecError("PNI compares clients: it needs the RMSE of at least two, got 1")
    if (values < 0).any():
        raise SpecError("rmse must not be negative")
    # With c = RMSE - mean, the sum over j is N c_i² + Σ_j c_j². The first subtraction makes equal values exactly 0.
    centred = values - values[0]
    centred -= centred.mean()
    mean = float(np.sqrt(len(values) * centred**2 + (centred**2).sum()).mean())
    return PNI(value=mean, scaled=mean / math.sqrt(len(values) - 1))


def label_rmse(predicted: Sequence[float] | Array, labels: Sequence[float] | Array) -> float:
    """The root of the mean squared difference between predicted and true class numbers, as PNI needs it.

    It depends on how classes are numbered.
    """
    guess, true = _curve(predicted, "predicted"), _curve(labels, "labels")
    if len(guess) != len(true):
        raise SpecError(f"predicted has {len(guess)} labels and labels has {len(true)}: they must be as many")
    return float(np.sqrt(np.mean((guess - true) ** 2)))


# What a target costs


def rounds_to_target(curve: Sequence[float] | Array, target: float, window: int | None = None) -> int | None:
    """The first round that reaches the target, as a position in the curve; None if none does.

    Args:
        curve: A score for each round.
        target: The score to reach; equal is enough.
        window: If given, the first round from which on the mean of this and the `window` - 1 rounds before it
            stays at the target until the end.
    """
    scores = _curve(curve, "curve")
    if window is None:
        reached = np.flatnonzero(scores >= target)
        return int(reached[0]) if reached.size else None
    if window < 1:
        raise SpecError(f"window must be at least 1 round, got {window}")
    if window > len(scores):
        return None
    means = np.lib.stride_tricks.sliding_window_view(scores, window).mean(axis=1)
    below = np.flatnonzero(means < target - 1e-12)  # the mean of equal scores may be a rounding error below them
    first = int(below[-1]) + 1 if below.size else 0
    return first + window - 1 if first < len(means) else None


def bytes_to_target(
    curve: Sequence[float] | Array, cumulative_bytes: Sequence[int] | Array, target: float, window: int | None = None
) -> int | None:
    """The bytes sent, down and up, until the target was reached; None if it never was.

    Args:
        curve: A score for each round.
        cumulative_bytes: All bytes sent from the start to the end of each round.
        target: The score to reach; equal is enough.
        window: As in `rounds_to_target`.
    """
    sent = np.asarray(cumulative_bytes)
    if sent.shape != (len(curve),):
        raise SpecError(f"cumulative_bytes needs one number for each of the {len(curve)} rounds, got {sent.shape}")
    if not (sent >= 0).all() or (np.diff(sent) < 0).any():
        raise SpecError("cumulative_bytes must not be negative and must not fall: give the running total")
    reached = rounds_to_target(curve, target, window)
    return None if reached is None else int(sent[reached])


# Input


def _counts(correct: Values, total: Values) -> tuple[_Vector, _Vector]:
    """Correct and tested examples of the clients that have any."""
    right, tested = _aligned(correct, total, "correct", "total")
    if not ((right >= 0) & (right <= tested) & np.isfinite(tested)).all():
        raise SpecError("correct must lie between 0 and total, and total must be finite, for every client")
    if not tested.any():
        raise SpecError("No client has test examples: an accuracy needs at least one")
    return right[tested > 0], tested[tested > 0]


def _aligned(first: Values, second: Values, name: str, other: str) -> tuple[_Vector, _Vector]:
    """Two values of each client, in the same order."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        if odd := sorted(map(str, first.keys() ^ second.keys())):
            raise SpecError(f"{name} and {other} must have the same clients; only in one of them: {', '.join(odd)}")
        first, second = [first[client] for client in second], list(second.values())
    elif isinstance(first, Mapping) or isinstance(second, Mapping):
        raise SpecError(f"{name} and {other} must both be mappings by client, or both be sequences")
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.ndim != 1 or one.shape != two.shape:
        raise SpecError(f"{name} and {other} need one number for each client, got shapes {one.shape} and {two.shape}")
    return one, two


def _curve(values: Sequence[float] | Array, name: str) -> _Vector:
    """A row of finite numbers, at least one."""
    curve = np.asarray(values, dtype=np.float64)
    if curve.ndim != 1 or not len(curve):
        raise SpecError(f"{name} must be a row of at least one number, got shape {curve.shape}")
    if not np.isfinite(curve).all():
        raise SpecError(f"{name} must be finite, entry {int(np.flatnonzero(~np.isfinite(curve))[0])} is not")
    return curve


def _cluster(value: SupportsIndex | None) -> int | None:
    """A cluster's number, None for no cluster."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError as error:
        raise SpecError(f"A cluster is a whole number from 0, or None or -1 for none, got {value!r}") from error
    if number < -1:
        raise SpecError(f"A cluster is a whole number from 0, or None or -1 for none, got {number}")
    return None if number == -1 else number


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
        true = _cluster(value)
        if true is None:
            raise SpecError("truth must name a cluster for every client, found one without")
        pairs.append((_cluster(found), true))
    return pairs


def _assigned(predicted: Assignment, truth: Assignment) -> tuple[list[int], list[int]]:
    """Predicted and true clusters of the clients that have a predicted one."""
    pairs = [(found, true) for found, true in _pairs(predicted, truth) if found is not None]
    if not pairs:
        raise SpecError("No client has a cluster: at least one is needed to compare clusters")
    return [found for found, _ in pairs], [true for _, true in pairs]


def _squared_distances(one: Any, other: Any, name: str) -> Iterator[_Vector]:
    """For each array of two banks the squared distance of their rows, keys in sorted order."""
    if isinstance(one, dict) and isinstance(other, dict):
        if odd := sorted(one.keys() ^ other.keys()):
            raise SpecError(f"local and reference must have the same arrays; only in one of them: {', '.join(odd)}")
        for key in sorted(one):
            yield from _squared_distances(one[key], other[key], f"{name}[{key!r}]")
        return
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape or a.ndim == 0:
        raise SpecError(f"local and reference need the same rows of models, {name} has shapes {a.shape} and {b.shape}")
    # Row by row, so that no copy of a whole bank in float64 is made.
    yield np.array([np.sum(np.square(np.subtract(x, y, dtype=np.float64))) for x, y in zip(a, b, strict=True)])
