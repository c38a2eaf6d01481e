"""Clients that fail: replies that are lost, late, repeated, not finite or of the wrong shape, by seeded probability."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie import tree
from coterie.errors import SpecError
from coterie.federation.messages import ReplyBatch, Request, Transport, TransportWrapper
from coterie.models import Task
from coterie.seeds import Seed


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong, each with its own probability per reply; at most one of them happens.

    Attributes:
        drop: The reply is lost.
        late: It comes after the deadline, and is refused.
        duplicate: It comes twice.
        nan: It holds numbers that are none.
        shape: Its arrays have a wrong shape.
    """

    drop: float = 0.0
    late: float = 0.0
    duplicate: float = 0.0
    nan: float = 0.0
    shape: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what are no probabilities."""
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise SpecError(f"faults.{name} must be a probability between 0 and 1, got {value!r}")
        if sum(dataclasses.asdict(self).values()) > 1 + 1e-9:
            raise SpecError("The probabilities of faults add up to more than 1; lower some of them")

    def of(self, seed: Seed) -> str | None:
        """What happens to one reply."""
        u = float(seed.uniform(1)[0])
        for name, probability in dataclasses.asdict(self).items():
            if u < probability:
                return str(name)
            u -= probability
        return None


class Faulty(TransportWrapper):
    """A carrier whose replies suffer; the clients did their work and remember it all the same."""

    def __init__(self, transport: Transport, faults: Faults, seed: Seed) -> None:
        """Make another carrier's replies fail."""
        self._transport = transport
        self._faults = faults
        self._seed = seed

    def on(self, task: Task) -> Faulty:
        """The same faults with another task."""
        return Faulty(self._transport.on(task), self._faults, self._seed)

    def carry(self, order: Request) -> Iterator[ReplyBatch]:
        """The replies that arrive, as they arrive. Scoring is the simulator's business and does not fail."""
        for block in self._transport.carry(order):
            if block.problem is not None or order.evaluating:
                yield block
                continue
            # By the order's number and the client: a resumed run meets the same faults.
            fates = [self._faults.of(self._seed.fold("fault", order.id, client)) for client in block.clients]
            whole = [place for place, fate in enumerate(fates) if fate in (None, "duplicate", "nan")]
            if whole:
                yield _poisoned(block.rows(whole), [fates[place] == "nan" for place in whole])
            for place, fate in enumerate(fates):
                one = block.rows([place])
                if fate == "duplicate":
                    yield one
                elif fate == "late":
                    yield dataclasses.replace(one, late=True)
                elif fate == "shape":
                    yield dataclasses.replace(one, answers={k: _misshapen(v) for k, v in one.answers.items()})


def _poisoned(block: ReplyBatch, sick: list[bool]) -> ReplyBatch:
    if not any(sick):
        return block

    def spoil(leaf: Any) -> Any:
        if leaf.dtype.kind != "f":
            return leaf
        leaf = leaf.copy()
        leaf[np.array(sick)] = np.nan
        return leaf

    answers = {
        name: [[_spoilt(a) for a in items] if bad else items for items, bad in zip(value, sick, strict=True)]
        if isinstance(value, list)
        else tree.map(spoil, value)
        for name, value in block.answers.items()
    }
    return dataclasses.replace(block, answers=answers)


def _spoilt(array: Any) -> Any:
    return np.full_like(array, np.nan) if array.dtype.kind == "f" else array


def _misshapen(value: Any) -> Any:
    if isinstance(value, list):
        return [[array[None] for array in items] for items in value]
    return tree.map(lambda leaf: leaf[..., None], value)
