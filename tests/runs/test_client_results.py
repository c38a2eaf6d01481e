"""Test results of each client in the record."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

import coterie
from coterie import RunRecord
from coterie.errors import RecordError
from coterie.methods.protocol import Placement
from coterie.runs.client_results import ClientResults
from coterie.runs.scoring import Scores

SPEC = {
    "data": {"name": "blobs", "clients": 25, "samples": 30},
    "method": {"name": "oracle"},
    "run": {"rounds": 4, "clients_per_round": 10, "evaluate_every": 2},
    "local": {"learning_rate": 0.02},
}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return coterie.run(SPEC, out=tmp_path_factory.mktemp("runs") / "here")


@pytest.fixture(scope="module")
def results(record):
    return record.client_results()


def scores(**changes):
    given = {
        "clients": ("a", "c"),
        "rows": np.array([3, -1]),
        "correct": np.array([7.0, 0.0], np.float32),
        "total": np.array([300, 0]),
        "loss": np.array([150.0, 0.0], np.float32),
        "requested": ("a", "b", "c"),
        "coverage": 0.5,
        "placement": Placement({}, {}, fallback={}),
    }
    return Scores(**{**given, **changes})


def test_the_worst_tenth_is_traced_to_its_clients(record, results):
    # A tenth of 25 clients, rounded up: the three clients with the lowest accuracy.
    accuracy = results.correct / results.total
    worst = np.argsort(accuracy, kind="stable")[:3]
    assert accuracy[worst].mean() == pytest.approx(record.summary["accuracy"]["worst_tenth"], abs=1e-12)
    data = coterie.data.load("blobs", clients=25, samples=30)
    for place in worst:
        x, y = data.examples(results.clients[place], "test")
        assert (record.predict(x, client=results.clients[place]) == y).sum() == results.correct[place]
        assert len(y) == results.total[place]


def test_the_results_of_clients_add_up_to_the_line_of_the_step(record):
    for step in (1, 3):
        results, row = record.client_results(step), record.rounds[step]
        assert results.step == step
        assert results.correct.sum() / results.total.sum() == pytest.approx(row["accuracy"]["weighted"], abs=1e-12)
        assert results.accuracy.mean() == pytest.approx(row["accuracy"]["mean"], abs=1e-12)
        total_loss = (results.loss * results.total).sum()
        assert total_loss / results.total.sum() == pytest.approx(row["test_loss"], rel=1e-5)
        assert np.bincount(results.cluster).tolist() == row["clusters"]["sizes"]


def test_every_client_has_the_cluster_of_the_model_that_it_is_served(record, results):
    assert dict(zip(results.clients, results.cluster.tolist(), strict=True)) == record.served["row"]


def test_only_evaluated_steps_have_results(record):
    with pytest.raises(RecordError, match=r"Step 2 of .* was not evaluated; the last evaluated steps are 1, 3"):
        record.client_results(2)


def test_a_run_without_a_folder_keeps_the_last_evaluation(results):
    record = coterie.run(SPEC)
    kept = record.client_results()
    assert (kept.step, kept.clients) == (results.step, results.clients)
    for name in ("correct", "total", "loss", "cluster"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(results, name))
    assert record.client_results(3) is kept
    with pytest.raises(RecordError, match=r"Without a folder \(out=\) only one evaluation is kept, after step 3"):
        record.client_results(1)


def test_results_without_all_clients_and_with_the_fallback_model_are_restored():
    packed = ClientResults.of(0, scores(), classes=10).packed(["a", "b", "c"])
    assert packed["client"].tolist() == [0, 2]
    back = ClientResults._unpacked(0, ["a", "b", "c"], packed)
    assert back.clients == ("a", "c")
    assert back.cluster.tolist() == [3, -1]
    assert back.total.tolist() == [300, 0]
    assert back.correct.tolist() == [7, 0]
    np.testing.assert_array_equal(back.loss, np.array([0.5, np.nan], np.float32))
    np.testing.assert_array_equal(back.accuracy, [7 / 300, np.nan])


def test_results_take_few_bytes():
    # 300 examples need two bytes, clusters from -1 to 3 one, 7 correct predictions one, and the loss four.
    packed = ClientResults.of(0, scores(), classes=10).packed(["a", "c"])
    assert {name: array.dtype.name for name, array in packed.items()} == {
        "cluster": "int8",
        "total": "uint16",
        "correct": "uint8",
        "loss": "float32",
    }


def test_a_regression_has_losses_and_no_accuracies():
    results = ClientResults.of(0, scores(), classes=None)
    assert "correct" not in results.packed(["a", "c"])
    with pytest.raises(RecordError, match="the task is a regression"):
        results.accuracy  # noqa: B018


def test_newcomers_are_in_the_results_from_their_first_evaluation(tmp_path):
    spec = {**SPEC, "run": {"rounds": 4, "clients_per_round": 10, "newcomers": 0.2, "newcomers_join": [2]}}
    record = coterie.run(spec, out=tmp_path / "here")
    assert len(record.client_results(0).clients) == 20
    assert len(record.client_results(3).clients) == 25
    assert set(record.client_results(0).clients) < set(record.client_results(3).clients)


@pytest.mark.parametrize("name", ["00003.safetensors", "ids.safetensors"])
def test_a_flipped_bit_in_the_results_is_named(record, name, tmp_path):
    folder = shutil.copytree(record.path, tmp_path / "copy")
    file = folder / "clients" / name
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(RecordError, match=re.escape(f"{file}: The data are damaged: the checksum does not match")):
        RunRecord.read(folder).client_results()


def test_a_record_without_results_says_so(record, tmp_path):
    folder = shutil.copytree(record.path, tmp_path / "copy")
    shutil.rmtree(folder / "clients")
    with pytest.raises(RecordError, match="has no results of clients"):
        RunRecord.read(folder).client_results()
    with pytest.raises(RecordError, match="no step was evaluated"):
        RunRecord({}, []).client_results()


@pytest.mark.exhaustive
def test_clients_without_a_model_of_their_own_are_recorded_with_the_fallback_model(tmp_path):
    # FlexCFL assigns 2 x 2 clients before the first round and others when they first take part, four in this run.
    spec = {
        **SPEC,
        "method": {"name": "flexcfl", "clusters": 2, "alpha": 2},
        "run": {"rounds": 1, "clients_per_round": 4},
    }
    record = coterie.run(spec, out=tmp_path / "here")
    results = record.client_results()
    assert len(results.clients) == 25
    assert (results.cluster == -1).sum() == record.summary["clusters"]["unassigned"] > 0
    assert (results.cluster >= 0).mean() == pytest.approx(record.summary["coverage"], abs=1e-12)
    assert results.accuracy.mean() == pytest.approx(record.summary["accuracy"]["mean"], abs=1e-12)
