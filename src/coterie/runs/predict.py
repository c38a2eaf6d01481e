"""Predictions with recorded models; the task is rebuilt from the record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from coterie import data as datasets
from coterie import models
from coterie.errors import DataError, RecordError, SpecError
from coterie.models import Normalize, Task
from coterie.types import Array, Params

_ROWS_PER_BATCH = 512


def described(task: Task) -> dict[str, Any]:
    """Return the description of a task's inputs that a record stores."""
    rule = task.normalize
    numbers = (
        {"mean": np.asarray(rule.mean), "deviation": np.asarray(rule.deviation)} if isinstance(rule, Normalize) else {}
    )
    return {"shape": list(task.shape), "classes": task.classes, **numbers}


def rebuilt(served: Mapping[str, Any]) -> Task:
    """Rebuild the task of a record."""
    about, spec = served["input"], served["spec"]["model"]
    options = {key: value for key, value in spec.items() if key not in ("name", "normalize")}
    normalize = Normalize(about["mean"], about["deviation"]) if "mean" in about else None
    try:
        return models.build(spec["name"], tuple(about["shape"]), about["classes"], normalize=normalize, **options)
    except SpecError as fault:
        raise RecordError(
            f"This run used a task object, which cannot be rebuilt; use record.models() with it ({fault})"
        ) from fault


def predict(served: Mapping[str, Any], params: Params, x: Array) -> Array:
    """Predict classes, or numbers for regression.

    Args:
        served: The models of a record (`RunRecord.served`).
        params: The model.
        x: Inputs in the form in which the data set stores them. Word ids are converted to word vectors if the model
            takes vectors.
    """
    task = rebuilt(served)
    table = None
    if tuple(x.shape[1:]) != task.shape:
        if x.dtype.kind not in "iu" or tuple(x.shape[1:]) != task.shape[:-1]:
            raise RecordError(f"The model takes inputs of shape {_shape(task)}, got {x.shape}")
        table = _table(served, task)
        if x.size and not 0 <= int(x.min()) <= int(x.max()) < len(table):
            raise RecordError(
                f"The data have word vectors for ids 0 to {len(table) - 1}, got ids from {x.min()} to {x.max()}"
            )
    chunks = (x[first : first + _ROWS_PER_BATCH] for first in range(0, len(x), _ROWS_PER_BATCH))
    parts = [np.asarray(task.outputs(params, chunk if table is None else table[chunk])) for chunk in chunks]
    raw = np.concatenate(parts) if parts else np.zeros((0, task.classes or 1), np.float32)
    return raw.argmax(axis=1) if task.classes is not None else raw


def _shape(task: Task) -> str:
    return f"(rows, {', '.join(map(str, task.shape))})"


def _table(served: Mapping[str, Any], task: Task) -> Array:
    """Word vectors of the run's data. A record does not store them, so the data are loaded again."""
    about = {**served["spec"]["data"]}
    name = about.pop("name")
    hint = f"the model takes vectors of shape {_shape(task)}; compute them with data.inputs(rows) of the run's data"
    try:
        table, shape, source = _loaded(name, **about)
    except (DataError, SpecError) as fault:
        raise RecordError(f"{name} cannot be loaded again, and {hint} ({fault})") from fault
    if table is None or shape != task.shape:
        raise RecordError(f"{name} has no word vectors, and {hint}")
    if served.get("source", source) != source:
        raise RecordError(f"{name} has changed from {served['source']!r} to {source!r} since the run, and {hint}")
    return table


@lru_cache(maxsize=1)
def _loaded(name: str, **options: Any) -> tuple[Array | None, tuple[int, ...], str]:
    data = datasets.load(name, **options)
    return data.table, data.shape, data.source
