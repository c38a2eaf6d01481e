"""Scores: test results of clients with the models that they are served."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie.clients.metric_scores import client_auroc, predictions
from coterie.clients.work import Work
from coterie.federation import PerClient, Replies, Server
from coterie.methods.protocol import Placement
from coterie.runs.last_received import LastReceived
from coterie.runs.metric_plan import MetricPlan
from coterie.runs.metric_values import MetricValues, Predictions, from_clients, from_predictions, from_sums
from coterie.seeds import Seed
from coterie.types import Array, ClientId, Part

#: Accuracy and loss only.
PLAIN = MetricPlan()

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
        correct: Number of correct predictions per client; with sample weights, the sum of their weights.
        total: Number of test examples per client; with sample weights, the sum of their weights.
        loss: Test loss per client, summed over examples with their weights.
        requested: Clients to evaluate.
        coverage: Fraction of the requested clients to which the method has assigned a model.
        placement: Client → model.
        score_with: How the clients were assigned.
        metrics: Metric → its values over all clients, per cluster and per client; empty if none were asked for.
        asked: Whether the method sent a request to place the clients. Otherwise both rules assign them equally.
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
    metrics: Mapping[str, MetricValues] = field(default_factory=dict)
    asked: bool = True

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
    *,
    plan: MetricPlan = PLAIN,
    metrics: bool = False,
    part: Part = "test",
) -> Scores:
    """Evaluate clients on their test examples; those without a model of their own with the fallback model.

    Args:
        fed: A server that may ask for test examples.
        seed: Seed of the requests.
        requested: Clients to evaluate.
        placement: Client → model.
        received: The models that clients last received, if these are evaluated instead.
        score_with: How the clients were assigned.
        plan: The metrics of the run, and whether examples have weights.
        metrics: Whether the metrics are computed, or only accuracy and loss.
        part: The examples: `test`, or `held` for validation.
    """

    def ask(work: Work, server: Server) -> _Answers:
        """The answers of all clients, each with the model that it is served, in the order of client ids."""

        def with_model(clients: tuple[ClientId, ...], **model: Any) -> Replies:
            return server.ask(clients, work, seed, part=part, **model)

        if received is not None:
            bank, row = received.instead_of(placement, requested)
            return _Answers.of([with_model(requested, params=PerClient(bank, row))])
        if placement.adapt is not None:
            replies = [with_model(placed, after=placement.adapt)]
        else:
            replies = [with_model(placed, params=PerClient(placement.bank, placement.row))]
        if others:
            replies.append(with_model(others, params=placement.fallback))
        return _Answers.of(replies)

    placed = tuple(client for client in requested if client in placement.row)
    others = tuple(client for client in requested if client not in placement.row)
    got = ask(plan.work(metrics=metrics), fed)
    rows = np.array([placement.row.get(client, -1) for client in got.clients], np.int64)
    total = got.values["weight"] if plan.weighted else got.samples
    coverage = len(placed) / len(requested) if requested else 0.0
    values = _metrics(plan, got, rows, ask, fed) if metrics else {}
    correct, loss = got.values["correct"], got.values["loss"]
    return Scores(got.clients, rows, correct, total, loss, requested, coverage, placement, score_with, values)


@dataclass(frozen=True)
class _Answers:
    """The answers of clients to one work, sorted by client id; ragged answers are lists."""

    clients: tuple[ClientId, ...]
    samples: Array
    values: dict[str, Any]

    @classmethod
    def of(cls, replies: list[Replies]) -> _Answers:
        if len(replies) == 1:  # they are in the order of client ids
            (only,) = replies
            return cls(only.clients, only.samples, dict(only.answers))
        clients = [client for got in replies for client in got.clients]
        order = sorted(range(len(clients)), key=clients.__getitem__)
        values: dict[str, Any] = {}
        for name in replies[0].answers:
            each = [got[name] for got in replies]
            if isinstance(each[0], list):
                joined = [entry for answers in each for entry in answers]
                values[name] = [joined[place] for place in order]
            else:
                values[name] = np.concatenate(each)[order]
        samples = np.concatenate([got.samples for got in replies])[order]
        return cls(tuple(clients[place] for place in order), samples, values)


def _metrics(
    plan: MetricPlan, got: _Answers, rows: Array, ask: Callable[[Work, Server], _Answers], fed: Server
) -> dict[str, MetricValues]:
    """The metrics of a run, from the sums in the answers, or by asking for predictions or values of clients."""
    found = from_sums(plan.sums, got.values, rows, plan.greater_is_better) if plan.sums else {}
    place = {client: i for i, client in enumerate(got.clients)}
    if plan.pooled:
        # A server of its own, whose traffic is not counted: only simulated clients can show their predictions.
        answers = ask(predictions, fed.frozen(travels_with_others=False))
        columns = zip(*(answers.values[name] for name in ("outputs", "labels", "weights")), strict=True)
        none = np.zeros((0, plan.classes or 1), np.float32)
        each = [Predictions(none, none[:, 0], none[:, 0] if plan.weighted else None) for _ in got.clients]
        for client, ((outputs,), (labels,), (weights,)) in zip(answers.clients, columns, strict=True):
            if client in place:
                each[place[client]] = Predictions(outputs, labels, weights if plan.weighted else None)
        found |= from_predictions(plan.pooled, each, rows, plan.classes)
    for name in plan.client_means:  # only AUROC so far
        answers = ask(client_auroc, fed)
        values = np.full(len(got.clients), np.nan)
        for client, value, defined in zip(
            answers.clients, answers.values["auroc"], answers.values["defined"], strict=True
        ):
            if client in place and defined:
                values[place[client]] = value
        found[name] = from_clients(values, rows, greater_is_better=plan.greater_is_better[name])
    return found
