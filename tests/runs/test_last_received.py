"""Evaluation with the model that a client last received, as in FlexCFL's published code."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import codec, tree
from coterie.clients import score
from coterie.errors import SpecError
from coterie.federation import PerClient
from coterie.methods.protocol import Placement
from coterie.runs.build import build
from coterie.runs.last_received import LastReceived
from coterie.runs.spec import Spec
from coterie.seeds import Seed

TINY = {
    "data": {"name": "blobs", "clients": 10, "clusters": 2, "samples": 40, "side": 4, "classes": 3},
    "local": {"batch_size": 8, "learning_rate": 0.1},
    "run": {"rounds": 4, "clients_per_round": 4, "eval_model": "last_received"},
}


def session_of(**sections):
    return build(Spec.of({**TINY, **sections})).session


def numbers(received, placement):
    bank, rows = received.instead_of(placement, "abc")
    return {client: float(bank["w"][row]) for client, row in rows.items()}


def test_each_client_has_the_model_it_last_received_or_the_initial_one():
    received = LastReceived({"w": np.float32(5)})
    # c has no model of its own; it is evaluated with the one that it last received all the same.
    placement = Placement({"w": np.array([7, 8], np.float32)}, {"a": 0, "b": 1}, fallback={"w": np.float32(0)})
    assert numbers(received, placement) == {"a": 5, "b": 5, "c": 5}
    received.update({"w": np.array([1, 2], np.float32)}, {"a": 1, "b": 0})
    received.update({"w": np.array([3, 4], np.float32)}, {"b": 1})
    assert numbers(received, placement) == {"a": 2, "b": 4, "c": 5}
    # The second bank is dropped once a and b have received other models.
    received.update({"w": np.array([6, 6], np.float32)}, {"a": 0, "b": 1})
    assert set(received.save()["banks"]) == {"0", "3"}
    again = LastReceived({"w": np.float32(0)})
    again.load(codec.decode(codec.encode(received.save())))
    assert numbers(again, placement) == {"a": 6, "b": 6, "c": 5}


def test_clients_are_evaluated_with_the_models_before_the_round():
    session = session_of(method={"name": "fedgroup", "clusters": 2, "alpha": 2, "pretrain_steps": 5})
    session.step()
    session.step()  # all clients have a cluster
    trained: dict[str, tuple] = {}
    for _ in range(3):
        before = session.state.bank
        step = session.step()
        trained |= {client: (before, group) for client, group in step.round.assignment.items()}
    scores = session.evaluate()
    fed, first = session._fed.scoring(), session.state.w0
    bank = tree.stack([tree.row(*trained[c]) if c in trained else first for c in scores.clients])
    assert 4 < len(trained) < 10
    row = {client: place for place, client in enumerate(scores.clients)}
    got = fed.ask(scores.clients, score, Seed(0), part="test", params=PerClient(bank, row))
    np.testing.assert_allclose(scores.loss, got["loss"], rtol=1e-6)
    assert scores.rows.tolist() == [session.state.assignment[client] for client in scores.clients]


def test_with_one_model_and_all_clients_the_evaluation_lags_by_one_round():
    # With all clients in every cohort, round t is evaluated with the model after round t - 1.
    now, late = (
        coterie.run({**TINY, "run": {"rounds": 4, "clients_per_round": 10, "eval_model": which}}).rounds
        for which in ("group", "last_received")
    )
    assert [row["test_loss"] for row in late[1:]] == pytest.approx([row["test_loss"] for row in now[:-1]])


def test_the_current_models_are_scored_too_and_equal_those_of_a_run_that_scores_only_them():
    # Training does not depend on what is scored, so that one run shows both.
    method = {"name": "ifca", "clusters": 2}
    late = coterie.run({**TINY, "method": method})
    now = coterie.run({**TINY, "method": method, "run": {**TINY["run"], "eval_model": "group"}})
    for one, other in zip(late.rounds, now.rounds, strict=True):
        current = one["current_models"]
        assert [current[key] for key in ("accuracy", "test_loss", "coverage")] == [
            other[key] for key in ("accuracy", "test_loss", "coverage")
        ]
        # The agreement of the cohort's clusters does not depend on the models that are scored.
        assert current["truth"].items() <= other["truth"].items()
        assert one["truth"]["cohort_adjusted_rand"] == other["truth"]["cohort_adjusted_rand"]
        assert "current_models" not in other
    assert any(row["current_models"]["test_loss"] != row["test_loss"] for row in late.rounds)


def test_a_resumed_run_has_the_same_scores():
    method = {"name": "ifca", "clusters": 2}
    whole, stopped, resumed = (session_of(method=method) for _ in range(3))
    for _ in range(4):
        whole.step()
    for _ in range(2):
        stopped.step()
    resumed.load(codec.decode(stopped.save()))
    for _ in range(2):
        resumed.step()
    assert resumed.save() == whole.save()
    assert resumed.evaluate().loss.tolist() == whole.evaluate().loss.tolist()


def test_methods_that_adapt_models_on_the_client_are_rejected():
    with pytest.raises(SpecError, match=r"run\.eval_model='last_received' needs a method that serves cluster models"):
        coterie.run({**TINY, "method": {"name": "local"}})
    with pytest.raises(SpecError, match=r"run\.eval_model"):
        Spec.of({"run": {"eval_model": "mine"}})
