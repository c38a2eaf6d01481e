"""`recommend`: the answers on data whose answer is known, and that test examples are never used."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import coterie
from coterie import data
from coterie.errors import Diverged, RecordError, SpecError
from coterie.runs.recommending import validation_runs
from coterie.runs.recommending.panel import BUDGETS, VALIDATION_SHARE

#: Few examples and rounds: a run takes a fraction of a second.
BLOBS = {"name": "blobs", "clients": 12, "samples": 30, "clusters": 3}
QUICK = {"run": {"rounds": 6, "clients_per_round": 6}, "local": {"epochs": 3, "learning_rate": 0.1}}


def without_times(found):
    plain = found.to_dict()
    return {**plain, "ranking": [{**each, "seconds": None} for each in plain["ranking"]]}


def test_clusters_are_recommended_for_rotated_images():
    found = coterie.recommend({"data": BLOBS, **QUICK}, methods=["local", "fedgroup"])
    assert (found.method, found.answer) == ("fedgroup", "clusters")
    assert found.chosen.clusters == (3, 3, 3)
    assert found.chosen.better
    assert found.ranking[0].method == "fedgroup"
    assert found.clusters["stability"]["fedgroup"] == 1.0
    assert found.spec.method.name == "fedgroup"
    assert found.spec.run.rounds == 6
    assert "percentage points better" in found.reasons[0]


@pytest.mark.exhaustive
def test_one_model_is_enough_for_iid_clients():
    found = coterie.recommend({"data": {**BLOBS, "clusters": 1}, **QUICK}, methods=["local", "fedgroup"])
    assert (found.method, found.answer) == ("fedavg", "one model")
    assert found.clusters["found"] == {"fedgroup": [1, 1, 1]}
    assert not any(each.better for each in found.ranking)


@pytest.mark.exhaustive
def test_local_training_is_recommended_if_every_client_has_labels_of_its_own():
    # Client i labels the same two groups of points with i and (i + 1) mod 5 or in reverse: only a client's own examples
    # say how, and they are enough.
    draw = np.random.default_rng(0)
    clients = {}
    for i in range(10):
        y = np.arange(40) % 2
        x = draw.normal(size=(40, 2)) * 0.1 + np.where(y[:, None], 1.0, -1.0)
        pair = (i % 5, (i + 1) % 5) if i < 5 else ((i + 1) % 5, i % 5)
        clients[f"client-{i}"] = (x.astype(np.float32), np.array(pair)[y])
    found = coterie.recommend({"run": {"rounds": 10}}, data=data.from_arrays(clients), methods=["local"])
    assert (found.method, found.answer) == ("local", "local")


@pytest.fixture(scope="module")
def blobs():
    return data.load("blobs", clients=12, samples=30, clusters=3)


def test_test_examples_are_never_used(blobs):
    # Other images and labels in all test rows change nothing. The brightest pixel stays: inputs are divided by it.
    rows = blobs.test.order
    x, y = blobs.x.copy(), blobs.y.copy()
    x[rows], y[rows] = blobs.x.max(), 0
    other = dataclasses.replace(blobs, x=x, y=y)
    results = [
        without_times(coterie.recommend(QUICK, data=each, methods=["local", "fedgroup", "pacfl"]))
        for each in (blobs, other)
    ]
    assert results[0] == results[1]


def test_validation_examples_differ_between_seeds_and_are_not_trained_on(blobs, monkeypatch):
    jobs = []
    done = validation_runs.carry_out
    monkeypatch.setattr(validation_runs, "carry_out", lambda job, **given: (jobs.append(job), done(job, **given))[1])
    coterie.recommend(QUICK, data=blobs, methods=["local"])
    own = set(blobs.fit.order.tolist())
    seen = [set(job.objects.data.test.order.tolist()) for job in jobs]
    for job, held in zip(jobs, seen, strict=True):
        trained = set(job.objects.data.fit.order.tolist())
        assert trained | held == own
        assert not trained & held
        assert len(held) == 12 * np.ceil(VALIDATION_SHARE * 24)
    assert [(job.label, job.seed) for job in jobs] == [(name, s) for s in range(3) for name in ("fedavg", "local")]
    assert seen[0] == seen[1] != seen[2]  # both methods of a seed have the same


def test_of_many_clients_some_are_drawn(blobs, monkeypatch):
    small = dataclasses.replace(BUDGETS["small"], clients=5, seeds=1)
    monkeypatch.setitem(BUDGETS, "small", small)
    found = coterie.recommend(QUICK, data=blobs, methods=["local"])
    assert (found.data["clients"], found.data["clients_used"]) == (12, 5)
    assert found.reasons[-1].startswith("There was time for one seed only")


@pytest.mark.exhaustive
def test_methods_that_cannot_run_on_the_data_are_left_out_with_the_reason():
    regression = {"name": "regression", "clients": 8, "clusters": 2, "dimension": 5, "samples": 20}
    found = coterie.recommend({"data": regression, **QUICK}, methods=["local", "pacfl"])
    assert found.left_out == {
        "pacfl": "pacfl compares classes, but model linear-regression predicts numbers; choose another method"
    }
    assert (found.metric, found.higher_is_better) == ("loss", False)
    assert found.data["label_skew"] is None
    assert [each.score for each in found.ranking] == sorted(each.score for each in found.ranking)


def test_the_result_and_the_next_spec_are_written(tmp_path):
    out = tmp_path / "advice"
    found = coterie.recommend({"data": BLOBS, **QUICK}, methods=["local"], out=out)
    written = json.loads((out / "recommendation.json").read_text())
    assert written["method"] == found.method
    assert written["ranking"][0]["score"] == found.ranking[0].score
    assert coterie.Spec.of(out / "next.toml") == found.spec
    with pytest.raises(RecordError, match="has a recommendation already"):
        coterie.recommend({"data": BLOBS, **QUICK}, methods=["local"], out=out)


# ---------------------------------------------------------------------------------------------------------- time limit


def test_methods_without_time_are_left_out(blobs, monkeypatch):
    # Every look at the clock takes a second: one at the beginning; three for a run, and one for each of its 6 rounds.
    # fedavg ends in second 9, local in 18; fedgroup is in its rounds in second 24.
    clock = iter(range(1000))
    monkeypatch.setattr(validation_runs, "_now", lambda: next(clock))
    found = coterie.recommend(QUICK, data=blobs, methods=["local", "fedgroup", "ifca"], budget=23)
    assert found.left_out == {
        "fedgroup": "the time was over before its last round",
        "ifca": "no time was left for it",
    }
    assert found.seeds == (0,)
    assert [each.method for each in found.ranking if each.difference is not None] == ["local"]


def test_a_budget_that_is_too_small_is_an_error(blobs):
    with pytest.raises(SpecError, match="seconds are not enough to compare two methods"):
        coterie.recommend(QUICK, data=blobs, methods=["local"], budget=1e-6)


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("budget", ["large", "-3", 0, float("inf"), True, float("nan")])
def test_a_wrong_budget_is_an_error(budget):
    with pytest.raises(SpecError, match="budget must be small, medium or a number of seconds above 0"):
        coterie.recommend(budget=budget)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([], "at least one method"),
        (["fedavg"], "at least one method"),
        (["ifac"], "Did you mean 'ifca'"),
        (["ifca", "ifca"], "given twice"),
        ("ifca", "must be a list of names"),
        ({"ifca": {"clsuters": 3}}, "No setting 'clsuters'"),
    ],
)
def test_wrong_methods_are_an_error(methods, message):
    with pytest.raises(SpecError, match=message):
        coterie.recommend(methods=methods)


@pytest.fixture
def one_weighted(blobs):
    """Two clients; all examples of the second one have weight 0, so that only the first one has scores."""
    two = blobs.subset(blobs.clients[:2])
    weights = np.ones(len(two.y), np.float32)
    weights[np.concatenate([two.rows(1), two.rows(1, "test")])] = 0
    return dataclasses.replace(two, weights=weights)


def test_with_scores_of_one_client_there_is_no_standard_error(one_weighted):
    found = coterie.recommend(
        QUICK | {"run": {"rounds": 2, "clients_per_round": 2}}, data=one_weighted, methods=["local"]
    )
    assert found.method == "fedavg"
    assert {each.method: each.error for each in found.ranking} == {"fedavg": None, "local": None}
    assert not any("inf" in reason.split() for reason in found.reasons)


def test_an_error_of_the_reference_is_not_hidden(blobs, monkeypatch):
    def failing(job, **given):
        raise Diverged("fedavg: Round 3: the new models are not finite; lower the learning rate.")

    monkeypatch.setattr(validation_runs, "carry_out", failing)
    with pytest.raises(Diverged, match="lower the learning rate"):
        coterie.recommend(QUICK, data=blobs, methods=["local"])


def test_settings_that_no_method_can_run_with_are_an_error(blobs):
    with pytest.raises(SpecError, match=r"run\.clients_per_round"):
        coterie.recommend({"run": {"clients_per_round": 13}}, data=blobs)


# ------------------------------------------------------------------------------------------------------------ real data


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, 1])
def test_a_clustered_method_is_recommended_for_rotated_digits(seed):
    found = coterie.recommend({"data": "digits", "run": {"seed": seed}})
    assert found.answer == "clusters"
    assert found.chosen.difference > 0.1


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, 1])
def test_one_model_is_enough_for_iid_digits(seed):
    found = coterie.recommend({"data": {"name": "digits", "partition": "iid"}, "run": {"seed": seed}})
    assert (found.method, found.answer) == ("fedavg", "one model")
