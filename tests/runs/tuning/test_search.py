"""`tune`: chosen on validation examples, pruned, continued, tested once."""

from __future__ import annotations

import sys

import pytest

import coterie
from coterie.errors import Diverged, FederationError, RecordError, SpecError
from coterie.runs.jobs import Job, carry_out
from coterie.runs.tuning import search as searching

optuna = pytest.importorskip("optuna", reason="Optuna is an extra: pip install 'coterie[optuna]'")

SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 40},
    "method": {"name": "oracle"},
    "local": {"epochs": 1, "batch_size": 10},
    "run": {"rounds": 4},
}
#: With the lowest rate nothing is learned in four rounds.
OVER = {"local.learning_rate": [1e-6, 0.3]}


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return coterie.tune(SPEC, OVER, trials=6, out=tmp_path_factory.mktemp("search") / "out")


def test_the_best_settings_are_those_with_the_best_validation_score(found):
    scores = {row["number"]: row["score"] for row in found.rows if row["score"] is not None}
    assert found.best_values == {"local.learning_rate": 0.3}
    assert found.best_spec.local.learning_rate == 0.3
    assert found.best_score == max(scores.values())
    assert found.metric == "accuracy"
    assert set(found.trials.columns) == {"state", "score", "rounds", "seconds", "local.learning_rate", "reason"}
    assert repr(found).startswith("Study(6 trials, best accuracy ")


def test_the_score_of_a_trial_is_that_of_a_run_on_validation_examples(found):
    row = next(row for row in found.rows if row["score"] == found.best_score)
    spec = found.best_spec.with_values({"run.seed": 0})
    assert row["score"] == carry_out(Job("", spec, validation=True)).summary["accuracy"]["weighted_last_ten"]


def test_the_test_is_one_run_with_a_seed_from_100_on_and_is_recorded(found):
    assert found.test.summary["seed"] == 100
    assert found.test_score == found.test.summary["accuracy"]["weighted_last_ten"]
    again = coterie.run(found.best_spec.with_values({"run.seed": 100}))
    assert again.summary["accuracy"] == found.test.summary["accuracy"]  # on all training examples


def test_best_toml_is_the_best_spec(found):
    assert coterie.Spec.of(found.path.parent / "best.toml") == found.best_spec


def test_trials_never_see_a_test_example(monkeypatch):
    seen = []
    run = searching.carry_out

    def watched(job, on_round=None):
        seen.append(job)
        return run(job, on_round)

    monkeypatch.setattr("coterie.runs.tuning.trial_loop.carry_out", watched)
    coterie.tune(SPEC, OVER, trials=2, test=False)
    assert [job.validation for job in seen] == [True, True]
    assert {job.seed for job in seen} == {0}


@pytest.mark.parametrize("name", ["study.jsonl", "study.db"])
def test_a_study_is_continued_up_to_the_number_of_trials(name, tmp_path):
    given = {"study": tmp_path / name, "test": False}
    first = coterie.tune(SPEC, OVER, trials=2, **given)
    more = coterie.tune(SPEC, OVER, trials=3, **given)
    assert more.rows[:2] == first.rows
    assert len(more.rows) == 3
    events = []
    again = coterie.tune(SPEC, OVER, trials=3, on_trial=lambda job, what: events.append(what), **given)
    assert again.rows == more.rows
    assert events == []


def test_a_study_of_another_search_is_refused(tmp_path):
    coterie.tune(SPEC, OVER, trials=1, test=False, out=tmp_path)
    with pytest.raises(RecordError, match=r"has the study of another search \(\[run\] differs\)"):
        coterie.tune({**SPEC, "run": {"rounds": 5}}, OVER, trials=1, test=False, out=tmp_path)
    with pytest.raises(RecordError, match=r"another search \(the search space differs\)"):
        coterie.tune(SPEC, {"local.learning_rate": [0.1, 0.3]}, trials=1, test=False, out=tmp_path)


def test_an_interrupted_search_keeps_its_trials(tmp_path):
    def stop(job, what):
        if job.label == "trial 1" and what != "started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.tune(SPEC, OVER, trials=4, out=tmp_path, on_trial=stop)
    found = coterie.tune(SPEC, OVER, trials=3, out=tmp_path, test=False)
    assert [row["state"] for row in found.rows][:2] == ["complete", "failed"]
    assert len(found.rows) == 3


def test_a_trial_below_the_median_is_pruned(monkeypatch):
    # Five trials score 0.5 in every round; the sixth scores less in the first round, and is stopped there.
    rounds = []

    def carried(job, on_round):
        number = int(job.label.split()[1])
        score = 0.5 if number < 5 else 0.25
        for t in range(4):
            rounds.append((number, t))
            on_round({"t": t, "stage": "train", "accuracy": {"weighted": score}})
        return coterie.RunRecord({"accuracy": {"weighted_last_ten": score}}, [])

    monkeypatch.setattr("coterie.runs.tuning.trial_loop.carry_out", carried)
    found = coterie.tune(SPEC, {"local.learning_rate": "0.1..0.3"}, trials=6, test=False)
    assert [row["state"] for row in found.rows] == ["complete"] * 5 + ["pruned"]
    assert [t for number, t in rounds if number == 5] == [0]
    assert found.rows[5]["rounds"] == 1


def test_a_trial_that_diverges_does_not_end_the_search(monkeypatch):
    def carried(job, on_round):
        if job.spec.local.learning_rate < 0.2:
            raise Diverged("Round 0: the new models are not finite")
        return coterie.RunRecord({"accuracy": {"weighted_last_ten": 0.5}}, [])

    monkeypatch.setattr("coterie.runs.tuning.trial_loop.carry_out", carried)
    found = coterie.tune(SPEC, {"local.learning_rate": [0.1, 0.3]}, trials=8, test=False)
    states = {row["local.learning_rate"]: (row["state"], row["reason"]) for row in found.rows}
    assert states == {0.1: ("pruned", "Round 0: the new models are not finite"), 0.3: ("complete", "")}
    with pytest.raises(FederationError, match="None of the 2 trials was completed; the last reason: Round 0"):
        coterie.tune(SPEC, {"local.learning_rate": [0.1, 0.15]}, trials=2, test=False)


def test_regression_minimizes_the_loss():
    spec = {"data": {"name": "regression"}, "local": {"epochs": 1}, "run": {"rounds": 3}}
    found = coterie.tune(spec, {"local.learning_rate": [1e-7, 0.01]}, trials=4, test=False)
    assert (found.metric, found.best_values) == ("loss", {"local.learning_rate": 0.01})


def scored(summary):
    """A stand-in for `carry_out`: a run whose summary is a function of the learning rate."""
    return lambda job, on_round: coterie.RunRecord(summary(job.spec.local.learning_rate), [])


def with_metric(spec, metric):
    return {**spec, "run": {**spec["run"], "primary_metric": metric}}


@pytest.mark.parametrize(
    ("metric", "best", "score"),
    [("auto", 0.3, 0.9), ("accuracy", 0.3, 0.9), ("loss", 0.1, 2.0), ("brier", 0.1, 0.4), ("macro_f1", 0.3, 0.6)],
)
def test_the_primary_metric_and_its_direction_decide_which_settings_are_best(metric, best, score, monkeypatch):
    # The higher rate has the higher accuracy and F1, which are better; and the higher loss and Brier score: worse.
    def summary(rate):
        high = rate == 0.3
        return {
            "accuracy": {"weighted_last_ten": 0.9 if high else 0.8},
            "test_loss": 3.0 if high else 2.0,
            "metrics": {
                "brier": {"last_ten": 0.5 if high else 0.4},
                "macro_f1": {"last_ten": 0.6 if high else 0.5},
            },
        }

    monkeypatch.setattr("coterie.runs.tuning.trial_loop.carry_out", scored(summary))
    found = coterie.tune(with_metric(SPEC, metric), {"local.learning_rate": [0.1, 0.3]}, trials=8, test=False)
    assert {row["local.learning_rate"] for row in found.rows} == {0.1, 0.3}  # both were tried
    assert found.best_values == {"local.learning_rate": best}
    assert found.best_score == score
    assert found.metric == ("accuracy" if metric == "auto" else metric)
    assert found.higher_is_better == (best == 0.3)
    assert found.to_dict()["higher_is_better"] == found.higher_is_better


def test_with_a_metric_that_is_lower_if_better_a_trial_above_the_median_is_pruned(monkeypatch):
    # Five trials have the log loss 0.5 in every round, the sixth 0.75. Its accuracy is higher, and not used.
    def carried(job, on_round):
        value = 0.75 if job.label == "trial 5" else 0.5
        for t in range(4):
            scores = {"accuracy": {"weighted": value}, "metrics": {"log_loss": {"value": value}}}
            on_round({"t": t, "stage": "train", **scores})
        return coterie.RunRecord({"metrics": {"log_loss": {"last_ten": value}}}, [])

    monkeypatch.setattr("coterie.runs.tuning.trial_loop.carry_out", carried)
    found = coterie.tune(with_metric(SPEC, "log_loss"), {"local.learning_rate": "0.1..0.3"}, trials=6, test=False)
    assert [row["state"] for row in found.rows] == ["complete"] * 5 + ["pruned"]
    assert found.rows[5]["rounds"] == 1


def test_a_metric_that_is_computed_only_if_asked_for_scores_trials_and_the_test():
    found = coterie.tune(with_metric(SPEC, "log_loss"), OVER, trials=4)
    assert found.best_values == {"local.learning_rate": 0.3}
    trial = carry_out(Job("", found.best_spec.with_values({"run.seed": 0}), validation=True))
    assert found.best_score == trial.summary["metrics"]["log_loss"]["last_ten"]
    assert found.test_score == found.test.summary["metrics"]["log_loss"]["last_ten"]


@pytest.mark.parametrize("value", [None, float("inf"), float("nan")])
def test_a_trial_without_a_finite_score_is_pruned_with_a_reason(value, monkeypatch):
    def summary(rate):
        return {"metrics": {"auroc": {"last_ten": 0.5 if rate == 0.3 else value}}}

    monkeypatch.setattr("coterie.runs.tuning.trial_loop.carry_out", scored(summary))
    found = coterie.tune(with_metric(SPEC, "auroc"), {"local.learning_rate": [0.1, 0.3]}, trials=8, test=False)
    states = {row["local.learning_rate"]: (row["state"], row["reason"]) for row in found.rows}
    assert states == {
        0.1: ("pruned", "auroc is not defined on the validation examples, or not finite"),
        0.3: ("complete", ""),
    }


def test_a_metric_that_does_not_fit_the_task_is_refused_before_the_first_trial():
    events = []
    with pytest.raises(SpecError, match=r"Metric 'rmse' cannot be used, the task is a classification"):
        coterie.tune(with_metric(SPEC, "rmse"), OVER, trials=1, on_trial=lambda job, what: events.append(what))
    assert events == []


@pytest.mark.slow
def test_several_jobs_run_trials_in_processes(tmp_path):
    found = coterie.tune(SPEC, OVER, trials=4, jobs=2, out=tmp_path)
    assert len(found.rows) == 4
    assert {row["state"] for row in found.rows} <= {"complete", "pruned"}
    assert found.best_values == {"local.learning_rate": 0.3}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trials": 0}, "trials must be a whole number of at least 1, got 0"),
        ({"jobs": True}, "jobs must be a whole number of at least 1, got True"),
        ({"seed": 100}, "seed must be at least 0 and below 100, got 100"),
        ({"over": {"method.clusters": (2, 4)}}, "No setting 'clusters' of method oracle"),
    ],
)
def test_wrong_arguments_are_errors(given, message):
    with pytest.raises(SpecError, match=message):
        coterie.tune(SPEC, **{"over": OVER, "trials": 1, **given})


def test_values_that_no_run_can_have_are_refused_before_the_first_trial():
    events = []
    spec = {**SPEC, "method": "ifca"}
    with pytest.raises(SpecError, match=r"method\.clusters must be at most 8"):
        coterie.tune(spec, {"method.clusters": (2, 9)}, trials=1, on_trial=lambda job, what: events.append(what))
    assert events == []


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SpecError, match=r"needs an extra: pip install 'coterie\[optuna\]'"):
        coterie.tune(SPEC, OVER)


def test_the_best_spec_works_in_any_folder(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    lines = ["client,a,label"] + [f"{client},{i - 20},{int(i > 20)}" for client in "ab" for i in range(40)]
    (here / "mine.csv").write_text("\n".join(lines))
    monkeypatch.chdir(here)
    coterie.tune({"data": "mine.csv", "run": {"rounds": 1}}, OVER, trials=1, out="out", test=False)
    monkeypatch.chdir(there)
    assert coterie.run(here / "out" / "best.toml").summary["clients"] == 2


def test_objects_are_searched_with_and_scored_by_a_metric_of_ones_own(tmp_path):
    data = coterie.data.load("blobs", clients=4, samples=40)
    seen = set()

    def errors(y_true, y_pred):
        seen.add(len(y_true))
        return float((y_true != y_pred).mean())

    given = {"data": data, "metrics": {"errors": coterie.Metric(errors, greater_is_better=False)}}
    spec = {"method": "fedavg", "run": {"rounds": 2, "primary_metric": "errors"}}
    found = coterie.tune(spec, OVER, trials=2, out=tmp_path / "out", **given)
    assert (found.metric, found.higher_is_better) == ("errors", False)
    assert found.best_score == min(row["score"] for row in found.rows if row["score"] is not None)
    assert data.sizes("held").sum() in seen  # the trials
    assert data.sizes("test").sum() in seen  # the test
    assert found.test_score == pytest.approx(found.test.summary["metrics"]["errors"]["last_ten"])
    again = coterie.tune(spec, OVER, trials=2, out=tmp_path / "out", **given)  # reads the study and the test
    assert again.best_score == found.best_score
    with pytest.raises(SpecError, match=r"data= and metrics= cannot be sent to the processes of jobs=2; use jobs=1"):
        coterie.tune(spec, OVER, trials=2, jobs=2, **given)


def test_the_settings_of_a_model_that_an_object_replaces_are_not_searched():
    task = coterie.models.build("mclr", (8, 8), 4)
    with pytest.raises(SpecError, match=r"model.name cannot be searched: an object replaces \[model\]"):
        coterie.tune(SPEC, {"model.name": ["mclr", "mlp"]}, trials=1, task=task)
