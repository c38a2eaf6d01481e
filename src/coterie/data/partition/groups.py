"""FLAG's two partitions: groups of clients that own labels, and a label distribution for each client."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from coterie.data.checks import above, at_least, at_most
from coterie.data.federated import Index, Integers
from coterie.data.partition.labels import apportion, by_label, labels_of
from coterie.errors import SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

log = logging.getLogger(__name__)

_TRIES = 100


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition into groups that own labels."""

    fit: Index
    group: npt.NDArray[np.int64]  # (clients,) the group, which is the true cluster
    owned: npt.NDArray[np.bool_]  # (clients, classes) whether the client's group owns the label


def label_groups(
    labels: Array,
    clients: int,
    *,
    skew: float = 0.2,
    alpha: float = 1.0,
    groups: int | None = None,
    label_sets: Literal["covering", "random"] = "covering",
    min_samples: int = 10,
    seed: int = 0,
) -> Groups:
    """Label skew with quantity shift: a label's examples are split unequally among the groups that own it.

    For each label the proportions are drawn from Dirichlet(α, …, α) and rounded by largest remainders, so no example
    is lost. While a client has fewer than `min_samples` examples, the proportions of its labels are drawn again, at
    most 100 times; after that a warning is logged.

    Args:
        labels: (examples,) of the pool.
        clients: Number of clients, assigned to groups at random in nearly equal numbers.
        skew: Fraction of all labels that a client owns, ρ.
        alpha: Concentration of the quantities: 1 for a low, 0.25 for a high shift.
        groups: Number of groups. None: ceil(1/ρ).
        label_sets: "covering": a random order of the labels is cut into sets, so that all labels occur; the last set
            is filled up at random. "random": each set is drawn independently.
        min_samples: Minimum number of examples per client.
        seed: Random seed.
    """
    labels, classes = labels_of(labels)
    above("skew", skew, 0)
    at_most("skew", skew, 1, "all labels")
    above("alpha", alpha, 0)
    per_set = max(1, round(skew * classes))
    groups = math.ceil(1 / skew - 1e-9) if groups is None else groups
    at_least("groups", groups, 1)
    at_least("clients", clients, groups, "the number of groups")
    stream = Seed(seed)
    owns = _label_sets(classes, per_set, groups, label_sets, stream.fold("sets"))  # (groups, classes)
    group = stream.fold("groups").permutation(clients) % groups
    owned = owns[group]
    members = by_label(labels, classes)
    counts = np.zeros((clients, classes), np.int64)
    redraw = np.flatnonzero(owned.any(axis=0))
    for attempt in range(_TRIES):
        for label in redraw:
            mine = np.flatnonzero(owned[:, label])
            shares = stream.fold("shares", int(label), attempt).generator().dirichlet(np.full(len(mine), alpha))
            counts[mine, label] = apportion(len(members[label]), shares)
        short = counts.sum(axis=1) < min_samples
        redraw = np.flatnonzero(owned[short].any(axis=0))
        if len(redraw) == 0:
            break
    if short.any():
        log.warning(
            "%d of %d clients have fewer than %d examples after %d draws", short.sum(), clients, min_samples, _TRIES
        )
    return Groups(_assign(members, counts, stream.fold("order")), group, owned)


def dirichlet(
    labels: Array,
    clients: int,
    *,
    alpha: float = 0.25,
    concentration: Literal["per_class", "total"] = "per_class",
    seed: int = 0,
) -> Index:
    """A label distribution for each client, π ~ Dirichlet, and equal numbers of examples; no example is used twice.

    The class of each example is drawn from π, among the classes that still have examples.

    Args:
        labels: (examples,) of the pool.
        clients: Number of clients.
        alpha: Concentration; small values give few classes for each client.
        concentration: "per_class": α·C·prior for each class, which is α if classes are balanced; "total": α·prior,
            which leaves nearly one class per client.
        seed: Random seed.
    """
    labels, classes = labels_of(labels)
    at_least("clients", clients, 1)
    above("alpha", alpha, 0)
    if concentration not in ("per_class", "total"):
        raise SpecError(unknown("concentration", concentration, ("per_class", "total")))
    members = by_label(labels, classes)
    left = np.asarray([len(m) for m in members])
    weight = left / len(labels) * (classes if concentration == "per_class" else 1)
    present = np.flatnonzero(left)
    sizes = np.diff(np.linspace(0, len(labels), clients + 1).astype(np.int64))
    counts = np.zeros((clients, classes), np.int64)
    stream = Seed(seed)
    for client, size in enumerate(sizes):
        draw = stream.fold("client", client).generator()
        pi = np.zeros(classes)
        pi[present] = draw.dirichlet(alpha * weight[present])
        counts[client] = _without_replacement(int(size), pi, left, draw)
        left = left - counts[client]
    return _assign(members, counts, stream.fold("order"))


def _without_replacement(
    size: int, pi: npt.NDArray[np.float64], left: Integers, draw: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Class counts of `size` draws; an exhausted class is left out of later draws."""
    taken = np.zeros(len(pi), np.int64)
    while (need := size - int(taken.sum())) > 0:
        remaining = np.where(left > taken, pi, 0.0)
        if not remaining.sum() > 1e-300:  # all classes in π are exhausted
            remaining = (left - taken).astype(np.float64)
        # Draws of exhausted classes are repeated among the others, as if examples were drawn one by one.
        taken = np.minimum(taken + draw.multinomial(need, remaining / remaining.sum()), left)
    return taken


def _label_sets(classes: int, per_set: int, groups: int, label_sets: str, seed: Seed) -> npt.NDArray[np.bool_]:
    """(groups, classes): whether a group owns a label."""
    if label_sets not in ("covering", "random"):
        raise SpecError(unknown("label_sets", label_sets, ("covering", "random")))
    owns = np.zeros((groups, classes), np.bool_)
    order = seed.permutation(classes)
    for g in range(groups):
        piece = order[g * per_set : (g + 1) * per_set] if label_sets == "covering" else order[:0]
        others = np.setdiff1d(order, piece)
        fill = seed.fold("fill", g).sample(len(others), per_set - len(piece))
        owns[g, piece] = True
        owns[g, others[fill]] = True
    return owns


def _assign(members: list[npt.NDArray[np.int64]], counts: npt.NDArray[np.int64], seed: Seed) -> Index:
    """Shuffle each class, cut it into parts of these sizes, and join the parts of each client."""
    pieces = []
    for label, numbers in enumerate(members):
        shuffled = numbers[seed.fold("class", label).permutation(len(numbers))]
        pieces.append(np.split(shuffled, np.cumsum(counts[:, label]))[:-1])
    return Index.from_lists([np.concatenate([piece[client] for piece in pieces]) for client in range(len(counts))])
