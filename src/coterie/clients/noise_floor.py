"""How much a client differs from itself: the noise floor of distances between clients.

    split_half      the examples = A ∪ B, at random, |B| - |A| ≤ 1; w_A, w_B ← LocalUpdate(w_0) on A and on B
                    l2 = ‖w_A - w_B‖₂
    halve_updates   the same w_A, w_B;  first = w_A - w_0,  second = w_B - w_0
    project_halves  the same w_A, w_B;  first = cos(w_A - w_0, d),  second = cos(w_B - w_0, d)
    held_out_loss   the examples = A ∪ B, at random, |B| = ⌈n/5⌉; w_A ← LocalUpdate(w_0) on A;   loss = f_B(w_A)

Both parts have the same distribution. What they differ by is therefore what two clients of one true cluster differ by
that have as many examples as the parts. Only numbers leave the client, and with `halve_updates` the two updates. w_0 is
`start`, d `direction`, f the mean loss. A client with fewer than two examples returns zeros; its number of samples says
so. Running statistics are not compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie import tree
from coterie.clients.local_training import LocalSGD, lengths, plan, train
from coterie.clients.schema import Model, Settings, Values
from coterie.clients.scores import whole_pass, whole_pass_lengths
from coterie.clients.weighting import divided
from coterie.clients.work import Batches, Client, Steps, Work
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Params, TracedArray

_HELD_OUT = 5  # one in so many examples


def _order(n: int, seed: Seed) -> Array:
    return seed.fold("parts").permutation(n)


def _within(chosen: Array, steps: Steps) -> Steps:
    """The plan for the chosen examples as a plan for all examples."""
    padded = np.append(np.sort(chosen), -1).astype(np.int32)  # position -1, which is padding, stays -1
    return Steps(padded[steps.index], steps.last)


def _trained_on(chosen: Array, seed: Seed, effort: float, local: LocalSGD) -> Steps:
    return _within(chosen, plan(len(chosen), seed, effort, local=local)["local"])


def _plan_halves(n: int, seed: Seed, effort: float, *, local: LocalSGD, **_: Any) -> dict[str, Steps]:
    order = _order(n, seed)
    halves = {"first": order[: n // 2], "second": order[n // 2 :]}
    return {name: _trained_on(chosen, seed.fold(name), effort, local) for name, chosen in halves.items()}


def _lengths_of_halves(n: int, *, local: LocalSGD, **_: Any) -> dict[str, int]:
    rows = lengths(n - n // 2, local=local)["local"]
    return {"first": rows, "second": rows}


def _plan_held_out(n: int, seed: Seed, effort: float, *, local: LocalSGD, **_: Any) -> dict[str, Steps]:
    order, held = _order(n, seed), -(-n // _HELD_OUT)
    whole = whole_pass(held, seed, effort)["whole"]
    return {"rest": _trained_on(order[held:], seed, effort, local), "held": _within(order[:held], whole)}


def _lengths_of_held_out(n: int, *, local: LocalSGD, **_: Any) -> dict[str, int]:
    held = -(-n // _HELD_OUT)
    return {"rest": lengths(n - held, local=local)["local"], "held": whole_pass_lengths(held)["whole"]}


def _inner_product(first: Params, second: Params) -> TracedArray:
    """Σ over all parameters. Products and sums, because XLA splits dot products by the number of cores."""
    import jax.numpy as jnp

    total: TracedArray = sum(tree.leaves(tree.map(lambda a, b: jnp.sum(a * b), first, second)))
    return total


def _cosine(first: Params, second: Params) -> TracedArray:
    import jax.numpy as jnp

    norms = jnp.sqrt(_inner_product(first, first) * _inner_product(second, second))
    return divided(_inner_product(first, second), norms)


def _updates_of_halves(task: Task, client: Client, start: Params, local: LocalSGD) -> list[Params]:
    import jax.numpy as jnp

    trained = [train(task, start, client, local, name=name)["params"] for name in ("first", "second")]
    return [trainable(tree.map(jnp.subtract, each, start)) for each in trained]


def _compare_halves(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, TracedArray]:
    import jax.numpy as jnp

    apart = tree.map(jnp.subtract, *_updates_of_halves(task, client, start, local))
    return {"l2": jnp.where(client.n >= 2, jnp.sqrt(_inner_product(apart, apart)), 0.0)}


def _halve_updates(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, Params]:
    import jax.numpy as jnp

    one, two = (
        tree.map(lambda leaf: jnp.where(client.n >= 2, leaf, jnp.zeros_like(leaf)), each)
        for each in _updates_of_halves(task, client, start, local)
    )
    return {"first": one, "second": two}


def _project_halves(
    task: Task, client: Client, *, start: Params, direction: Params, local: LocalSGD
) -> dict[str, TracedArray]:
    import jax.numpy as jnp

    one, two = (_cosine(each, direction) for each in _updates_of_halves(task, client, start, local))
    enough = client.n >= 2
    return {"first": jnp.where(enough, one, 0.0), "second": jnp.where(enough, two, 0.0)}


def _loss_on_held_out(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, TracedArray]:
    import jax.numpy as jnp

    trained = train(task, start, client, local, name="rest")["params"]
    loss = _mean_loss(task, client.batches["held"], trained)
    return {"loss": jnp.where(client.n >= 2, loss, 0.0)}


def _mean_loss(task: Task, batches: Batches, params: Params) -> TracedArray:
    import jax.numpy as jnp

    def add(row: TracedArray, sums: tuple[TracedArray, TracedArray]) -> tuple[TracedArray, TracedArray]:
        batch = batches.take(row)
        weight = batch.weight if batch.sample_weight is None else batch.sample_weight
        losses = task.losses(params, batch.x, batch.y)
        return sums[0] + jnp.sum(jnp.where(weight > 0, weight * losses, 0.0)), sums[1] + jnp.sum(weight)

    return divided(*batches.fold(add, (jnp.float32(0), jnp.float32(0))))


_PURPOSE = "noise_floor"
_NUMBER = Values("float32", purpose=_PURPOSE)

#: Train on each half of the examples from the same model, and the distance of the two models.
split_half = Work(
    "split_half",
    takes={"start": Model(), "local": Settings(LocalSGD)},
    gives={"l2": _NUMBER},
    purpose=_PURPOSE,
    plan=_plan_halves,
    lengths=_lengths_of_halves,
    body=_compare_halves,
    trains=True,
)

#: Train on each half of the examples from the same model; both updates, without running statistics.
halve_updates = Work(
    "halve_updates",
    takes={"start": Model(), "local": Settings(LocalSGD)},
    gives={"first": Model(partial=True), "second": Model(partial=True)},
    purpose=_PURPOSE,
    plan=_plan_halves,
    lengths=_lengths_of_halves,
    body=_halve_updates,
    trains=True,
)

#: Train on each half of the examples from the same model; the cosines of both updates with a direction.
project_halves = Work(
    "project_halves",
    takes={"start": Model(), "direction": Model(partial=True), "local": Settings(LocalSGD)},
    gives={"first": _NUMBER, "second": _NUMBER},
    purpose=_PURPOSE,
    plan=_plan_halves,
    lengths=_lengths_of_halves,
    body=_project_halves,
    trains=True,
)

#: Train on four fifths of the examples; the mean loss of that model on the others.
held_out_loss = Work(
    "held_out_loss",
    takes={"start": Model(), "local": Settings(LocalSGD)},
    gives={"loss": _NUMBER},
    purpose=_PURPOSE,
    plan=_plan_held_out,
    lengths=_lengths_of_held_out,
    body=_loss_on_held_out,
    trains=True,
)
