"""Newcomers placed with a recorded run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import coterie
from coterie.errors import DataError, RecordError, SpecError
from coterie.methods.ifca import IFCA
from coterie.runs.placing import RESAMPLES, SEEDS
from coterie.seeds import Seed


def examples(name: str, sign: float, rows: int = 60):
    """The label is the sign of the first of two features; with sign -1 it is flipped."""
    x = (2 * Seed(0).fold(name).uniform(2 * rows).reshape(rows, 2) - 1).astype(np.float32)
    return x, (sign * x[:, 0] > 0).astype(np.int64)


DATA = coterie.data.from_arrays({f"c{i}": examples(f"c{i}", 1 if i < 3 else -1) for i in range(6)})
LOCAL = {"epochs": 5, "learning_rate": 0.3}


def spec(method, **options):
    return {"method": {"name": method, **options}, "run": {"rounds": 6, "clients_per_round": 6}, "local": LOCAL}


@pytest.fixture(scope="module")
def ifca(tmp_path_factory):
    return coterie.run(spec("ifca", clusters=2), data=DATA, out=tmp_path_factory.mktemp("runs") / "ifca")


def test_a_newcomer_joins_the_clients_with_the_same_labels(ifca):
    assert ifca.served["row"]["c0"] != ifca.served["row"]["c5"]
    for sign, like in ((1, "c0"), (-1, "c5")):
        placed = ifca.place(*examples("new", sign))
        assert placed.cluster == ifca.served["row"][like]
        assert placed.agreement == 1.0
        assert (placed.repetitions, placed.repeated_by) == (RESAMPLES, "examples")


def test_the_margin_is_the_difference_of_the_two_losses(ifca):
    x, y = examples("new", 1)
    placed = ifca.place(x, y, test_share=0)
    losses = [
        -np.log(ifca.predict_proba(x, cluster=j).astype(np.float64)[np.arange(len(y)), y]).mean() for j in range(2)
    ]
    assert placed.reason.what == "loss"
    np.testing.assert_allclose([placed.reason.values["0"], placed.reason.values["1"]], losses, rtol=1e-4)
    assert placed.margin == pytest.approx(abs(losses[0] - losses[1]), rel=1e-4)
    assert placed.own_score is None  # all examples were used for the decision


def test_the_cost_is_two_models_down_and_two_losses_and_a_choice_up(ifca):
    # A model has 2·2 weights and 2 biases of 4 bytes; losses and choice are 4 bytes each.
    assert ifca.place(*examples("new", 1)).bytes == {"down": 2 * 6 * 4, "up": 2 * 4 + 4}


def test_the_expected_score_is_that_of_the_cluster_and_of_the_own_examples(ifca):
    placed = ifca.place(*examples("new", 1), test_share=0.25)
    results = ifca.client_results()
    members = results.cluster == placed.cluster
    assert placed.cluster_score["accuracy"] == results.correct[members].sum() / results.total[members].sum()
    assert placed.own_score["examples"] == 15  # a quarter of 60
    assert placed.own_score["accuracy"] > 0.8


def test_a_mixed_newcomer_is_placed_with_doubt(ifca):
    parts = [examples("new", sign, 30) for sign in (1, -1)]
    placed = ifca.place(*(np.concatenate(both) for both in zip(*parts, strict=True)), test_share=0)
    assert 0.1 < placed.agreement < 0.9


def test_placing_changes_no_file(ifca):
    before = {file: file.read_bytes() for file in ifca.path.rglob("*") if file.is_file()}
    ifca.place(*examples("new", 1))
    assert {file: file.read_bytes() for file in ifca.path.rglob("*") if file.is_file()} == before


def test_the_same_newcomer_is_placed_the_same_way(ifca):
    one, two = (ifca.place(*examples("new", 1)).to_dict() for _ in range(2))
    assert one == two


@pytest.mark.exhaustive
def test_a_method_that_trains_to_place_is_repeated_with_other_seeds(tmp_path):
    record = coterie.run(spec("fedgroup", clusters=2, alpha=2), data=DATA, out=tmp_path / "run")
    placed = record.place(*examples("new", -1))
    assert placed.cluster == record.served["row"]["c5"] != record.served["row"]["c0"]
    assert (placed.repetitions, placed.repeated_by, placed.reason.what) == (SEEDS, "seed", "cosine")


def test_one_model_for_all_needs_no_labels_and_no_bytes(tmp_path):
    record = coterie.run(spec("fedavg"), data=DATA, out=tmp_path / "run")
    placed = record.place(examples("new", 1)[0])
    assert (placed.cluster, placed.agreement, placed.own_score, placed.bytes) == (0, None, None, {"down": 0, "up": 0})
    assert "fedavg serves one model to all clients: there is nothing to decide." in placed.notes


def test_labels_are_required_where_the_method_uses_them(ifca):
    with pytest.raises(SpecError, match="needs labels to place a newcomer"):
        ifca.place(examples("new", 1)[0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"client": "c3"}, SpecError, "Client 'c3' took part in the run"),
        ({"y": np.zeros(3, int)}, DataError, "one label for each of the 60 examples, got 3"),
        ({"y": np.full(60, 7)}, SpecError, "labels from 7 to 7"),
        ({"x": np.zeros((60, 3))}, SpecError, r"takes inputs of shape \(2,\), the data have \(3,\)"),
        ({"test_share": 1.0}, SpecError, "test_share must be at least 0 and less than 1, got 1.0"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, DataError, "The newcomer has no examples"),
    ],
)
def test_wrong_input_is_refused(change, error, message, ifca):
    x, y = examples("new", 1)
    with pytest.raises(error, match=message):
        ifca.place(**{"x": x, "y": y, **change})


def test_a_run_without_a_folder_has_no_state_to_place_with():
    record = coterie.run({**spec("fedavg"), "run": {"rounds": 1}}, data=DATA)
    with pytest.raises(RecordError, match="run with out="):
        record.place(*examples("new", 1))


def test_true_clusters_of_newcomers_are_not_known(tmp_path):
    data = dataclasses.replace(DATA, truth=np.array([0, 0, 0, 1, 1, 1]))
    record = coterie.run(spec("oracle"), data=data, out=tmp_path / "run")
    with pytest.raises(SpecError, match="that of a newcomer is not known"):
        record.place(*examples("new", 1))


def test_a_method_object_is_given_again(tmp_path):
    method = IFCA(coterie.clients.LocalSGD(**LOCAL), clusters=2)
    record = coterie.run({"run": {"rounds": 2}}, method=method, data=DATA, out=tmp_path / "run")
    with pytest.raises(SpecError, match=r"record.place\(x, y, method=…\)"):
        record.place(*examples("new", 1))
    assert record.place(*examples("new", 1), method=method).clusters == 2
