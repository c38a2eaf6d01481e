"""One client after another: slow and obvious, the oracle for the other federations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from coterie import tree
from coterie.clients import settings as setting
from coterie.clients.work import CHUNK, Batch, Batches, Client, Work
from coterie.data.federated import FederatedData
from coterie.federation.client_store import ClientStore, SimulatedTransport
from coterie.federation.messages import LACKS, ReplyBatch, Request
from coterie.models import Task, backend
from coterie.threads import one_thread
from coterie.types import Array, ClientId, Params, Part


class Sequential(SimulatedTransport):
    """Carries orders to simulated clients, one at a time."""

    def __init__(self, data: FederatedData, task: Task, *, homes: ClientStore | None = None) -> None:
        """Clients with these examples."""
        backend.start()
        super().__init__(task, homes or ClientStore(data))

    def on(self, task: Task) -> Sequential:
        """The same clients, homes and all, with another task."""
        return Sequential(self._data, task, homes=self._homes)

    def carry(self, order: Request) -> Iterator[ReplyBatch]:
        """A block for each client."""
        able, lacking = self._homes.receive(order)
        if lacking:
            yield ReplyBatch(order.id, tuple(lacking), np.zeros(len(lacking), np.int64), problem=LACKS)
        for client in able:
            place = order.clients.index(client)
            sent = dict(order.shared) | {name: tree.row(bank, row[place]) for name, (bank, row) in order.rows.items()}
            if order.after is not None:
                first = order.after
                before = dict(first.shared) | {
                    name: tree.row(bank, row[place]) for name, (bank, row) in first.rows.items()
                }
                sent["params"] = self._answer(first, client, before)[0]["params"]
            answer, memory = self._answer(order, client, sent)
            if memory is not None and not order.work.recalls:
                self._homes.remember(order, client, memory)
            samples = np.array([len(self._examples(client, order.part)[1])])
            answers = {
                name: [v] if isinstance(v, list) else tree.map(lambda leaf: leaf[None], v) for name, v in answer.items()
            }
            yield ReplyBatch(order.id, (client,), samples, answers)

    def _examples(self, client: ClientId, part: Part) -> tuple[Array, Array]:
        return self._data.examples(client, part)

    def _answer(self, order: Request, client: ClientId, sent: dict[str, Any]) -> tuple[dict[str, Any], Params | None]:
        work, task = order.work, self._task
        x, y = self._examples(client, order.part)
        seed = order.client_seed(client)
        memory = {} if work.memory is None else self._homes.memory(order, client, task)
        if work.plain is not None:
            kept = {"memory": memory} if work.memory is not None else {}
            with one_thread():
                answer = work.plain(task, x, y, seed, **sent, **order.settings, **kept)
        else:
            structure, numbers = setting.split_all(order.settings)
            sums = _sums(work, task, structure, x, y, numbers, sent)
            answer = sums
            if work.body is not None:
                plans = (
                    {}
                    if work.plan is None
                    else work.plan(len(y), seed, order.efforts.get(client, 1.0), **order.settings)
                )
                pages = {name: (_padded(steps.index, -1), len(steps.index)) for name, steps in plans.items()}
                lasts = {name: _padded(steps.last, False) for name, steps in plans.items() if steps.last is not None}
                key = seed.fold("key").key() if task.random else np.zeros(2, np.uint32)
                run = _compiled_body(work, task, structure)
                answer = run(
                    _padded(x, 0), _padded(y, 0), np.int32(len(y)), key, pages, lasts, sums, memory, numbers, sent
                )
        answer = {name: value if isinstance(value, list) else tree.host(value) for name, value in answer.items()}
        new = answer.pop("memory", None)
        return answer, new


def _padded(array: Array, filling: Any) -> Array:
    """Rows up to a power of two, so that clients of many sizes share few compilations."""
    rows = 1 << max(len(array) - 1, 0).bit_length()
    return np.concatenate([array, np.full((rows - len(array), *array.shape[1:]), filling, array.dtype)])


def _sums(work: Work, task: Task, structure: Any, x: Array, y: Array, numbers: Any, sent: Any) -> dict[str, Any]:
    if work.each is None:
        return {}
    values = _compiled_each(work, task, structure)
    total: dict[str, Any] = {}
    for first in range(0, max(len(y), 1), CHUNK):  # once for no examples too, to know the shapes of the sums
        rows = len(y[first : first + CHUNK])
        images, labels = _padded(x[first : first + CHUNK], 0), _padded(y[first : first + CHUNK], 0)
        chunk = tree.host(values(images, labels, numbers, sent))
        part = {name: leaf[:rows].sum(axis=0, dtype=np.float64) for name, leaf in chunk.items()}
        total = part if not total else tree.map(np.add, total, part)
    return tree.map(lambda leaf: np.asarray(leaf, np.float32), total)


@lru_cache(maxsize=128)
def _compiled_each(work: Work, task: Task, structure: Any) -> Any:
    import jax

    assert work.each is not None
    each = work.each
    return jax.jit(lambda x, y, numbers, sent: each(task, x, y, **sent, **setting.join_all(structure, numbers)))


@lru_cache(maxsize=128)
def _compiled_body(work: Work, task: Task, structure: Any) -> Any:
    import jax

    assert work.body is not None
    body = work.body

    def run(
        x: Any, y: Any, n: Any, key: Any, pages: Any, lasts: Any, sums: Any, memory: Any, numbers: Any, sent: Any
    ) -> Any:
        def batches(name: str) -> Batches:
            index, count = pages[name]

            def take(row: Any) -> Batch:
                places = index[row]
                return Batch(x[places], y[places], (places >= 0).astype(np.float32))

            return Batches(count, take, (lambda row: lasts[name][row]) if name in lasts else None)

        client = Client(n, key, {name: batches(name) for name in pages}, sums, memory)
        return body(task, client, **sent, **setting.join_all(structure, numbers))

    return jax.jit(run)
