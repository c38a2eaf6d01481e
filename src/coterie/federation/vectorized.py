"""Vectorized backend: a whole cohort in a few compiled calls. Fast, and the default.

All examples of all clients are in one flat array, passed to the compiled code without a copy. A call trains up to
`Capacity.clients` clients one after the other in one compiled loop, each with the number of steps of its plan; plans
are tables of example numbers. Capacities depend only on the federation, so that a new cohort needs no compilation. The
calls of a cohort are balanced over threads. The arithmetic of a client does not depend on the call it is in, and
means add clients in the order of client ids, so results do not depend on the number of threads or cores.

Padding and masks exist only here, in batching.py and in kernels.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from coterie import tree
from coterie.clients import traced_settings as setting
from coterie.clients.schema import Model
from coterie.clients.work import CHUNK, Work
from coterie.data import transforms
from coterie.data.federated import FederatedData
from coterie.federation import compilation
from coterie.federation.batching import (
    Capacity,
    ExampleBlock,
    Layout,
    Member,
    add_blocks,
    block_values,
    call_values,
    merge_calls,
    pad_rows,
    plan_costs,
    plan_pages,
    power_of_two,
    small_banks,
    split_blocks,
    split_calls,
)
from coterie.federation.client_store import ClientStore
from coterie.federation.device import CPU, Device
from coterie.federation.kernels import BodyCall, EachCall, Examples, Sent, compiled_body, compiled_each
from coterie.federation.known_sums import KnownSums
from coterie.federation.messages import Request
from coterie.federation.sample_weights import class_weights, wants_balanced_classes
from coterie.federation.simulated import Result, SimulatedTransport
from coterie.models import Task
from coterie.seeds import Seed
from coterie.threads import one_thread
from coterie.types import Array, Bank, ClientId, Params, Part

#: Number of examples in one block of a per-example function.
BLOCK_ROWS = 128
#: Number of blocks in one call.
BLOCKS = 64
#: If the models sent to all clients have more bytes than this, blocks are larger, because each block reads all models.
LARGE_BYTES = 8 * 2**20
#: Maximum number of clients in one call, and maximum number of bytes of their models.
MAX_CLIENTS = 32
MAX_BYTES = 32 * 2**20
#: Maximum number of clients in one call of a work that neither takes nor gives models.
MAX_CLIENTS_WITHOUT_MODELS = 1024
#: Number of clients whose rows are remembered between requests.
MAX_KNOWN = 100_000
#: Maximum number of bytes of the models in one batch of replies.
BATCH_BYTES = 48 * 2**20


class KnownLayout(NamedTuple):
    """The blocks of a request.

    Attributes:
        clients: The clients; the same list if neither they nor their examples have changed.
        width: Number of examples in a block.
        rows: The row that each client is sent of each value that is sent per client.
        layout: The blocks.
    """

    clients: list[Member]
    width: int
    rows: list[Array]
    layout: Layout


class Vectorized(SimulatedTransport):
    """A transport to simulated clients that run many at a time."""

    def __init__(
        self,
        data: FederatedData,
        task: Task,
        *,
        threads: int | None = None,
        store: ClientStore | None = None,
        pool: ThreadPoolExecutor | None = None,
        device: Device = CPU,
    ) -> None:
        """Create clients with these examples.

        Args:
            data: The examples.
            task: The task that the clients learn.
            threads: Number of calls that run at a time; by default the number of cores, and 1 on a GPU.
            store: Storage of the clients; None: empty.
            pool: Thread pool for the calls.
            device: Where the clients run.
        """
        import jax

        compilation.prepare()
        super().__init__(task, store or ClientStore(data))
        self._device = device
        self._threads = threads or (compilation.cores() if device.platform == "cpu" else 1)
        self._pool = pool or ThreadPoolExecutor(self._threads, thread_name_prefix="coterie")
        put = partial(jax.device_put, device=device.place(), may_alias=True)  # calls run where their examples are
        table, weights = (None if array is None else put(array) for array in (data.table, data.weights))
        self._examples = Examples(put(data.x), put(data.y), table, weights)
        self._model_bytes = tree.nbytes(task.init(Seed(0)))
        self._plan_rows: dict[Hashable, tuple[int, dict[str, int]]] = {}
        self._rows_of: dict[Part, tuple[int, dict[ClientId, tuple[Array, int, int]]]] = {}
        self._largest: dict[Part, tuple[int, tuple[ClientId, ...], list[Member]]] = {}
        self._layouts: dict[Part, KnownLayout] = {}
        self._known_sums: dict[tuple[Work, Part], KnownSums] = {}

    def on(self, task: Task) -> Vectorized:
        """Return a transport to the same clients and storage with another task."""
        return Vectorized(
            self._data, task, threads=self._threads, store=self._store, pool=self._pool, device=self._device
        )

    def _batch_size(self, request: Request) -> int:
        work = request.work
        if request.after is None and work.plain is None and (work.body is None or _without_models(work)):
            return 1 << 20  # replies without models
        return max(2 * self._threads, min(1024, BATCH_BYTES // self._model_bytes))

    def _adapted(self, params: Bank) -> Bank:
        # The same number of rows for every cohort, so that a new cohort needs no compilation.
        return pad_rows(params, max(tree.rows(params), min(BLOCKS, power_of_two(len(self._clients)))))

    def _run(self, request: Request, memories: Bank | None) -> tuple[dict[str, Result], Array]:
        clients = self._members(request)
        samples = np.array([member.n for member in clients], np.int64)
        if request.work.plain is not None:
            return self._plain(request, clients, memories), samples
        sums = self._sums(request, clients) if request.work.each is not None else {}
        if request.work.body is None:
            return dict(sums), samples
        return self._body(request, clients, sums, memories), samples

    def _members(self, request: Request) -> list[Member]:
        """The clients of a request. The largest one is remembered: often all clients are asked in every round."""
        version, clients, members = self._largest.get(request.part, (-1, (), []))
        current = version == self._store.data_version
        if current and clients == request.clients:
            return members
        new = self._new_members(request)
        if len(new) <= MAX_KNOWN and (not current or len(new) >= len(clients)):
            self._largest[request.part] = (self._store.data_version, request.clients, new)
        return new

    def _new_members(self, request: Request) -> list[Member]:
        known = self._known_rows(request.part)
        members, data = [], self._data
        for place, client in enumerate(request.clients):
            found = known.get(client)
            if found is None:
                position = data.position(client)
                transform = 0 if data.transform is None else int(data.transform[position])
                found = (data.rows(position, request.part), transform, position)
                if len(known) < MAX_KNOWN:
                    known[client] = found
            rows, transform, position = found
            members.append(Member(client, place, rows, len(rows), transform, position))
        return members

    def _known_rows(self, part: Part) -> dict[ClientId, tuple[Array, int, int]]:
        """Rows, transform and position of clients that were asked before: all clients are asked in every round."""
        version = self._store.data_version
        if self._rows_of.get(part, (-1, {}))[0] != version:
            self._rows_of[part] = (version, {})
        return self._rows_of[part][1]

    def _plain(self, request: Request, clients: list[Member], memories: Bank | None) -> dict[str, Result]:
        """Run a NumPy work for one client at a time, in threads."""
        assert request.work.plain is not None
        plain, data = request.work.plain, self._data

        def one(member: Member) -> dict[str, Params | Array | list[Array]]:
            x = np.asarray(transforms.apply(data.transforms[member.transform], data.inputs(member.rows)))
            own = {name: tree.row(bank, row[member.place]) for name, (bank, row) in request.per_client.items()}
            memory = {} if memories is None else {"memory": tree.row(memories, member.place)}
            sent = {**request.shared, **request.settings, **own, **memory}
            if request.work.weighted:
                sent["sample_weight"] = None if data.weights is None else data.weights[member.rows]
            return plain(self._task, x, data.y[member.rows], request.client_seed(member.id), **sent)

        # One BLAS thread per client: with more, the last bits would depend on the number of cores.
        with one_thread():
            answers = list(self._pool.map(one, clients))
        names = [*request.work.gives, *(["memory"] if "memory" in answers[0] else [])]
        return {name: _stacked([answer[name] for answer in answers], name == "memory") for name in names}

    def _sums(self, request: Request, clients: list[Member]) -> dict[str, Array]:
        """The sums of a per-example function. Those that depend on the examples only are computed once per client."""
        if not request.work.of_examples:
            return self._each(request, clients)
        key, version = (request.work, request.part), self._store.data_version
        known = self._known_sums.get(key)
        if known is None or known.version != version:
            known = self._known_sums[key] = KnownSums(version, np.zeros(len(self._data.clients), bool))
        positions = np.array([member.position for member in clients], np.int64)
        missing = ~known.computed[positions]
        if missing.any() or not known.sums:
            only = request.only([member.id for member, new in zip(clients, missing, strict=True) if new])
            known.add(positions[missing], self._each(only, self._members(only)))
        return {name: sums[positions] for name, sums in known.sums.items()}

    def _each(self, request: Request, clients: list[Member]) -> dict[str, Array]:
        """Sum a per-example function per client, in blocks of examples of clients with the same sent values."""
        structure, numbers = setting.split_all(request.settings)
        # The width depends on what is sent, not on the cohort, so that results do not depend on the other clients.
        width = CHUNK if tree.nbytes(dict(request.shared)) > LARGE_BYTES else BLOCK_ROWS
        count = BLOCKS * BLOCK_ROWS // width
        blocks, groups = self._layout(request, clients, width)
        run = compiled_each(request.work, self._task, structure, self._data.transforms, batched=self._device.batched)

        def call(some: list[ExampleBlock]) -> dict[str, Array]:
            index = np.full((count, width), -1, np.int32)
            for place, block in enumerate(some):
                index[place, : len(block.rows)] = block.rows
            transform = pad_rows(np.array([block.key[0] for block in some], np.int32), count)
            sent = Sent(numbers, dict(request.shared), *block_values(request, some, count, BLOCKS))
            return tree.host(run(EachCall(self._examples, index, transform, np.int32(len(some)), sent)))

        per_call = min(count, max(1, -(-len(blocks) // self._threads)))  # all threads have work
        calls = [blocks[first : first + per_call] for first in range(0, len(blocks), per_call)] or [[]]
        results = list(self._pool.map(call, calls))
        values = {
            name: [leaf for result, some in zip(results, calls, strict=True) for leaf in result[name][: len(some)]]
            for name in results[0]
        }
        sums = {name: np.zeros((len(clients), *leaf.shape[2:]), np.float32) for name, leaf in results[0].items()}
        weights = self._data.weights if request.work.weighted else None
        for name, total in sums.items():
            add_blocks(total, values[name], groups, weights)
        return sums

    def _layout(self, request: Request, clients: list[Member], width: int) -> Layout:
        """The blocks of a request. Those of the largest one are remembered: evaluations ask all clients every time."""
        rows = [row for _, row in request.per_client.values()]
        known = self._layouts.get(request.part)
        if (
            known is not None
            and known.clients is clients
            and known.width == width
            and len(known.rows) == len(rows)
            and all(map(np.array_equal, known.rows, rows))
        ):
            return known.layout
        layout = split_blocks(request, clients, width)
        if clients is self._largest.get(request.part, (-1, (), None))[2]:
            self._layouts[request.part] = KnownLayout(clients, width, rows, layout)
        return layout

    def _body(
        self, request: Request, clients: list[Member], sums: dict[str, Array], memories: Bank | None
    ) -> dict[str, Result]:
        """Run traced bodies with their plans, in one call per thread, or more if the cohort does not fit."""
        capacity = self._capacity(request)
        calls = split_calls(clients, plan_costs(request, clients), capacity, self._threads)
        structure, numbers = setting.split_all(request.settings)
        run = compiled_body(request.work, self._task, structure, self._data.transforms, batched=self._device.batched)
        count, small = capacity.clients, small_banks(request, capacity)
        data, balanced = self._data, wants_balanced_classes(request.settings)

        def call(members: list[Member]) -> dict[str, Bank | Array]:
            places = [member.place for member in members]
            keys = np.zeros((count, 2), np.uint32)
            if self._task.random:
                for place, member in enumerate(members):
                    keys[place] = request.client_seed(member.id).fold("key").key()
            inputs = BodyCall(
                examples=self._examples,
                live=np.int32(len(members)),
                n=pad_rows(np.array([member.n for member in members], np.int32), count),
                keys=keys,
                transform=pad_rows(np.array([member.transform for member in members], np.int32), count),
                plans=plan_pages(request, members, capacity),
                sums={name: pad_rows(total[places], count) for name, total in sums.items()},
                memory={} if memories is None else pad_rows(tree.take(memories, places), count),
                sent=Sent(numbers, dict(request.shared), *call_values(request, places, small, count)),
                weight=None if data.weights is None else pad_rows(_total_weights(data.weights, members), count),
                class_weights=pad_rows(_class_weights(data, members), count) if balanced else None,
            )
            return tree.host(run(inputs))

        return dict(merge_calls(list(self._pool.map(call, calls)), calls, len(clients)))

    def _capacity(self, request: Request) -> Capacity:
        """Size of one call: the same for every cohort of this federation."""
        work, part = request.work, request.part
        clients = max(1, min(MAX_CLIENTS, power_of_two(MAX_BYTES // self._model_bytes + 1) // 2))
        if _without_models(work):
            clients = min(MAX_CLIENTS_WITHOUT_MODELS, power_of_two(len(self._clients)))
        if work.lengths is None:
            return Capacity(clients, {})
        # The key has no numbers of the settings, because a decaying learning rate differs in every round.
        key = (work.name, part, setting.split_all(request.settings)[0])
        version, steps = self._plan_rows.get(key, (-1, {}))
        if version != self._store.data_version:
            sizes = self._data.sizes(part)
            largest = work.lengths(int(sizes.max()), **request.settings)
            mean = work.lengths(int(np.ceil(sizes.mean())), **request.settings)
            # If examples move between clients (drift), capacities never shrink, so that few shifts need a compilation.
            steps = {
                name: max(power_of_two(max(rows, clients * mean[name], 64)), steps.get(name, 0))
                for name, rows in largest.items()
            }
            self._plan_rows[key] = (self._store.data_version, steps)
        return Capacity(clients, steps)


def _without_models(work: Work) -> bool:
    """Whether a work does not train, and neither takes nor gives models, so that many clients fit into one call."""
    schemas = (*work.takes.values(), *work.gives.values())
    return work.lengths is None and not any(isinstance(each, Model) for each in schemas)


def _total_weights(weights: Array, members: list[Member]) -> Array:
    """The sum of the sample weights of each client, (clients,)."""
    return np.array([weights[member.rows].sum(dtype=np.float64) for member in members], np.float32)


def _class_weights(data: FederatedData, members: list[Member]) -> Array:
    """The balanced class weights of each client, (clients, classes)."""
    weights = [class_weights(data.y[member.rows], data.classes) for member in members]
    return np.stack(weights) if weights else np.zeros((0, data.classes or 1), np.float32)


def _stacked(values: list[Params | Array | list[Array]], memory: bool) -> Result:
    """Stack one answer of all clients; ragged answers and memories stay lists."""
    if memory or isinstance(values[0], list):
        return cast("list[Params]", values)
    return tree.stack([tree.host(cast("Bank | Array", value)) for value in values])
