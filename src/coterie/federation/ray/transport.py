"""`RayTransport`: simulated clients that workers on other machines run.

Methods, server and run loop are the same as in any simulation; so are the bytes of the results, whatever the number of
workers. Client memories stay in this process and travel with the shares that need them, so that a lost worker loses
nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from coterie import codec, tree
from coterie.clients.schema import Model
from coterie.clients.work import Work
from coterie.data.federated import FederatedData
from coterie.federation.client_store import ClientStore
from coterie.federation.messages import MISSING, ReplyBatch, Request
from coterie.federation.protocol import Mean
from coterie.federation.ray.pool import Pool, WorkerLost
from coterie.federation.ray.scheduling import Load, Scheduler
from coterie.federation.ray.shares import cut, worth_summing
from coterie.federation.ray.shipping import Handle, PackedTask, arrays_of, packed, without_arrays
from coterie.federation.ray.worker import Groups, Share
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId

#: Maximum number of bytes of the models in one share that travel.
SHARE_BYTES = 256 * 2**20

#: Seconds of work for which a share of its own is worthwhile; to send one takes a few milliseconds.
SHARE_SECONDS = 0.01


@dataclass
class _Shared:
    """What the transports of all tasks share.

    Attributes:
        pool: The workers.
        store: The clients' storage.
        scheduler: Gives shares to workers.
        sent: A work, a task or the hash of a cached value → its handle.
        layout: The data without their examples; None: changed since they were sent.
        count: Number of values that were numbered so far.
        name: Part of the names of values; workers may serve several transports.
        rates: Name of a work → seconds per unit of planned work, in the fastest share so far.
    """

    pool: Pool
    store: ClientStore
    scheduler: Scheduler
    sent: dict[object, Handle] = field(default_factory=dict)
    layout: Handle | None = None
    count: int = 0
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    rates: dict[str, float] = field(default_factory=dict)

    def handle(self, kind: str, value: object) -> Handle:
        """Store a value for the workers."""
        self.count += 1
        return Handle(f"{kind}-{self.name}-{self.count}", self.pool.put(value))

    def once(self, kind: str, key: object, value: object) -> Handle:
        """The handle of a value that is stored once."""
        if key not in self.sent:
            self.sent[key] = self.handle(kind, value)
        return self.sent[key]


class RayTransport:
    """A transport to simulated clients on the workers of a pool."""

    outlives_server = False

    def __init__(self, data: FederatedData, task: Task, pool: Pool, *, shared: _Shared | None = None) -> None:
        """Create clients with these examples. Workers start with the first request.

        Args:
            data: The examples.
            task: The task that the clients learn. It must fit the examples.
            pool: The workers.
            shared: What the transports of all tasks share; None: this is the first one.
        """
        task.check(data.x, data.y, shape=data.shape, tokens=data.ids)
        arrays = arrays_of(data)
        find: Callable[[], Sequence[Any]] = partial(pool.workers, arrays)
        self._shared = shared or _Shared(pool, ClientStore(data), Scheduler(pool, find))
        self._task = task
        self._model_bytes = tree.nbytes(task.init(Seed(0)))
        self._clients = tuple(sorted(data.clients))
        self._index: dict[ClientId, int] = {}

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""
        return self._clients

    @property
    def task(self) -> Task:
        """The task that the clients learn."""
        return self._task

    @property
    def work_done(self) -> Load:
        """What the workers have done so far."""
        return self._shared.scheduler.load

    @property
    def _store(self) -> ClientStore:
        return self._shared.store

    def on(self, task: Task) -> RayTransport:
        """Return a transport to the same clients, storage and workers with another task."""
        return RayTransport(self._store.data, task, self._shared.pool, shared=self._shared)

    def set_data(self, data: FederatedData) -> None:
        """Replace the clients' examples."""
        self._store.set_data(data)
        self._shared.layout = None

    def save(self) -> dict[str, Any]:
        """Return what the clients store, as plain data."""
        return self._store.save()

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self._store.load(saved)

    def close(self) -> None:
        """End the workers."""
        self._shared.pool.close()

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Run the request and return replies in batches, in the order of client ids."""
        return self.send_for_means(request, ())

    def send_for_means(self, request: Request, means: Sequence[Mean]) -> Iterator[ReplyBatch]:
        """Run the request; workers sum the models of whole blocks of clients, if that saves bytes."""
        if not all(worth_summing(mean.groups) for mean in means):
            means = ()
        able, missing = self._store.receive(request)
        if missing:
            yield ReplyBatch(request.id, tuple(missing), np.zeros(len(missing), np.int64), problem=MISSING)
            means = ()  # the blocks of the request have clients that reply later
        if able:
            yield from self._exchange(request.only(able), means)

    def _exchange(self, request: Request, means: Sequence[Mean]) -> Iterator[ReplyBatch]:
        scheduler = self._shared.scheduler
        workers = scheduler.free_workers()
        most = len(request.clients)
        if not means and any(isinstance(schema, Model) for schema in request.work.gives.values()):
            most = max(1, SHARE_BYTES // self._model_bytes)
        costs, rates, name = self._costs(request), self._shared.rates, request.work.name
        shares = cut(costs, len(workers), most, SHARE_SECONDS / rates[name] if name in rates else 0.0)
        exchange = _Exchange(self._shared, self._packed(request, means), self._layout(), request, shares)
        planned = [int(costs[slice(*share)].sum()) for share in shares]
        for number, (share, worker) in enumerate(scheduler.run(planned, exchange.submit, workers)):
            rate = share.seconds / max(1, planned[number])
            rates[name] = min(rate, rates.get(name, rate))
            yield from exchange.received(number, share, worker)

    def _packed(self, request: Request, means: Sequence[Mean]) -> Handle:
        """The request, stored for the workers."""
        shared, recipe = self._shared, PackedTask.of(self._task)
        whole = packed(
            request,
            self._positions(request.clients),
            lambda work: shared.once("work", work, work),
            shared.once("task", self._task, recipe),
            lambda digest, value: shared.once("value", digest, value),
            means,
        )
        return shared.handle("request", whole)

    def _layout(self) -> Handle:
        """The lists of examples, stored for the workers after each change."""
        if self._shared.layout is None:
            self._shared.layout = self._shared.handle("layout", without_arrays(self._store.data))
        return self._shared.layout

    def _positions(self, clients: Sequence[ClientId]) -> Array | None:
        """Position of each client among all clients; None: these are all clients."""
        if len(clients) == len(self._clients):
            return None
        if not self._index:
            self._index = {client: place for place, client in enumerate(self._clients)}
        return np.fromiter((self._index[client] for client in clients), np.int64, len(clients))

    def _costs(self, request: Request) -> Array:
        """Planned work of each client: rows of its plans; examples for works without a plan."""
        data = self._store.data
        total = np.zeros(len(request.clients), np.int64)
        for step in request.steps:
            sizes = data.sizes(step.part)
            if data.clients != request.clients:
                sizes = sizes[np.fromiter(map(data.position, request.clients), np.int64, len(request.clients))]
            total += _rows(step.work, step.settings, sizes)
        if request.efforts:
            total = (total * [request.efforts.get(client, 1.0) for client in request.clients]).astype(np.int64)
        return total


class _Exchange:
    """One request on its way to the workers.

    Attributes:
        shared: Pool, store and scheduler.
        packed: The request.
        layout: The data without examples.
        request: The request as the server has it.
        shares: Its shares.
    """

    def __init__(
        self, shared: _Shared, packed: Handle, layout: Handle, request: Request, shares: Sequence[tuple[int, int]]
    ) -> None:
        self._shared = shared
        self._packed = packed
        self._layout = layout
        self._request = request
        self._shares = shares
        self._owners: dict[int, Any] = {}
        self._measured: dict[int, dict[int, Array]] = {}

    def submit(self, worker: Any, number: int) -> Any:
        """Send a share to a worker."""
        share = self._shares[number]
        lent = self._shared.store.lend(self._part(number))
        return self._shared.pool.submit(worker, "run", self._packed, self._layout, share, lent)

    def received(self, number: int, share: Share, worker: Any) -> Iterator[ReplyBatch]:
        """Keep the new memories of a share, and yield its replies."""
        self._shared.scheduler.load.up_bytes += sum(array.nbytes for array in codec.arrays(share, floats=False))
        if share.memories is not None:
            self._shared.store.remember(self._part(number), share.memories)
        place = self._shares[number][0]
        for batch, count in zip(share.batches, share.counts, strict=True):
            clients = self._request.clients[place : place + count]
            place += count
            if batch.summed is None:
                yield replace(batch, clients=clients)
                continue
            self._owners[number] = worker
            sums = tuple(
                replace(each, kept=RemoteModels(each.kept.groups, partial(self._distances, number, which)))
                if isinstance(each.kept, Groups)
                else each
                for which, each in enumerate(batch.summed.sums)
            )
            names = batch.clients if batch.summed.rejected else clients
            yield replace(batch, clients=names, summed=replace(batch.summed, sums=sums))

    def _part(self, number: int) -> Request:
        return self._request.between(*self._shares[number])

    def _distances(self, number: int, mean: int, reference: Bank) -> Array:
        """Distances that a worker measures; all workers measure at the same time."""
        if mean not in self._measured:
            handle = Handle("", self._shared.pool.put(reference))
            self._measured[mean] = self._measure(mean, handle)
        return self._measured[mean][number]

    def _measure(self, mean: int, reference: Handle) -> dict[int, Array]:
        pool, found = self._shared.pool, dict[int, Array]()
        waiting = dict(self._owners)
        while waiting:
            futures = {
                number: pool.submit(worker, "distances", self._packed, self._shares[number][0], mean, reference)
                for number, worker in waiting.items()
            }
            again: dict[int, Any] = {}
            for number, future in futures.items():
                try:
                    pool.wait([future])
                    measured = pool.result(future)
                except WorkerLost:
                    measured = None
                    pool.drop(waiting[number])
                if measured is None:
                    again[number] = None
                else:
                    found[number] = measured
            waiting = self._computed_again(list(again)) if again else {}
        return found

    def _computed_again(self, numbers: Sequence[int]) -> dict[int, Any]:
        """Let other workers run shares again whose models were lost with their workers; returns the workers."""
        scheduler = self._shared.scheduler
        sizes = [last - first for first, last in (self._shares[number] for number in numbers)]
        done = scheduler.run(sizes, lambda worker, place: self.submit(worker, numbers[place]), scheduler.free_workers())
        return {number: worker for number, (_, worker) in zip(numbers, done, strict=True)}


@dataclass(frozen=True)
class RemoteModels:
    """Models that a worker keeps to measure their distances.

    Attributes:
        groups: The group of each model.
        measure: Measures the distances to the models of a bank.
    """

    groups: Array
    measure: Callable[[Bank], Array]

    def distances(self, reference: Bank) -> Array:
        """The distance of each model to the row of its group."""
        return self.measure(reference)


def _rows(work: Work, settings: Mapping[str, object], sizes: Array) -> Array:
    """Rows of the plans of clients with these numbers of examples."""
    if work.lengths is None:
        return sizes
    different, places = np.unique(sizes, return_inverse=True)
    rows = [max(work.lengths(int(n), **settings).values(), default=1) for n in different]
    return np.array(rows, np.int64)[places]
