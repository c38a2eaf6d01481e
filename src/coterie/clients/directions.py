"""In which direction a client moves from a common start, and FedGroup's choice of the group that moves alike.

    Δ_i = LocalUpdate(w_0) - w_0                    `update` gives it away
    g_i = argmax_j cos(d_j, Δ_i)                    `choose_group` gives the number alone

w_0 is `w0`, d_j is row j of `directions`. Running statistics of a model are no direction.
"""

from __future__ import annotations

from typing import Any

from coterie import tree
from coterie.clients.local import LocalSGD, lengths, plan, train
from coterie.clients.schema import Model, Settings, Values
from coterie.clients.work import Client, Work
from coterie.models import Task, trainable
from coterie.types import Bank, Params


def _moved(task: Task, client: Client, w0: Params, local: LocalSGD) -> Params:
    return tree.map(lambda after, before: after - before, train(task, w0, client, local)["params"], w0)


def _update(task: Task, client: Client, *, w0: Params, local: LocalSGD) -> dict[str, Any]:
    return {"update": _moved(task, client, w0, local)}


def _choose(task: Task, client: Client, *, w0: Params, directions: Bank, local: LocalSGD) -> dict[str, Any]:
    import jax.numpy as jnp

    delta = trainable(_moved(task, client, w0, local))

    def over_all(one: Any, other: Any) -> Any:
        """Σ over all parameters; products and sums, since a dot product is split by core."""
        parts = tree.map(lambda a, b: (a * b).reshape(a.shape[0], -1).sum(axis=1), one, other)
        return sum(tree.leaves(parts))

    mine = tree.map(lambda leaf: leaf[None], delta)
    lengths_of = jnp.sqrt(over_all(directions, directions))  # (m,)
    product = lengths_of * jnp.sqrt(over_all(mine, mine))
    cosines = jnp.where(product > 0, over_all(directions, mine) / jnp.where(product > 0, product, 1.0), 0.0)
    choice = jnp.argmax(jnp.where(lengths_of > 0, cosines, -2.0))  # ties go to the lowest index
    return {"choice": choice.astype(jnp.int32), "cosines": cosines}


def _keep(task: Task, client: Client, *, directions: Bank) -> dict[str, Any]:
    import jax.numpy as jnp

    return {"kept": jnp.ones((), jnp.int32)}


_DIRECTIONS = Model(("m",), partial=True, purpose="directions")

#: Where a client moves from w_0.
update = Work(
    "update",
    takes={"w0": Model(), "local": Settings(LocalSGD)},
    gives={"update": Model()},
    purpose="pretrain",
    stream="pretrain",
    plan=plan,
    lengths=lengths,
    body=_update,
)

#: Move from w_0, and say which direction is the closest; one of zero is never chosen.
choose_group = Work(
    "fedgroup.choose",
    takes={"w0": Model(purpose="base"), "directions": _DIRECTIONS, "local": Settings(LocalSGD)},
    gives={"choice": Values("int32"), "cosines": Values("float32", ("m",), purpose="control")},
    stream="pretrain",
    plan=plan,
    lengths=lengths,
    body=_choose,
)

#: Directions to keep, for a client that needs them later.
keep = Work("fedgroup.keep", takes={"directions": _DIRECTIONS}, gives={"kept": Values("int32")}, body=_keep)
