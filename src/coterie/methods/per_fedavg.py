"""Per-FedAvg: one model to start from, such that a little training at home makes it every client's own.

Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning: A Meta-Learning Approach", NeurIPS 2020,
arXiv:2002.07948. Minimises F(w) = (1/N) Σ_k f_k(w - α ∇f_k(w)). Algorithm 1, with mini-batches D, D', D'' of client k:

    w̃ = w - α ∇f(w; D)                                           client: what a step at home would give
    g = ∇f(w̃; D')
    w ← w - β g                                                  FO: the derivative of w̃ is taken for 1
    w ← w - β (g - α h)                                          HF: h stands for the Hessian times g:
    h = (∇f(w + δ g; D'') - ∇f(w - δ g; D'')) / 2δ
    w ← Σ_k a_k w_k                                              server: a_k = 1/|S|, or by examples

α is `local.learning_rate`, β `beta`, δ `delta`; FO is `variant="fo"`, HF `variant="hf"`. An epoch takes its batches
in pairs (FO) or triples (HF); a client that has fewer uses them again. `local.steps` counts steps of w. f is all that
the client minimizes: the loss and what model and local training add to it (l2, weight decay, proximal pull).

To be scored, and to be served, a client trains w on its training examples with rate α first: `adapt_epochs`, or
`adapt_steps` of them, 1 in the paper. Without that the model is no good to anybody, and is not meant to be.

Departures. The published comparisons run both steps through one optimizer whose momentum leaks from one into the other:
here the step to w̃ is plain, and momentum or another optimizer belongs to the steps of w alone. β decays with
`local.lr_decay`, α, which is part of F, does not. Stragglers are dropped, as in FedAvg.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.clients import TRAINED, Client, LocalSGD, Model, Settings, Steps, Work, fit
from coterie.clients import local as training
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Adapt, Cohort, Federation, Mean
from coterie.methods.fedavg import distances_of, everyone, loss_of, move_groups
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


@state
@dataclass(frozen=True)
class Meta:
    """What a client needs to know beside its two kinds of steps: how many batches each takes, and δ."""

    batches: int
    delta: float


def _passes(n: int, local: LocalSGD, meta: Meta) -> tuple[int, int, int]:
    """Batches in a pass over n examples, steps that they make, and passes."""
    in_pass = -(-n // min(local.batch_size or n, n))
    steps = max(1, in_pass // meta.batches)
    return in_pass, steps, -(-local.steps // steps) if local.steps else local.epochs


def _plan(n: int, seed: Seed, effort: float, *, local: LocalSGD, meta: Meta, **_: Any) -> dict[str, Steps]:
    """The batches of each step one after the other: D, D' and, for HF, D''; nobody with less effort is asked."""
    if not n:
        return training.plan(n, seed, effort, local=local)
    in_pass, steps, passes = _passes(n, local, meta)
    whole = training.plan(n, seed, 1.0, local=dataclasses.replace(local, steps=0, epochs=passes))["local"]
    first = np.arange(passes)[:, None] * in_pass  # each pass has an order of its own
    chosen = (first + np.arange(steps * meta.batches) % in_pass).reshape(-1, meta.batches)
    if local.steps:
        chosen = chosen[: local.steps]
    batches = whole.index.reshape(passes * in_pass, -1, whole.index.shape[1])  # (batches, rows of each, width)
    return {"local": Steps(batches[chosen.reshape(-1)].reshape(-1, whole.index.shape[1]))}


def _lengths(n: int, *, local: LocalSGD, meta: Meta, **_: Any) -> dict[str, int]:
    if not n:
        return {"local": 0}
    in_pass, steps, passes = _passes(n, local, meta)
    rows = training.lengths(n, local=dataclasses.replace(local, steps=0, epochs=1))["local"] // in_pass
    return {"local": (local.steps or steps * passes) * meta.batches * rows}


def hessian_times(gradient: Callable[[Params], Params], w: Params, g: Params, delta: Any) -> Params:
    """The Hessian times g, h in HF: how the gradient changes along g, by central differences; off by terms of δ²."""
    ahead, behind = (gradient(tree.map(lambda a, b, s=sign: a + s * delta * b, w, g)) for sign in (1, -1))
    return tree.map(lambda a, b: (a - b) / (2 * delta), ahead, behind)


def _on_batch(task: Task, client: Client, start: Params, local: LocalSGD) -> Callable[[Params, Any], Any]:
    """(w, batch) → ∇f(w; batch), w with the statistics seen there, the summed loss, and how many examples."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    summed = jax.value_and_grad(training.summed_loss(task, client, client.batches["local"]), has_aux=True)
    rows = training.rows_per_batch(client.n, local)

    def add(row: Any, carried: Any) -> Any:
        w, grads, loss, weight = carried
        (more, (examples, stats)), grad = summed(w, row)
        return tree.merge(w, stats), tree.map(jnp.add, grads, grad), loss + more, weight + examples

    def on_batch(w: Params, batch: Any) -> Any:
        nothing = (w, tree.map(jnp.zeros_like, w), jnp.float32(0), jnp.float32(0))
        first = batch * rows
        # A batch that is always one row needs no loop of its own.
        out = add(first, nothing) if isinstance(rows, int) else lax.fori_loop(first, first + rows, add, nothing)
        seen, total, loss, weight = out
        mean = tree.map(lambda g: g / weight, total)
        return training.penalized(task, local, w, mean, start), seen, loss, weight

    return on_batch


def _meta_fit(
    task: Task, client: Client, *, start: Params, local: LocalSGD, outer: LocalSGD, meta: Meta
) -> dict[str, Any]:
    import jax.numpy as jnp
    from jax import lax

    on_batch = _on_batch(task, client, start, local)
    (at_home, _), (move, fresh) = training.optimizer(start, local), training.optimizer(start, outer)
    count = client.batches["local"].count // (meta.batches * training.rows_per_batch(client.n, local))

    def step(number: Any, carried: Any) -> Any:
        w, kept, total, weight = carried
        first = number * meta.batches
        ahead, _ = at_home(w, on_batch(w, first)[0], ())
        g, seen, loss, examples = on_batch(ahead, first + 1)
        if meta.batches == 3:
            h = hessian_times(lambda at: on_batch(at, first + 2)[0], w, g, meta.delta)
            g = tree.map(lambda a, b: a - local.learning_rate * b, g, h)
        w, kept = move(w, g, kept)
        w = tree.map_paths(lambda path, mine, new: new if "stats" in path.split("/") else mine, w, seen)
        counts = number >= count - _steps_in_pass(client.n, local, meta)
        return w, kept, total + jnp.where(counts, loss, 0.0), weight + jnp.where(counts, examples, 0.0)

    w, _, total, weight = lax.fori_loop(0, count, step, (start, fresh, jnp.float32(0), jnp.float32(0)))
    return {"params": w, "loss": total / jnp.maximum(weight, 1.0), "steps": jnp.asarray(count, jnp.int32)}


def _steps_in_pass(n: Any, local: LocalSGD, meta: Meta) -> Any:
    import jax.numpy as jnp

    batch = jnp.maximum(jnp.minimum(local.batch_size, n) if local.batch_size else n, 1)
    return jnp.maximum(-(-n // batch) // meta.batches, 1)


#: Steps of FO or HF from `start`; the loss is that of w̃ on D', of which F is made.
meta_fit = Work(
    "perfedavg.fit",
    takes={"start": Model(), "local": Settings(LocalSGD), "outer": Settings(LocalSGD), "meta": Settings(Meta)},
    gives=TRAINED,
    stream="batches",
    plan=_plan,
    lengths=_lengths,
    body=_meta_fit,
)


@dataclass(frozen=True)
class PerFedAvg:
    """One model to start from, which every client adapts.

    Attributes:
        local: How clients train; its rate is α, that of a step at home.
        variant: First order, or Hessian-free.
        beta: β, the rate with which the model itself learns.
        delta: δ of the Hessian-free variant.
        adapt_epochs: Passes over its training examples with which a client adapts the model.
        adapt_steps: Steps instead of passes; 0 for passes.
        weights: A client counts 1, or its examples.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    variant: Literal["fo", "hf"] = "fo"
    beta: float = 0.001
    delta: float = 0.001
    adapt_epochs: int = 1
    adapt_steps: int = 0
    weights: Literal["uniform", "samples"] = "uniform"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        if not 0 <= self.beta < float("inf"):
            raise SpecError(f"method.beta must be a finite number of at least 0, got {self.beta}")
        if not 0 < self.delta < float("inf"):
            raise SpecError(f"method.delta must be a finite number above 0, got {self.delta}")
        for name, least in (("adapt_epochs", 1), ("adapt_steps", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")

    @property
    def at_home(self) -> LocalSGD:
        """A step at home: plain, and alike in all rounds."""
        return dataclasses.replace(self.local, momentum=0.0, optimizer="sgd", lr_decay=1.0)

    @property
    def adaptation(self) -> LocalSGD:
        """How a client makes the model its own."""
        return dataclasses.replace(self.at_home, epochs=self.adapt_epochs, steps=self.adapt_steps)

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """The mean of what the cohort trained; the model is kept where nobody has an example."""
        outer = dataclasses.replace(self.local, learning_rate=self.beta).at(cohort.t)
        meta = Meta(3, self.delta) if self.variant == "hf" else Meta(2, 0.0)
        how = Mean(weights=self.weights, spread=True)
        got = fed.ask(cohort.active(), meta_fit, seed, start=w, local=self.at_home, outer=outer, meta=meta, reduce=how)
        moved = tree.row(move_groups(tree.stack([w]), got), 0)
        return Round(moved, dict.fromkeys(got.clients, 0), loss_of(got), distances_of(got))

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Everyone w, adapted at home; newcomers too."""
        return dataclasses.replace(everyone(w, clients), adapt=Adapt(fit, {"start": w, "local": self.adaptation}))
