"""`Remote`: a transport to clients on other machines, over any `Channel`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from coterie import codec
from coterie.errors import SpecError
from coterie.federation.messages import MISSING, ReplyBatch, Request
from coterie.federation.network import wire
from coterie.federation.network.channel import Channel, Message
from coterie.federation.network.compressed import rebuilt_batch
from coterie.federation.network.hello import Greeter
from coterie.federation.network.wire import NOT_ALLOWED, Held, Limits, Values, WireError
from coterie.models import Task, recipe_of
from coterie.seeds import Seed
from coterie.types import ClientId, Params

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData

#: The numbers in a checkpoint.
_COUNTS = ("down", "up", "exchanges", "seconds", "work")

#: Default number of seconds after which a reply is late.
DEADLINE = 600.0


class Members(Protocol):
    """The clients that a server knows; `Roster` implements it."""

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients that have joined, sorted, also those that are away."""

    @property
    def present(self) -> Sequence[ClientId]:
        """Clients that can be reached, sorted."""

    def refresh(self) -> None:
        """Look again who can be reached."""

    def see(self, client: ClientId) -> None:
        """Record that a client has replied."""

    def miss(self, client: ClientId, reason: str = "missed a deadline") -> None:
        """Record that a client has not done what it was asked: it is away until it returns."""

    def save(self) -> dict[str, Any]:
        """The clients as plain data, for a checkpoint."""

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""


@dataclass
class Sent:
    """What a server has sent and received, shared by the transports of all tasks.

    Attributes:
        down: Bytes of all messages to clients.
        up: Bytes of all replies.
        exchanges: Number of exchanges.
        seconds: Duration of all exchanges.
        work: The part of it in which clients worked: the slowest client of each exchange, as it states.
        recipes: Hash of a recipe → the clients that have it.
        tasks: Task → hash and encoded recipe; not part of a checkpoint.
        templates: Task → a model, to check compressed replies; not part of a checkpoint.
    """

    down: int = 0
    up: int = 0
    exchanges: int = 0
    seconds: float = 0.0
    work: float = 0.0
    recipes: dict[str, set[ClientId]] = field(default_factory=dict)
    tasks: dict[Task, tuple[str, bytes]] = field(default_factory=dict)

    def counts(self) -> dict[str, float]:
        """All numbers by name."""
        return {name: getattr(self, name) for name in _COUNTS}

    templates: dict[Task, Params] = field(default_factory=dict)


@dataclass(frozen=True)
class Connection:
    """How a server reaches its clients.

    Attributes:
        channel: Takes messages to clients.
        members: The clients.
        run: Id of the run; clients store what they must remember under it.
        backend: The backend that clients use.
        deadline: Seconds after which a reply is late, for requests without a deadline of their own.
        held: How clients split their training examples for validation.
        limits: Limits of replies.
        greeter: Greets clients that have not joined or are away, in the same exchanges; None: they are not greeted.
    """

    channel: Channel
    members: Members
    run: str
    backend: str = "vectorized"
    deadline: float = DEADLINE
    held: Held = field(default_factory=Held)
    limits: Limits = field(default_factory=Limits)
    greeter: Greeter | None = None


class Remote:
    """A transport to clients on other machines."""

    outlives_server = True

    def __init__(self, connection: Connection, task: Task, sent: Sent | None = None) -> None:
        """Create a transport.

        Args:
            connection: How clients are reached.
            task: The task that they learn.
            sent: What was sent so far; None: nothing.

        Raises:
            SpecError: If the task has no recipe, so that clients cannot build it.
        """
        self._connection = connection
        self._task = task
        self.sent = Sent() if sent is None else sent
        self._recipe(task)

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients that have joined, sorted."""
        return self._connection.members.clients

    @property
    def task(self) -> Task:
        """The task that the clients learn."""
        return self._task

    def on(self, task: Task) -> Remote:
        """Return a transport to the same clients with another task."""
        return Remote(self._connection, task, self.sent)

    def set_data(self, data: FederatedData) -> None:
        """Clients on other machines have their own data."""
        raise SpecError(
            "The examples of clients on other machines cannot be replaced; simulated drift needs coterie run"
        )

    def save(self) -> dict[str, Any]:
        """What was sent so far, the clients, and the task. What clients store stays with them."""
        recipes = {digest: sorted(clients) for digest, clients in self.sent.recipes.items()}
        return {
            **self.sent.counts(),
            "recipes": recipes,
            "run": self._connection.run,
            "task": recipe_of(self._task),
            "members": self._connection.members.save(),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        for name in _COUNTS:
            setattr(self.sent, name, saved[name])
        self.sent.recipes = {digest: set(clients) for digest, clients in saved["recipes"].items()}
        self._connection.members.load(saved["members"])

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send one request."""
        return iter(self.send_all([request])[0])

    def send_all(self, requests: Sequence[Request]) -> list[list[ReplyBatch]]:
        """Send several requests in one exchange: one message per client, with all requests that concern it.

        Returns:
            The replies to each request: first of clients that miss a cached value, then in the order of client ids.
        """
        messages, nonces = self._messages(requests)
        deadline = max(self._connection.deadline if each.deadline is None else each.deadline for each in requests)
        by_id = {request.id: request for request in requests}
        received: dict[int, list[ReplyBatch]] = {request.id: [] for request in requests}
        for client, result in self._exchange(messages, nonces, deadline):
            asked = [request for request in requests if client in request.clients] or requests[:1]
            if isinstance(result, str):
                for request in asked:
                    received[request.id].append(_no_reply(request, client, result))
                continue
            if any(batch.problem is not None and batch.problem.startswith(NOT_ALLOWED) for batch in result):
                # It was restarted, and does not know what it has agreed to until it is greeted again.
                self._connection.members.miss(client, "it must be greeted again")
            self._note_recipes(client, asked, result)
            for batch in result:
                # A reply to a request that was not sent is rejected with the replies to the first one that was.
                request = by_id.get(batch.request, asked[0])
                received[request.id].append(self._rebuilt(request, batch))
        return [
            sorted(received[request.id], key=lambda batch: (batch.problem != MISSING, batch.clients))
            for request in requests
        ]

    def _messages(self, requests: Sequence[Request]) -> tuple[dict[ClientId, Message], dict[ClientId, str]]:
        """The message of each client that is present, and its nonce."""
        self._connection.members.refresh()
        present = set(self._connection.members.present)
        concerning: dict[ClientId, list[int]] = {}
        for place, request in enumerate(requests):
            for client in request.clients:
                if client in present:
                    concerning.setdefault(client, []).append(place)
        commons: dict[tuple[int, ...], tuple[bytes, Values]] = {}
        messages, nonces = {}, {}
        for client in sorted(concerning):
            places = tuple(concerning[client])
            if places not in commons:
                commons[places] = self._common([requests[place] for place in places])
            common, shared = commons[places]
            nonces[client] = secrets.token_hex(16)
            own = self._own([requests[place] for place in places], client, nonces[client], shared)
            messages[client] = Message(common, own)
        return messages, nonces

    def _common(self, requests: Sequence[Request]) -> tuple[bytes, Values]:
        values = Values()
        parts = [wire.common_part(request, self._recipe(request.task)[0], values) for request in requests]
        content = {
            "version": wire.VERSION,
            "kind": "work",
            "run": self._connection.run,
            "backend": self._connection.backend,
            "requests": parts,
            "values": _arrays(values.encoded),
        }
        return wire.pack(content), values

    def _own(self, requests: Sequence[Request], client: ClientId, nonce: str, shared: Values) -> bytes:
        values = Values()
        parts = [wire.own_part(request, client, values) for request in requests]
        stored = {digest for each in requests for step in each.steps for digest, _ in step.cached.values()}
        for digest, recipe in {self._recipe(request.task) for request in requests}:
            stored.add(digest)
            if client not in self.sent.recipes.get(digest, ()):
                values.encoded[digest] = recipe
        own = {digest: data for digest, data in values.encoded.items() if digest not in shared.encoded}
        held = self._connection.held
        content = {
            "client": client,
            "nonce": nonce,
            "held": {"share": float(held.share), "seed": held.seed},
            "requests": parts,
            "values": _arrays(own),
            "stored": sorted(stored),
        }
        return wire.pack(content)

    def _recipe(self, task: Task | None) -> tuple[str, bytes]:
        """The hash and the encoded recipe of a task."""
        task = task or self._task
        if task not in self.sent.tasks:
            data = codec.encode(recipe_of(task))
            self.sent.tasks[task] = wire.hash_of(data), data
        return self.sent.tasks[task]

    def _exchange(
        self, messages: Mapping[ClientId, Message], nonces: Mapping[ClientId, str], deadline: float
    ) -> Iterator[tuple[ClientId, list[ReplyBatch] | str]]:
        """Exchange messages, and read the replies: client → replies, or the reason why there are none."""
        members, sent, greeter = self._connection.members, self.sent, self._connection.greeter
        if not messages:
            return
        greetings = {} if greeter is None else greeter.messages()
        greetings = {client: message for client, message in greetings.items() if client not in messages}
        sent.exchanges += 1
        sent.down += sum(len(each.common) + len(each.own) for each in (*messages.values(), *greetings.values()))
        missing = set(messages)
        started, work = time.perf_counter(), 0.0
        for client, reply, problem in self._connection.channel.exchange({**messages, **greetings}, deadline):
            sent.up += 0 if reply is None else len(reply)
            if client in greetings and greeter is not None:
                greeter.receive(client, reply, problem)
                continue
            missing.discard(client)
            if reply is None:
                if client in messages:
                    members.miss(client)
                yield client, problem or "no reply"
            else:
                members.see(client)
                try:
                    seconds, batches = wire.replies_of(client, reply, nonces.get(client, ""), self._connection.limits)
                    work = max(work, seconds)
                    yield client, batches
                except WireError as fault:
                    yield client, f"unreadable: {fault}"
            if greetings and not missing:
                break  # greetings that have no reply yet are repeated in the next exchange
        for client in sorted(missing):
            members.miss(client)
        elapsed = time.perf_counter() - started
        sent.seconds += elapsed
        sent.work += min(work, elapsed)

    def _rebuilt(self, request: Request, batch: ReplyBatch) -> ReplyBatch:
        """A reply with models instead of compressed updates, or without answers if these are malformed."""
        if not request.compressed:
            return batch
        task = request.task or self._task
        if task not in self.sent.templates:
            self.sent.templates[task] = task.init(Seed(0))
        try:
            return rebuilt_batch(request, batch, self.sent.templates[task])
        except WireError as fault:
            return _no_reply(request, batch.clients[0], f"unreadable: {fault}")

    def _note_recipes(self, client: ClientId, asked: Sequence[Request], batches: Sequence[ReplyBatch]) -> None:
        """Record that a client has the recipes of its requests, or that it has lost what it stored."""
        lost = any(batch.problem == MISSING for batch in batches)
        for request in asked:
            holders = self.sent.recipes.setdefault(self._recipe(request.task)[0], set())
            (holders.discard if lost else holders.add)(client)


def _no_reply(request: Request, client: ClientId, problem: str) -> ReplyBatch:
    return ReplyBatch(request.id, (client,), np.zeros(1, np.int64), problem=problem[:200])


def _arrays(encoded: Mapping[str, bytes]) -> dict[str, object]:
    return {digest: np.frombuffer(data, np.uint8) for digest, data in encoded.items()}
