"""Examples by label: counts in given proportions, and test examples that match the training examples of a client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.data.checks import classes_of
from coterie.data.federated import Index, Integers
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array


def labels_of(labels: Array) -> tuple[Integers, int]:
    """The labels as integers, and the number of classes: one more than the largest label."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0 or labels.min() < 0:
        raise DataError("Labels must be a non-empty list of integers of at least 0. Number the classes from 0")
    return labels.astype(np.int64), classes_of(labels)


def by_label(labels: Integers, classes: int) -> list[npt.NDArray[np.int64]]:
    """The rows of each class, in their order."""
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=classes))
    return np.split(order, ends[:-1])


def apportion(total: int, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Split a total into integers in these proportions, by largest remainders; ties go to the first."""
    sum_of_shares = shares.sum()
    if not sum_of_shares > 0:
        shares, sum_of_shares = np.ones_like(shares), np.float64(len(shares))
    quotas = total * (shares / sum_of_shares)
    counts: npt.NDArray[np.int64] = np.floor(quotas).astype(np.int64)
    left = total - int(counts.sum())
    counts[np.argsort(counts - quotas, kind="stable")[:left]] += 1
    return counts


def local_view(owned: npt.NDArray[np.bool_], test_labels: Array) -> Index:
    """Give each client all test examples of the labels that it owns (PACFL's protocol); clients share examples.

    Args:
        owned: (clients, classes), whether a client owns a label.
        test_labels: (examples,) of the test pool.
    """
    members = _test_members(test_labels, owned.shape[1])
    views: dict[bytes, Integers] = {}
    lists = []
    for own in owned:
        key = own.tobytes()
        if key not in views:
            views[key] = np.sort(np.concatenate([members[label] for label in np.flatnonzero(own)] or [members[0][:0]]))
        lists.append(views[key])
    return Index.from_lists(lists)


def matched(fit: Index, labels: Array, test_labels: Array, *, seed: int = 0) -> Index:
    """Give each test example to one client; each class is split in proportion to the clients' training examples.

    Args:
        fit: Training examples of each client.
        labels: (examples,) of the training pool.
        test_labels: (examples,) of the test pool.
        seed: Random seed of the order.
    """
    labels, classes = labels_of(labels)
    members = _test_members(test_labels, classes)
    clients = len(fit)
    cells = fit.owners() * classes + labels[fit.order]
    counts = np.bincount(cells, minlength=clients * classes).reshape(clients, classes)
    lists: list[list[Integers]] = [[] for _ in range(clients)]
    for label in np.flatnonzero(counts.any(axis=0)):
        rows = members[label][Seed(seed).fold("test", int(label)).permutation(len(members[label]))]
        ends = np.cumsum(apportion(len(rows), counts[:, label].astype(np.float64)))
        for client, piece in enumerate(np.split(rows, ends)[:-1]):
            lists[client].append(piece)
    return Index.from_lists([np.concatenate(pieces) if pieces else np.zeros(0, np.int64) for pieces in lists])


def _test_members(test_labels: Array, classes: int) -> list[npt.NDArray[np.int64]]:
    test_labels, test_classes = labels_of(test_labels)
    if test_classes > classes:
        raise DataError(f"The test pool has label {test_classes - 1}, the training pool only 0..{classes - 1}")
    return by_label(test_labels, classes)
