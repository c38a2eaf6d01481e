"""The models from which clients started: of each reply, and of each group of a `Mean`.

A reply that is a moved model (`Model.moved`) started from the sent `start`, or from `base` with the row of `heads` that
the client chose. Other replies are updates or gradients: they have no start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from coterie import tree
from coterie.clients.schema import Model
from coterie.errors import SpecError
from coterie.federation.messages import Answer, Request
from coterie.federation.protocol import Mean
from coterie.types import Array, Bank, ClientId, Params


def reply_starts(
    request: Request, name: str, clients: Sequence[ClientId], answers: Mapping[str, Answer]
) -> Bank | None:
    """The model from which the answer `name` of each of these clients started; None if it is no moved model."""
    if not _moved(request, name):
        return None
    asked = {client: place for place, client in enumerate(request.clients)}
    places = np.array([asked[client] for client in clients], np.int64)

    def sent(value: str) -> Bank:
        if value in request.shared:
            return repeated(cast("Params", request.shared[value]), len(clients))
        bank, rows = request.per_client[value]
        return tree.take(cast("Bank", bank), rows[places])

    if "start" in request.work.takes:
        return sent("start")
    choice = np.asarray(answers["choice"], np.int64)
    heads = tree.map(lambda leaf: leaf[np.arange(len(clients)), choice], sent("heads"))
    return {**sent("base"), **heads}


def group_starts(request: Request, mean: Mean) -> Bank | None:
    """The model from which the members of each group started; None if the mean is not of moved models.

    Raises:
        SpecError: If members of a group started from different models, so that their updates cannot be added up.
    """
    if not _moved(request, mean.of):
        return None
    work, shared = request.work, cast("dict[str, Params]", request.shared)
    if "start" in shared:
        return repeated(_selected(shared["start"], mean), mean.groups)
    if "start" in request.per_client:
        sent, rows = request.per_client["start"]
        bank, groups = _selected(cast("Bank", sent), mean), _groups(request, mean)
        if _all_equal(bank):
            return repeated(tree.row(bank, 0), mean.groups)
        if groups is not None and tree.rows(bank) == mean.groups and np.array_equal(rows, groups):
            return bank
    elif "base" in shared and "heads" in shared:
        base, heads = shared["base"], shared["heads"]
        if mean.layers is not None and set(mean.layers) <= set(base):
            return repeated(_selected(base, mean), mean.groups)
        if mean.by == "choice" and tree.rows(heads) == mean.groups:
            return _selected({**repeated(base, mean.groups), **heads}, mean)
    raise SpecError(
        f"Work {work.name!r}: with privacy.noise_multiplier all clients of a group must start from the same model: "
        "send one start, or PerClient(bank, row) with the same rows as Mean.by"
    )


def _selected(model: Params, mean: Mean) -> Params:
    """The layers of a model or a bank that are averaged."""
    return model if mean.layers is None else {layer: model[layer] for layer in mean.layers}


def _all_equal(bank: Bank) -> bool:
    return all(bool((leaf == leaf[:1]).all()) for leaf in tree.leaves(bank))


def _groups(request: Request, mean: Mean) -> Array | None:
    """The group of each asked client; None if clients choose it."""
    if isinstance(mean.by, str):
        return None
    if mean.by is None:
        return np.zeros(len(request.clients), np.int64)
    return np.array([mean.by[client] for client in request.clients], np.int64)


def _moved(request: Request, name: str) -> bool:
    schema = request.work.gives[name]
    return isinstance(schema, Model) and schema.moved


def repeated(model: Params, rows: int) -> Bank:
    """A bank with the same model in every row, without copies."""
    return tree.map(lambda leaf: np.broadcast_to(leaf, (rows, *np.shape(leaf))), model)
