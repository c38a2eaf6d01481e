"""What a client can say about models and about itself without training: scores, losses, gradients, label counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie import tree
from coterie.clients.schema import Model, Values
from coterie.clients.work import CHUNK, Client, Steps, Work
from coterie.errors import SpecError
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, Params

#: Numbers of models whose losses are taken side by side.
ABREAST = 2**16


def _score(task: Task, x: Any, y: Any, *, params: Params) -> dict[str, Any]:
    outputs = task.outputs(params, x)
    return {"correct": task.hits(outputs, y), "loss": task.losses_of(outputs, y)}


#: How many examples a model gets right, and the sum of its losses.
score = Work(
    "score",
    takes={"params": Model()},
    gives={"correct": Values("float32"), "loss": Values("float32")},
    purpose="evaluate",
    each=_score,
)


def losses_per_example(task: Task, x: Any, y: Any, *, centers: Bank) -> dict[str, Any]:
    """The loss of each of k models on each example: (rows, k).

    Small models go side by side through one product. Of large ones a few at a time: the outputs of a hundred, side by
    side, would not fit the cache, and took twice as long as one model after the other.
    """
    import jax.numpy as jnp
    from jax import lax

    count = tree.rows(centers)
    numbers = sum(leaf.size for leaf in tree.leaves(centers)) // count
    abreast = max(1, min(count, ABREAST // numbers))
    # Once for all models: XLA would otherwise move it into the loop and repeat it for each of them.
    inputs = lax.optimization_barrier(task.inputs(x))

    def losses(center: Params) -> Any:
        return task.losses_of(task.apply(center, inputs, None), y)

    return {"losses": jnp.transpose(lax.map(losses, centers, batch_size=abreast if abreast > 1 else None))}


def mean_losses(client: Client) -> Any:
    """The mean of what `losses_per_example` added up; zeros for a client without examples."""
    import jax.numpy as jnp

    return client.sums["losses"] / jnp.maximum(client.n, 1)


def _losses(task: Task, client: Client, *, centers: Bank) -> dict[str, Any]:
    return {"losses": mean_losses(client)}


#: The mean loss of each of k models.
losses_of = Work(
    "losses_of",
    takes={"centers": Model(("k",))},
    gives={"losses": Values("float32", ("k",))},
    each=losses_per_example,
    body=_losses,
)


def _count(task: Task, x: Any, y: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    if task.classes is None:
        raise SpecError(f"Model {task.name} predicts numbers: there are no labels to count")

    return {"counts": (y[:, None] == jnp.arange(task.classes, dtype=y.dtype)).astype(jnp.float32)}


#: How many examples of each class the client has.
label_counts = Work(
    "label_counts", takes={}, gives={"counts": Values("float32", ("classes",))}, purpose="labels", each=_count
)


def whole_pass(n: int, seed: Seed, effort: float, **_: Any) -> dict[str, Steps]:
    """All examples once, in order, in rows of at most 512."""
    width = CHUNK // 4
    index = np.full(-(-n // width) * width, -1, np.int32)
    index[:n] = np.arange(n, dtype=np.int32)
    return {"whole": Steps(index.reshape(-1, width))}


def whole_pass_lengths(n: int, **_: Any) -> dict[str, int]:
    """How many rows `whole_pass` has."""
    return {"whole": -(-n // (CHUNK // 4))}


def full_gradient(task: Task, client: Client, params: Params) -> tuple[Params, Any]:
    """∇F at `params`, the gradient of the mean data loss over all examples, and that loss."""
    import jax
    import jax.numpy as jnp

    batches = client.batches["whole"]

    def summed(at: Params, row: Any) -> Any:
        batch = batches.take(row)
        return jnp.sum(jnp.where(batch.weight > 0, task.losses(at, batch.x, batch.y), 0.0))

    def add(row: Any, carried: Any) -> Any:
        loss, grads = jax.value_and_grad(summed)(params, row)
        return carried[0] + loss, tree.map(jnp.add, carried[1], grads)

    total, grads = batches.fold(add, (jnp.float32(0), tree.map(jnp.zeros_like, params)))
    count = jnp.maximum(client.n, 1).astype(jnp.float32)
    return tree.map(lambda g: g / count, grads), total / count


def _gradient(task: Task, client: Client, *, params: Params) -> dict[str, Any]:
    grads, loss = full_gradient(task, client, params)
    return {"gradient": grads, "loss": loss}


#: The full gradient of a model on the client's examples.
gradient = Work(
    "gradient",
    takes={"params": Model()},
    gives={"gradient": Model(), "loss": Values("float32")},
    plan=whole_pass,
    lengths=whole_pass_lengths,
    body=_gradient,
)
