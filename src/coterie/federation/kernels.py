"""The compiled halves of the vectorized federation: loops over products of rows, and over clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from coterie import tree
from coterie.clients import settings as setting
from coterie.clients.work import Batch, Batches, Client, Work
from coterie.data import transforms
from coterie.models import Task


def gather(x: Any, y: Any, table: Any, index: Any, turned: Any, names: tuple[str, ...]) -> Batch:
    """The examples of these numbers, under the transform of their client; vectors where a table has one for each id."""
    from jax import lax

    safe = lax.max(index, ~index)  # filling is marked by the sign
    # One slice a row: XLA's gather computes an address for each number and takes three times as long on a CPU. With ten
    # thousand clients it also hands the few labels of a batch to several threads, going by the size of all of them.
    images, labels = lax.map(
        lambda number: tuple(lax.dynamic_index_in_dim(each, number, keepdims=False) for each in (x, y)), safe
    )
    if len(names) > 1:
        branches: list[Callable[[Any], Any]] = [transforms.TRANSFORMS[name] for name in names]
        images = lax.switch(turned, branches, images)
    elif names != ("identity",):
        images = transforms.apply(names[0], images)
    if table is not None:
        images = table.at[images].get(mode="promise_in_bounds")
    return Batch(images, labels, (index >= 0).astype(np.float32))


@lru_cache(maxsize=128)
def compiled_each(work: Work, task: Task, structure: Any, names: tuple[str, ...], rowed: tuple[str, ...]) -> Any:
    """A function of single examples, compiled over products of rows, each with the models of its clients."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    assert work.each is not None
    each = work.each

    def run(
        x: Any,
        y: Any,
        table: Any,
        index: Any,
        turned: Any,
        live: Any,
        numbers: Any,
        shared: Any,
        banks: Any,
        models: Any,
    ) -> Any:
        fixed = {**setting.join_all(structure, numbers), **shared}

        def one(place: Any) -> Any:
            batch = gather(x, y, table, index[place], turned[place], names)
            own = {name: tree.row(banks[name], models[name][place]) for name in rowed}
            return each(task, batch.x, batch.y, **fixed, **own)

        shapes = jax.eval_shape(one, 0)
        out = tree.map(lambda leaf: jnp.zeros((len(index), *leaf.shape), leaf.dtype), shapes)
        return lax.fori_loop(
            0, live, lambda place, out: tree.map(lambda o, v: o.at[place].set(v), out, one(place)), out
        )

    return jax.jit(run)


@lru_cache(maxsize=128)
def compiled_body(work: Work, task: Task, structure: Any, names: tuple[str, ...], rowed: tuple[str, ...]) -> Any:
    """A traced body, compiled over the clients of one call, one after the other."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    assert work.body is not None
    body = work.body

    def run(
        x: Any,
        y: Any,
        table: Any,
        live: Any,
        n: Any,
        keys: Any,
        turned: Any,
        pages: Any,
        starts: Any,
        counts: Any,
        lasts: Any,
        sums: Any,
        memory: Any,
        numbers: Any,
        shared: Any,
        stacks: Any,
        rows: Any,
    ) -> Any:
        fixed = {**setting.join_all(structure, numbers), **shared}

        def one(c: Any) -> Any:
            def batches(name: str) -> Batches:
                start = starts[name][c]
                last = (lambda row: lasts[name][start + row]) if name in lasts else None
                return Batches(
                    counts[name][c], lambda row: gather(x, y, table, pages[name][start + row], turned[c], names), last
                )

            client = Client(
                n[c], keys[c], {name: batches(name) for name in pages}, tree.row(sums, c), tree.row(memory, c)
            )
            own = {name: tree.row(stacks[name], rows[name][c]) for name in rowed}
            return body(task, client, **fixed, **own)

        shapes = jax.eval_shape(one, 0)
        out = tree.map(lambda leaf: jnp.zeros((len(n), *leaf.shape), leaf.dtype), shapes)
        return lax.fori_loop(0, live, lambda c, out: tree.map(lambda o, v: o.at[c].set(v), out, one(c)), out)

    return jax.jit(run)
