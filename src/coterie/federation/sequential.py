"""Sequential backend: one client after another. Slow and simple; the reference for the other backends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from coterie import tree
from coterie.clients import traced_settings as setting
from coterie.clients.work import CHUNK, Batch, Batches, Client, Work
from coterie.data.federated import FederatedData
from coterie.federation.batching import weigh
from coterie.federation.client_store import ClientStore
from coterie.federation.compilation import compiled
from coterie.federation.messages import Request
from coterie.federation.sample_weights import class_weights, wants_balanced_classes
from coterie.federation.simulated import Result, SimulatedTransport
from coterie.models import Task
from coterie.threads import one_thread, start_jax
from coterie.types import Array, Bank, Params

if TYPE_CHECKING:
    from jax import Array as JaxArray


class Inputs(NamedTuple):
    """Arguments of the compiled body of a work for one client; a pytree.

    Attributes:
        x: Examples, padded to a power of two.
        y: Their labels.
        n: Number of examples.
        key: Random key.
        pages: Name of a plan → its batches (positions of examples, padded to a power of two) and their number.
        lasts: Name of a plan → whether a batch ends at this row, for plans that split batches.
        sums: Sums of the per-example function.
        memory: The client's memory.
        numbers: Traced numbers of the settings.
        sent: Sent values.
        weights: Weights of the examples in the loss, padded like them; None: 1.
        weight: Sum of the sample weights; None: the data have none.
    """

    x: Array | JaxArray
    y: Array | JaxArray
    n: np.int32 | JaxArray
    key: Array | JaxArray
    pages: Mapping[str, tuple[Array | JaxArray, int | JaxArray]]
    lasts: Mapping[str, Array | JaxArray]
    sums: Mapping[str, Array]
    memory: Params
    numbers: Mapping[str, Array]
    sent: Mapping[str, object]
    weights: Array | JaxArray | None = None
    weight: np.float32 | JaxArray | None = None


class Sequential(SimulatedTransport):
    """A transport to simulated clients that run one at a time."""

    def __init__(self, data: FederatedData, task: Task, *, store: ClientStore | None = None) -> None:
        """Create clients with these examples."""
        start_jax()
        super().__init__(task, store or ClientStore(data))

    def on(self, task: Task) -> Sequential:
        """Return a transport to the same clients and storage with another task."""
        return Sequential(self._data, task, store=self._store)

    def _batch_size(self, request: Request) -> int:
        return 1

    def _run(self, request: Request, memories: Bank | None) -> tuple[dict[str, Result], Array]:
        (client,) = request.clients
        x, y = self._data.examples(client, request.part)
        sent = dict(request.shared)
        sent |= {name: tree.row(bank, row[0]) for name, (bank, row) in request.per_client.items()}
        memory = None if memories is None else tree.row(memories, 0)
        if request.work.plain is not None:
            kept: dict[str, object] = {} if memory is None else {"memory": memory}
            if request.work.weighted:
                kept["sample_weight"] = self._data.sample_weights(client, request.part)
            with one_thread():
                seed = request.client_seed(client)
                answer = request.work.plain(self._task, x, y, seed, **sent, **request.settings, **kept)
        else:
            answer = self._traced(request, x, y, sent, memory or {})
        answers: dict[str, Result] = {
            name: [value] if isinstance(value, list) else tree.map(lambda leaf: leaf[None], tree.host(value))
            for name, value in answer.items()
        }
        return answers, np.array([len(y)])

    def _traced(
        self, request: Request, x: Array, y: Array, sent: Mapping[str, object], memory: Params
    ) -> dict[str, Params | Array]:
        """The answer of a work that is a per-example function, a traced body, or both."""
        work, (client,) = request.work, request.clients
        structure, numbers = setting.split_all(request.settings)
        weights = self._data.sample_weights(client, request.part)
        sums = _sums(work, self._task, structure, x, y, numbers, sent, weights if work.weighted else None)
        if work.body is None:
            return dict(sums)
        seed, effort = request.client_seed(client), request.efforts.get(client, 1.0)
        plans = {} if work.plan is None else work.plan(len(y), seed, effort, **request.settings)
        key = seed.fold("key").key() if self._task.random else np.zeros(2, np.uint32)
        run = _compiled_body(work, self._task, structure)
        in_loss = weights
        if wants_balanced_classes(request.settings):
            own = class_weights(y, self._task.classes)[y]
            in_loss = own if weights is None else weights * own
        return run(
            Inputs(
                x=_padded(x, 0),
                y=_padded(y, 0),
                n=np.int32(len(y)),
                key=key,
                pages={name: (_padded(steps.index, -1), len(steps.index)) for name, steps in plans.items()},
                lasts={name: _padded(steps.last, False) for name, steps in plans.items() if steps.last is not None},
                sums=sums,
                memory=memory,
                numbers=numbers,
                sent=sent,
                weights=None if in_loss is None else _padded(in_loss, 0),
                weight=None if weights is None else np.float32(weights.sum(dtype=np.float64)),
            )
        )


def _padded(array: Array, fill: float) -> Array:
    """Pad the number of rows to a power of two, so that clients of many sizes share few compilations."""
    rows = 1 << max(len(array) - 1, 0).bit_length()
    return np.concatenate([array, np.full((rows - len(array), *array.shape[1:]), fill, array.dtype)])


def _sums(
    work: Work,
    task: Task,
    structure: Hashable,
    x: Array,
    y: Array,
    numbers: Mapping[str, Array],
    sent: Mapping[str, object],
    weights: Array | None,
) -> dict[str, Array]:
    """The sums of the per-example function, times the weights, added up in chunks of examples."""
    if work.each is None:
        return {}
    values = _compiled_each(work, task, structure)
    total: dict[str, Array] = {}
    for first in range(0, max(len(y), 1), CHUNK):  # at least once, to know the shapes of the sums
        rows = len(y[first : first + CHUNK])
        inputs, labels = _padded(x[first : first + CHUNK], 0), _padded(y[first : first + CHUNK], 0)
        chunk = tree.host(values(inputs, labels, numbers, sent))
        if weights is not None:
            own = weights[first : first + CHUNK]
            chunk = {name: weigh(leaf[:rows].astype(np.float64), own) for name, leaf in chunk.items()}
        part = {name: leaf[:rows].sum(axis=0, dtype=np.float64) for name, leaf in chunk.items()}
        total = part if not total else tree.map(np.add, total, part)
    return tree.map(lambda leaf: np.asarray(leaf, np.float32), total)


_Each = Callable[[Array, Array, Mapping[str, Array], Mapping[str, object]], dict[str, Array]]


@lru_cache(maxsize=128)
def _compiled_each(work: Work, task: Task, structure: Hashable) -> _Each:
    assert work.each is not None
    each = work.each
    return compiled(lambda x, y, numbers, sent: each(task, x, y, **sent, **setting.join_all(structure, numbers)))


@lru_cache(maxsize=128)
def _compiled_body(work: Work, task: Task, structure: Hashable) -> Callable[[Inputs], dict[str, Params | Array]]:
    assert work.body is not None
    body = work.body

    def run(inputs: Inputs) -> dict[str, Params | Array]:
        def batches(name: str) -> Batches:
            index, count = inputs.pages[name]
            lasts = inputs.lasts.get(name)

            def take(row: JaxArray) -> Batch:
                places = index[row]
                real = (places >= 0).astype(np.float32)
                weight = None if inputs.weights is None else real * inputs.weights[places]
                return Batch(inputs.x[places], inputs.y[places], real, weight)

            last = None if lasts is None else lambda row: lasts[row]
            return Batches(cast("JaxArray", count), take, last, inputs.weights is not None)

        client = Client(  # all inputs are traced here
            cast("JaxArray", inputs.n),
            cast("JaxArray", inputs.key),
            {name: batches(name) for name in inputs.pages},
            cast("Mapping[str, JaxArray]", inputs.sums),
            inputs.memory,
            cast("JaxArray | None", inputs.weight),
        )
        return body(task, client, **inputs.sent, **setting.join_all(structure, inputs.numbers))

    return compiled(run)
