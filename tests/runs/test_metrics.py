"""Metrics, validation, early stopping and sample weights in runs."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import coterie
from coterie import data as datasets
from coterie import metrics
from coterie.data import from_arrays
from coterie.errors import SpecError
from coterie.runs.build import build
from coterie.runs.spec import Spec
from coterie.seeds import Seed

DATA = {"name": "blobs", "clients": 8, "samples": 20}
SPEC = {"data": DATA, "method": "oracle", "local": {"epochs": 1}}
NAMES = ["balanced_accuracy", "macro_f1", "auroc", "log_loss", "brier", "ece"]


def spec_of(**run):
    return {**SPEC, "run": {"rounds": 3, **run}}


def predictions(record, client):
    """Labels and predicted labels of a client's test examples."""
    x, y = datasets.load(**DATA).examples(client, "test")
    return y, record.predict(x, client=client)


def test_a_run_records_its_metrics_over_all_clients_per_cluster_and_per_client(tmp_path):
    record = coterie.run(spec_of(metrics=NAMES), out=tmp_path / "run")
    results = record.client_results()
    pairs = {client: predictions(record, client) for client in results.clients}
    y, predicted = (np.concatenate([pair[i] for pair in pairs.values()]) for i in (0, 1))
    row = record.rounds[-1]
    assert list(row["metrics"]) == ["balanced_accuracy", "macro_f1", "log_loss", "brier", "ece", "auroc"]
    found = row["metrics"]["macro_f1"]
    assert found["value"] == pytest.approx(metrics.macro_f1(y, predicted))
    own = [metrics.macro_f1(*pair) for pair in pairs.values()]
    assert found["mean"] == pytest.approx(np.mean(own))
    assert found["worst_tenth"] == pytest.approx(min(own))  # a tenth of eight clients is one
    assert results.metrics["macro_f1"] == pytest.approx(own)
    for cluster in np.unique(results.cluster):
        some = [pairs[client] for client, own in zip(results.clients, results.cluster, strict=True) if own == cluster]
        joined = [np.concatenate([pair[i] for pair in some]) for i in (0, 1)]
        assert found["per_cluster"][str(cluster)] == pytest.approx(metrics.macro_f1(*joined))
    gap = max(found["per_cluster"].values()) - min(found["per_cluster"].values())
    assert found["cluster_gap"] == pytest.approx(gap)
    # The cross-entropy is the loss of the task.
    assert row["metrics"]["log_loss"]["value"] == pytest.approx(row["test_loss"], rel=1e-5)
    assert {entry["how"] for entry in row["metrics"].values()} == {"pooled"}
    summary = record.summary["metrics"]["ece"]
    curve = [line["metrics"]["ece"]["value"] for line in record.rounds]
    assert (summary["value"], summary["best"]) == (curve[-1], min(curve))
    assert summary["last_ten"] == pytest.approx(np.mean(curve))


def test_metrics_change_neither_models_nor_other_scores():
    plain, more = coterie.run(spec_of()), coterie.run(spec_of(metrics=NAMES), metrics={"own": lambda y, p: 0.0})
    assert "metrics" not in plain.rounds[-1]
    assert "metrics" not in plain.summary
    for one, other in zip(plain.rounds, more.rounds, strict=True):
        assert one["accuracy"] == other["accuracy"]
        assert one["loss"] == other["loss"]
        assert one["test_loss"] == pytest.approx(other["test_loss"], rel=1e-6)
        assert one["traffic"] == other["traffic"]


@pytest.mark.parametrize("method", ["local", pytest.param("perfedavg", marks=pytest.mark.exhaustive)])
def test_own_metrics_use_the_models_that_clients_adapt(method):
    # Both score the same adapted models, one by sums and one by predictions.
    given = {"share": coterie.Metric(metrics.accuracy)}
    record = coterie.run({**spec_of(metrics=["accuracy"]), "method": method}, metrics=given)
    for row in record.rounds:
        one, other = (row["metrics"][name] for name in ("accuracy", "share"))
        assert one["value"] == row["accuracy"]["weighted"]
        assert other["value"] == pytest.approx(one["value"])
        assert other["mean"] == pytest.approx(row["accuracy"]["mean"])


def test_metrics_follow_data_that_drift():
    spec = {**spec_of(metrics=["accuracy"]), "shift": {"name": "swap_all", "probability": 0.5}}
    record = coterie.run(spec, metrics={"share": metrics.accuracy})
    assert record.summary["shifts"] > 0
    for row in record.rounds:
        assert row["metrics"]["share"]["value"] == pytest.approx(row["accuracy"]["weighted"])


def test_backends_agree_on_metrics():
    one, other = (coterie.run(spec_of(metrics=NAMES, backend=name)) for name in ("sequential", "vectorized"))
    for name in NAMES:
        left, right = (record.summary["metrics"][name]["value"] for record in (one, other))
        assert left == pytest.approx(right, abs=1e-4), name


def test_metrics_of_a_regression():
    spec = {"data": "regression", "method": "global", "local": {"learning_rate": 0.001, "epochs": 1}}
    record = coterie.run(
        {**spec, "run": {"rounds": 2, "metrics": ["rmse", "mae", "r2"], "target": 1000, "primary_metric": "rmse"}}
    )
    row = record.rounds[-1]
    assert row["metrics"]["rmse"]["value"] == pytest.approx(np.sqrt(2 * row["test_loss"]), rel=1e-5)
    assert record.summary["target"] == {"rmse": 1000.0, "rounds": 1, "bytes": pytest.approx(sent(record.rounds[0]))}


def sent(row):
    return sum(count for what, ways in row["traffic"].items() if what != "evaluate" for count in ways.values())


def test_the_primary_metric_is_recorded_and_computed():
    spec = build(Spec.from_dict(spec_of(primary_metric="auroc"))).spec
    assert (spec.run.primary_metric, spec.run.metrics) == ("auroc", ("auroc",))
    assert build(Spec.from_dict(spec_of())).spec.run.primary_metric == "accuracy"
    assert build(Spec.from_dict({"data": "regression", "method": "fedavg"})).spec.run.primary_metric == "loss"


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ({"metrics": ["f1"]}, "No metric 'f1'"),
        ({"primary_metric": "rmse"}, "the task is a classification"),
        ({"target": 1.5}, "run.target must be between 0 and 1 for accuracy"),
        ({"patience": -1}, "run.patience must be at least 0"),
    ],
)
def test_bad_settings_are_refused(run, text):
    with pytest.raises(SpecError, match=text):
        coterie.run(spec_of(**run))


def test_balanced_class_weights_of_a_regression_are_refused():
    spec = {"data": "regression", "method": "fedavg", "local": {"class_weight": "balanced"}}
    with pytest.raises(SpecError, match="the task is a regression"):
        coterie.run(spec)


def test_a_run_that_validates_trains_on_the_other_examples_only():
    record = coterie.run(spec_of(validate=True))
    data = datasets.load(**DATA)
    # The same data without the validation examples, as all training examples.
    rest = datasets.federated.Index.from_lists([data.rows(i, "rest") for i in range(len(data.clients))])
    without = coterie.run(
        {key: value for key, value in spec_of().items() if key != "data"}, data=data.rearranged(fit=rest)
    )
    for one, other in zip(record.rounds, without.rounds, strict=True):
        assert one["accuracy"] == other["accuracy"]
    correct = total = 0
    for i, client in enumerate(data.clients):
        x, y = data.examples(client, "held")
        correct, total = correct + int((record.predict(x, client=client) == y).sum()), total + len(y)
        assert len(y) == len(data.rows(i, "held")) > 0
    assert record.rounds[-1]["validation"]["accuracy"]["weighted"] == pytest.approx(correct / total)
    assert record.summary["validation"] == record.rounds[-1]["validation"]
    chosen = record.summary["best_round"]
    curve = [row["validation"]["accuracy"]["weighted"] for row in record.rounds]
    assert (chosen["t"], chosen["validation"]) == (int(np.argmax(curve)), max(curve))
    assert chosen["test"] == record.rounds[chosen["t"]]["accuracy"]["weighted"]


def test_a_run_without_validation_has_no_best_round():
    assert "best_round" not in coterie.run(spec_of()).summary


def test_patience_ends_a_run_that_does_not_improve_and_resuming_changes_nothing(tmp_path):
    # With learning rate 0 nothing improves: the first evaluation is the best, two more are no better.
    spec = {**spec_of(rounds=20, patience=2, checkpoint_every=1), "local": {"epochs": 1, "learning_rate": 0.0}}
    record = coterie.run(spec, out=tmp_path / "whole")
    assert (record.summary["rounds"], record.summary["stopped_early"]) == (3, True)
    assert record.summary["best_round"]["t"] == 0

    def interrupt(row):
        if row["t"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(spec, out=tmp_path / "parts", on_round=interrupt)
    again = coterie.resume(tmp_path / "parts")
    assert [strip(row) for row in again.rounds] == [strip(row) for row in record.rounds]
    assert again.summary["best_round"] == record.summary["best_round"]


def test_a_stopped_run_whose_summary_is_missing_is_finished_without_another_round(tmp_path):
    spec = {**spec_of(rounds=20, patience=1), "local": {"epochs": 1, "learning_rate": 0.0}}
    record = coterie.run(spec, out=tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    again = coterie.resume(tmp_path / "run")
    assert (again.summary["rounds"], again.summary["stopped_early"]) == (record.summary["rounds"], True) == (2, True)
    assert again.predict(np.zeros((1, 8, 8)), client="0").shape == (1,)


def strip(row):
    return json.dumps({key: value for key, value in row.items() if key != "seconds"})


def test_own_metrics_must_be_given_again_to_continue_a_run(tmp_path):
    def interrupt(row):
        raise KeyboardInterrupt

    given = {"share": metrics.accuracy}
    with pytest.raises(KeyboardInterrupt):
        coterie.run(spec_of(), out=tmp_path / "run", on_round=interrupt, metrics=given)
    with pytest.raises(SpecError, match=r"metrics=\{'share': function\}"):
        coterie.resume(tmp_path / "run")
    record = coterie.resume(tmp_path / "run", metrics=given)
    assert record.summary["metrics"]["share"]["value"] == pytest.approx(record.summary["accuracy"]["weighted"])


def test_validation_needs_validation_examples():
    # One training example per client: none can be held out.
    clients = {name: (np.ones((1, 2)), np.array([0]), np.ones((1, 2)), np.array([0])) for name in "ab"}
    data = from_arrays(clients, classes=2)
    with pytest.raises(SpecError, match=r"data.held_share above 0"):
        coterie.run({"run": {"rounds": 1, "patience": 3}}, data=data)


def test_scores_count_examples_with_their_weights(tmp_path):
    draws = Seed(0).generator()
    clients = {
        name: (draws.normal(size=(9, 2)), draws.integers(0, 2, 9), draws.normal(size=(5, 2)), draws.integers(0, 2, 5))
        for name in "abc"
    }
    data = from_arrays(clients, classes=2)
    weights = draws.uniform(0, 2, len(data.y)).astype(np.float32)
    data = dataclasses.replace(data, weights=weights)
    record = coterie.run({"run": {"rounds": 1, "metrics": ["auroc"]}}, data=data, out=tmp_path / "run")
    results = record.client_results()
    hits, total = [], []
    for client in results.clients:
        x, y = data.examples(client, "test")
        own = data.sample_weights(client, "test")
        hits.append((own * (record.predict(x, client=client) == y)).sum())
        total.append(own.sum())
    assert record.summary["accuracy"]["weighted"] == pytest.approx(sum(hits) / sum(total), rel=1e-6)
    assert results.total == pytest.approx(total)
    assert results.correct == pytest.approx(hits)
    assert results.accuracy == pytest.approx(np.divide(hits, total))
