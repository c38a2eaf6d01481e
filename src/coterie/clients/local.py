"""Local training: epochs or steps of SGD, or of any optax optimizer, on a client's own examples.

one step on a batch b:    g = ∇ mean loss on b + decay·w + μ (w - w_start)
                          v = momentum·v + g,    w = w - rate·v
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie import tree
from coterie.clients.schema import Model, Schema, Settings, Values
from coterie.clients.settings import off
from coterie.clients.work import CHUNK, Batches, Client, Steps, Work
from coterie.codec import state
from coterie.errors import SpecError, unknown
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Params

#: The width of the rows over which a batch of all examples is spread.
WIDE = 128


@state
@dataclass(frozen=True)
class LocalSGD:
    """How a client trains; as in FlexCFL's experiments where nothing is said.

    Attributes:
        epochs: Passes over its examples; ignored where `steps` is given.
        steps: Batches in all, drawn cyclically with a new order after each pass; 0 for epochs.
        batch_size: Examples in a batch; 0 for all of them. The last batch of a pass may be short.
        learning_rate: The learning rate.
        lr_decay: Its factor from round to round.
        momentum: Of plain SGD.
        weight_decay: Weight decay.
        mu: The proximal pull towards the model received.
        optimizer: `sgd`, or the name of any optimizer of optax that takes a learning rate.
        trainable_layers: Only these layers of the model move; empty for all of them.
    """

    epochs: int = 10
    steps: int = 0
    batch_size: int = 10
    learning_rate: float = 0.03
    lr_decay: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    mu: float = 0.0
    optimizer: str = "sgd"
    trainable_layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name, least in (("epochs", 1), ("steps", 0), ("batch_size", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise SpecError(f"local.{name} must be a whole number of at least {least}, got {value!r}")
        for name in ("learning_rate", "lr_decay", "momentum", "weight_decay", "mu"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise SpecError(f"local.{name} must be a finite number of at least 0, got {value!r}")
            object.__setattr__(self, name, float(value))  # an int would be compiled in instead of traced
        if self.momentum >= 1:
            raise SpecError(f"local.momentum must be below 1, got {self.momentum}")
        if self.optimizer != "sgd" and self.momentum:
            raise SpecError("local.momentum belongs to optimizer 'sgd'; leave it at 0 for others")
        layers = self.trainable_layers
        if not isinstance(layers, list | tuple) or not all(isinstance(layer, str) for layer in layers):
            raise SpecError(f"local.trainable_layers must be a list of layer names, got {layers!r}")
        object.__setattr__(self, "trainable_layers", tuple(layers))  # hashable, so that it can be compiled in

    def at(self, t: int) -> LocalSGD:
        """These settings in round t: the rate decayed t times."""
        if self.lr_decay == 1:
            return self
        return dataclasses.replace(self, learning_rate=self.learning_rate * self.lr_decay**t)

    def for_body(self) -> LocalSGD:
        """These settings without what only the plan looks at, so that another budget does not compile again."""
        return dataclasses.replace(self, epochs=1, steps=0)

    def rows(self, n: int) -> tuple[int, int]:
        """Into how many rows of which width one batch goes, and one pass of n examples falls."""
        if self.batch_size and self.batch_size <= CHUNK:
            return self.batch_size, -(-n // self.batch_size)
        batch = min(self.batch_size or n, n)
        return WIDE, -(-n // batch) * -(-batch // WIDE) if n else 0


def lengths(n: int, *, local: LocalSGD, **_: Any) -> dict[str, int]:
    """How many rows the plan of n examples has."""
    width, rows = local.rows(n)
    if not n:
        return {"local": 0}
    if not local.steps:
        return {"local": local.epochs * rows}
    in_batch = 1 if local.batch_size and local.batch_size <= CHUNK else -(-min(local.batch_size or n, n) // width)
    return {"local": local.steps * in_batch}


def plan(n: int, seed: Seed, effort: float, *, local: LocalSGD, **_: Any) -> dict[str, Steps]:
    """The batches of one local training.

    Args:
        n: How many examples there are.
        seed: Whose stream orders them.
        effort: 1 for all of the work; below that, the share u of a straggler, who does 1 + floor(u (E - 1)) of E
            epochs (or steps).
        local: The settings.
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
        wide = np.full((len(batches), local.batch_size), -1, np.int32) if batch < local.batch_size else batches
        wide[:, :batch] = batches
        return {"local": Steps(wide)}
    # One batch over several rows; its gradient is added up and applied at the last of them.
    in_batch = -(-batch // WIDE)
    spread = np.full((len(batches), in_batch * WIDE), -1, np.int32)
    spread[:, :batch] = batches
    last = np.tile(np.arange(in_batch) == in_batch - 1, len(batches))
    return {"local": Steps(spread.reshape(-1, WIDE), last)}


def train(
    task: Task,
    start: Params,
    client: Client,
    local: LocalSGD,
    *,
    name: str = "local",
    anchor: Params | None = None,
    pull: Any = None,
) -> dict[str, Any]:
    """The model after local training from `start`, with its mean loss over the last pass and the steps taken.

    Args:
        task: What is learned.
        start: Where training begins.
        client: Whose examples.
        local: The settings.
        name: Of the planned batches.
        anchor: Where the proximal pull μ goes; to `start` without it.
        pull: This client's own factor of μ, which may be traced; 1 without it.
    """
    import jax
    import jax.numpy as jnp

    batches = client.batches[name]
    step, fresh = optimizer(start, local)
    per_pass = _rows_per_pass(client.n, local)
    gradient = jax.value_and_grad(summed_loss(task, client, batches), has_aux=True)

    def update(params: Params, grads: Params, kept: Any) -> Any:
        return step(params, penalized(task, local, params, grads, start if anchor is None else anchor, pull), kept)

    def whole(row: Any, carried: Any) -> Any:
        params, kept, seen = carried
        (loss, (weight, stats)), grads = gradient(params, row)
        params, kept = update(params, tree.map(lambda g: g / weight, grads), kept)
        params = tree.merge(params, stats)
        return params, kept, _seen(seen, loss, weight, row, batches.count - per_pass)

    def spread(row: Any, carried: Any) -> Any:
        params, (kept, total, count), seen = carried
        (loss, (weight, stats)), grads = gradient(params, row)
        params = tree.merge(params, stats)
        total, count = tree.map(jnp.add, total, grads), count + weight

        def apply() -> Any:
            moved, state = update(params, tree.map(lambda g: g / count, total), kept)
            return moved, (state, tree.map(jnp.zeros_like, total), jnp.zeros_like(count))

        params, rest = jax.lax.cond(batches.last(row), apply, lambda: (params, (kept, total, count)))  # type: ignore[misc]
        return params, rest, _seen(seen, loss, weight, row, batches.count - per_pass)

    seen = (jnp.float32(0), jnp.float32(0))
    if batches.last is None:
        params, _, seen = batches.fold(whole, (start, fresh, seen))
    else:
        zeros = tree.map(jnp.zeros_like, start)
        params, _, seen = batches.fold(spread, (start, (fresh, zeros, jnp.float32(0)), seen))
    loss = seen[0] / jnp.maximum(seen[1], 1.0)
    return {
        "params": params,
        "loss": loss,
        "steps": (batches.count // rows_per_batch(client.n, local)).astype(jnp.int32),
    }


def summed_loss(task: Task, client: Client, batches: Batches) -> Callable[[Params, Any], Any]:
    """(parameters, row) → the summed data loss of a row of batches; beside it its examples and new statistics."""
    import jax
    import jax.numpy as jnp

    def summed(params: Params, row: Any) -> tuple[Any, Any]:
        batch = batches.take(row)
        key = jax.random.fold_in(client.key, row) if task.random else None
        outputs, stats = task.training_outputs(params, batch.x, key, batch.weight)
        losses = task.losses_of(outputs, batch.y)
        # `where`, not a product: filling must not matter even if its loss is not finite.
        return jnp.sum(jnp.where(batch.weight > 0, losses, 0.0)), (jnp.sum(batch.weight), stats)

    return summed


def penalized(task: Task, local: LocalSGD, params: Params, grads: Params, anchor: Params, pull: Any = None) -> Params:
    """Gradients of the data loss with what is added to them: the model's l2, weight decay, the pull to `anchor`."""
    if not off(task.l2):
        grads = tree.map_paths(lambda path, g, w: g + 2 * task.l2 * w if _is_kernel(path, w) else g, grads, params)
    if not off(local.weight_decay):
        grads = tree.map(lambda g, w: g + local.weight_decay * w, grads, params)
    if not off(local.mu):
        mu = local.mu if pull is None else local.mu * pull
        grads = tree.map(lambda g, w, w0: g + mu * (w - w0), grads, params, anchor)
    return grads


def _seen(seen: Any, loss: Any, weight: Any, row: Any, first: Any) -> Any:
    import jax.numpy as jnp

    counts = row >= first
    return seen[0] + jnp.where(counts, loss, 0.0), seen[1] + jnp.where(counts, weight, 0.0)


def rows_per_batch(n: Any, local: LocalSGD) -> Any:
    """Over how many rows of its plan a client of n examples spreads a batch; a plain 1 where it never does."""
    import jax.numpy as jnp

    if local.batch_size and local.batch_size <= CHUNK:
        return 1
    return -(-jnp.maximum(jnp.minimum(local.batch_size, n) if local.batch_size else n, 1) // WIDE)


def _rows_per_pass(n: Any, local: LocalSGD) -> Any:
    import jax.numpy as jnp

    batch = jnp.maximum(jnp.minimum(local.batch_size, n) if local.batch_size else n, 1)
    return -(-n // batch) * rows_per_batch(n, local)


def optimizer(start: Params, local: LocalSGD) -> tuple[Any, Any]:
    """(parameters, gradients, state) → (parameters, state), and the first state."""
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

        def by_optax(params: Params, grads: Params, state: Any) -> Any:
            moves, state = made.update(grads, state, params)
            return moved(params, tree.map(jnp.add, params, moves)), state

        return by_optax, made.init(start)

    def by_sgd(params: Params, grads: Params, state: Any) -> Any:
        if off(local.momentum):
            return moved(params, tree.map(lambda w, g: w - local.learning_rate * g, params, grads)), state
        state = tree.map(lambda v, g: local.momentum * v + g, state, grads)
        return moved(params, tree.map(lambda w, v: w - local.learning_rate * v, params, state)), state

    return by_sgd, () if off(local.momentum) else jax.tree_util.tree_map(jnp.zeros_like, start)


def _is_kernel(path: str, leaf: Any) -> bool:
    return path.rsplit("/", 1)[-1] == "kernel" or leaf.ndim > 1


def optax_optimizer(name: str, rate: Any) -> Any:
    """The optimizer of this name with this learning rate."""
    import optax

    maker = getattr(optax, name, None)
    if name.startswith("_") or not callable(maker):
        raise SpecError(f"No optimizer {name!r}; use 'sgd' or the name of one in optax, such as 'adam'")
    try:
        made = maker(learning_rate=rate)
    except TypeError as fault:
        raise SpecError(f"optax.{name} does not take a learning rate alone: {fault}") from fault
    if not isinstance(made, optax.GradientTransformation):
        raise SpecError(f"optax.{name} is not an optimizer; use 'sgd' or one such as 'adam'")
    return made


def _fit(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, Any]:
    return train(task, start, client, local)


#: What every local training gives: the model, its mean loss over the last pass, the steps taken.
TRAINED: dict[str, Schema] = {"params": Model(moved=True), "loss": Values("float32"), "steps": Values("int32")}

#: Train from `start`; the main local training of a round.
fit = Work(
    "fit",
    takes={"start": Model(), "local": Settings(LocalSGD)},
    gives=TRAINED,
    stream="batches",
    plan=plan,
    lengths=lengths,
    body=_fit,
)
