"""Per-FedAvg: one initial model that every client adapts by a few steps of its own training.

Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning: A Meta-Learning Approach", NeurIPS 2020,
arXiv:2002.07948. Minimizes F(w) = (1/N) Σ_k f_k(w - α ∇f_k(w)). Algorithm 1, with mini-batches D, D', D'' of client k:

    w̃ = w - α ∇f(w; D)                                           client: inner step
    g = ∇f(w̃; D')
    w ← w - β g                                                  FO: the derivative of w̃ is approximated by 1
    w ← w - β (g - α h)                                          HF: h approximates the Hessian times g:
    h = (∇f(w + δ g; D'') - ∇f(w - δ g; D'')) / 2δ
    w ← Σ_k a_k w_k                                              server: a_k = 1/|S|, or by samples

α is `local.learning_rate`, β `beta`, δ `delta`; FO is `variant="fo"`, HF `variant="hf"`. An epoch takes its batches
in pairs (FO) or triples (HF); a client with fewer batches reuses them. `local.steps` counts steps of w. f is the full
local objective: the loss plus the terms of the model and of local training (l2, weight decay, proximal term).

To be scored or served, a client first trains w on its training samples with learning rate α: `adapt_epochs`, or
`adapt_steps`, 1 in the paper. The model is not meant to be used without this adaptation.

Departures from the paper. The published comparisons use one optimizer for both steps, so that its momentum carries over
from one to the other. Here the inner step is plain SGD; momentum or another optimizer applies to the steps of w only.
β decays with `local.lr_decay`; α, which is part of F, does not. Stragglers are dropped, as in FedAvg. The published
comparisons use β = 0.001 with α = 0.01, at which w hardly moves in 50 rounds. By default β is α times the number of
batches of a step, 2 or 3, so that w moves in an epoch about as far as in FedAvg with learning rate α.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.clients import TRAINED, Client, LocalSGD, Model, Settings, Steps, Work, fit
from coterie.clients import local_training as training
from coterie.clients.weighting import mean_gradient, mean_loss
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cohort, Federation, Mean
from coterie.methods.fedavg import distances_of, loss_of, move_groups, one_model
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params

if TYPE_CHECKING:
    import jax

    #: A gradient and a model, the summed loss, the number of samples.
    _OnBatch: TypeAlias = tuple[Params, Params, jax.Array, jax.Array]
    #: Model, optimizer state, summed loss, number of samples.
    _Carried: TypeAlias = tuple[Params, object, jax.Array, jax.Array]


@state
@dataclass(frozen=True)
class Meta:
    """Settings of a step of w.

    Attributes:
        batches: Batches per step: 2 (FO) or 3 (HF).
        delta: Step size of the Hessian approximation (δ).
    """

    batches: int
    delta: float


def _passes(n: int, local: LocalSGD, meta: Meta) -> tuple[int, int, int]:
    """Batches per pass over n samples, steps per pass, and number of passes."""
    in_pass = -(-n // min(local.batch_size or n, n))
    steps = max(1, in_pass // meta.batches)
    return in_pass, steps, -(-local.steps // steps) if local.steps else local.epochs


def _plan(n: int, seed: Seed, effort: float, *, local: LocalSGD, meta: Meta, **_: object) -> dict[str, Steps]:
    """The batches of each step one after the other: D, D' and, for HF, D''. Stragglers are never asked."""
    if not n:
        return training.plan(n, seed, effort, local=local)
    in_pass, steps, passes = _passes(n, local, meta)
    whole = training.plan(n, seed, 1.0, local=dataclasses.replace(local, steps=0, epochs=passes))["local"]
    first = np.arange(passes)[:, None] * in_pass  # each pass has its own order
    chosen = (first + np.arange(steps * meta.batches) % in_pass).reshape(-1, meta.batches)
    if local.steps:
        chosen = chosen[: local.steps]
    batches = whole.index.reshape(passes * in_pass, -1, whole.index.shape[1])  # (batches, rows of each, width)
    return {"local": Steps(batches[chosen.reshape(-1)].reshape(-1, whole.index.shape[1]))}


def _lengths(n: int, *, local: LocalSGD, meta: Meta, **_: object) -> dict[str, int]:
    if not n:
        return {"local": 0}
    in_pass, steps, passes = _passes(n, local, meta)
    rows = training.lengths(n, local=dataclasses.replace(local, steps=0, epochs=1))["local"] // in_pass
    return {"local": (local.steps or steps * passes) * meta.batches * rows}


def hessian_times(gradient: Callable[[Params], Params], w: Params, g: Params, delta: jax.Array | float) -> Params:
    """The term h of HF: the Hessian times g by central differences, with an error of order δ²."""
    forward, backward = (gradient(tree.map(lambda a, b, s=sign: a + s * delta * b, w, g)) for sign in (1, -1))
    return tree.map(lambda a, b: (a - b) / (2 * delta), forward, backward)


def _on_batch(task: Task, client: Client, start: Params, local: LocalSGD) -> Callable[[Params, jax.Array], _OnBatch]:
    """(w, batch) → ∇f(w; batch), w with updated running statistics, the summed loss, the number of samples."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    summed = jax.value_and_grad(training.summed_loss(task, client, client.batches["local"]), has_aux=True)
    rows = training.rows_per_batch(client.n, local)

    def add(row: jax.Array, carried: _OnBatch) -> _OnBatch:
        w, grads, loss, weight = carried
        (row_loss, (examples, stats)), grad = summed(w, row)
        return tree.merge(w, stats), tree.map(jnp.add, grads, grad), loss + row_loss, weight + examples

    def on_batch(w: Params, batch: jax.Array) -> _OnBatch:
        zero_sums = (w, tree.map(jnp.zeros_like, w), jnp.float32(0), jnp.float32(0))
        first = batch * rows
        # A batch of one row needs no loop.
        out = add(first, zero_sums) if isinstance(rows, int) else lax.fori_loop(first, first + rows, add, zero_sums)
        seen, total, loss, weight = out
        mean = mean_gradient(client.batches["local"], total, weight)
        return training.penalized(task, local, w, mean, start), seen, loss, weight

    return on_batch


def _meta_fit(
    task: Task, client: Client, *, start: Params, local: LocalSGD, outer: LocalSGD, meta: Meta
) -> dict[str, object]:
    import jax.numpy as jnp
    from jax import lax

    on_batch = _on_batch(task, client, start, local)
    (inner, _), (move, optimizer_state) = training.optimizer(start, local), training.optimizer(start, outer)
    count = client.batches["local"].count // (meta.batches * training.rows_per_batch(client.n, local))

    def step(number: jax.Array, carried: _Carried) -> _Carried:
        w, kept, total, weight = carried
        first = number * meta.batches
        adapted, _ = inner(w, on_batch(w, first)[0], ())
        g, seen, loss, examples = on_batch(adapted, first + 1)
        if meta.batches == 3:
            h = hessian_times(lambda at: on_batch(at, first + 2)[0], w, g, meta.delta)
            g = tree.map(lambda a, b: a - local.learning_rate * b, g, h)
        w, kept = move(w, g, kept)
        w = tree.map_paths(lambda path, old, new: new if "stats" in path.split("/") else old, w, seen)
        counts = number >= count - _steps_in_pass(client.n, local, meta)
        return w, kept, total + jnp.where(counts, loss, 0.0), weight + jnp.where(counts, examples, 0.0)

    w, _, total, weight = lax.fori_loop(0, count, step, (start, optimizer_state, jnp.float32(0), jnp.float32(0)))
    loss = mean_loss(client.batches["local"], total, weight)
    return {"params": w, "loss": loss, "steps": jnp.asarray(count, jnp.int32)}


def _steps_in_pass(n: jax.Array, local: LocalSGD, meta: Meta) -> jax.Array:
    import jax.numpy as jnp

    batch = jnp.maximum(jnp.minimum(local.batch_size, n) if local.batch_size else n, 1)
    return jnp.maximum(-(-n // batch) // meta.batches, 1)


#: Steps of FO or HF from `start`; the loss is that of w̃ on D', the loss in F.
meta_fit = Work(
    "perfedavg.fit",
    takes={"start": Model(), "local": Settings(LocalSGD), "outer": Settings(LocalSGD), "meta": Settings(Meta)},
    gives=TRAINED,
    stream="batches",
    plan=_plan,
    lengths=_lengths,
    body=_meta_fit,
    trains=True,
)


@dataclass(frozen=True)
class PerFedAvg:
    """One initial model that every client adapts.

    Attributes:
        local: Settings of local training; its learning rate is that of the inner step (α).
        variant: First-order (`fo`) or Hessian-free (`hf`).
        beta: Learning rate of the model (β); `auto`: α times the number of batches of a step, 2 for `fo`, 3 for `hf`.
        delta: Step size of the Hessian-free variant (δ).
        adapt_epochs: Epochs of a client's adaptation.
        adapt_steps: Steps of a client's adaptation; 0: use `adapt_epochs`.
        weights: Client weight: uniform, or number of samples.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    variant: Literal["fo", "hf"] = "fo"
    beta: Annotated[float, Bound(at_least=0)] | Literal["auto"] = "auto"
    delta: Annotated[float, Bound(above=0)] = 0.001
    adapt_epochs: Annotated[int, Bound(at_least=1)] = 1
    adapt_steps: Annotated[int, Bound(at_least=0)] = 0
    weights: Literal["uniform", "samples"] = "uniform"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    @property
    def meta(self) -> Meta:
        """Settings of a step of w."""
        return Meta(3, self.delta) if self.variant == "hf" else Meta(2, 0.0)

    @property
    def outer(self) -> LocalSGD:
        """Settings of the optimizer of w, with learning rate β."""
        # An epoch has only a half (FO) or a third (HF) as many steps as in FedAvg.
        beta = self.meta.batches * self.local.learning_rate if self.beta == "auto" else self.beta
        return dataclasses.replace(self.local, learning_rate=beta)

    @property
    def inner(self) -> LocalSGD:
        """Settings of the inner step: plain SGD, the same in all rounds."""
        return dataclasses.replace(self.local, momentum=0.0, optimizer="sgd", lr_decay=1.0)

    @property
    def adaptation(self) -> LocalSGD:
        """Settings of a client's adaptation."""
        return dataclasses.replace(self.inner, epochs=self.adapt_epochs, steps=self.adapt_steps)

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """The mean of the cohort's models. If no client has a sample, the model is kept."""
        outer, mean = self.outer.at(cohort.t), Mean(weights=self.weights, spread=True)
        got = fed.ask(
            cohort.active(), meta_fit, seed, start=w, local=self.inner, outer=outer, meta=self.meta, reduce=mean
        )
        moved = tree.row(move_groups(tree.stack([w]), got), 0)
        return Round(moved, dict.fromkeys(got.clients, 0), loss_of(got), distances_of(got))

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[Params, Placement]:
        """The same model for all clients, including newcomers; each adapts it first."""
        adapt = Adapt(fit, {"start": w, "local": self.adaptation})
        return w, dataclasses.replace(one_model(w, clients), adapt=adapt)
