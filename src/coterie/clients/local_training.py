"""Local training: SGD, or any optax optimizer, on a client's own examples.

One step on a batch b:    g = ∇ mean loss on b + weight_decay·w + μ (w - w_start)
                          mean loss: Σ s_i·loss_i / Σ s_i, with the sample and class weights s_i, or 1 without
                          v = momentum·v + g,    w = w - learning_rate·v
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.clients.schema import Model, Schema, Settings, Values
from coterie.clients.traced_settings import off
from coterie.clients.weighting import mean_gradient, mean_loss
from coterie.clients.work import CHUNK, Batches, Client, Steps, Work
from coterie.codec import state
from coterie.errors import SpecError, unknown
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Params, TracedArray

#: State of an optimizer: of optax, or the velocity of SGD with momentum.
OptimizerState: TypeAlias = Any

#: Number of examples in a row of a batch that spans several rows.
ROW_WIDTH = 128


@state
@dataclass(frozen=True)
class LocalSGD:
    """Settings of local training. The defaults are those of FlexCFL's experiments.

    Attributes:
        epochs: Local epochs; ignored if `steps` is set.
        steps: Local steps (mini-batches); 0: use epochs.
        batch_size: Batch size; 0: full batch.
        learning_rate: Learning rate.
        lr_decay: Factor on the learning rate per round.
        momentum: Momentum of the optimizer `sgd`.
        weight_decay: Weight decay.
        mu: Proximal coefficient (μ) toward the received model.
        optimizer: `sgd` or the name of any optax optimizer that takes a learning rate.
        trainable_layers: Names of the layers to train; empty: all.
        class_weight: Weights of the classes in the loss: none; or balanced, n / (number of classes that occur · n_c)
            for a class with n_c of the client's n examples.
        in_turn: Whether clients that get the same model in a round train one after another, each from the result of the
            one before, as in SR-FCA's published program. Only for simulations that reproduce its figures.
    """

    epochs: Annotated[int, Bound(at_least=1)] = 10
    steps: Annotated[int, Bound(at_least=0)] = 0
    batch_size: Annotated[int, Bound(at_least=0)] = 10
    learning_rate: Annotated[float, Bound(at_least=0)] = 0.03
    lr_decay: Annotated[float, Bound(at_least=0)] = 1.0
    momentum: Annotated[float, Bound(at_least=0, below=1)] = 0.0
    weight_decay: Annotated[float, Bound(at_least=0)] = 0.0
    mu: Annotated[float, Bound(at_least=0)] = 0.0
    optimizer: str = "sgd"
    trainable_layers: tuple[str, ...] = ()
    class_weight: Literal["none", "balanced"] = field(default="none", metadata={"omit_default": True})
    in_turn: bool = field(default=False, metadata={"omit_default": True})

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "local")
        for name in ("learning_rate", "lr_decay", "momentum", "weight_decay", "mu"):
            # Integers would be compiled in instead of traced.
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.optimizer != "sgd" and self.momentum:
            raise SpecError("local.momentum belongs to optimizer 'sgd'; leave it at 0 for others")
        object.__setattr__(self, "trainable_layers", tuple(self.trainable_layers))  # must be hashable

    def at(self, t: int) -> LocalSGD:
        """The settings in round t, with the learning rate decayed t times."""
        if self.lr_decay == 1:
            return self
        return dataclasses.replace(self, learning_rate=self.learning_rate * self.lr_decay**t)

    def for_body(self) -> LocalSGD:
        """The settings that the body needs; those that only the plan and the transport use are fixed.

        The body need not be compiled again for other values.
        """
        return dataclasses.replace(self, epochs=1, steps=0, in_turn=False)

    def rows(self, n: int) -> tuple[int, int]:
        """(width of a row, rows of one pass over n examples)."""
        if self.batch_size and self.batch_size <= CHUNK:
            return self.batch_size, -(-n // self.batch_size)
        batch = min(self.batch_size or n, n)
        return ROW_WIDTH, -(-n // batch) * -(-batch // ROW_WIDTH) if n else 0


def lengths(n: int, *, local: LocalSGD, **_: Any) -> dict[str, int]:
    """Number of rows of the plan for n examples."""
    width, rows = local.rows(n)
    if not n:
        return {"local": 0}
    if not local.steps:
        return {"local": local.epochs * rows}
    in_batch = 1 if local.batch_size and local.batch_size <= CHUNK else -(-min(local.batch_size or n, n) // width)
    return {"local": local.steps * in_batch}


def plan(n: int, seed: Seed, effort: float, *, local: LocalSGD, **_: Any) -> dict[str, Steps]:
    """The batches of one local training.

    Each pass over the examples has its own random order, and its last batch may be smaller. With `steps`, passes are
    repeated until there are enough batches.

    Args:
        n: Number of examples.
        seed: Seed of the order.
        effort: 1: all epochs (or steps). Below 1: the fraction u of a straggler, which does 1 + floor(u (E - 1)) of E
            epochs (or steps).
        local: Settings of local training.
    """
    width, _rows = local.rows(n)
    if n == 0:
        return {"local": Steps(np.zeros((0, width), np.int32))}
    budget = local.steps or local.epochs
    if effort < 1:
        budget = 1 + int(effort * (budget - 1))
    batch = min(local.batch_size or n, n)
    in_pass = -(-n // batch)
    passes = -(-budget // in_pass) if local.steps else budget
    order = seed.permutations(passes, n).astype(np.int32)
    whole = np.full((passes, in_pass * batch), -1, np.int32)
    whole[:, :n] = order
    batches = whole.reshape(passes * in_pass, batch)
    if local.steps:
        batches = batches[:budget]
    if local.batch_size and local.batch_size <= CHUNK:
        padded = np.full((len(batches), local.batch_size), -1, np.int32) if batch < local.batch_size else batches
        padded[:, :batch] = batches
        return {"local": Steps(padded)}
    # A batch spans several rows: gradients are added up and applied after the last row.
    in_batch = -(-batch // ROW_WIDTH)
    spread = np.full((len(batches), in_batch * ROW_WIDTH), -1, np.int32)
    spread[:, :batch] = batches
    last = np.tile(np.arange(in_batch) == in_batch - 1, len(batches))
    return {"local": Steps(spread.reshape(-1, ROW_WIDTH), last)}


def train(
    task: Task,
    start: Params,
    client: Client,
    local: LocalSGD,
    *,
    name: str = "local",
    anchor: Params | None = None,
    pull: TracedArray | float | None = None,
) -> dict[str, Any]:
    """The model after local training from `start`, its mean loss over the last pass, and the number of steps.

    Args:
        task: The task.
        start: Initial model.
        client: The client, with batches planned by `plan`.
        local: Settings of local training.
        name: Name of the planned batches.
        anchor: Model of the proximal term; default: `start`.
        pull: Factor on μ for this client; default: 1.
    """
    return continue_training(task, start, client, local, name=name, anchor=anchor, pull=pull)[0]


def continue_training(
    task: Task,
    start: Params,
    client: Client,
    local: LocalSGD,
    first_state: OptimizerState | None = None,
    *,
    name: str = "local",
    anchor: Params | None = None,
    pull: TracedArray | float | None = None,
) -> tuple[dict[str, Any], OptimizerState]:
    """As `train`, from this state of the optimizer, or a new one; also returns its state after the training."""
    import jax
    import jax.numpy as jnp

    batches = client.batches[name]
    step, new_state = optimizer(start, local)
    first_state = new_state if first_state is None else first_state
    per_pass = _rows_per_pass(client.n, local)
    gradient = jax.value_and_grad(summed_loss(task, client, batches), has_aux=True)

    def update(params: Params, grads: Params, state: OptimizerState) -> tuple[Params, OptimizerState]:
        return step(params, penalized(task, local, params, grads, start if anchor is None else anchor, pull), state)

    def row_is_batch(row: TracedArray, carry: Any) -> Any:
        params, state, last_pass = carry
        (loss, (weight, stats)), grads = gradient(params, row)
        params, state = update(params, mean_gradient(batches, grads, weight), state)
        params = tree.merge(params, stats)
        return params, state, _last_pass(last_pass, loss, weight, row, batches.count - per_pass)

    def batch_spans_rows(row: TracedArray, carry: Any) -> Any:
        params, (state, total, count), last_pass = carry
        (loss, (weight, stats)), grads = gradient(params, row)
        params = tree.merge(params, stats)
        total, count = tree.map(jnp.add, total, grads), count + weight

        def apply() -> Any:
            moved, new_state = update(params, mean_gradient(batches, total, count), state)
            return moved, (new_state, tree.map(jnp.zeros_like, total), jnp.zeros_like(count))

        params, rest = jax.lax.cond(batches.last(row), apply, lambda: (params, (state, total, count)))  # type: ignore[misc]
        return params, rest, _last_pass(last_pass, loss, weight, row, batches.count - per_pass)

    last_pass = (jnp.float32(0), jnp.float32(0))  # sums of losses and of weights
    if batches.last is None:
        params, state, last_pass = batches.fold(row_is_batch, (start, first_state, last_pass))
    else:
        zeros = tree.map(jnp.zeros_like, start)
        sums = (first_state, zeros, jnp.float32(0))
        params, (state, _, _), last_pass = batches.fold(batch_spans_rows, (start, sums, last_pass))
    loss = mean_loss(batches, *last_pass)
    steps = (batches.count // rows_per_batch(client.n, local)).astype(jnp.int32)
    return {"params": params, "loss": loss, "steps": steps}, state


def summed_loss(
    task: Task, client: Client, batches: Batches
) -> Callable[[Params, TracedArray], tuple[TracedArray, tuple[TracedArray, Params]]]:
    """A function (parameters, row) → (summed data loss of the row, (number of examples, new running statistics)).

    With sample weights, the loss is weighted, and the number of examples is the sum of their weights.
    """
    import jax
    import jax.numpy as jnp

    def summed(params: Params, row: TracedArray) -> tuple[TracedArray, tuple[TracedArray, Params]]:
        batch = batches.take(row)
        key = jax.random.fold_in(client.key, row) if task.random else None
        outputs, stats = task.training_outputs(params, batch.x, key, batch.weight)
        losses = task.losses_of(outputs, batch.y)
        if (own := batch.sample_weight) is not None:
            return jnp.sum(jnp.where(own > 0, own * losses, 0.0)), (jnp.sum(own), stats)
        # `where`, not a product: padding must be ignored even if its loss is not finite.
        return jnp.sum(jnp.where(batch.weight > 0, losses, 0.0)), (jnp.sum(batch.weight), stats)

    return summed


def penalized(
    task: Task,
    local: LocalSGD,
    params: Params,
    grads: Params,
    anchor: Params,
    pull: TracedArray | float | None = None,
) -> Params:
    """The gradients plus those of the task's l2 penalty, of weight decay and of the proximal term toward `anchor`."""
    if not off(task.l2):
        grads = tree.map_paths(lambda path, g, w: g + 2 * task.l2 * w if _is_kernel(path, w) else g, grads, params)
    if not off(local.weight_decay):
        grads = tree.map(lambda g, w: g + local.weight_decay * w, grads, params)
    if not off(local.mu):
        mu = local.mu if pull is None else local.mu * pull
        grads = tree.map(lambda g, w, w0: g + mu * (w - w0), grads, params, anchor)
    return grads


def _last_pass(
    sums: tuple[TracedArray, TracedArray], loss: TracedArray, weight: TracedArray, row: TracedArray, first: TracedArray
) -> tuple[TracedArray, TracedArray]:
    """Add the loss and weight of a row that belongs to the last pass."""
    import jax.numpy as jnp

    counts = row >= first
    return sums[0] + jnp.where(counts, loss, 0.0), sums[1] + jnp.where(counts, weight, 0.0)


def rows_per_batch(n: TracedArray, local: LocalSGD) -> TracedArray | int:
    """Number of rows of a batch in the plan of a client with n examples."""
    import jax.numpy as jnp

    if local.batch_size and local.batch_size <= CHUNK:
        return 1
    return -(-jnp.maximum(jnp.minimum(local.batch_size, n) if local.batch_size else n, 1) // ROW_WIDTH)


def _rows_per_pass(n: TracedArray, local: LocalSGD) -> TracedArray:
    import jax.numpy as jnp

    batch = jnp.maximum(jnp.minimum(local.batch_size, n) if local.batch_size else n, 1)
    return -(-n // batch) * rows_per_batch(n, local)


def optimizer(
    start: Params, local: LocalSGD
) -> tuple[Callable[[Params, Params, OptimizerState], tuple[Params, OptimizerState]], OptimizerState]:
    """The update function (parameters, gradients, state) → (parameters, state), and the initial state."""
    import jax
    import jax.numpy as jnp

    for layer in local.trainable_layers:
        if layer not in start:
            raise SpecError(unknown("layer", layer, start))

    def moved(params: Params, new: Params) -> Params:
        return (
            {key: new[key] if key in local.trainable_layers else params[key] for key in params}
            if local.trainable_layers
            else new
        )

    if local.optimizer != "sgd":
        made = optax_optimizer(local.optimizer, local.learning_rate)

        def by_optax(params: Params, grads: Params, state: OptimizerState) -> tuple[Params, OptimizerState]:
            moves, state = made.update(grads, state, params)
            return moved(params, tree.map(jnp.add, params, moves)), state

        return by_optax, made.init(start)

    def by_sgd(params: Params, grads: Params, state: OptimizerState) -> tuple[Params, OptimizerState]:
        if off(local.momentum):
            return moved(params, tree.map(lambda w, g: w - local.learning_rate * g, params, grads)), state
        state = tree.map(lambda v, g: local.momentum * v + g, state, grads)
        return moved(params, tree.map(lambda w, v: w - local.learning_rate * v, params, state)), state

    return by_sgd, () if off(local.momentum) else jax.tree_util.tree_map(jnp.zeros_like, start)


def _is_kernel(path: str, leaf: Any) -> bool:
    return path.rsplit("/", 1)[-1] == "kernel" or leaf.ndim > 1


def optax_optimizer(name: str, rate: Any) -> Any:
    """The optax optimizer with this name and learning rate."""
    import optax

    maker = getattr(optax, name, None)
    if name.startswith("_") or not callable(maker):
        raise SpecError(f"No optimizer {name!r}; use 'sgd' or the name of an optax optimizer, such as 'adam'")
    try:
        made = maker(learning_rate=rate)
    except TypeError as fault:
        raise SpecError(f"optax.{name} cannot be created from a learning rate alone: {fault}") from fault
    if not isinstance(made, optax.GradientTransformation):
        raise SpecError(f"optax.{name} is not an optimizer; use 'sgd' or an optimizer such as 'adam'")
    return made


def _fit(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, Any]:
    return train(task, start, client, local)


#: Values returned by `train`: the model, its mean loss over the last pass, the number of steps.
TRAINED: dict[str, Schema] = {"params": Model(moved=True), "loss": Values("float32"), "steps": Values("int32")}

#: Train from `start`: the main local training of a round.
fit = Work(
    "fit",
    takes={"start": Model(), "local": Settings(LocalSGD)},
    gives=TRAINED,
    stream="batches",
    plan=plan,
    lengths=lengths,
    body=_fit,
    trains=True,
)
