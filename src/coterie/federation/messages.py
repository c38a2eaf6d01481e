"""Between the desk and the carriers: orders that go to clients, and blocks of replies that come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from coterie import tree
from coterie.clients.work import Work
from coterie.errors import ClientFailed
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, ClientId, Part


@dataclass(frozen=True)
class Request:
    """One ask, as it goes to the clients.

    Attributes:
        id: Of the ask; a repeated order has the same.
        work: What to do.
        part: On which examples.
        seed: The round's.
        clients: Who, sorted.
        settings: Sent values that are settings.
        shared: Sent values that are the same for all.
        rows: Sent values of which each client gets its own row: the stack, and the row of each of `clients`.
        once: For each shared value that a client keeps: its hash, and to whom it is attached this time.
        versions: The memory that the server accepted last, of those clients that have one.
        standing: The memory before this round, of those clients that have one: where a skipped round goes back to.
        efforts: Shares of the work, of stragglers.
        deadline: Seconds.
        after: The order that runs first on the client and gives this one its `params`.
        evaluating: Whether this is for scoring only.
    """

    id: int
    work: Work
    part: Part
    seed: Seed
    clients: tuple[ClientId, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, tuple[Any, Array]] = field(default_factory=dict)
    once: Mapping[str, tuple[str, frozenset[ClientId]]] = field(default_factory=dict)
    versions: Mapping[ClientId, int] = field(default_factory=dict)
    standing: Mapping[ClientId, int] = field(default_factory=dict)
    efforts: Mapping[ClientId, float] = field(default_factory=dict)
    deadline: float | None = None
    after: Request | None = None
    evaluating: bool = False

    def only(self, clients: Sequence[ClientId]) -> Request:
        """The same order for some of its clients."""
        if len(clients) == len(self.clients):
            return self
        wanted = set(clients)
        places = np.array([place for place, client in enumerate(self.clients) if client in wanted], np.int64)
        return replace(
            self,
            clients=tuple(self.clients[place] for place in places),
            rows={name: (bank, row[places]) for name, (bank, row) in self.rows.items()},
            versions={client: version for client, version in self.versions.items() if client in wanted},
            after=None if self.after is None else self.after.only(clients),
        )

    def attached(self) -> Request:
        """The same order with every kept value attached for everyone."""
        return replace(
            self,
            once={name: (key, frozenset(self.clients)) for name, (key, _) in self.once.items()},
            after=None if self.after is None else self.after.attached(),
        )

    def client_seed(self, client: ClientId) -> Seed:
        """The seed of one client's work: by name, never by its place in the cohort."""
        return self.seed.fold(self.work.stream, client)


@dataclass(frozen=True)
class ReplyBatch:
    """Replies of several clients at once.

    Attributes:
        order: The id of the order that they answer.
        clients: Whose.
        samples: The examples that each of them worked on.
        answers: Name → values stacked in that order; a list with one entry a client for ragged values.
        problem: Instead of answers: why there are none. `lacks` means a kept value that the client does not have.
        late: Whether they came after the deadline.
    """

    order: int
    clients: tuple[ClientId, ...]
    samples: Array
    answers: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    late: bool = False

    def rows(self, places: list[int]) -> ReplyBatch:
        """The replies at some places of this block."""
        return replace(
            self,
            clients=tuple(self.clients[place] for place in places),
            samples=self.samples[places],
            answers={name: pick(value, places) for name, value in self.answers.items()},
        )


def pick(value: Any, places: list[int]) -> Any:
    """Some rows of stacked answers, or some entries of a list of ragged ones."""
    return [value[place] for place in places] if isinstance(value, list) else tree.take(value, places)


LACKS = "lacks"


class Transport(Protocol):
    """Brings orders to clients and blocks of replies back; where the clients run is its secret."""

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients, sorted."""

    @property
    def task(self) -> Task:
        """What they learn."""

    def carry(self, order: Request) -> Iterator[ReplyBatch]:
        """Replies as they come: first who lacks a kept value, then blocks in the order of client ids.

        None comes after the deadline unless it is marked `late`.
        """

    def on(self, task: Task) -> Transport:
        """The same clients with another task."""

    def move(self, data: Any) -> None:
        """Give simulated clients other examples: the world has changed."""

    def save(self) -> Any:
        """What the clients keep, as plain data: for checkpoints of simulated federations."""

    def load(self, saved: Any) -> None:
        """Take over what was saved."""


def carried(transport: Transport, order: Request) -> Iterator[ReplyBatch]:
    """The blocks of an order; what the model raised inside compiled code becomes the cause of an error of ours."""
    try:
        yield from transport.carry(order)
    except Exception:  # JAX has several kinds for it
        fault = None if transport.task.fault is None else transport.task.fault()
        if fault is None:
            raise
        if not isinstance(fault, Exception):
            raise fault from None  # Ctrl-C
        said = f"{type(fault).__name__}: {fault}"
        raise ClientFailed(f"Model {transport.task.name} failed in {order.work.name!r} with {said}") from fault


class TransportWrapper:
    """What carriers around another carrier have in common: all but how they carry, which each says itself."""

    _transport: Transport

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients, sorted."""
        return self._transport.clients

    @property
    def task(self) -> Task:
        """What they learn."""
        return self._transport.task

    def move(self, data: Any) -> None:
        """Give the clients other examples."""
        self._transport.move(data)

    def save(self) -> Any:
        """What the clients keep."""
        return self._transport.save()

    def load(self, saved: Any) -> None:
        """Take over what was saved."""
        self._transport.load(saved)
