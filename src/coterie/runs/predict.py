"""Predictions of recorded models: the task is built again from what the record says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie import models, tree
from coterie.errors import RecordError, SpecError
from coterie.models import Normalise, Task
from coterie.types import Array

_ROWS = 512


def described(task: Task) -> dict[str, Any]:
    """What a record keeps of a task's inputs."""
    rule = task.normalise
    numbers = (
        {"mean": np.asarray(rule.mean), "deviation": np.asarray(rule.deviation)} if isinstance(rule, Normalise) else {}
    )
    return {"shape": list(task.shape), "classes": task.classes, **numbers}


def rebuilt(served: Mapping[str, Any]) -> Task:
    """The task of a record."""
    about, spec = served["input"], served["spec"]["model"]
    options = {key: value for key, value in spec.items() if key not in ("name", "normalise")}
    normalise = Normalise(about["mean"], about["deviation"]) if "mean" in about else None
    try:
        return models.build(spec["name"], tuple(about["shape"]), about["classes"], normalise=normalise, **options)
    except SpecError as fault:
        raise RecordError(f"This run had a model of its own; use record.models() with it ({fault})") from fault


def predict(served: Mapping[str, Any], row: int, x: Array) -> Array:
    """Classes, or numbers, for stored inputs."""
    task = rebuilt(served)
    if tuple(x.shape[1:]) != task.shape:
        raise RecordError(f"The model takes inputs of shape (rows, {', '.join(map(str, task.shape))}), got {x.shape}")
    params = tree.row(served["bank"], row)
    parts = [np.asarray(task.outputs(params, x[first : first + _ROWS])) for first in range(0, len(x), _ROWS)]
    raw = np.concatenate(parts) if parts else np.zeros((0, task.classes or 1), np.float32)
    return raw.argmax(axis=1) if task.classes is not None else raw
