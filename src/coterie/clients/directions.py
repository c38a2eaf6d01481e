"""A client's update from a common initial model, and FedGroup's choice of the cluster with the closest direction.

    Δ_i = LocalUpdate(w_0) - w_0                    `update` returns Δ_i
    g_i = argmax_j cos(d_j, Δ_i)                    `choose_group` returns only g_i and the cosines

w_0 is `w0`, d_j is row j of `directions`. Running statistics of a model are not part of its direction.
"""

from __future__ import annotations

from typing import Any

from coterie import tree
from coterie.clients.local_training import LocalSGD, lengths, plan, train
from coterie.clients.schema import Model, Settings, Values
from coterie.clients.work import Client, Work
from coterie.models import Task, trainable
from coterie.types import Bank, Params, TracedArray


def _local_update(task: Task, client: Client, w0: Params, local: LocalSGD) -> Params:
    return tree.map(lambda after, before: after - before, train(task, w0, client, local)["params"], w0)


def _update(task: Task, client: Client, *, w0: Params, local: LocalSGD) -> dict[str, Any]:
    return {"update": _local_update(task, client, w0, local)}


def _choose(task: Task, client: Client, *, w0: Params, directions: Bank, local: LocalSGD) -> dict[str, Any]:
    import jax.numpy as jnp

    delta = trainable(_local_update(task, client, w0, local))

    def inner_product(one: Bank, other: Bank) -> TracedArray:
        """Σ over all parameters. Products and sums, because XLA splits dot products by the number of cores."""
        parts = tree.map(lambda a, b: (a * b).reshape(a.shape[0], -1).sum(axis=1), one, other)
        total: TracedArray = sum(tree.leaves(parts))
        return total

    own = tree.map(lambda leaf: leaf[None], delta)
    norms = jnp.sqrt(inner_product(directions, directions))  # (m,)
    norm_products = norms * jnp.sqrt(inner_product(own, own))
    moved = norm_products > 0
    cosines = jnp.where(moved, inner_product(directions, own) / jnp.where(moved, norm_products, 1.0), 0.0)
    choice = jnp.argmax(jnp.where(norms > 0, cosines, -2.0))  # ties go to the lowest index
    return {"choice": choice.astype(jnp.int32), "cosines": cosines}


def _keep(task: Task, client: Client, *, directions: Bank) -> dict[str, TracedArray]:
    import jax.numpy as jnp

    return {"kept": jnp.ones((), jnp.int32)}


_DIRECTIONS = Model(("m",), partial=True, purpose="directions")

#: Δ_i, the update of a client from w_0.
update = Work(
    "update",
    takes={"w0": Model(), "local": Settings(LocalSGD)},
    gives={"update": Model()},
    purpose="pretrain",
    stream="pretrain",
    plan=plan,
    lengths=lengths,
    body=_update,
    trains=True,
)

#: Train from w_0 and choose the direction closest to the update; a zero direction is never chosen.
choose_group = Work(
    "fedgroup.choose",
    takes={"w0": Model(purpose="base"), "directions": _DIRECTIONS, "local": Settings(LocalSGD)},
    gives={"choice": Values("int32", below="m"), "cosines": Values("float32", ("m",), purpose="control")},
    stream="pretrain",
    plan=plan,
    lengths=lengths,
    body=_choose,
    trains=True,
)

#: Send the directions, which the client stores for later requests.
keep = Work(
    "fedgroup.keep",
    takes={"directions": _DIRECTIONS},
    gives={"kept": Values("int32", below=2)},
    body=_keep,
    trains=False,
)
