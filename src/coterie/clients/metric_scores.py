"""Works for evaluations: scores with sample weights, sums from which metrics follow, AUROC, and single predictions.

The sums and their names are described in `coterie.metrics.sums`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from coterie import tree
from coterie.clients.schema import Model, Ragged, Schema, Values
from coterie.clients.scores import whole_pass, whole_pass_lengths
from coterie.clients.weighting import divided
from coterie.clients.work import CHUNK, Client, Work
from coterie.errors import SpecError
from coterie.metrics import BINS, auroc
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Params, TracedArray

_SCORE: dict[str, Schema] = {name: Values("float32") for name in ("correct", "loss", "weight")}


def _score(task: Task, outputs: TracedArray, y: TracedArray) -> dict[str, TracedArray]:
    import jax.numpy as jnp

    losses = task.losses_of(outputs, y)
    return {"correct": task.hits(outputs, y), "loss": losses, "weight": jnp.ones_like(losses)}


def _weighted_score(task: Task, x: TracedArray, y: TracedArray, *, params: Params) -> dict[str, TracedArray]:
    return _score(task, task.outputs(params, x), y)


#: As `score`, with sample weights: sums of the weights of correct predictions, of weighted losses, and of all weights.
weighted_score = Work(
    "weighted_score",
    takes={"params": Model()},
    gives=_SCORE,
    purpose="evaluate",
    each=_weighted_score,
    trains=False,
    weighted=True,
)


def _classification(task: Task, x: TracedArray, y: TracedArray, *, params: Params) -> dict[str, TracedArray]:
    import jax
    import jax.numpy as jnp

    if task.classes is None:
        raise SpecError(f"Model {task.name} is a regression: these scores need classes")
    outputs = task.outputs(params, x)
    score = _score(task, outputs, y)
    log_p = jax.nn.log_softmax(outputs, axis=1)
    p = jnp.exp(log_p)
    classes = jnp.arange(task.classes, dtype=y.dtype)
    true = (y[:, None] == classes).astype(jnp.float32)  # (rows, classes)
    predicted = (jnp.argmax(outputs, axis=1).astype(y.dtype)[:, None] == classes).astype(jnp.float32)
    confidence = jnp.max(p, axis=1)
    place = jnp.clip(jnp.ceil(confidence * BINS).astype(jnp.int32) - 1, 0, BINS - 1)
    in_bin = (place[:, None] == jnp.arange(BINS)).astype(jnp.float32)  # (rows, bins)
    of_example = jnp.stack([score["weight"], confidence, score["correct"]], axis=-1)
    return {
        **score,
        "hits": true * score["correct"][:, None],
        "true": true,
        "predicted": predicted,
        "log_loss": -jnp.sum(jnp.where(true > 0, log_p, 0.0), axis=1),
        "brier": jnp.sum(jnp.square(p - true), axis=1),
        "bins": in_bin[:, :, None] * of_example[:, None, :],  # (rows, bins, 3)
    }


#: As `weighted_score`, with the sums from which the metrics of classifiers follow.
classification_scores = Work(
    "classification_scores",
    takes={"params": Model()},
    gives={
        **_SCORE,
        **{name: Values("float32", ("classes",)) for name in ("hits", "true", "predicted")},
        **{name: Values("float32") for name in ("log_loss", "brier")},
        "bins": Values("float32", (BINS, 3)),
    },
    purpose="evaluate",
    each=_classification,
    trains=False,
    weighted=True,
)


def _regression(task: Task, client: Client, *, params: Params) -> dict[str, TracedArray]:
    import jax.numpy as jnp

    batches = client.batches["whole"]

    def sums(row: TracedArray, carry: dict[str, TracedArray]) -> dict[str, TracedArray]:
        batch = batches.take(row)
        weight = batch.weight if batch.sample_weight is None else batch.sample_weight
        outputs = task.outputs(params, batch.x)
        error = batch.y - outputs
        values = {
            "loss": task.losses_of(outputs, batch.y),
            "squared": jnp.square(error),
            "absolute": jnp.abs(error),
            "total": batch.y,
            "weight": jnp.ones_like(error),
        }
        return {name: carry[name] + jnp.sum(jnp.where(weight > 0, weight * values[name], 0.0)) for name in carry}

    names = ("loss", "squared", "absolute", "total", "weight")
    found = batches.fold(sums, {name: jnp.float32(0) for name in names})
    mean = divided(found.pop("total"), found["weight"])

    def spread(row: TracedArray, carry: TracedArray) -> TracedArray:
        batch = batches.take(row)
        weight = batch.weight if batch.sample_weight is None else batch.sample_weight
        return carry + jnp.sum(weight * jnp.square(batch.y - mean))

    zero = jnp.float32(0)
    return {**found, "mean": mean, "spread": batches.fold(spread, zero), "correct": zero}


#: As `weighted_score`, with the sums from which the metrics of regressions follow.
regression_scores = Work(
    "regression_scores",
    takes={"params": Model()},
    gives={**_SCORE, **{name: Values("float32") for name in ("squared", "absolute", "mean", "spread")}},
    purpose="evaluate",
    plan=whole_pass,
    lengths=whole_pass_lengths,
    body=_regression,
    trains=False,
)


def _client_auroc(
    task: Task, x: Array, y: Array, seed: Seed, *, params: Params, sample_weight: Array | None
) -> dict[str, Array]:
    value = auroc(y, softmax(_outputs(task, params, x)), sample_weight)
    # A reply with NaN would be rejected.
    return {"auroc": np.asarray(np.nan_to_num(value), np.float32), "defined": np.asarray(np.isfinite(value), np.int32)}


#: The AUROC of a client's own examples; `defined` is 0 if they have fewer than two classes.
client_auroc = Work(
    "client_auroc",
    takes={"params": Model()},
    gives={"auroc": Values("float32"), "defined": Values("int32", below=2)},
    purpose="evaluate",
    plain=_client_auroc,
    trains=False,
    weighted=True,
)


def _predictions(
    task: Task, x: Array, y: Array, seed: Seed, *, params: Params, sample_weight: Array | None
) -> dict[str, list[Array]]:
    outputs = _outputs(task, params, x)
    weight = np.ones(len(y), np.float32) if sample_weight is None else sample_weight
    columns = outputs if outputs.ndim == 2 else outputs[:, None]
    return {"outputs": [columns], "labels": [y.astype(np.float64)], "weights": [weight]}


#: Outputs of a model, labels and weights of each example. Only in simulation: it shows single examples.
predictions = Work(
    "predictions",
    takes={"params": Model()},
    gives={
        "outputs": Ragged("float32", ("rows", "outputs"), 1),
        "labels": Ragged("float64", ("rows",), 1),
        "weights": Ragged("float32", ("rows",), 1),
    },
    purpose="evaluate",
    plain=_predictions,
    trains=False,
    weighted=True,
    simulation_only=True,
)


def softmax(outputs: Array) -> Array:
    """Probabilities of the classes from logits, in double precision."""
    powers = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True, initial=-np.inf))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result


def _outputs(task: Task, params: Params, x: Array) -> Array:
    """The outputs of a model for any number of inputs; few numbers of rows are compiled."""
    run = _compiled_outputs(task)
    parts = []
    for first in range(0, max(len(x), 1), CHUNK):
        chunk = x[first : first + CHUNK]
        rows = 1 << max(len(chunk) - 1, 0).bit_length()
        padded = np.concatenate([chunk, np.zeros((rows - len(chunk), *chunk.shape[1:]), chunk.dtype)])
        parts.append(tree.host(run(params, padded))[: len(chunk)])
    return np.concatenate(parts)


@lru_cache(maxsize=16)
def _compiled_outputs(task: Task) -> Callable[[Params, Array], Any]:
    import jax

    compiled: Callable[[Params, Array], Any] = jax.jit(lambda params, x: task.outputs(params, x))
    return compiled
