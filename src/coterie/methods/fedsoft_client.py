"""The client half of FedSoft: count the samples that fit each center best, and train the client's own model.

    n_ks = #{samples whose smallest loss over the centers is at s}
    w_k ≈ argmin_w f_k(w) + (λ/2) Σ_s u_ks ||w - c_s||²           from its own w_k

The gradients of the S proximal terms add up to λ U (w - m) with U = Σ_s u_ks and m = Σ_s u_ks c_s / U. w_k is kept in
the client's memory and sent to the server after each training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie import tree
from coterie.clients import TRAINED, Client, LocalSGD, Model, Settings, Values, Work, train
from coterie.clients.local_training import lengths, plan
from coterie.clients.scores import losses_per_example
from coterie.methods.local import empty_memory, memory_of, own_model
from coterie.models import Task
from coterie.types import Bank, Params

if TYPE_CHECKING:
    import jax


def _nearest(task: Task, x: jax.Array, y: jax.Array, *, centers: Bank) -> dict[str, object]:
    import jax.numpy as jnp

    losses = losses_per_example(task, x, y, centers=centers)["losses"]  # (rows, S)
    nearest = jnp.argmin(losses, axis=1)  # ties go to the lowest index
    return {"counts": (nearest[:, None] == jnp.arange(losses.shape[1])).astype(jnp.float32)}


def _fit(
    task: Task, client: Client, *, start: Params, centers: Bank, weights: jax.Array, local: LocalSGD
) -> dict[str, object]:
    import jax.numpy as jnp

    total = jnp.sum(weights)  # U
    share = weights / total

    def mean(leaf: jax.Array) -> jax.Array:
        return jnp.sum(share.reshape(-1, *[1] * (leaf.ndim - 1)) * leaf, axis=0)

    trained = train(task, own_model(client, start), client, local, anchor=tree.map(mean, centers), pull=total)
    return {**trained, "memory": memory_of(trained["params"])}


def _recall(task: Task, client: Client, *, otherwise: Params) -> dict[str, object]:
    return {"params": own_model(client, otherwise)}


_CENTERS = Model(("s",))

#: n_ks: the number of samples that fit each center best.
count_nearest = Work(
    "fedsoft.count",
    takes={"centers": _CENTERS},
    gives={"counts": Values("float32", ("s",), purpose="control")},
    purpose="estimate",
    each=_nearest,
    trains=False,
)

#: Train the client's own model, or `start` if it has none, with a proximal term to the weighted mean of the centers.
fit_mixture = Work(
    "fedsoft.fit",
    takes={
        "start": Model(purpose="base"),
        "centers": _CENTERS,
        "weights": Values("float32", ("s",), purpose="control"),
        "local": Settings(LocalSGD),
    },
    gives=TRAINED,
    stream="batches",
    plan=plan,
    lengths=lengths,
    body=_fit,
    memory="fedsoft.own",
    blank=empty_memory,
    trains=True,
)

#: The client's own model; `otherwise` if it has none.
recall = Work(
    "fedsoft.recall",
    takes={"otherwise": Model()},
    gives={"params": Model()},
    body=_recall,
    memory="fedsoft.own",
    recalls=True,
    blank=empty_memory,
    trains=False,
)
