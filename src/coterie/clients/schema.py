"""Schemas: dtypes and shapes of the values that a work takes and returns.

A dimension is a number or a name. The names `classes`, `inputs` and `parameters` are given by the task; any other name
has the same value everywhere in one message. The federation checks each reply against its schema before a method sees
it.
"""

from __future__ import annotations

import dataclasses
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
    """An array of fixed dtype.

    Attributes:
        dtype: The dtype.
        shape: Dimensions; empty: a scalar.
        purpose: Purpose under which the bytes are counted; None: see `purpose_of`.
        below: For integers: all values are less than this; None: no bound but that of the dtype. Integers are never
            negative.
    """

    dtype: str
    shape: tuple[Dim, ...] = ()
    purpose: str | None = None
    below: Dim | None = None


@dataclass(frozen=True)
class Model:
    """A model of the task, or a bank of models.

    Attributes:
        stack: Leading dimensions of a bank; empty: a single model.
        partial: Whether some layers may be missing.
        purpose: Purpose under which the bytes are counted; None: that of the work.
        moved: Whether this is a model that the client trained, starting from one that it was sent: from `start`, or
            from `base` and the row of `heads` given by its `choice`. False for values that only have the structure of a
            model, such as a gradient or an update.
    """

    stack: tuple[Dim, ...] = ()
    partial: bool = False
    purpose: str | None = None
    moved: bool = False


@dataclass(frozen=True)
class Ragged:
    """A list of arrays whose leading dimensions differ.

    Attributes:
        dtype: The dtype of all arrays.
        shape: Dimensions of each array.
        max_items: Maximum number of arrays.
        purpose: Purpose under which the bytes are counted; None: that of the work.
    """

    dtype: str
    shape: tuple[Dim, ...]
    max_items: Dim
    purpose: str | None = None


@dataclass(frozen=True)
class Settings:
    """A frozen dataclass of numbers and strings, such as `LocalSGD`.

    Attributes:
        kind: The class.
        purpose: Purpose under which the bytes are counted.
    """

    kind: type
    purpose: str | None = "control"


def settings_dict(settings: object) -> dict[str, Any]:
    """Settings as they are sent. Fields whose metadata have `omit_default` are left out at their default."""
    assert dataclasses.is_dataclass(settings)
    return {
        each.name: getattr(settings, each.name)
        for each in dataclasses.fields(settings)
        if not (each.metadata.get("omit_default") and getattr(settings, each.name) == each.default)
    }


Schema: TypeAlias = Values | Model | Ragged | Settings


def purpose_of(schema: Schema, otherwise: str) -> str:
    """The purpose under which a value's bytes are counted.

    It is the purpose of the schema if it has one, `control` for scalars, and `otherwise` (that of the work) for others.
    """
    if schema.purpose is not None:
        return schema.purpose
    return "control" if isinstance(schema, Values) and schema.shape == () else otherwise


def problem(schema: Schema, value: Any, task: Task, template: Params, dims: dict[str, int]) -> str | None:
    """Why a value does not match its schema, or None if it does.

    Args:
        schema: The schema.
        value: The value to check.
        task: Defines `classes` and `inputs`.
        template: A model of the task.
        dims: Named dimensions of the message found so far; new ones are added.
    """
    if isinstance(schema, Settings):
        return None if isinstance(value, schema.kind) else f"is a {type(value).__name__}, not {schema.kind.__name__}"
    if isinstance(schema, Ragged):
        if not isinstance(value, list):
            return f"is a {type(value).__name__}, not a list of arrays"
        max_items = _size(schema.max_items, task, template, dims)
        if max_items is not None and len(value) > max_items:
            return f"holds {len(value)} arrays, at most {max_items} are allowed"
        one = Values(schema.dtype, schema.shape)
        found = (problem(one, item, task, template, dict(dims)) for item in value)
        return next((text for text in found if text), None)
    if isinstance(schema, Values):
        text = _array_problem(value, schema.dtype, schema.shape, task, template, dims)
        return text or _integer_problem(value, schema, task, template, dims)
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
    for actual, dim in zip(value.shape, shape, strict=True):
        size = _size(dim, task, template, dims)
        if size is None:
            dims[str(dim)] = actual
        elif size != actual:
            return f"has shape {tuple(value.shape)}, not {shape}" + (f" with {dim} = {size}" if size != dim else "")
    return None


def _integer_problem(value: Any, schema: Values, task: Task, template: Params, dims: dict[str, int]) -> str | None:
    """Why integers are out of bounds: methods use them as positions, so that they must be checked."""
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iu" or not numbers.size:
        return None
    below = None if schema.below is None else _size(schema.below, task, template, dims)
    if numbers.min() < 0 or (below is not None and numbers.max() >= below):
        allowed = "at least 0" if below is None else f"0 to {below - 1}"
        return f"has integers from {numbers.min()} to {numbers.max()}, allowed: {allowed}"
    return None


def _size(dim: Dim, task: Task, template: Params, dims: dict[str, int]) -> int | None:
    if isinstance(dim, int):
        return dim
    known = {"classes": task.classes, "inputs": math.prod(task.shape), "parameters": tree.size(template)}
    return known[dim] if dim in known else dims.get(dim)
