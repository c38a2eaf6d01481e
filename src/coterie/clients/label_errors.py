"""How far the answers of models are from a client's labels, as numbers: what FedSim's non-IID index is made of."""

from __future__ import annotations

from typing import Any

from coterie.clients.schema import Model, Values
from coterie.clients.work import Work
from coterie.models import Task
from coterie.types import Bank, Params


def _squares(task: Task, x: Any, y: Any, *, models: Bank) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    def of(params: Params) -> Any:
        outputs = task.outputs(params, x)
        answers = outputs if task.classes is None else jnp.argmax(outputs, axis=1)
        return jnp.square(answers.astype(jnp.float32) - jnp.asarray(y).astype(jnp.float32))

    return {"squares": jnp.transpose(jax.vmap(of)(models))}  # (rows, k)


#: The sum of the squared differences between predicted and true class numbers, or just numbers, for each of k models.
label_errors = Work(
    "label_errors",
    takes={"models": Model(("k",))},
    gives={"squares": Values("float32", ("k",))},
    purpose="errors",
    each=_squares,
)
