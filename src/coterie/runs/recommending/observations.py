"""What a recommendation saw of the data: sizes, label skew, clusters, and whether methods agree on them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from coterie import metrics
from coterie.data.federated import FederatedData
from coterie.runs.recommending.validation_runs import ValidationRun
from coterie.runs.record import JsonObject
from coterie.seeds import Seed

#: Number of random distributions of the same labels, for the label skew by chance.
_SHUFFLES = 20


def data_facts(data: FederatedData, clients: int) -> JsonObject:
    """Numbers of clients and training examples, and the label skew. Test examples are not looked at.

    Args:
        data: The data of the runs.
        clients: Number of clients that there are; the data may have a sample of them.
    """
    sizes = data.sizes("fit")
    return {
        "name": data.name,
        "clients": clients,
        "clients_used": len(data.clients),
        "examples_per_client": {
            "min": int(sizes.min()),
            "median": float(np.median(sizes)),
            "max": int(sizes.max()),
        },
        "classes": data.classes,
        "label_skew": None if data.classes is None else label_skew(data),
    }


def label_skew(data: FederatedData) -> JsonObject:
    """How far the label distribution of a client is from that of all clients, in training examples.

    Returns:
        `distance`: mean over clients of the total variation distance, weighted by their examples. `by_chance`: the same
        if the labels are distributed at random, which is above 0 because clients have few examples. `skew`: how much
        of the possible excess over chance there is, 0 to 1. `classes_per_client`: median number of classes.
    """
    counts = data.label_counts()
    labels = np.repeat(np.arange(counts.shape[1]), counts.sum(axis=0))
    owners = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    draws = [_distance(_dealt(labels, owners, counts.shape, Seed(number))) for number in range(_SHUFFLES)]
    distance, chance = _distance(counts), statistics.fmean(draws)
    return {
        "distance": distance,
        "by_chance": chance,
        "skew": max(0.0, (distance - chance) / (1 - chance)) if chance < 1 else 0.0,
        "classes_per_client": float(np.median((counts > 0).sum(axis=1))),
    }


def cluster_facts(methods: Mapping[str, Sequence[ValidationRun]]) -> JsonObject:
    """The clusters that methods found, and how well they agree.

    Args:
        methods: Clustered method → its runs, by seed.

    Returns:
        `found`: method → number of clusters with members, by seed. `agreement`: mean adjusted Rand index of pairs of
        methods with the same seed that both found several clusters; None without such a pair. `stability`: method →
        mean index of pairs of its seeds; None for methods with one seed.
    """
    found = {name: [number_of_clusters(each) for each in runs] for name, runs in methods.items()}
    pairs = [
        _index(a, b)
        for one, other in itertools.combinations(methods.values(), 2)
        for a, b in zip(one, other, strict=False)
        if number_of_clusters(a) > 1 and number_of_clusters(b) > 1
    ]
    stability = {
        name: statistics.fmean(_index(a, b) for a, b in itertools.combinations(runs, 2)) if len(runs) > 1 else None
        for name, runs in methods.items()
    }
    return {"found": found, "agreement": statistics.fmean(pairs) if pairs else None, "stability": stability}


def number_of_clusters(run: ValidationRun) -> int:
    """Number of models that clients are served."""
    return len(set(run.clusters[run.clusters >= 0].tolist()))


def _index(one: ValidationRun, other: ValidationRun) -> float:
    return metrics.adjusted_rand(one.clusters.tolist(), other.clusters.tolist())


def _distance(counts: npt.NDArray[np.int64]) -> float:
    """Mean total variation distance of the rows from their sum, weighted by the row sums."""
    sizes, all_labels = counts.sum(axis=1), counts.sum(axis=0) / counts.sum()
    kept = sizes > 0
    distances = 0.5 * np.abs(counts[kept] / sizes[kept, None] - all_labels).sum(axis=1)
    return float(np.average(distances, weights=sizes[kept]))


def _dealt(
    labels: npt.NDArray[np.int64], owners: npt.NDArray[np.int64], shape: tuple[int, ...], seed: Seed
) -> npt.NDArray[np.int64]:
    """(clients, classes) label counts if the labels are distributed at random."""
    cells = owners * shape[1] + labels[seed.fold("labels").permutation(len(labels))]
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
