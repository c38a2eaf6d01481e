"""Compiled functions of the vectorized backend: loops over blocks of examples, and over clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import numpy as np

from coterie import tree
from coterie.clients import traced_settings as setting
from coterie.clients.work import Batch, Batches, Client, Work
from coterie.data import transforms
from coterie.federation.compilation import compiled
from coterie.models import Task
from coterie.models.compiled_for import compiled_for, for_gpu
from coterie.types import Array, Bank, Params

if TYPE_CHECKING:
    from jax import Array as JaxArray

C = TypeVar("C")
T = TypeVar("T")

# The arguments of compiled functions are NamedTuples, which JAX treats as pytrees. Fields are NumPy arrays in the call
# and traced arrays inside the compiled function.


#: From this number of rows on, XLA's gather is faster than one slice per row.
GATHER_ROWS = 128


class Examples(NamedTuple):
    """All examples of all clients.

    Attributes:
        x: (examples, ...) inputs as stored.
        y: (examples,) labels or targets.
        table: (tokens, width) vector of each token id; None: inputs are used as stored.
        weights: (examples,) sample weights; None: all examples count 1.
    """

    x: JaxArray
    y: JaxArray
    table: JaxArray | None
    weights: JaxArray | None = None


class Sent(NamedTuple):
    """Sent values as arguments of a compiled function.

    Attributes:
        numbers: Name of settings → their traced numbers.
        shared: Name → value for all clients.
        banks: Name → stack of values that differ between clients.
        rows: Name → row of the stack for each block or client of the call.
    """

    numbers: Mapping[str, Array]
    shared: Mapping[str, object]
    banks: Mapping[str, Bank | Array]
    rows: Mapping[str, Array | JaxArray]


class Plans(NamedTuple):
    """The planned batches of the clients of one call; each field is a dict by plan name.

    Attributes:
        pages: (rows, width) example numbers of all clients, one after the other; padding is ~number.
        starts: (clients,) first row of each client.
        counts: (clients,) number of rows of each client.
        lasts: (rows,) whether a batch ends at this row, for plans that split batches.
    """

    pages: Mapping[str, Array | JaxArray]
    starts: Mapping[str, Array | JaxArray]
    counts: Mapping[str, Array | JaxArray]
    lasts: Mapping[str, Array | JaxArray]


class EachCall(NamedTuple):
    """Arguments of a compiled per-example function.

    Attributes:
        examples: All examples.
        blocks: (blocks, width) example numbers; padding is negative.
        transform: (blocks,) index of the transform.
        live: Number of blocks in use, without padding.
        sent: Sent values; rows are per block.
    """

    examples: Examples
    blocks: Array | JaxArray
    transform: Array | JaxArray
    live: np.int32 | JaxArray
    sent: Sent


class BodyCall(NamedTuple):
    """Arguments of a compiled body. Arrays have one row per client of the call, padded to its capacity.

    Attributes:
        examples: All examples.
        live: Number of clients in use, without padding.
        n: (clients,) number of examples.
        keys: (clients, 2) random keys.
        transform: (clients,) index of the transform.
        plans: Planned batches.
        sums: Sums of the per-example function.
        memory: Memories, stacked.
        sent: Sent values; rows are per client.
        weight: (clients,) sum of the sample weights; None: the data have none.
        class_weights: (clients, classes) weight of each class in the loss; None: all classes count 1.
    """

    examples: Examples
    live: np.int32 | JaxArray
    n: Array | JaxArray
    keys: Array | JaxArray
    transform: Array | JaxArray
    plans: Plans
    sums: Mapping[str, Array]
    memory: Bank
    sent: Sent
    weight: Array | JaxArray | None = None
    class_weights: Array | JaxArray | None = None


def gather(
    examples: Examples,
    index: Array | JaxArray,
    transform: JaxArray,
    names: tuple[str, ...],
    class_weights: JaxArray | None = None,
) -> Batch:
    """Gather examples by number and apply the transform of their client.

    Args:
        examples: All examples.
        index: (rows,) row numbers of examples; padding is ~number.
        transform: Index of the transform in `names`.
        names: The transforms that occur in the data.
        class_weights: (classes,) weight of each class in the loss; None: 1.
    """
    from jax import lax

    numbers = lax.max(index, ~index)  # padding is marked by the sign
    flat = examples.x.reshape(examples.x.shape[0], math.prod(examples.x.shape[1:]))
    if for_gpu() or len(numbers) >= GATHER_ROWS:
        inputs, labels = (each.at[numbers].get(mode="promise_in_bounds") for each in (flat, examples.y))
    else:
        inputs, labels = _slices((flat, examples.y), numbers)
    inputs = inputs.reshape(numbers.shape[0], *examples.x.shape[1:])
    if len(names) > 1:
        branches: list[Callable[[JaxArray], JaxArray]] = [transforms.TRANSFORMS[name] for name in names]
        inputs = lax.switch(transform, branches, inputs)
    elif names != ("identity",):
        inputs = transforms.apply(names[0], inputs)
    if examples.table is not None:
        inputs = examples.table.at[inputs].get(mode="promise_in_bounds")
    real = cast("JaxArray", (index >= 0).astype(np.float32))
    weight = None if examples.weights is None else real * examples.weights[numbers]
    if class_weights is not None:
        weight = (real if weight is None else weight) * class_weights[labels]
    return Batch(inputs, labels, real, weight)


def _slices(arrays: tuple[JaxArray, ...], numbers: JaxArray) -> tuple[JaxArray, ...]:
    """These rows of each array.

    One slice per row: XLA's gather computes an address for each number, which takes three times as long for the rows of
    a small batch on a CPU. With ten thousand clients it also splits the labels of a batch among threads, because the
    whole array is large. Slices of flat rows are copied as a whole; those of images line by line.
    """
    from jax import lax

    rows: tuple[JaxArray, ...] = lax.map(
        lambda number: tuple(lax.dynamic_index_in_dim(each, number, keepdims=False) for each in arrays), numbers
    )
    return rows


@lru_cache(maxsize=128)
def compiled_each(
    work: Work, task: Task, structure: Hashable, names: tuple[str, ...], *, batched: bool = False
) -> Callable[[EachCall], dict[str, Array]]:
    """Compile a per-example function: a loop over blocks of examples, each with the sent values of its clients.

    Args:
        work: The work.
        task: The task.
        structure: Static part of the settings; a new value compiles again.
        names: The transforms that occur in the data.
        batched: Whether blocks are computed at the same time, in the form for GPUs (`coterie.federation.device`).
    """
    assert work.each is not None
    each = work.each

    def run(call: EachCall) -> dict[str, Array]:
        fixed = {**setting.join_all(structure, call.sent.numbers), **call.sent.shared}

        def one(place: JaxArray) -> dict[str, Array]:
            batch = gather(call.examples, call.blocks[place], call.transform[place], names)
            return each(task, batch.x, batch.y, **fixed, **_own(call.sent, place))

        return _batch(one, len(call.blocks)) if batched else _loop(one, call.live, len(call.blocks))

    return compiled(_in_form(run, batched))


@lru_cache(maxsize=128)
def compiled_body(
    work: Work, task: Task, structure: Hashable, names: tuple[str, ...], *, batched: bool = False
) -> Callable[[BodyCall], dict[str, Bank | Array]]:
    """Compile a traced body: a loop over the clients of one call. Arguments as in `compiled_each`."""
    assert work.body is not None
    body = work.body

    def run(call: BodyCall) -> dict[str, Bank | Array]:
        fixed = {**setting.join_all(structure, call.sent.numbers), **call.sent.shared}
        pages, starts, counts, lasts = call.plans
        weighted = call.examples.weights is not None or call.class_weights is not None

        def one(c: JaxArray) -> dict[str, Params | Array]:
            def batches(name: str) -> Batches:
                start = starts[name][c]

                def take(row: JaxArray) -> Batch:
                    of_classes = None if call.class_weights is None else call.class_weights[c]
                    return gather(call.examples, pages[name][start + row], call.transform[c], names, of_classes)

                last = (lambda row: lasts[name][start + row]) if name in lasts else None
                return Batches(counts[name][c], take, last, weighted)

            planned = {name: batches(name) for name in pages}
            sums = tree.row(cast("Mapping[str, JaxArray]", call.sums), c)  # traced here
            weight = None if call.weight is None else call.weight[c]
            client = Client(call.n[c], call.keys[c], planned, sums, tree.row(call.memory, c), weight)
            return body(task, client, **fixed, **_own(call.sent, c))

        return _batch(one, len(call.n)) if batched else _loop(one, call.live, len(call.n))

    return compiled(_in_form(run, batched))


def _in_form(run: Callable[[C], T], batched: bool) -> Callable[[C], T]:
    """The function, traced in the form for GPUs or for CPUs."""

    def traced(call: C) -> T:
        import jax

        # By default GPUs round the inputs of matrix products to fewer bits.
        precision = jax.default_matmul_precision("float32") if batched else nullcontext()
        with compiled_for(gpu=batched), precision:
            return run(call)

    return traced


def _batch(one: Callable[[JaxArray], T], count: int) -> T:
    """The results of `one(0)`, ..., `one(count - 1)`, computed at the same time and stacked."""
    import jax
    import jax.numpy as jnp

    stacked: T = jax.vmap(one)(jnp.arange(count))
    return stacked


def _own(sent: Sent, place: JaxArray) -> dict[str, Params | Array]:
    """The row of each stack that belongs to one block or client."""
    return {name: tree.row(bank, sent.rows[name][place]) for name, bank in sent.banks.items()}


def _loop(one: Callable[[JaxArray], T], live: np.int32 | JaxArray, count: int) -> T:
    """The results of `one(0)`, ..., `one(live - 1)`, stacked and padded with zeros to `count` rows."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    shapes = jax.eval_shape(one, 0)
    zeros = tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)

    def step(place: JaxArray, out: T) -> T:
        return tree.map(lambda rows, row: rows.at[place].set(row), out, one(place))

    stacked: T = lax.fori_loop(0, live, step, zeros)
    return stacked
