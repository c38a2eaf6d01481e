"""The messages between server and clients: a `Request` goes to the clients, `ReplyBatch`es come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coterie import tree
from coterie.clients.work import Work
from coterie.federation.compression import Compression
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Part

if TYPE_CHECKING:
    from coterie.federation.reduce import BlockSums

#: One answer of several clients: stacked values, or for ragged answers a list of arrays per client.
Answer: TypeAlias = Bank | Array | list[list[Array]]

#: `ReplyBatch.problem` of clients that do not have a cached value; the server sends it to them again.
MISSING = "missing"

#: Names of client memories with what was lost in compression begin with this.
RESIDUAL = "residual"


@dataclass(frozen=True)
class Request:
    """A message from the server to clients.

    Attributes:
        id: Number of the request, unique in the run; a repeated request has the same number. See `ServerState.new_id`.
        work: The work to do.
        part: The part of the examples to work on.
        seed: Seed of the round; with `own_seeds` it is not used.
        clients: The recipients, sorted.
        t: Round number, for the traffic table; -1 outside of rounds.
        settings: Sent values that are settings.
        shared: Sent values that are the same for all clients.
        per_client: Sent values that differ between clients: the stack, and the row of each of `clients`.
        cached: Shared values that clients store: hash of the value, and the clients to which it is attached this time.
        dims: Sizes of the named dimensions of the sent values.
        versions: Client → the version of its memory that the server accepted last.
        versions_before_round: Client → the version accepted before this round, restored if the round is skipped.
        versions_in_checkpoints: Client → the versions that checkpoints of the server name. Clients keep them, so that a
            resumed server finds them.
        own_seeds: Client → seed of its work. A client that gets a request over the network knows only its own seed: the
            seed of the round would reveal the seeds of all clients.
        efforts: Straggler → fraction of the local training that it does.
        deadline: Seconds after which a reply is late.
        task: The task of the clients; requests of several tasks may travel together. None: that of the transport.
        after: The request that runs first on the client and provides the `params` of this one.
        when: For the second of two requests that travel together: the id of the first, and the name of one of its
            answers. A client runs the second if this answer is not 0.
        always: Clients that run it in any case.
        evaluating: Whether the request is only for evaluation.
        clipped: Names of the answers whose updates the client clips before it sends them.
        max_update_norm: Maximum norm of these updates.
        compressed: Names of the answers whose updates the client compresses before it sends them, after clipping.
        compression: How it compresses them.
        residual: Name of the client memory with what was lost in compression before; empty: nothing is compressed. A
            work whose answers are compressed has no memory of its own, so that a request has one memory at most.
    """

    id: int
    work: Work
    part: Part
    seed: Seed
    clients: tuple[ClientId, ...]
    t: int = -1
    settings: Mapping[str, object] = field(default_factory=dict)
    shared: Mapping[str, object] = field(default_factory=dict)
    per_client: Mapping[str, tuple[Bank | Array, Array]] = field(default_factory=dict)
    cached: Mapping[str, tuple[str, frozenset[ClientId]]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[ClientId, int] = field(default_factory=dict)
    versions_before_round: Mapping[ClientId, int] = field(default_factory=dict)
    versions_in_checkpoints: Mapping[ClientId, tuple[int, ...]] = field(default_factory=dict)
    own_seeds: Mapping[ClientId, Seed] = field(default_factory=dict)
    efforts: Mapping[ClientId, float] = field(default_factory=dict)
    deadline: float | None = None
    task: Task | None = None
    after: Request | None = None
    when: tuple[int, str] | None = None
    always: frozenset[ClientId] = frozenset()
    evaluating: bool = False
    clipped: tuple[str, ...] = ()
    max_update_norm: float = 0.0
    compressed: tuple[str, ...] = ()
    compression: Compression = field(default_factory=Compression)
    residual: str = ""

    @property
    def steps(self) -> tuple[Request, ...]:
        """This request, and the one that the client runs before it, if any."""
        return (self,) if self.after is None else (self, self.after)

    @property
    def memory(self) -> str | None:
        """Name of the client memory that the request uses: that of its work, or what compression has lost."""
        return self.work.memory or self.residual or None

    @property
    def writes_memory(self) -> bool:
        """Whether clients store a new version of their memory."""
        return self.memory is not None and not self.work.recalls and not self.evaluating

    def only(self, clients: Sequence[ClientId]) -> Request:
        """Return the same request for some of its clients."""
        if len(clients) == len(self.clients):
            return self
        wanted = set(clients)
        places = np.array([place for place, client in enumerate(self.clients) if client in wanted], np.int64)
        return replace(
            self,
            clients=tuple(self.clients[place] for place in places),
            per_client={name: (bank, row[places]) for name, (bank, row) in self.per_client.items()},
            versions={client: version for client, version in self.versions.items() if client in wanted},
            after=None if self.after is None else self.after.only(clients),
        )

    def between(self, first: int, last: int) -> Request:
        """Return the same request for its clients from position `first` to before `last`."""
        clients = self.clients[first:last]
        return replace(
            self,
            clients=clients,
            per_client={name: (bank, row[first:last]) for name, (bank, row) in self.per_client.items()},
            versions={client: self.versions[client] for client in clients if client in self.versions},
            after=None if self.after is None else self.after.between(first, last),
        )

    def attached(self) -> Request:
        """Return the same request with every cached value attached for every client."""
        return replace(
            self,
            cached={name: (key, frozenset(self.clients)) for name, (key, _) in self.cached.items()},
            after=None if self.after is None else self.after.attached(),
        )

    def with_params(self, params: Bank) -> Request:
        """Return the same request with the result of `after` as `params` of each client."""
        rows = np.arange(len(self.clients))
        return replace(self, per_client={**self.per_client, "params": (params, rows)}, after=None)

    def client_seed(self, client: ClientId) -> Seed:
        """The seed of one client's work, derived from the client id, not from its position in the cohort."""
        own = self.own_seeds.get(client)
        return self.seed.fold(self.work.stream, client) if own is None else own


@dataclass(frozen=True)
class Summed:
    """Models of replies that another process has checked and summed.

    Attributes:
        sums: The sums of each `Mean` of the request.
        rejected: Client whose reply was rejected → reason.
        up_bytes: Purpose → bytes of the replies, as if the clients had sent them one by one.
        dims: Sizes of the named dimensions of the replies.
    """

    sums: tuple[BlockSums, ...]
    rejected: Mapping[ClientId, str]
    up_bytes: Mapping[str, int]
    dims: Mapping[str, int]


@dataclass(frozen=True)
class ReplyBatch:
    """Replies of several clients.

    Attributes:
        request: Id of the request.
        clients: The clients that replied.
        samples: Number of examples that each client used.
        answers: Name → values stacked in the order of `clients`; for ragged values a list with one entry per client.
        problem: Reason why there are no answers, or None. `MISSING`: the clients do not have a cached value.
        late: Whether the replies came after the deadline.
        coded: Name → the compressed form of an answer, which a client on another machine sends instead of the answer.
        summed: The sums of the models, if another process has summed them; then they are not among the answers, and all
            of `clients` have valid replies.
    """

    request: int
    clients: tuple[ClientId, ...]
    samples: Array
    answers: Mapping[str, Answer] = field(default_factory=dict)
    problem: str | None = None
    late: bool = False
    coded: Mapping[str, Bank] = field(default_factory=dict)
    summed: Summed | None = None

    def take(self, places: list[int]) -> ReplyBatch:
        """Return the replies at some positions of this batch, without compressed forms."""
        return replace(
            self,
            clients=tuple(self.clients[place] for place in places),
            samples=self.samples[places],
            answers={name: take(value, places) for name, value in self.answers.items()},
            coded={},
        )


def take(value: Answer, places: list[int]) -> Answer:
    """Some rows of stacked values, or some entries of a ragged list."""
    return [value[place] for place in places] if isinstance(value, list) else tree.take(value, places)
