"""`DriftingData`: the clients' data as they are now, moved on by one round at a time.

Index lists and transforms move, images never. The swaps are FlexCFL's (Duan et al., "Flexible Clustered Federated
Learning for Client-Level Data Distribution Shift", section on simulated shifts): of M candidates in random order the
i-th and the i-th from the end are a pair, and each pair swaps with the given probability. A true cluster belongs to
the data, and moves with them. A pair that has nothing to exchange is skipped (the published code skips all later
pairs of that round too).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.federated import FederatedData, Index
from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.shift.settings import ShiftSettings
from coterie.types import ClientId

_TURNS = ("identity", "rot90", "rot180", "rot270")
_STAGES = 4


class DriftingData:
    """The data, and what happens to them."""

    def __init__(self, data: FederatedData, settings: ShiftSettings, seed: Seed) -> None:
        """The world before round 0."""
        self._settings = settings
        self._seed = seed.fold("shift")
        if settings.name in ("swap_part", "new_class") and data.classes is None:
            raise SpecError(f"Shift {settings.name} exchanges classes, but the data have none; use swap_all")
        if settings.name == "rotate":
            data = _with_turns(data)
        self._first = data
        self.data = data
        if settings.name == "new_class":
            self.data = self._without_new_class()

    def step(self, t: int, assigned: Collection[ClientId]) -> tuple[ClientId, ...]:
        """Move the world on to round t; the clients whose data are other than before."""
        rule = self._settings
        seed = self._seed.fold("round", t)
        if rule.name in ("swap_all", "swap_part") and rule.at(t):
            return self._swap(self._pairs(seed, assigned), seed)
        if rule.name == "rotate" and rule.at(t):
            return self._turn(seed, assigned)
        if rule.name == "incremental" and t in self._releases():
            return self._release(t)
        if rule.name == "new_class" and t == (rule.rounds[0] if rule.rounds else 50):
            before, self.data = self.data, self._first
            return self._changed(before)
        return ()

    def save(self) -> dict[str, Any]:
        """Where everything is now, as plain data."""
        now = self.data
        if now is self._first:
            return {"unmoved": True}
        lists = {"fit": now.fit, "test": now.test}
        kept: dict[str, Any] = {name: {"order": i.order, "offsets": i.offsets} for name, i in lists.items()}
        return {**kept, "transform": now.transform, "truth": now.truth}

    def load(self, saved: dict[str, Any]) -> None:
        """Put everything where it was."""
        if "unmoved" in saved:
            self.data = self._first
        else:
            fit, test = (Index(saved[name]["order"], saved[name]["offsets"]) for name in ("fit", "test"))
            kept = {"transform": saved["transform"], "truth": saved["truth"]}
            self.data = self._first.rearranged(fit=fit, test=test, **kept)

    def _candidates(self, assigned: Collection[ClientId]) -> list[int]:
        everyone = self._settings.candidates == "all"
        return [place for place, client in enumerate(self.data.clients) if everyone or client in assigned]

    def _pairs(self, seed: Seed, assigned: Collection[ClientId]) -> list[tuple[int, int]]:
        who = self._candidates(assigned)
        order = seed.fold("order").permutation(len(who))
        hits = seed.fold("pairs").uniform(len(who) // 2) < self._settings.probability
        return [(who[order[i]], who[order[len(who) - 1 - i]]) for i in np.flatnonzero(hits)]

    def _swap(self, pairs: list[tuple[int, int]], seed: Seed) -> tuple[ClientId, ...]:
        now = self.data
        fit = [now.fit.of(i) for i in range(len(now.clients))]
        test = [now.test.of(i) for i in range(len(now.clients))]
        transform = None if now.transform is None else now.transform.copy()
        truth = None if now.truth is None else now.truth.copy()
        moved = []
        for one, other in pairs:
            if self._settings.name == "swap_all":
                for lists in (fit, test):
                    lists[one], lists[other] = lists[other], lists[one]
                for numbers in (transform, truth):
                    if numbers is not None:
                        numbers[[one, other]] = numbers[[other, one]]
            elif not self._exchange(fit, test, one, other, seed.fold("classes", now.clients[one], now.clients[other])):
                continue
            moved += [one, other]
        if not moved:
            return ()
        dealt = Index.from_lists(fit), Index.from_lists(test)
        self.data = now.rearranged(fit=dealt[0], test=dealt[1], transform=transform, truth=truth)
        return tuple(sorted(now.clients[place] for place in moved))

    def _exchange(self, fit: list[Any], test: list[Any], one: int, other: int, seed: Seed) -> bool:
        """One class of each that the other does not have changes hands, in training and in test examples."""
        y = self.data.y
        present = [set(y[fit[i]].tolist()) & set(y[test[i]].tolist()) for i in (one, other)]
        only = [sorted(present[0] - present[1]), sorted(present[1] - present[0])]
        if not only[0] or not only[1]:
            return False
        u = seed.uniform(2)
        mine, theirs = (only[i][int(u[i] * len(only[i]))] for i in (0, 1))
        for lists in (fit, test):
            given, taken = y[lists[one]] == mine, y[lists[other]] == theirs
            here = np.concatenate([lists[one][~given], lists[other][taken]])
            there = np.concatenate([lists[other][~taken], lists[one][given]])
            lists[one], lists[other] = here, there
        return True

    def _turn(self, seed: Seed, assigned: Collection[ClientId]) -> tuple[ClientId, ...]:
        who = self._candidates(assigned)
        hits = [who[i] for i in np.flatnonzero(seed.fold("turn").uniform(len(who)) < self._settings.probability)]
        if not hits:
            return ()
        now = self.data
        assert now.transform is not None
        transform = now.transform.copy()
        transform[hits] = (transform[hits] + 1) % len(_TURNS)
        truth = now.truth
        if truth is not None and self._first.truth is not None and self._first.transform is not None:
            truth = _follow(truth, transform, hits, self._first.truth, self._first.transform)
        self.data = now.rearranged(transform=transform, truth=truth)
        return tuple(sorted(now.clients[place] for place in hits))

    def _releases(self) -> tuple[int, ...]:
        return self._settings.rounds or (0, 50, 100, 150)

    def _release(self, t: int) -> tuple[ClientId, ...]:
        """The first quarters of each client's examples in an order that is fixed for the run."""
        done = self._releases().index(t) + 1
        lists = []
        for place, client in enumerate(self._first.clients):
            mine = self._first.fit.of(place)
            order = self._seed.fold("order", client).permutation(len(mine))
            lists.append(mine[order][: self._released(len(mine), done)])
        before, self.data = self.data, self._first.rearranged(fit=Index.from_lists(lists))
        return self._changed(before)

    def _released(self, n: int, done: int) -> int:
        if self._settings.form == "paper":
            return math.ceil(n * min(done, _STAGES) / _STAGES)
        for stage in range(1, done + 1):  # the published code takes its share of what is left, not of the whole
            n = math.ceil(n * min(stage, _STAGES) / _STAGES)
        return n

    def _without_new_class(self) -> FederatedData:
        first = self._first
        assert first.classes is not None
        label = self._settings.label % first.classes

        def left(index: Index) -> Index:
            return Index.from_lists([rows[first.y[rows] != label] for rows in map(index.of, range(len(index)))])

        return first.rearranged(fit=left(first.fit), test=left(first.test))

    def _changed(self, before: FederatedData) -> tuple[ClientId, ...]:
        same = [np.array_equal(before.fit.of(i), self.data.fit.of(i)) for i in range(len(before.clients))]
        return tuple(sorted(c for c, kept in zip(before.clients, same, strict=True) if not kept))


def _with_turns(data: FederatedData) -> FederatedData:
    """The data with all four turns at hand."""
    if not set(data.transforms) <= set(_TURNS) or len(data.shape) < 2 or data.shape[0] != data.shape[1]:
        raise SpecError("Shift rotate needs square images that are turned or left alone, nothing else")
    codes = np.array([_TURNS.index(name) for name in data.transforms], np.uint8)
    old = np.zeros(len(data.clients), np.uint8) if data.transform is None else data.transform
    return data.rearranged(transforms=_TURNS, transform=codes[old])


def _follow(
    truth: npt.NDArray[np.int64],
    transform: npt.NDArray[np.uint8],
    hits: list[int],
    first_truth: npt.NDArray[np.int64],
    first_transform: npt.NDArray[np.uint8],
) -> npt.NDArray[np.int64]:
    """True clusters that follow the turn, where a turn meant a cluster to begin with; otherwise as they are."""
    meaning = {int(turn): int(k) for turn, k in zip(first_transform, first_truth, strict=True)}
    if any(meaning[int(turn)] != int(k) for turn, k in zip(first_transform, first_truth, strict=True)):
        return truth
    for turn in range(len(_TURNS)):
        meaning.setdefault(turn, max(meaning.values()) + 1)
    new = truth.copy()
    new[hits] = [meaning[int(turn)] for turn in transform[hits]]
    return new
