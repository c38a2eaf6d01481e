"""Works that choose the model with the lowest loss among k, and then train it or compute its gradient.

The models may share layers: `base` holds the shared layers, `heads` the layers that differ, stacked for the k models.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from coterie import tree
from coterie.clients.local_training import TRAINED, LocalSGD, lengths, plan, train
from coterie.clients.schema import Model, Schema, Settings, Values
from coterie.clients.scores import full_gradient, mean_losses, whole_pass, whole_pass_lengths
from coterie.clients.work import Client, Work
from coterie.models import Task
from coterie.types import Bank, Params, TracedArray


def _losses(
    task: Task, x: TracedArray, y: TracedArray, *, base: Params, heads: Bank, **_: Any
) -> dict[str, TracedArray]:
    import jax
    import jax.numpy as jnp

    return {"losses": jnp.transpose(jax.vmap(lambda head: task.losses({**base, **head}, x, y))(heads))}


def _chosen(client: Client, base: Params, heads: Bank) -> tuple[TracedArray, TracedArray, Params]:
    """The losses, the index of the model with the lowest loss, and that model."""
    import jax.numpy as jnp

    losses = mean_losses(client)
    choice = jnp.argmin(losses).astype(jnp.int32)  # ties go to the lowest index, so that all federations agree
    return losses, choice, {**base, **tree.row(heads, choice)}


def _fit_closest(task: Task, client: Client, *, base: Params, heads: Bank, local: LocalSGD) -> dict[str, Any]:
    losses, choice, start = _chosen(client, base, heads)
    return {"losses": losses, "choice": choice, **train(task, start, client, local)}


def _gradient_closest(task: Task, client: Client, *, base: Params, heads: Bank) -> dict[str, Any]:
    losses, choice, at = _chosen(client, base, heads)
    gradient, loss = full_gradient(task, client, at)
    return {"losses": losses, "choice": choice, "gradient": gradient, "loss": loss}


def _closest(task: Task, client: Client, *, base: Params, heads: Bank) -> dict[str, TracedArray]:
    losses, choice, _ = _chosen(client, base, heads)
    return {"losses": losses, "choice": choice}


_CENTERS: dict[str, Schema] = {"base": Model(partial=True), "heads": Model(("k",), partial=True)}
_CHOICE: dict[str, Schema] = {
    "losses": Values("float32", ("k",), purpose="control"),
    "choice": Values("int32", below="k"),
}

#: Choose a model and train it: the main local training of a round.
fit_closest = Work(
    "fit_closest",
    takes={**_CENTERS, "local": Settings(LocalSGD)},
    gives={**_CHOICE, **TRAINED},
    stream="batches",
    plan=plan,
    lengths=lengths,
    each=_losses,
    body=_fit_closest,
    trains=True,
    weighted=True,
)

#: Choose a model and compute its full gradient.
gradient_closest = Work(
    "gradient_closest",
    takes=_CENTERS,
    gives={**_CHOICE, "gradient": Model(), "loss": Values("float32")},
    plan=whole_pass,
    lengths=whole_pass_lengths,
    each=_losses,
    body=_gradient_closest,
    trains=False,
    weighted=True,
)

#: Choose a model.
closest = Work("closest", takes=_CENTERS, gives=_CHOICE, each=_losses, body=_closest, trains=False, weighted=True)


def split_layers(bank: Bank, body: Collection[str]) -> tuple[Params, Bank]:
    """`base` and `heads` of models that share the layers in `body`: these once, and the other layers of each model."""
    base = {layer: tree.row(bank[layer], 0) for layer in bank if layer in body}
    return base, {layer: bank[layer] for layer in bank if layer not in body}


def with_body(bank: Bank, model: Params, body: Collection[str]) -> Bank:
    """The bank with one model's layers in `body` in every row."""
    common = tree.stack([model] * tree.rows(bank))
    return {layer: common[layer] if layer in body else bank[layer] for layer in bank}
