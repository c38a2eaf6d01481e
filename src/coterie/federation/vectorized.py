"""The whole cohort in a few compiled calls: the fast federation, and the default.

All examples of all clients live in one flat array, handed to the compiled code without a copy. A call trains up to
`capacity` clients one after the other in one compiled loop, each with as many steps as its plan has; plans come as
pages of example numbers. The capacities depend on the federation alone, so no cohort makes JAX compile again. The
calls of a cohort are dealt to threads by their work. Each client's arithmetic is the same whichever call it is in,
and means add clients in the order of their ids, so the bytes do not depend on the number of threads or cores.

Padding and masks exist here, in `dealing` and in `fused`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from coterie import tree
from coterie.clients import settings as setting
from coterie.clients.work import CHUNK, Steps
from coterie.data import transforms
from coterie.data.federated import FederatedData
from coterie.federation import compilation
from coterie.federation.batching import (
    Capacity,
    Member,
    add_up,
    deal,
    filled,
    globally,
    in_order,
    padded_rows,
    power,
)
from coterie.federation.client_store import ClientStore, SimulatedTransport
from coterie.federation.kernels import compiled_body, compiled_each
from coterie.federation.messages import LACKS, ReplyBatch, Request
from coterie.models import Task
from coterie.seeds import Seed
from coterie.threads import one_thread
from coterie.types import Array, Params

#: Rows of one product when a function of single examples runs over many clients.
ROWS = 128
#: Such products in one call.
PRODUCTS = 64
#: Models of so many bytes, sent to all alike, are worth wider products: each product reads all of them again.
LARGE_BYTES = 8 * 2**20
#: Clients in one call at the most, and the bytes of their models.
MOST_CLIENTS = 32
MOST_BYTES = 32 * 2**20
#: Bytes of models of one wave of calls.
WAVE_BYTES = 48 * 2**20


class Vectorized(SimulatedTransport):
    """Carries orders to simulated clients, many at a time."""

    def __init__(
        self,
        data: FederatedData,
        task: Task,
        *,
        threads: int | None = None,
        homes: ClientStore | None = None,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        """Clients with these examples.

        Args:
            data: The examples.
            task: What the clients learn.
            threads: How many calls run at a time; as many as there are cores by default.
            homes: What the clients keep already.
            pool: Where the calls run.
        """
        import jax

        compilation.prepare()
        super().__init__(task, homes or ClientStore(data))
        self._threads = threads or compilation.cores()
        self._pool = pool or ThreadPoolExecutor(self._threads, thread_name_prefix="coterie")
        self._x = jax.device_put(data.x, may_alias=True)
        self._y = jax.device_put(data.y, may_alias=True)
        self._table = None if data.table is None else jax.device_put(data.table, may_alias=True)
        self._model_bytes = tree.nbytes(task.init(Seed(0)))
        self._lengths: dict[Any, tuple[int, dict[str, int]]] = {}

    def on(self, task: Task) -> Vectorized:
        """The same clients, homes and all, with another task."""
        return Vectorized(self._data, task, threads=self._threads, homes=self._homes, pool=self._pool)

    def carry(self, order: Request) -> Iterator[ReplyBatch]:
        """Blocks of a wave of clients each, in the order of their ids."""
        able, lacking = self._homes.receive(order)
        if lacking:
            yield ReplyBatch(order.id, tuple(lacking), np.zeros(len(lacking), np.int64), problem=LACKS)
        wave = max(2 * self._threads, min(1024, WAVE_BYTES // self._model_bytes)) if _heavy(order) else 1 << 20
        for first in range(0, len(able), wave):
            yield self._wave(order.only(able[first : first + wave]))

    def _wave(self, order: Request, *, keep: bool = True) -> ReplyBatch:
        if order.after is not None:
            adapted = self._wave(order.after, keep=False).answers["params"]
            # As many rows for every cohort, so that none makes JAX compile again.
            adapted = filled(adapted, max(len(order.clients), min(PRODUCTS, power(len(self._clients)))))
            order = replace(order, rows={**order.rows, "params": (adapted, np.arange(len(order.clients)))}, after=None)
        clients = self._members(order)
        if order.work.plain is not None:
            answers = self._plain(order, clients)
        else:
            answers = self._each(order, clients) if order.work.each is not None else {}
            if order.work.body is not None:
                answers = self._body(order, clients, answers)
        memory = answers.pop("memory", None)
        if memory is not None and keep and not order.work.recalls:
            for place, member in enumerate(clients):
                own = memory[place] if isinstance(memory, list) else tree.map(np.copy, tree.row(memory, place))
                self._homes.remember(order, member.id, own)
        return ReplyBatch(order.id, order.clients, np.array([member.n for member in clients], np.int64), answers)

    def _members(self, order: Request) -> list[Member]:
        position, rows = self._data.position, self._data.rows
        turned = self._data.transform
        members = []
        for place, client in enumerate(order.clients):
            at = position(client)
            mine = rows(at, order.part)
            members.append(Member(client, place, mine, len(mine), 0 if turned is None else int(turned[at])))
        return members

    def _plain(self, order: Request, clients: list[Member]) -> dict[str, Any]:
        """NumPy work, one client at a time, in threads."""
        assert order.work.plain is not None
        plain = order.work.plain

        def one(member: Member) -> dict[str, Any]:
            x = np.asarray(transforms.apply(self._data.transforms[member.transform], self._data.inputs(member.rows)))
            sent = {name: tree.row(bank, row[member.place]) for name, (bank, row) in order.rows.items()}
            kept = {} if order.work.memory is None else {"memory": self._homes.memory(order, member.id, self._task)}
            seed = order.client_seed(member.id)
            return plain(
                self._task, x, self._data.y[member.rows], seed, **order.shared, **order.settings, **sent, **kept
            )

        # Our threads take whole clients; those of BLAS would make the last bits depend on the number of cores.
        with one_thread():
            answers = list(self._pool.map(one, clients))
        names = [*order.work.gives, *(["memory"] if "memory" in answers[0] else [])]
        return {
            name: [answer[name] for answer in answers]
            if isinstance(answers[0][name], list) or name == "memory"
            else tree.stack([tree.host(answer[name]) for answer in answers])
            for name in names
        }

    def _each(self, order: Request, clients: list[Member]) -> dict[str, Any]:
        """Sums per client of a function of single examples, over the examples of all clients that share a model."""
        work, sent = order.work, _Sent(order)
        # By what is sent, never by the cohort: a client's arithmetic is the same whoever else is asked.
        width = CHUNK if tree.nbytes(sent.shared) > LARGE_BYTES else ROWS
        products = PRODUCTS * ROWS // width
        alike: dict[tuple[int, ...], list[Member]] = {}
        for member in clients:
            model = tuple(int(row[member.place]) for _, row in order.rows.values())
            alike.setdefault((member.transform, *model), []).append(member)
        pieces = [
            (key, members, chunk)
            for key, members in alike.items()
            for chunk in _chunks(np.concatenate([member.rows for member in members]), width)
        ]
        run = compiled_each(work, self._task, sent.structure, self._data.transforms, tuple(order.rows))

        def call(some: list[Any]) -> dict[str, Any]:
            index = np.full((products, width), -1, np.int32)
            turned = np.zeros(products, np.int32)
            used = {name: sorted({int(key[1 + i]) for key, _, _ in some}) for i, name in enumerate(order.rows)}
            models = {name: np.zeros(products, np.int32) for name in order.rows}
            for place, (key, _, chunk) in enumerate(some):
                index[place, : len(chunk)] = chunk
                turned[place] = key[0]
                for i, name in enumerate(order.rows):
                    models[name][place] = used[name].index(int(key[1 + i]))
            # As many rows whichever of them this call needs, so that no cohort makes JAX compile again.
            banks = {
                name: filled(tree.take(bank, used[name]), power(min(tree.rows(bank), PRODUCTS)))
                for name, (bank, _) in order.rows.items()
            }
            live = np.int32(len(some))
            values: dict[str, Any] = run(
                self._x, self._y, self._table, index, turned, live, sent.numbers, sent.shared, banks, models
            )
            return tree.host(values)

        calls = [pieces[first : first + products] for first in range(0, len(pieces), products)] or [[]]
        results = list(self._pool.map(call, calls))
        sums = {name: np.zeros((len(clients), *leaf.shape[2:]), np.float32) for name, leaf in results[0].items()}
        flat = {
            name: [leaf for result, some in zip(results, calls, strict=True) for leaf in result[name][: len(some)]]
            for name in sums
        }
        first = 0
        for members in alike.values():
            count = -(-sum(member.n for member in members) // width)
            starts = np.cumsum([0, *(member.n for member in members)])
            for name, total in sums.items():
                rows = flat[name][first : first + count]
                if rows:
                    add_up(total, np.concatenate(rows), starts, members)
            first += count
        return sums

    def _body(self, order: Request, clients: list[Member], sums: dict[str, Any]) -> dict[str, Any]:
        """Plans and traced bodies, in as many calls as the cohort fills."""
        caps = self._capacity(order)
        calls = deal(clients, self._costs(order, clients), caps, self._threads)
        sent = _Sent(order)
        run = compiled_body(order.work, self._task, sent.structure, self._data.transforms, tuple(order.rows))
        banks = {
            name: padded_rows(bank) if tree.rows(bank) <= caps.clients else None
            for name, (bank, _) in order.rows.items()
        }

        def call(members: list[Member]) -> Any:
            pages, starts, counts, lasts = self._pages(order, members, caps)
            places = [member.place for member in members]
            count = caps.clients
            rows = {}
            stacks = {}
            for name, (bank, row) in order.rows.items():
                small = banks[name]
                stacks[name] = filled(tree.take(bank, row[places]), count) if small is None else small
                mine = np.arange(len(places)) if small is None else row[places]
                rows[name] = filled(mine.astype(np.int32), count)
            keys = np.zeros((count, 2), np.uint32)
            if self._task.random:
                for place, member in enumerate(members):
                    keys[place] = order.client_seed(member.id).fold("key").key()
            memory: Params = {}
            if order.work.memory is not None:
                own = [self._homes.memory(order, member.id, self._task) for member in members]
                memory = filled(tree.stack(own), count)
            out = run(
                self._x,
                self._y,
                self._table,
                np.int32(len(members)),
                filled(np.array([member.n for member in members], np.int32), count),
                keys,
                filled(np.array([member.transform for member in members], np.int32), count),
                pages,
                starts,
                counts,
                lasts,
                {name: filled(total[places], count) for name, total in sums.items()},
                memory,
                sent.numbers,
                sent.shared,
                stacks,
                rows,
            )
            return tree.host(out)

        results = list(self._pool.map(call, calls))
        return in_order(results, calls, len(clients))

    def _pages(self, order: Request, members: list[Member], caps: Capacity) -> Any:
        """The plans of some clients as pages of example numbers of the flat array."""
        plan = order.work.plan
        if plan is None:
            return {}, {}, {}, {}
        plans: list[dict[str, Steps]] = [
            plan(m.n, order.client_seed(m.id), order.efforts.get(m.id, 1.0), **order.settings) for m in members
        ]
        pages, starts, counts, lasts = {}, {}, {}, {}
        for name, rows in caps.steps.items():
            mine = [each[name] for each in plans]
            page = np.full((rows, mine[0].index.shape[1]), -1, np.int32)
            last = np.zeros(rows, bool)
            starts[name] = np.zeros(caps.clients, np.int32)
            counts[name] = np.zeros(caps.clients, np.int32)
            first = 0
            for place, (member, steps) in enumerate(zip(members, mine, strict=True)):
                count = len(steps.index)
                if count:
                    globally(steps.index, member.rows, page[first : first + count])
                if steps.last is not None:
                    last[first : first + count] = steps.last
                starts[name][place], counts[name][place] = first, count
                first += count
            pages[name] = page
            if any(steps.last is not None for steps in mine):
                lasts[name] = last
        return pages, starts, counts, lasts

    def _costs(self, order: Request, clients: list[Member]) -> list[dict[str, int]]:
        if order.work.lengths is None:
            return [{} for _ in clients]
        known: dict[int, dict[str, int]] = {}
        for member in clients:
            if member.n not in known:
                known[member.n] = order.work.lengths(member.n, **order.settings)
        return [known[member.n] for member in clients]

    def _capacity(self, order: Request) -> Capacity:
        """How many clients and rows of plans one call holds: the same for every cohort of this federation."""
        most = max(1, min(MOST_CLIENTS, power(MOST_BYTES // self._model_bytes + 1) // 2))
        if order.work.lengths is None:
            return Capacity(most, {})
        # Without the numbers, of which a rate that decays has another in every round.
        key = (order.work.name, order.part, setting.split_all(order.settings)[0])
        moves, steps = self._lengths.get(key, (-1, {}))
        if moves != self._homes.moves:
            sizes = self._data.sizes(order.part)
            largest = order.work.lengths(int(sizes.max()), **order.settings)
            usual = order.work.lengths(int(np.ceil(sizes.mean())), **order.settings)
            # Where examples move between clients, capacities only grow, so that few moves compile again.
            steps = {
                name: max(power(max(rows, most * usual[name], 64)), steps.get(name, 0))
                for name, rows in largest.items()
            }
            self._lengths[key] = (self._homes.moves, steps)
        return Capacity(most, steps)


class _Sent:
    """Sent values, taken apart into what is compiled in and what is handed over."""

    def __init__(self, order: Request) -> None:
        self.structure, self.numbers = setting.split_all(order.settings)
        self.shared = dict(order.shared)


def _heavy(order: Request) -> bool:
    """Whether answers hold models, so that a cohort must come in waves."""
    return order.work.body is not None or order.work.plain is not None or order.after is not None


def _chunks(rows: Array, width: int) -> list[Array]:
    return [rows[first : first + width] for first in range(0, len(rows), width)]
