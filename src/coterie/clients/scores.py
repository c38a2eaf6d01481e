"""Works without training: scores, losses of several models, gradients, label counts, label errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie import tree
from coterie.clients.schema import Model, Values
from coterie.clients.weighting import divided
from coterie.clients.work import CHUNK, Batches, Client, Steps, Work
from coterie.errors import SpecError
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, Params, TracedArray

#: Number of parameters up to which several models are evaluated together.
BATCHED_PARAMETERS = 2**16


def _score(task: Task, x: TracedArray, y: TracedArray, *, params: Params) -> dict[str, TracedArray]:
    outputs = task.outputs(params, x)
    return {"correct": task.hits(outputs, y), "loss": task.losses_of(outputs, y)}


#: Number of examples that a model classifies correctly, and the sum of its losses.
score = Work(
    "score",
    takes={"params": Model()},
    gives={"correct": Values("float32"), "loss": Values("float32")},
    purpose="evaluate",
    each=_score,
    trains=False,
)


def losses_per_example(task: Task, x: TracedArray, y: TracedArray, *, centers: Bank) -> dict[str, TracedArray]:
    """The loss of each of k models on each example: (rows, k).

    Small models are evaluated together in one product, large ones a few at a time: the outputs of a hundred large
    models together do not fit the cache and took twice as long as one model after the other.
    """
    import jax.numpy as jnp
    from jax import lax

    count = tree.rows(centers)
    parameters = sum(leaf.size for leaf in tree.leaves(centers)) // count
    at_once = max(1, min(count, BATCHED_PARAMETERS // parameters))
    # Normalize once for all models: without the barrier XLA moves it into the loop and repeats it for each of them.
    inputs = lax.optimization_barrier(task.inputs(x))

    def losses(center: Params) -> Any:
        return task.losses_of(task.apply(center, inputs, None), y)

    return {"losses": jnp.transpose(lax.map(losses, centers, batch_size=at_once if at_once > 1 else None))}


def mean_losses(client: Client) -> TracedArray:
    """Mean losses from the sums of `losses_per_example`, (k,); zeros for a client without examples."""
    import jax.numpy as jnp

    if client.weight is not None:
        return divided(client.sums["losses"], client.weight)
    return client.sums["losses"] / jnp.maximum(client.n, 1)


def _losses(task: Task, client: Client, *, centers: Bank) -> dict[str, TracedArray]:
    return {"losses": mean_losses(client)}


#: Mean loss of each of k models.
losses_of = Work(
    "losses_of",
    takes={"centers": Model(("k",))},
    gives={"losses": Values("float32", ("k",))},
    each=losses_per_example,
    body=_losses,
    trains=False,
    weighted=True,
)


def _count(task: Task, x: TracedArray, y: TracedArray) -> dict[str, TracedArray]:
    import jax.numpy as jnp

    if task.classes is None:
        raise SpecError(f"Model {task.name} is a regression: label counts need classes")

    return {"counts": (y[:, None] == jnp.arange(task.classes, dtype=y.dtype)).astype(jnp.float32)}


#: Number of the client's examples of each class.
label_counts = Work(
    "label_counts",
    takes={},
    gives={"counts": Values("float32", ("classes",))},
    purpose="labels",
    each=_count,
    trains=False,
    of_examples=True,
)


def whole_pass(n: int, seed: Seed, effort: float, **_: Any) -> dict[str, Steps]:
    """Plan of one pass over all examples, in order."""
    width = CHUNK // 4
    index = np.full(-(-n // width) * width, -1, np.int32)
    index[:n] = np.arange(n, dtype=np.int32)
    return {"whole": Steps(index.reshape(-1, width))}


def whole_pass_lengths(n: int, **_: Any) -> dict[str, int]:
    """Number of rows of `whole_pass`."""
    return {"whole": -(-n // (CHUNK // 4))}


def full_gradient(task: Task, client: Client, params: Params) -> tuple[Params, TracedArray]:
    """The gradient of the mean data loss over all examples at `params`, and that loss. Needs the plan `whole_pass`."""
    import jax
    import jax.numpy as jnp

    batches = client.batches["whole"]
    if batches.weighted:
        return _weighted_gradient(task, batches, params)

    def summed_loss(at: Params, row: TracedArray) -> TracedArray:
        batch = batches.take(row)
        return jnp.sum(jnp.where(batch.weight > 0, task.losses(at, batch.x, batch.y), 0.0))

    def add(row: TracedArray, sums: tuple[TracedArray, Params]) -> tuple[TracedArray, Params]:
        loss, grads = jax.value_and_grad(summed_loss)(params, row)
        return sums[0] + loss, tree.map(jnp.add, sums[1], grads)

    total, grads = batches.fold(add, (jnp.float32(0), tree.map(jnp.zeros_like, params)))
    count = jnp.maximum(client.n, 1).astype(jnp.float32)
    return tree.map(lambda g: g / count, grads), total / count


def _weighted_gradient(task: Task, batches: Batches, params: Params) -> tuple[Params, TracedArray]:
    """The gradient of the weighted mean Σ w·loss / Σ w over all batches at `params`, and that mean."""
    import jax
    import jax.numpy as jnp

    def summed_loss(at: Params, row: TracedArray) -> tuple[TracedArray, TracedArray]:
        batch = batches.take(row)
        losses, weight = task.losses(at, batch.x, batch.y), batch.sample_weight
        assert weight is not None
        return jnp.sum(jnp.where(weight > 0, weight * losses, 0.0)), jnp.sum(weight)

    def add(row: TracedArray, sums: tuple[TracedArray, TracedArray, Params]) -> Any:
        (loss, weight), grads = jax.value_and_grad(summed_loss, has_aux=True)(params, row)
        return sums[0] + loss, sums[1] + weight, tree.map(jnp.add, sums[2], grads)

    zeros = (jnp.float32(0), jnp.float32(0), tree.map(jnp.zeros_like, params))
    total, weight, grads = batches.fold(add, zeros)
    return tree.map(lambda g: divided(g, weight), grads), divided(total, weight)


def _gradient(task: Task, client: Client, *, params: Params) -> dict[str, Any]:
    grads, loss = full_gradient(task, client, params)
    return {"gradient": grads, "loss": loss}


#: Gradient of the mean loss of a model over all examples, and that loss.
gradient = Work(
    "gradient",
    takes={"params": Model()},
    gives={"gradient": Model(), "loss": Values("float32")},
    plan=whole_pass,
    lengths=whole_pass_lengths,
    body=_gradient,
    trains=False,
)


def _squares(task: Task, x: TracedArray, y: TracedArray, *, models: Bank) -> dict[str, TracedArray]:
    import jax
    import jax.numpy as jnp

    def of(params: Params) -> TracedArray:
        outputs = task.outputs(params, x)
        answers = outputs if task.classes is None else jnp.argmax(outputs, axis=1)
        return jnp.square(answers.astype(jnp.float32) - jnp.asarray(y).astype(jnp.float32))

    return {"squares": jnp.transpose(jax.vmap(of)(models))}  # (rows, k)


#: Sum of squared differences between predicted and true class numbers (or targets), for each of k models; FedSim's
#: non-IID index is computed from it.
label_errors = Work(
    "label_errors",
    takes={"models": Model(("k",))},
    gives={"squares": Values("float32", ("k",))},
    purpose="errors",
    each=_squares,
    trains=False,
)
