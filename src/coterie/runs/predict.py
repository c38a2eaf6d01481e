"""Recorded models that predict: the task is rebuilt from the record, or given by the user."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie import data as datasets
from coterie.errors import DataError, RecordError, SpecError, unknown
from coterie.models import Normalize, Task
from coterie.runs.model_files import facts_of_served
from coterie.runs.served_model import ServedModel, shape_text, task_of_facts
from coterie.types import Array

if TYPE_CHECKING:
    from coterie.runs.record import RunRecord

#: How to get the model of a run that used a task object.
_ADVICE = "record.predict(x, client=…, task=task) or record.model(client, task=task)"


def described(task: Task) -> dict[str, Any]:
    """Return the description of a task's inputs that a record stores."""
    rule = task.normalize
    numbers = (
        {"mean": np.asarray(rule.mean), "deviation": np.asarray(rule.deviation)} if isinstance(rule, Normalize) else {}
    )
    return {"shape": list(task.shape), "classes": task.classes, **numbers}


def served_model(
    record: RunRecord, client: str | None = None, cluster: int | None = None, task: Task | None = None
) -> ServedModel:
    """The model of a client or cluster; see `RunRecord.model`."""
    record.models()  # raises if the run is not finished
    if record.served.get("adapted"):
        raise RecordError(
            "The clients of this run adapt the model to their own data, and the adapted models are not recorded; "
            "record.models() holds the model before adaptation"
        )
    who = chosen(record, client, cluster)
    served, task = record.served, rebuilt(record.served, task)
    spec = served["spec"]
    about = {
        **facts_of_served(served),
        "method": spec.get("method", {}).get("name"),
        "data": spec["data"]["name"],
        "cluster": None if who in served.get("unassigned", ()) else record.model_of(who),
        **({"client": who} if isinstance(who, str) else {}),
    }
    return ServedModel(task, record.params_of(who), about, vectors=lambda ids: _vectors(served, task, ids))


def chosen(record: RunRecord, client: str | None, cluster: int | None) -> str | int:
    """The id of the client or the number of the cluster whose model is meant.

    Raises:
        SpecError: If both or neither are given, while the run has several models.
        RecordError: If there is no such client.
    """
    if client is not None and cluster is not None:
        raise SpecError("client and cluster exclude each other; give one of them")
    if client is not None:
        if not isinstance(client, str):
            raise SpecError(
                f"client must be the id of a client, a text, got {client!r}; for a cluster: cluster={client!r}"
            )
        known = [*record.served["row"], *record.served.get("unassigned", ())]
        if client not in known:
            raise RecordError(unknown("client", client, known[:1000]))
        return client
    if cluster is not None:
        return cluster
    if len(record.clusters()) == 1:
        return record.clusters()[0]
    raise SpecError(f"This run has {len(record.clusters())} models; choose one with client=… or cluster=…")


def rebuilt(served: Mapping[str, Any], task: Task | None = None) -> Task:
    """The task of a record, rebuilt by name.

    Args:
        served: The models of a record (`RunRecord.served`).
        task: The task, if the run used a task object.

    Raises:
        RecordError: If the run used a task object and none is given.
    """
    return task_of_facts(facts_of_served(served), task, _ADVICE)


def _vectors(served: Mapping[str, Any], task: Task, ids: Array) -> Array:
    """The vectors of word ids."""
    table = _table(served, task)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(table):
        raise RecordError(
            f"The data have word vectors for ids 0 to {len(table) - 1}, got ids from {ids.min()} to {ids.max()}"
        )
    return table[ids]


def _table(served: Mapping[str, Any], task: Task) -> Array:
    """Word vectors of the run's data. A record does not store them, so the data are loaded again."""
    about = {**served["spec"]["data"]}
    name = about.pop("name")
    hint = f"the model takes vectors of shape {shape_text(task)}; compute them with data.inputs(rows) of the run's data"
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
