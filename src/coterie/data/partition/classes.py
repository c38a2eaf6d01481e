"""Partitions with a few neighboring classes for each client, in unequal amounts.

Client u owns the classes (u + j) mod C for j = 0..c-1; the generators differ in the number of examples per class.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.data.checks import at_least, at_most
from coterie.data.federated import Index, Integers
from coterie.data.partition.labels import by_label, labels_of
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array

#: Maximum number of draws to reach a given spread of sizes.
DRAWS = 5000


def by_classes(
    labels: Array,
    clients: int,
    *,
    per_client: int = 2,
    base: int | None = None,
    reserved: int | None = None,
    spread: float | None = None,
    seed: int = 0,
) -> Index:
    """FedProx's generator: a few examples for every client, the rest by a power law; no example is used twice.

    Each client first takes `base` consecutive examples of each class that it owns. Then it takes int(P[l, u div C, j])
    more of its class l, where P is drawn from LogNormal(0, 2) and scaled for each class to all but `reserved` examples.
    If fewer are left, it takes none.

    Args:
        labels: (examples,) labels of the pool; examples are taken in their order.
        clients: Number of clients.
        per_client: Classes per client, c. With all classes, clients differ in size only.
        base: Examples of each class that a client takes first. None: 10 div c, at least 1.
        reserved: Examples of each class that P does not count. None: those that clients take first, so that P counts
            those that are left. With fewer, a class may run out, and clients with high numbers have only their base.
        spread: Standard deviation of the clients' sizes divided by their mean: P is drawn again until it is within
            10 %; after 5,000 draws the closest is used. None: the first draw, whose spread varies a lot.
        seed: Random seed.
    """
    labels, classes = labels_of(labels)
    _check(clients, per_client, classes)
    base = max(1, 10 // per_client) if base is None else base
    at_least("base", base, 1)
    members = by_label(labels, classes)
    counts = np.asarray([len(m) for m in members])
    owned = _owned(clients, per_client, classes)  # (clients, c)
    given = base * np.bincount(owned.ravel(), minlength=classes)
    short = np.flatnonzero(given > counts)
    if len(short):
        raise DataError(
            f"Class {short[0]} has {counts[short[0]]} examples, but {given[short[0]]} are needed to give {base} to each"
            f" client that owns it. Use fewer clients or a smaller base"
        )
    counted = counts - given if reserved is None else counts - reserved
    if counted.min() < 0:
        raise DataError(f"reserved must be at most the number of examples of a class, {counts.min()}, got {reserved}")
    extra = _power_law(owned, counted, base * per_client, spread, Seed(seed).fold("sizes"))
    lists: list[list[Integers]] = [[] for _ in range(clients)]
    taken = np.zeros(classes, np.int64)
    for more in (False, True):
        for u, own in enumerate(owned):
            for j, label in enumerate(own):
                n = int(extra[u, j]) if more else base
                if more and taken[label] + n >= counts[label]:
                    continue
                lists[u].append(members[label][taken[label] : taken[label] + n])
                taken[label] += n
    return Index.from_lists([np.concatenate(pieces) for pieces in lists])


def _power_law(owned: Integers, left: Integers, base: int, spread: float | None, seed: Seed) -> Integers:
    """(clients, c) numbers of further examples of each owned class; those of class l add up to about left[l]."""
    clients, per_client = owned.shape
    stream = seed.generator()
    nearest: Integers = np.zeros_like(owned)
    gap = np.inf
    for _ in range(1 if spread is None else DRAWS):
        draw = stream.lognormal(0.0, 2.0, (len(left), -(-clients // len(left)), per_client))
        extra = (draw * (left / draw.sum(axis=(1, 2)))[:, None, None]).astype(np.int64)
        mine = extra[owned, np.arange(clients)[:, None] // len(left), np.arange(per_client)]
        sizes = base + mine.sum(axis=1)
        off = 0.0 if spread is None else abs(float(sizes.std() / sizes.mean()) / spread - 1.0)
        if off < gap:
            nearest, gap = mine, off
        if gap <= 0.1:
            break
    return nearest


def by_lognormal(
    labels: Array, clients: int = 200, *, per_client: int = 5, compat_prefix: bool = False, seed: int = 0
) -> Index:
    """FEMNIST-200's generator: max(2, int(n_u / c)) examples of each owned class, n_u ~ LogNormal(4, 1) + 5.

    Args:
        labels: (examples,) of the pool.
        clients: Number of clients.
        per_client: Classes per client, c.
        compat_prefix: False: examples are used in turn, and again only when their class is exhausted. True, as in the
            published script: every client takes the first examples of its classes, so that the same image is in the
            training and test sets of many clients.
        seed: Random seed of the sizes.
    """
    labels, classes = labels_of(labels)
    _check(clients, per_client, classes)
    members = _none_empty(by_label(labels, classes), "")
    sizes = Seed(seed).fold("sizes").generator().lognormal(4.0, 1.0, clients) + 5
    amounts = np.maximum(2, (sizes / per_client).astype(np.int64))
    owned = _owned(clients, per_client, classes)
    if compat_prefix:
        lists = [[members[label][:n] for label in own] for own, n in zip(owned, amounts, strict=True)]
        return Index.from_lists([np.concatenate(pieces) for pieces in lists])
    return _in_turn(members, owned, np.repeat(amounts[:, None], per_client, axis=1))


def by_shares(
    labels: Array, test_labels: Array, clients: int = 500, *, per_client: int = 5, seed: int = 0
) -> tuple[Index, Index]:
    """Ditto's generator: sizes and class shares by log-normal draws, training and test examples from separate pools.

    Client u has about n_u = n·s_u/Σs examples, s ~ LogNormal(3, 1) + 10. The share p_j of class j is drawn from
    LogNormal(1, 1) and normalized: int(p_j·n_u) + 1 examples for training, int(p_j·n_u·n_test/n) + 1 for testing.
    Examples of a class are used in turn, and again from the first when they are exhausted, so an example can belong to
    several clients.

    Args:
        labels: (examples,) of the training pool.
        test_labels: (examples,) of the test pool.
        clients: Number of clients.
        per_client: Classes per client.
        seed: Random seed.

    Returns:
        Rows of the training pool and rows of the test pool.
    """
    labels, classes = labels_of(labels)
    test_labels, test_classes = labels_of(test_labels)
    _check(clients, per_client, classes)
    pools = (
        _none_empty(by_label(labels, classes), "training "),
        _none_empty(by_label(test_labels, max(classes, test_classes))[:classes], "test "),
    )
    stream = Seed(seed)
    scale = stream.fold("sizes").generator().lognormal(3.0, 1.0, clients) + 10
    sizes = len(labels) * scale / scale.sum()
    shares = stream.fold("shares").generator().lognormal(1.0, 1.0, (clients, per_client))
    shares /= shares.sum(axis=1, keepdims=True)
    wanted = shares * sizes[:, None]  # (clients, c)
    owned = _owned(clients, per_client, classes)
    ratio = len(test_labels) / len(labels)
    fit, test = (
        _in_turn(pool, owned, amount.astype(np.int64) + 1)
        for pool, amount in zip(pools, (wanted, wanted * ratio), strict=True)
    )
    return fit, test


def _in_turn(members: list[npt.NDArray[np.int64]], owned: Integers, amounts: Integers) -> Index:
    """Take these amounts of each owned class in turn, starting again from the first when a class is exhausted."""
    next_of = np.zeros(len(members), np.int64)
    lists = []
    for own, amount in zip(owned, amounts, strict=True):
        pieces = []
        for label, n in zip(own, amount, strict=True):
            pieces.append(members[label][(next_of[label] + np.arange(n)) % len(members[label])])
            next_of[label] += n
        lists.append(np.concatenate(pieces))
    return Index.from_lists(lists)


def _none_empty(members: list[npt.NDArray[np.int64]], what: str) -> list[npt.NDArray[np.int64]]:
    for label, numbers in enumerate(members):
        if len(numbers) == 0:
            raise DataError(f"Class {label} has no {what}examples. Each class up to the largest label needs one")
    return members


def _owned(clients: int, per_client: int, classes: int) -> Integers:
    return (np.arange(clients)[:, None] + np.arange(per_client)) % classes


def _check(clients: int, per_client: int, classes: int) -> None:
    at_least("clients", clients, 1)
    at_least("per_client", per_client, 1)
    at_most("per_client", per_client, classes, "the number of classes")
