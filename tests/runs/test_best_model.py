"""`run.final_model`: the models of the round that is best on validation examples are recorded and served."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import tree
from coterie.errors import SpecError
from coterie.runs.best_model import BestModel

#: With this rate the loss goes up and down, so that the best round is not the last one.
SPEC = {
    "data": {"name": "digits", "clients": 8},
    "method": {"name": "ifca", "clusters": 2},
    "local": {"epochs": 2, "learning_rate": 3.0},
    "run": {"rounds": 8, "primary_metric": "loss", "clients_per_round": 3, "checkpoint_every": 1},
}


def spec_of(**run):
    return {**SPEC, "run": {**SPEC["run"], **run}}


def line(value, stage="train"):
    return {"stage": stage, "validation": None if value is None else {"accuracy": {"weighted": value}}}


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    record = coterie.run(spec_of(final_model="best"), out=tmp_path_factory.mktemp("best") / "run")
    assert record.summary["best_round"]["t"] < 7  # otherwise these tests show nothing
    return record


@pytest.fixture(scope="module")
def short(best, tmp_path_factory):
    """A run that ends with the best round."""
    spec = spec_of(rounds=best.summary["best_round"]["t"] + 1, validate=True)
    return coterie.run(spec, out=tmp_path_factory.mktemp("short") / "run")


def test_the_first_of_the_best_evaluations_since_the_first_round_counts():
    found = BestModel("accuracy", higher=True)
    values = [line(0.9, "prepare"), line(0.4), line(None), line(0.6, "prepare"), line(0.6), line(0.7)]
    assert [found.improves(each) for each in values] == [False, True, False, True, False, True]
    found = BestModel("accuracy", higher=False, rows=values[:3])
    assert [found.improves(line(value)) for value in (0.4, 0.3)] == [False, True]


def test_models_and_scores_are_those_of_a_run_that_ends_with_the_best_round(best, short):
    assert best.summary["rounds"] == 8
    assert best.summary["best_round"]["served"]
    assert _equal(best, short)
    assert best.served["row"] == short.served["row"]
    for key in ("test_loss", "coverage", "clusters", "truth", "validation"):
        assert best.summary[key] == short.summary[key]
    for key in ("weighted", "mean", "worst_tenth", "per_cluster"):
        assert best.summary["accuracy"][key] == short.summary["accuracy"][key]
    assert best.client_results().loss.tolist() == short.client_results().loss.tolist()
    assert best.client_results().step == best.summary["best_round"]["step"]


def _equal(one, other):
    pairs = zip(tree.leaves(one.models()), tree.leaves(other.models()), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_clients_are_explained_and_newcomers_placed_as_in_the_best_round(best, short):
    assert [each.to_dict() for each in best.inspect()] == [each.to_dict() for each in short.inspect()]
    x, y = coterie.data.load("digits", clients=8).examples("3")
    assert best.place(x, y).to_dict() == short.place(x, y).to_dict()


def test_without_a_folder_the_record_is_the_same(best):
    record = coterie.run(spec_of(final_model="best"))
    assert _equal(record, best)
    assert record.client_results().loss.tolist() == best.client_results().loss.tolist()


@pytest.mark.parametrize("last", [0, 4, 7])
def test_a_resumed_run_serves_the_same_models(last, best, tmp_path):
    def interrupt(row):
        if row["t"] == last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(spec_of(final_model="best"), out=tmp_path / "run", on_round=interrupt)
    again = coterie.resume(tmp_path / "run")
    assert _equal(again, best)
    assert again.summary["best_round"] == best.summary["best_round"]
    assert again.summary["accuracy"] == best.summary["accuracy"]


def test_patience_serves_the_best_round_unless_the_last_one_is_asked_for(best):
    stopped = coterie.run(spec_of(patience=2))
    assert stopped.summary["stopped_early"]
    assert stopped.summary["best_round"]["served"]
    assert stopped.summary["best_round"]["t"] == stopped.summary["rounds"] - 3
    last = coterie.run(spec_of(patience=2, final_model="last"))
    assert not last.summary["best_round"]["served"]
    assert last.summary["test_loss"] == last.rounds[-1]["test_loss"]


def test_clients_that_adapt_the_model_are_scored_with_what_they_have_at_the_end():
    spec = {**spec_of(final_model="best"), "method": "local"}
    record = coterie.run(spec)
    assert record.summary["test_loss"] == record.rounds[-1]["test_loss"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"shift": {"name": "swap_all"}}, "the data drift"), ({"run": {"newcomers": 0.3}}, "clients join later")],
)
def test_an_earlier_round_is_not_served_if_clients_change_afterwards(more, reason):
    run = {**more.get("run", {}), "rounds": 2}
    with pytest.raises(SpecError, match=reason):
        coterie.run({**SPEC, **more, "run": {**run, "final_model": "best"}})
    record = coterie.run({**SPEC, **more, "run": {**run, "patience": 9}})
    assert record.served["spec"]["run"]["final_model"] == "last"
