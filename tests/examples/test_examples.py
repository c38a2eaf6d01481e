"""Every example runs and shows what it claims."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def test_the_bare_loop_learns_but_one_model_does_not_fit_all_rotations():
    # Better than guessing one of ten classes, and far below what a model per cluster reaches.
    assert 0.3 < example("01_fedavg_as_a_bare_loop").main() < 0.85


def test_a_model_per_cluster_is_better_than_one_for_all():
    accuracies = example("02_the_same_through_coterie").main(rounds=20)
    assert accuracies["oracle"] > accuracies["fedavg"] + 0.1


def test_a_method_in_one_file_passes_the_contract_suite_and_runs():
    assert example("03_a_method_in_one_file").main(rounds=3)["status"] == "done"


def test_a_pytorch_model_gains_from_clusters_and_converts_back():
    pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
    accuracies, net = example("04_a_model_from_pytorch").main(rounds=10)
    assert accuracies["ifca"] > accuracies["fedavg"] + 0.05
    assert net[4].weight.shape == (10, 256)


@pytest.mark.exhaustive
def test_hospitals_gain_from_clusters_and_a_newcomer_is_placed_with_the_same_device():
    # The example itself asserts the clusters, the newcomer's cluster and equal predictions for reordered columns.
    shown = example("05_hospitals")
    assert shown.accuracy["ifca"] > shown.accuracy["fedavg"] + 0.1
    # 63 % of the tumors are benign: a model of the wrong device, or one that guesses, stays below.
    assert shown.newcomer_accuracy > 0.75
    assert "mean radius" in shown.refusal


def test_a_pytorch_module_comes_back_with_the_predictions_of_the_record():
    pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
    shown = example("06_pytorch_round_trip")
    # IFCA separates the two groups; guessing one of two classes gives 0.5.
    assert shown.record.summary["truth"]["adjusted_rand"] == 1
    assert shown.record.summary["accuracy"]["weighted"] > 0.75
    assert shown.largest_difference < 1e-5


@pytest.mark.filterwarnings("ignore")  # of MLflow's store
def test_a_search_finds_better_settings_and_mlflow_has_the_final_run(tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="Optuna is an extra: pip install 'coterie[optuna]'")
    pytest.importorskip("mlflow", reason="MLflow is an extra: pip install 'coterie[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="MLflow's local store needs it")
    monkeypatch.chdir(tmp_path)  # the example writes to runs/
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    shown = example("07_tune_and_track")
    scores = [row["score"] for row in shown.study.rows if row["score"] is not None]
    # Learning rates differ by up to a factor of 100, so trials differ clearly after ten rounds.
    assert shown.study.best_score == max(scores) > min(scores) + 0.1
    assert shown.tracked.info.status == "FINISHED"
    for setting, value in shown.study.best_values.items():
        assert float(shown.tracked.data.params[setting]) == value
    by_round = {row["t"]: row["accuracy"]["weighted"] for row in shown.record.rounds}
    assert {each.step: each.value for each in shown.history} == pytest.approx(by_round)
    assert len(by_round) == 30


def test_every_example_is_tested():
    named = set(re.findall(r'example\("(\w+)"\)', Path(__file__).read_text()))
    assert {file.stem for file in FOLDER.glob("*.py")} == named
