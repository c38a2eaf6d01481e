"""`Site`: the client's half of a federation between machines. Bytes in, bytes out.

A site has the examples of one client, its storage, and the transports of the simulator for this one client. It runs
works by name and builds tasks from recipes; nothing that it receives is run as code. A request that is repeated gets
the stored reply.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie import codec
from coterie.data.federated import FederatedData
from coterie.errors import Error
from coterie.federation.messages import MISSING, ReplyBatch
from coterie.federation.network import wire
from coterie.federation.network.channel import Message
from coterie.federation.network.delivery import Delivered, delivered
from coterie.federation.network.store import CACHE_BYTES, DiskStore
from coterie.federation.network.wire import MissingValue, WireError
from coterie.federation.sequential import Sequential
from coterie.federation.transport import Transport, send
from coterie.federation.vectorized import Vectorized
from coterie.models import Task, from_recipe
from coterie.seeds import Seed
from coterie.types import ClientId

log = logging.getLogger(__name__)

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Answered:
    """One request and its reply, for the log of the client; without examples and models.

    Attributes:
        run: Id of the run.
        id: Id of the request.
        work: Name of the work.
        part: The part of the examples.
        evaluating: Whether it was only for evaluation.
        names: Names of the values in the reply.
        problem: Why there is no reply; None if there is one.
        seconds: Duration of the work.
        received: Bytes of the message in which it came, which may contain several requests.
        sent: Bytes of the reply to this message.
        reply: Hash of that reply.
    """

    run: str
    id: int
    work: str
    part: str
    evaluating: bool
    names: tuple[str, ...]
    problem: str | None
    seconds: float
    received: int
    sent: int = 0
    reply: str = ""


#: Answers the greeting of a server: its content → the client's reply, both plain data.
OnHello = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Site:
    """One client on a network."""

    def __init__(
        self,
        data: FederatedData,
        folder: Path,
        *,
        on_hello: OnHello | None = None,
        on_answer: Callable[[Answered], None] | None = None,
        on_model: Callable[[Delivered], None] | None = None,
        allowed_models: tuple[str, ...] = (),
        allowed_works: Collection[str] | None = None,
        threads: int | None = None,
        max_bytes: int = wire.MAX_BYTES,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """Create a client.

        Args:
            data: The examples of one client.
            folder: Where it stores what it must remember, in a folder for each run.
            on_hello: Answers greetings; None: they are refused.
            on_answer: Called after each message, once for each of its requests.
            on_model: Called with the model that the client gets at the end of a run; None: it is dropped.
            allowed_models: Own models that may be imported, as `package.module:function`.
            allowed_works: Names of works that may be run; None: all that this process knows. A work that runs before
                another one (`after`) sends nothing and is always allowed.
            threads: Threads of the vectorized backend; None: one per core.
            max_bytes: Maximum size of a message after decompression.
            cache_bytes: Maximum size of the cached values of a run.
        """
        if len(data.clients) != 1:
            raise Error(f"A client needs the examples of one client, these are of {len(data.clients)}")
        self._data = data
        self._folder = folder
        self._on_hello = on_hello
        self._on_answer = on_answer
        self._on_model = on_model
        self._allowed_models = allowed_models
        self._allowed_works = None if allowed_works is None else frozenset(allowed_works)
        self._threads = threads
        self._max_bytes = max_bytes
        self._cache_bytes = cache_bytes
        self._run = ""
        self._store: DiskStore | None = None
        self._transports: dict[tuple[str, str], Transport] = {}

    def allow(self, works: Collection[str]) -> None:
        """Allow these works, and no others."""
        self._allowed_works = frozenset(works)

    def renew(self, data: FederatedData) -> None:
        """Use new examples from the next message on."""
        self._data = data
        self._transports.clear()
        if self._store is not None:
            before = self._store.data
            self._store.renew(_named(data, before.clients[0], before.held_share, before.held_seed))

    def answer(self, message: Message) -> bytes:
        """Answer a message of the server.

        Raises:
            WireError: If it cannot be read.
        """
        try:
            return self._answer(message)
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            raise WireError(f"A message cannot be read: {type(fault).__name__}: {fault}") from fault

    def _answer(self, message: Message) -> bytes:
        digest = wire.hash_of(message.common + message.own)
        common, own = (wire.unpack(part, self._max_bytes) for part in (message.common, message.own))
        if common.get("version") != wire.VERSION:
            raise WireError(
                f"The server has version {str(common.get('version'))[:20]} of the message format, this client has "
                f"{wire.VERSION}; install the same version of Coterie on both"
            )
        if common.get("kind") == "hello":
            return self._answer_hello(common, own)
        if common.get("kind") == "model":
            model = delivered(common, own)
            if not _RUN.fullmatch(model.run):
                raise WireError("A message cannot be read: it names no valid run")
            if self._on_model is not None:
                self._on_model(model)
            return wire.pack({"version": wire.VERSION, "nonce": own["nonce"]})
        store = self._opened(common, own)
        stored = store.last_reply(digest)
        if stored is not None:
            return stored
        received = len(message.common) + len(message.own)
        answered = self._run_all(store, common, own, received)
        reply = wire.pack(
            {
                "version": wire.VERSION,
                "nonce": own["nonce"],
                "seconds": sum(entry.seconds for _, entry in answered),
                "replies": [wire.reply_part(batch) for batch, _ in answered],
            }
        )
        if all(batch.problem is None for batch, _ in answered):  # otherwise the server asks again with the same message
            store.store_reply(digest, reply)
        if self._on_answer is not None:
            for _, entry in answered:
                self._on_answer(dataclasses.replace(entry, sent=len(reply), reply=wire.hash_of(reply)))
        return reply

    def _answer_hello(self, common: Mapping[str, Any], own: Mapping[str, Any]) -> bytes:
        content: Mapping[str, Any] = {"refused": "This client takes no greetings"}
        if self._on_hello is not None:
            content = self._on_hello({**common, "client": own.get("client")})
        return wire.pack({**content, "version": wire.VERSION, "nonce": own["nonce"]})

    def _opened(self, common: Mapping[str, Any], own: Mapping[str, Any]) -> DiskStore:
        """The storage for the run of a message."""
        run, client, held = str(common["run"]), ClientId(str(own["client"])), own["held"]
        share, seed = float(held["share"]), held["seed"]
        if not _RUN.fullmatch(run) or not isinstance(seed, Seed):
            raise WireError("A message cannot be read: it names no valid run")
        known = None if self._store is None else self._store.data
        changed = known is None or (known.clients[0], known.held_share, known.held_seed) != (client, share, seed)
        if self._store is None or self._run != run or changed:
            self._transports.clear()
            self._run = run
            data = _named(self._data, client, share, seed)
            self._store = DiskStore(data, self._folder / run, cache_bytes=self._cache_bytes)
        return self._store

    def _run_all(
        self, store: DiskStore, common: Mapping[str, Any], own: Mapping[str, Any], received: int
    ) -> list[tuple[ReplyBatch, Answered]]:
        """Run the requests of a message in order."""
        values = _Values(store, common, own)
        backend, parts = str(common.get("backend")), common["requests"]
        if not isinstance(parts, list) or len(parts) != len(own["requests"]):
            raise WireError("A message cannot be read: its parts have different numbers of requests")
        results: list[tuple[ReplyBatch, Answered]] = []
        for part, mine in zip(parts, own["requests"], strict=True):
            if not _is_wanted(part, mine, [batch for batch, _ in results]):
                continue
            started = time.perf_counter()
            batch = self._reply(store, backend, values, part, mine)
            seconds = time.perf_counter() - started
            entry = Answered(
                self._run,
                batch.request,
                str(part["work"]),
                str(part["part"]),
                bool(part["evaluating"]),
                tuple(batch.answers),
                batch.problem,
                seconds,
                received,
            )
            results.append((batch, entry))
        return results

    def _reply(
        self, store: DiskStore, backend: str, values: _Values, part: Mapping[str, Any], mine: Mapping[str, Any]
    ) -> ReplyBatch:
        """The reply to one request. What goes wrong here is reported by its type: a text might contain examples."""
        client = store.data.clients[0]
        if self._allowed_works is not None and part["work"] not in self._allowed_works:
            return _no_reply(int(part["id"]), client, f"{wire.NOT_ALLOWED}: {str(part['work'])[:60]}")
        try:
            request = wire.request_for(client, part, mine, values.get)
            transport = self._transport(store, backend, str(part["task"]), values)
        except MissingValue:
            return _no_reply(int(part["id"]), client, MISSING)
        if request.work.simulation_only:
            return _no_reply(request.id, client, f"not allowed: {request.work.name}")
        try:
            (batch,) = send(transport, request)
        except Exception as fault:
            log.exception("%s failed", request.work.name)
            return _no_reply(request.id, client, f"failed: {type(fault).__name__}")
        return batch

    def _transport(self, store: DiskStore, backend: str, digest: str, values: _Values) -> Transport:
        """The transport for a task: the same code as in the simulator, for one client."""
        if (backend, digest) not in self._transports:
            recipe = values.get(digest)
            if not isinstance(recipe, Mapping):
                raise WireError("A request cannot be read: it names no task")
            task: Task = from_recipe(recipe, allowed=self._allowed_models)
            if backend == "sequential":
                transport: Transport = Sequential(store.data, task, store=store)
            elif backend == "vectorized":
                transport = Vectorized(store.data, task, threads=self._threads, store=store)
            else:
                raise WireError(f"Unknown backend {backend[:20]!r}")
            self._transports[backend, digest] = transport
        return self._transports[backend, digest]


class _Values:
    """The values of one message and those that the client has stored, by hash; each is decoded once."""

    def __init__(self, store: DiskStore, common: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self._store = store
        self._decoded: dict[str, object] = {}
        self._sent: dict[str, bytes] = {}
        for part in (common, own):
            for digest, data in part["values"].items():
                content = np.asarray(data).tobytes()
                if wire.hash_of(content) != digest:
                    raise WireError("A message cannot be read: a value does not have the hash that it is named by")
                self._sent[digest] = content
        for digest in own["stored"]:
            if digest in self._sent:
                store.store_value(digest, self._sent[digest])

    def get(self, digest: str) -> object:
        """A value; raises MissingValue if the client does not have it."""
        if digest not in self._decoded:
            data = self._sent.get(digest) or self._store.value(digest)
            if data is None:
                raise MissingValue(digest)
            self._decoded[digest] = codec.decode(data, kinds=())
        return self._decoded[digest]


def _is_wanted(part: Mapping[str, Any], mine: Mapping[str, Any], before: Sequence[ReplyBatch]) -> bool:
    """Whether a request is to be run: one that depends on an answer to an earlier request of the message may not be."""
    when = part["when"]
    if when is None or mine["always"]:
        return True
    for batch in before:
        if batch.request == when["request"]:
            answer = batch.answers.get(when["answer"])
            return answer is not None and bool(np.asarray(answer).any())
    return True  # it was sent alone, because the client missed a value


def _no_reply(request: int, client: ClientId, problem: str) -> ReplyBatch:
    return ReplyBatch(request, (client,), np.zeros(1, np.int64), problem=problem)


def _named(data: FederatedData, client: ClientId, share: float, seed: Seed) -> FederatedData:
    """The examples under the id that the server knows, with its split for validation."""
    return dataclasses.replace(data, clients=(client,), held_share=share, held_seed=seed)
