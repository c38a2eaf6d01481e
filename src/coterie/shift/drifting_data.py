"""`DriftingData`: the clients' data in the current round of a run with simulated drift.

Only index lists and transforms change, never the stored examples. The swaps follow FlexCFL (Duan et al., "Flexible
Clustered Federated Learning for Client-Level Data Distribution Shift", section on simulated shifts): the candidates are
put in random order, the i-th and the i-th from the end form a pair, and each pair swaps with the given probability.
Clients that swap all examples also swap their transforms (rotation, inversion) and true clusters. A pair that has
nothing to exchange is skipped.

Departures. The published code also skips all later pairs of that round. FlexCFL has no data with transforms, which
belong to clients here, not to examples: an image of an exchanged class is rotated or inverted like the other images of
the client that receives it, and that client keeps its true cluster.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from coterie.bounds import Bound, check
from coterie.data.federated import FederatedData, Index
from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.types import ClientId

#: Name of a shift → description.
SHIFTS: dict[str, str] = {
    "none": "the data stay the same",
    "swap_all": "pairs of clients exchange all their examples",
    "swap_part": "pairs of clients exchange the examples of one class each",
    "incremental": "training examples are released a quarter at a time",
    "new_class": "the examples of one class appear in the middle of the run",
    "rotate": "the images of some clients are rotated by 90°",
}

#: Row numbers of examples.
Indices = npt.NDArray[np.int64]

_ROTATIONS = ("identity", "rot90", "rot180", "rot270")
_RELEASES = (0, 50, 100, 150)
_RELEASE_STEPS = 4
_NEW_CLASS_ROUND = 50


@dataclass(frozen=True)
class ShiftSettings:
    """Settings of the `shift` section.

    Attributes:
        name: Kind of drift: none; swap_all and swap_part: pairs of clients exchange all examples, or one class each,
            whose images are then rotated like those of the receiver; incremental: training examples are released in
            quarters; new_class: a class appears during the run; rotate: images are rotated by 90°.
        probability: Probability per round that a pair swaps, or that the images of a client are rotated.
        rounds: Rounds in which shifts happen. Empty: every round; for incremental 0, 50, 100, 150; for new_class 50.
        candidates: Clients whose data may shift: all, or those that the method has assigned to a cluster.
        form: Form of incremental. paper: 25, 50, 75, 100 % of each client's examples; code: as in FlexCFL's published
            code, 25, 50, 75, 100 % of those released before.
        label: Class that appears with new_class; -1: the last class.
    """

    name: Literal["none", "swap_all", "swap_part", "incremental", "new_class", "rotate"] = "none"
    probability: Annotated[float, Bound(at_least=0, at_most=1)] = 0.05
    rounds: Annotated[tuple[int, ...], Bound(at_least=0)] = ()
    candidates: Literal["all", "assigned"] = "all"
    form: Literal["paper", "code"] = "paper"
    label: int = -1

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "shift")
        if list(self.rounds) != sorted(set(self.rounds)):
            raise SpecError(f"shift.rounds must be in increasing order, got {list(self.rounds)}")

    def at(self, t: int) -> bool:
        """Whether shifts may happen in round t."""
        return t in self.rounds if self.rounds else True


class DriftingData:
    """The data of all clients, which may change before each round.

    Attributes:
        data: The current data.
    """

    def __init__(self, data: FederatedData, settings: ShiftSettings, seed: Seed) -> None:
        """Start with the data before round 0.

        Args:
            data: The data without drift.
            settings: Settings of the drift.
            seed: Random seed of the run.
        """
        self._settings = settings
        self._seed = seed.fold("shift")
        if settings.name in ("swap_part", "new_class") and data.classes is None:
            raise SpecError(f"Shift {settings.name} needs classes, but the data have none; use swap_all")
        if settings.name == "rotate":
            data = _with_rotations(data)
        self._first = data
        self.data = data
        if settings.name == "new_class":
            self.data = self._without_new_class()

    def step(self, t: int, assigned: Collection[ClientId]) -> tuple[ClientId, ...]:
        """Change the data for round t.

        Args:
            t: The round.
            assigned: Clients that the method has assigned to a cluster.

        Returns:
            The clients whose data changed.
        """
        rule = self._settings
        seed = self._seed.fold("round", t)
        if rule.name in ("swap_all", "swap_part") and rule.at(t):
            return self._swap(self._pairs(seed, assigned), seed)
        if rule.name == "rotate" and rule.at(t):
            return self._rotate(seed, assigned)
        if rule.name == "incremental" and t in self._releases():
            return self._release(t)
        if rule.name == "new_class" and t == (rule.rounds[0] if rule.rounds else _NEW_CLASS_ROUND):
            before, self.data = self.data, self._first
            return self._changed(before)
        return ()

    def save(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        now = self.data
        if now is self._first:
            return {"unchanged": True}
        lists = {"fit": now.fit, "test": now.test}
        indices = {name: {"order": each.order, "offsets": each.offsets} for name, each in lists.items()}
        return {**indices, "transform": now.transform, "truth": now.truth}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore saved data."""
        if "unchanged" in saved:
            self.data = self._first
        else:
            fit, test = (Index(saved[name]["order"], saved[name]["offsets"]) for name in ("fit", "test"))
            self.data = self._first.rearranged(fit=fit, test=test, transform=saved["transform"], truth=saved["truth"])

    def _candidates(self, assigned: Collection[ClientId]) -> list[int]:
        every = self._settings.candidates == "all"
        return [place for place, client in enumerate(self.data.clients) if every or client in assigned]

    def _pairs(self, seed: Seed, assigned: Collection[ClientId]) -> list[tuple[int, int]]:
        candidates = self._candidates(assigned)
        order = seed.fold("order").permutation(len(candidates))
        swapping = seed.fold("pairs").uniform(len(candidates) // 2) < self._settings.probability
        return [(candidates[order[i]], candidates[order[-1 - i]]) for i in np.flatnonzero(swapping)]

    def _swap(self, pairs: list[tuple[int, int]], seed: Seed) -> tuple[ClientId, ...]:
        now = self.data
        fit = [now.fit.of(i) for i in range(len(now.clients))]
        test = [now.test.of(i) for i in range(len(now.clients))]
        transform = None if now.transform is None else now.transform.copy()
        truth = None if now.truth is None else now.truth.copy()
        changed = []
        for one, other in pairs:
            if self._settings.name == "swap_all":
                for lists in (fit, test):
                    lists[one], lists[other] = lists[other], lists[one]
                for numbers in (transform, truth):
                    if numbers is not None:
                        numbers[[one, other]] = numbers[[other, one]]
            elif not self._exchange(fit, test, one, other, seed.fold("classes", now.clients[one], now.clients[other])):
                continue
            changed += [one, other]
        if not changed:
            return ()
        self.data = now.rearranged(
            fit=Index.from_lists(fit), test=Index.from_lists(test), transform=transform, truth=truth
        )
        return tuple(sorted(now.clients[place] for place in changed))

    def _exchange(self, fit: list[Indices], test: list[Indices], one: int, other: int, seed: Seed) -> bool:
        """Exchange the training and test examples of one class of each client that the other client does not have."""
        y = self.data.y
        present = [set(y[fit[i]].tolist()) & set(y[test[i]].tolist()) for i in (one, other)]
        only = [sorted(present[0] - present[1]), sorted(present[1] - present[0])]
        if not only[0] or not only[1]:
            return False
        u = seed.uniform(2)
        classes = [only[i][int(u[i] * len(only[i]))] for i in (0, 1)]
        for lists in (fit, test):
            given, taken = y[lists[one]] == classes[0], y[lists[other]] == classes[1]
            lists[one], lists[other] = (
                np.concatenate([lists[one][~given], lists[other][taken]]),
                np.concatenate([lists[other][~taken], lists[one][given]]),
            )
        return True

    def _rotate(self, seed: Seed, assigned: Collection[ClientId]) -> tuple[ClientId, ...]:
        candidates = self._candidates(assigned)
        drawn = seed.fold("turn").uniform(len(candidates)) < self._settings.probability
        rotated = [candidates[i] for i in np.flatnonzero(drawn)]
        if not rotated:
            return ()
        now = self.data
        assert now.transform is not None
        transform = now.transform.copy()
        transform[rotated] = (transform[rotated] + 1) % len(_ROTATIONS)
        truth = now.truth
        if truth is not None and self._first.truth is not None and self._first.transform is not None:
            truth = _rotated_truth(truth, transform, rotated, self._first.truth, self._first.transform)
        self.data = now.rearranged(transform=transform, truth=truth)
        return tuple(sorted(now.clients[place] for place in rotated))

    def _releases(self) -> tuple[int, ...]:
        return self._settings.rounds or _RELEASES

    def _release(self, t: int) -> tuple[ClientId, ...]:
        """Release the next part of each client's examples, in an order that is fixed for the run."""
        done = self._releases().index(t) + 1
        lists = []
        for place, client in enumerate(self._first.clients):
            rows = self._first.fit.of(place)
            order = self._seed.fold("order", client).permutation(len(rows))
            lists.append(rows[order][: self._released(len(rows), done)])
        before, self.data = self.data, self._first.rearranged(fit=Index.from_lists(lists))
        return self._changed(before)

    def _released(self, n: int, done: int) -> int:
        if self._settings.form == "paper":
            return math.ceil(n * min(done, _RELEASE_STEPS) / _RELEASE_STEPS)
        for stage in range(1, done + 1):  # the published code takes a fraction of those released before, not of all
            n = math.ceil(n * min(stage, _RELEASE_STEPS) / _RELEASE_STEPS)
        return n

    def _without_new_class(self) -> FederatedData:
        first = self._first
        assert first.classes is not None
        label = self._settings.label % first.classes

        def without(index: Index) -> Index:
            return Index.from_lists([rows[first.y[rows] != label] for rows in map(index.of, range(len(index)))])

        return first.rearranged(fit=without(first.fit), test=without(first.test))

    def _changed(self, before: FederatedData) -> tuple[ClientId, ...]:
        same = [np.array_equal(before.fit.of(i), self.data.fit.of(i)) for i in range(len(before.clients))]
        return tuple(sorted(c for c, kept in zip(before.clients, same, strict=True) if not kept))


def _with_rotations(data: FederatedData) -> FederatedData:
    """The same data, with all four rotations in the list of transforms."""
    if not set(data.transforms) <= set(_ROTATIONS) or len(data.shape) < 2 or data.shape[0] != data.shape[1]:
        raise SpecError("Shift rotate needs square images without transforms other than rotations by 90°")
    codes = np.array([_ROTATIONS.index(name) for name in data.transforms], np.uint8)
    old = np.zeros(len(data.clients), np.uint8) if data.transform is None else data.transform
    return data.rearranged(transforms=_ROTATIONS, transform=codes[old])


def _rotated_truth(
    truth: npt.NDArray[np.int64],
    transform: npt.NDArray[np.uint8],
    rotated: list[int],
    first_truth: npt.NDArray[np.int64],
    first_transform: npt.NDArray[np.uint8],
) -> npt.NDArray[np.int64]:
    """The true clusters after a rotation: those of the new angles if true clusters are angles, otherwise unchanged."""
    cluster_of = {int(angle): int(k) for angle, k in zip(first_transform, first_truth, strict=True)}
    if any(cluster_of[int(angle)] != int(k) for angle, k in zip(first_transform, first_truth, strict=True)):
        return truth
    for angle in range(len(_ROTATIONS)):
        cluster_of.setdefault(angle, max(cluster_of.values()) + 1)
    new = truth.copy()
    new[rotated] = [cluster_of[int(angle)] for angle in transform[rotated]]
    return new
