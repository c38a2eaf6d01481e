"""Scores: test results of clients with the models that they are served."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from coterie.clients import score
from coterie.federation import PerClient, Replies, Server
from coterie.methods.protocol import Placement
from coterie.runs.last_received import LastReceived
from coterie.seeds import Seed
from coterie.types import Array, ClientId

#: How clients are assigned for an evaluation. `current`: as the method would serve them now, which may need an
#: exchange with the clients; `assigned`: as the method last assigned them, without an exchange.
ScoreWith = Literal["current", "assigned"]


@dataclass(frozen=True)
class Scores:
    """Test results of clients with the models that they are served.

    Attributes:
        clients: Clients that replied, sorted.
        rows: Row of the placement's bank for each of these clients; -1: the client has no model of its own and is
            served the fallback model.
        correct: Number of correct predictions per client.
        total: Number of test examples per client.
        loss: Test loss per client, summed over examples.
        requested: Clients to evaluate.
        coverage: Fraction of the requested clients that have a model of their own.
        placement: Client → model.
        score_with: How the clients were assigned.
    """

    clients: tuple[ClientId, ...]
    rows: Array
    correct: Array
    total: Array
    loss: Array
    requested: tuple[ClientId, ...]
    coverage: float
    placement: Placement
    score_with: ScoreWith = "current"

    def changed_by(self, placement: Placement) -> tuple[ClientId, ...]:
        """Clients that another placement serves another model."""
        row = self.placement.row
        return tuple(client for client in self.requested if placement.row.get(client) != row.get(client))

    def updated(self, changed: tuple[ClientId, ...], new: Scores) -> Scores:
        """Return these scores with new results for the changed clients; those without a reply are left out."""
        kept = np.array([client not in set(changed) for client in self.clients], bool)
        clients = [*itertools.compress(self.clients, kept), *new.clients]
        order = sorted(range(len(clients)), key=clients.__getitem__)
        correct, total, loss = (
            np.concatenate([one[kept], other])[order]
            for one, other in ((self.correct, new.correct), (self.total, new.total), (self.loss, new.loss))
        )
        known, row = tuple(clients[place] for place in order), new.placement.row
        return dataclasses.replace(
            new,
            clients=known,
            rows=np.array([row.get(client, -1) for client in known], np.int64),
            correct=correct,
            total=total,
            loss=loss,
            requested=self.requested,
            coverage=sum(client in row for client in self.requested) / len(self.requested),
        )


def evaluated(
    fed: Server,
    seed: Seed,
    requested: tuple[ClientId, ...],
    placement: Placement,
    received: LastReceived | None = None,
    score_with: ScoreWith = "current",
) -> Scores:
    """Evaluate clients on their test examples; those without a model of their own with the fallback model.

    Args:
        fed: A server that may ask for test examples.
        seed: Seed of the requests.
        requested: Clients to evaluate.
        placement: Client → model.
        received: The models that clients last received, if these are evaluated instead.
        score_with: How the clients were assigned.
    """

    def ask(clients: tuple[ClientId, ...], **model: Any) -> Replies:
        return fed.ask(clients, score, seed, part="test", **model)

    placed = tuple(client for client in requested if client in placement.row)
    others = tuple(client for client in requested if client not in placement.row)
    if received is not None:
        bank, row = received.instead_of(placement, requested)
        replies = [ask(requested, params=PerClient(bank, row))]
    elif placement.adapt is not None:
        replies = [ask(placed, after=placement.adapt)]
    else:
        replies = [ask(placed, params=PerClient(placement.bank, placement.row))]
    if others and received is None:
        replies.append(ask(others, params=placement.fallback))
    clients = [client for got in replies for client in got.clients]
    order = sorted(range(len(clients)), key=clients.__getitem__)
    correct, total, loss = (
        np.concatenate(values)[order]
        for values in zip(*((got["correct"], got.samples, got["loss"]) for got in replies), strict=True)
    )
    known = tuple(clients[place] for place in order)
    rows = np.array([placement.row.get(client, -1) for client in known], np.int64)
    coverage = len(placed) / len(requested) if requested else 0.0
    return Scores(known, rows, correct, total, loss, requested, coverage, placement, score_with)
