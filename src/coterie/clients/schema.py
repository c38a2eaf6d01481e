"""Schemas: the names, dtypes and shapes of what crosses the seam.

A work declares what it takes and what it gives. A dimension is a number, or a name: `classes` and `inputs` come from
the task, any other name stands for the same number everywhere in one message. The federation checks each reply
against the schema before a method sees it, and the network codec will carry nothing that has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from coterie import tree
from coterie.models import Task
from coterie.types import Params

Dim: TypeAlias = int | str


@dataclass(frozen=True)
class Values:
    """An array of fixed dtype; a scalar where `shape` is empty. `purpose` is whose bytes these are in the ledger."""

    dtype: str
    shape: tuple[Dim, ...] = ()
    purpose: str | None = None


@dataclass(frozen=True)
class Model:
    """Parameters as the task has them, or a bank of such models where `stack` names leading axes.

    `partial` allows some layers of the model without the others. `moved` marks a reply that is a model which the client
    moved from one that it was sent: `start`, or the one of `heads` over `base` that its `choice` names. What has the
    shape of a model and is none, such as a gradient or an update, is not marked.
    """

    stack: tuple[Dim, ...] = ()
    partial: bool = False
    purpose: str | None = None
    moved: bool = False


@dataclass(frozen=True)
class Ragged:
    """A list of arrays of one dtype whose leading dimension differs, at most `most` of them; of one client."""

    dtype: str
    shape: tuple[Dim, ...]
    most: Dim
    purpose: str | None = None


@dataclass(frozen=True)
class Settings:
    """A frozen dataclass of numbers and strings, such as the settings of local training."""

    kind: type
    purpose: str | None = "control"


Schema: TypeAlias = Values | Model | Ragged | Settings


def purpose_of(schema: Schema, otherwise: str) -> str:
    """Whose bytes a value is: its own purpose; `control` for scalars; else that of the work."""
    if schema.purpose is not None:
        return schema.purpose
    return "control" if isinstance(schema, Values) and schema.shape == () else otherwise


def problem(schema: Schema, value: Any, task: Task, template: Params, dims: dict[str, int]) -> str | None:
    """Why a value does not fit its schema, or None; `dims` collects the named dimensions of the message."""
    if isinstance(schema, Settings):
        return None if isinstance(value, schema.kind) else f"is a {type(value).__name__}, not {schema.kind.__name__}"
    if isinstance(schema, Ragged):
        if not isinstance(value, list):
            return f"is a {type(value).__name__}, not a list of arrays"
        most = _size(schema.most, task, template, dims)
        if most is not None and len(value) > most:
            return f"holds {len(value)} arrays, at most {most} are allowed"
        one = Values(schema.dtype, schema.shape)
        found = (problem(one, item, task, template, dict(dims)) for item in value)
        return next((text for text in found if text), None)
    if isinstance(schema, Values):
        return _array_problem(value, schema.dtype, schema.shape, task, template, dims)
    shapes = dict(tree.paths(template))
    leaves = dict(tree.paths(value))
    if shapes.keys() != leaves.keys() and not (schema.partial and leaves.keys() <= shapes.keys()):
        return f"has the arrays {sorted(leaves)}, the model has {sorted(shapes)}"
    for path, leaf in leaves.items():
        text = _array_problem(leaf, str(shapes[path].dtype), (*schema.stack, *shapes[path].shape), task, template, dims)
        if text:
            return f"{path} {text}"
    return None


def _array_problem(
    value: Any, dtype: str, shape: tuple[Dim, ...], task: Task, template: Params, dims: dict[str, int]
) -> str | None:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        value = np.asarray(value)
    if np.dtype(value.dtype) != np.dtype(dtype):
        return f"has dtype {value.dtype}, not {dtype}"
    if len(value.shape) != len(shape):
        return f"has shape {tuple(value.shape)}, not {shape}"
    for have, want in zip(value.shape, shape, strict=True):
        size = _size(want, task, template, dims)
        if size is None:
            dims[str(want)] = have
        elif size != have:
            return f"has shape {tuple(value.shape)}, not {shape}" + (f" with {want} = {size}" if size != want else "")
    return None


def _size(dim: Dim, task: Task, template: Params, dims: dict[str, int]) -> int | None:
    if isinstance(dim, int):
        return dim
    known = {"classes": task.classes, "inputs": math.prod(task.shape), "parameters": tree.size(template)}
    return known[dim] if dim in known else dims.get(dim)
