"""Checks of sent values, replies and means against the schemas that a work declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from coterie import tree
from coterie.clients import schema as schemas
from coterie.clients.schema import Model, Ragged, Schema, Settings, Values
from coterie.clients.work import Work
from coterie.errors import SpecError, unknown
from coterie.federation.messages import Answer, ReplyBatch, Request
from coterie.federation.protocol import Mean
from coterie.models import Task
from coterie.types import ClientId, Params


def check_sent(request: Request, task: Task, template: Params) -> dict[str, int]:
    """Check that sent values fit what the work takes; returns the sizes of the named dimensions.

    Args:
        request: The request.
        task: The task of the clients.
        template: A model of that task.
    """
    dims: dict[str, int] = {}
    rows = {name: tree.row(bank, 0) for name, (bank, _) in request.per_client.items() if request.clients}
    for name, value in {**request.settings, **request.shared, **rows}.items():
        problem = schemas.problem(request.work.takes[name], value, task, template, dims)
        if problem:
            raise SpecError(f"Work {request.work.name!r}: the sent value {name!r} {problem}")
    return dims


def reply_problem(batch: ReplyBatch, work: Work, task: Task, template: Params, dims: dict[str, int]) -> str | None:
    """The reason why replies do not fit what the work gives, or None.

    Args:
        batch: The replies.
        work: The requested work.
        task: The task of the clients.
        template: A model of that task.
        dims: Sizes of the named dimensions; those that the replies determine are added.
    """
    if set(batch.answers) != set(work.gives):
        return f"gives {sorted(batch.answers)}, not {sorted(work.gives)}"
    samples = np.asarray(batch.samples)
    if samples.shape != (len(batch.clients),) or samples.dtype.kind not in "iu" or (samples < 0).any():
        return "has no valid number of samples"
    for name, schema in work.gives.items():
        problem = _answer_problem(schema, batch.answers[name], len(batch.clients), task, template, dims)
        if problem:
            return f"{name} {problem}"
    return None


def _answer_problem(
    schema: Schema, value: Answer, count: int, task: Task, template: Params, dims: dict[str, int]
) -> str | None:
    """The reason why stacked answers, or a list of ragged ones, do not fit the schema of an answer, or None."""
    if isinstance(schema, Ragged):
        if not isinstance(value, list) or len(value) != count:
            return "is not one list of arrays per client"
        problems = (schemas.problem(schema, arrays, task, template, dict(dims)) for arrays in value)
        return next((problem for problem in problems if problem), None)
    assert not isinstance(schema, Settings), "a work gives no settings"
    if isinstance(schema, Model):
        stacked: Schema = dataclasses.replace(schema, stack=("replies", *schema.stack))
    else:
        stacked = dataclasses.replace(schema, shape=("replies", *schema.shape))
    return schemas.problem(stacked, value, task, template, dims)


def check_mean(mean: Mean, request: Request, template: Params) -> None:
    """Check that the replies to a request can be averaged this way."""
    gives, work = request.work.gives, f"Work {request.work.name!r}"
    schema = gives.get(mean.of)
    if not isinstance(schema, Model) or schema.stack or schema.partial:
        raise SpecError(f"{work} gives no model {mean.of!r} to average")
    for layer in mean.layers or ():
        if layer not in template:
            raise SpecError(unknown("layer", layer, template))
    if isinstance(mean.by, str):
        group = gives.get(mean.by)
        if not isinstance(group, Values) or group.shape or np.dtype(group.dtype).kind not in "iu":
            raise SpecError(f"{work} gives no whole number {mean.by!r} to group by")
    elif mean.by is not None:
        outside = [client for client in request.clients if not 0 <= mean.by.get(client, -1) < mean.groups]
        if outside:
            raise SpecError(
                f"{work}: replies are averaged in groups 0 to {mean.groups - 1}; {first_few(outside)} have no group"
            )


def first_few(names: Sequence[ClientId] | Sequence[str]) -> str:
    """The first few of many names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
