"""Checks of the models that a method serves: they have learned something, and every client has one."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie import codec
from coterie.clients import score
from coterie.clients.schema import Model, Ragged
from coterie.federation import Server
from coterie.methods.protocol import Placement
from coterie.runs.scoring import Scores
from coterie.runs.session import Session
from coterie.seeds import Seed
from coterie.testing.behavior import observed_session, steps_of
from coterie.testing.harness import NEWCOMERS, Harness, tiny_data, tiny_task


def learns(harness: Harness) -> None:
    """After the rounds, the models that clients are served have a lower test loss than an untrained model."""
    session = harness.session()
    for _ in steps_of(harness, session):
        pass
    session.place(session.clients)
    scores = session.evaluate(session.clients)
    reached = float(scores.loss.sum() / scores.total.sum())
    task, data = tiny_task(), tiny_data()
    constant = float(np.log(task.classes or 1))  # all classes equally probable
    first = Server(harness.transport()).scoring()
    initial = _loss_of_initial_model(first)
    assert reached < 0.99 * min(constant, initial), (
        f"after {harness.rounds} rounds the mean test loss is {reached:.3f}; that of an untrained model is "
        f"{initial:.3f}, and that of a constant prediction {constant:.3f}. The method must train, and serve what was "
        f"trained; on {len(data.clients)} clients it may need Harness(rounds=...) or another learning rate"
    )


def _loss_of_initial_model(server: Server) -> float:
    got = server.ask(server.clients, score, Seed(0), part="test", params=server.task.init(Seed(0).fold("init")))
    return float(got["loss"].sum() / got.samples.sum())


def places_every_client(harness: Harness) -> None:
    """Every client, newcomers included, is served a model of the bank, and can be evaluated."""
    session = harness.session()
    model = [leaf.shape for leaf in codec.arrays(harness.transport().task.init(Seed(0)))]
    for when in ("before the first step", "after the last round"):
        placement = session.evaluate(()).placement
        for name, value in (("bank", placement.bank), ("fallback", placement.fallback)):
            shapes = [leaf.shape if name == "fallback" else leaf.shape[1:] for leaf in codec.arrays(value)]
            assert shapes == model, f"{when} Placement.{name} is not a model of the task: {shapes} instead of {model}"
            assert codec.finite(value), f"{when} Placement.{name} is not finite"
        harness.finish(session)
    placement = session.place(session.clients)
    missing = sorted(set(session.clients) - set(placement.row))
    assert not missing, f"`place` has no model for the clients {missing}, although all replied"
    scores = session.evaluate(session.clients)
    _check_halves(session, scores.placement)
    _check_without_replies(session, scores)
    assert scores.clients == tuple(session.clients), "not all clients were evaluated"
    assert (scores.correct <= scores.total).all(), "more correct predictions than test examples"


def _check_halves(session: Session[Any], placement: Placement) -> None:
    """Check that the model of a client does not depend on the clients that are placed with it."""
    for some in (session.clients[::2], session.clients[1::2]):
        row = session.evaluate(some).placement.row
        for client in some:
            assert row.get(client) == placement.row.get(client), (
                f"client {client!r} is served row {placement.row.get(client)} if all clients are placed, and row "
                f"{row.get(client)} if half of them are"
            )


def _check_without_replies(session: Session[Any], scores: Scores) -> None:
    """Check that `place` works if no client replies, as with `run.score_with="assigned"`."""
    try:
        session.evaluate_otherwise(scores)
    except (LookupError, TypeError, ValueError) as fault:
        raise AssertionError(
            f"`place` fails if no client replies, as with run.score_with = 'assigned': {type(fault).__name__}: {fault}"
        ) from fault


def keeps_paid_placements(harness: Harness) -> None:
    """What newcomers computed to be placed is in the state that `place` returns: it is not asked for again."""
    session, observed = observed_session(harness)
    harness.finish(session)
    new = session.clients[-NEWCOMERS:]
    session.place(new)
    session.place(new)
    for ask in observed.calls[-1].asks:
        costly = ask.work.trains or any(isinstance(schema, Model | Ragged) for schema in ask.work.gives.values())
        assert not costly, (
            f"the newcomers {sorted(ask.clients)} were placed, and run {ask.work.name!r} again to be placed; `place` "
            "must return the state with their placement"
        )
    scores = session.evaluate(new)
    assert scores.coverage == 1, (
        f"{scores.coverage:.0%} of the newcomers have a model in the evaluation after they were placed; `place` must "
        "return the state with their placement"
    )
