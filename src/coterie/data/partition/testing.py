"""Test examples from a pool of their own, for clients whose training examples are dealt out already."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.data.federated import Index, Integers
from coterie.data.partition.counting import apportion, by_label, labels_of
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array


def local_view(owned: npt.NDArray[np.bool_], test_labels: Array) -> Index:
    """For each client all test examples of the labels that it owns (PACFL's protocol); clients share examples.

    Args:
        owned: (clients, classes).
        test_labels: (examples,) of the test pool.
    """
    members = _members(test_labels, owned.shape[1])
    views: dict[bytes, Integers] = {}
    lists = []
    for own in owned:
        key = own.tobytes()
        if key not in views:
            views[key] = np.sort(np.concatenate([members[label] for label in np.flatnonzero(own)] or [members[0][:0]]))
        lists.append(views[key])
    return Index.from_lists(lists)


def matched(fit: Index, labels: Array, test_labels: Array, *, seed: int = 0) -> Index:
    """The test pool dealt out once, each class in the proportions in which the clients have it for training.

    Args:
        fit: Training examples of each client.
        labels: (examples,) of the training pool.
        test_labels: (examples,) of the test pool.
        seed: Fixes the order.
    """
    labels, classes = labels_of(labels)
    members = _members(test_labels, classes)
    clients = len(fit)
    cells = fit.owners() * classes + labels[fit.order]
    counts = np.bincount(cells, minlength=clients * classes).reshape(clients, classes)
    lists: list[list[Integers]] = [[] for _ in range(clients)]
    for label in np.flatnonzero(counts.any(axis=0)):
        numbers = members[label][Seed(seed).fold("test", int(label)).permutation(len(members[label]))]
        ends = np.cumsum(apportion(len(numbers), counts[:, label].astype(np.float64)))
        for client, piece in enumerate(np.split(numbers, ends)[:-1]):
            lists[client].append(piece)
    return Index.from_lists([np.concatenate(pieces) if pieces else np.zeros(0, np.int64) for pieces in lists])


def _members(test_labels: Array, classes: int) -> list[npt.NDArray[np.int64]]:
    test_labels, test_classes = labels_of(test_labels)
    if test_classes > classes:
        raise DataError(f"The test pool has label {test_classes - 1}, the training pool only 0..{classes - 1}")
    return by_label(test_labels, classes)
