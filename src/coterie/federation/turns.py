"""Training in turn (`local.in_turn`): clients that get the same model train one after another.

    side by side     w_k = LocalUpdate_k(w)                      every client k that was sent the model w
    in turn          w_k = LocalUpdate_k(w_{k-1}),  w_0 = w      k = 1, 2, … in a random order

Each client replies with w_k, the model after its own turn, so a mean is over the models along one pass. Clients of
different clusters get different models and do not wait for each other. The optimizer starts anew in each turn. The
order follows from the seed of the round and the client ids, so it does not depend on the backend.

SR-FCA's published program trains in this way, because its clients share the arrays of their cluster's model. This is no
federated algorithm: each client gets the model of another client. It exists to reproduce published figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import cast

import numpy as np

from coterie import tree
from coterie.clients.local_training import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation.messages import ReplyBatch, Request
from coterie.types import Array, Bank, Params


def trains_in_turn(request: Request) -> bool:
    """Whether the clients of a request train one after another.

    Raises:
        SpecError: If they should, but the work cannot be split into turns.
    """
    work = request.work
    if not any(isinstance(each, LocalSGD) and each.in_turn for each in request.settings.values()):
        return False
    if work.stream != fit.stream or work.memory is not None:
        return False  # training for a comparison, or of each client's own model
    if work.name != fit.name:
        raise SpecError(
            f"local.in_turn = true needs a method whose clients only train the model that they get, but {work.name!r} "
            "does more; set it to false (for ifca, set method.members: clients then choose in a request of its own)"
        )
    return True


def train_in_turn(request: Request, run: Callable[[Request], Iterable[ReplyBatch]]) -> ReplyBatch:
    """The replies of clients that train one after another.

    Args:
        request: The request; `trains_in_turn` is true for it.
        run: Computes the replies of clients that train side by side.
    """
    bank, rows = _starts(request)
    used, chain = np.unique(rows, return_inverse=True)
    models: Bank = tree.take(bank, used)  # the model at which each chain of clients has arrived
    done: list[ReplyBatch] = []
    for places in _turns(request, chain):
        asked = request.only([request.clients[place] for place in places])
        shared = {name: value for name, value in asked.shared.items() if name != "start"}
        start = {"start": (models, chain[places])}
        for batch in run(dataclasses.replace(asked, shared=shared, per_client={**asked.per_client, **start})):
            own = [request.clients.index(client) for client in batch.clients]
            models = _with_rows(models, chain[own], cast("Bank", batch.answers["params"]))
            done.append(batch)
    return _joined(request, done)


def _starts(request: Request) -> tuple[Bank, Array]:
    """The models that the clients of a request are sent, and the row of each client."""
    if "start" in request.per_client:
        bank, rows = request.per_client["start"]
        return cast("Bank", bank), rows
    return tree.stack([cast("Params", request.shared["start"])]), np.zeros(len(request.clients), np.int64)


def _turns(request: Request, chain: Array) -> list[list[int]]:
    """The clients of each turn, one of every chain that has clients left, as positions in the request."""
    draws = [float(request.seed.fold("turn", client).uniform(1)[0]) for client in request.clients]
    turns: list[list[int]] = []
    taken = [0] * (int(chain.max()) + 1)
    for place in sorted(range(len(draws)), key=draws.__getitem__):
        turn = taken[chain[place]]
        taken[chain[place]] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(place)
    return [sorted(places) for places in turns]


def _with_rows(bank: Bank, rows: Array, new: Bank) -> Bank:
    """The bank with some of its rows replaced."""

    def put(old: Array, values: Array) -> Array:
        copy = np.array(old)
        copy[rows] = values
        return copy

    replaced: Bank = tree.map(put, bank, new)
    return replaced


def _joined(request: Request, batches: list[ReplyBatch]) -> ReplyBatch:
    """The replies of all turns, in the order of client ids."""
    clients = tuple(client for batch in batches for client in batch.clients)
    samples = np.concatenate([batch.samples for batch in batches])
    answers = {name: tree.concatenate([cast("Bank", batch.answers[name]) for batch in batches]) for name in fit.gives}
    order = sorted(range(len(clients)), key=clients.__getitem__)
    return ReplyBatch(request.id, clients, samples, answers).take(order)
