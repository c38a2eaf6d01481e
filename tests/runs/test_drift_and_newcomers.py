"""Runs with drifting data, and runs with newcomers."""

from __future__ import annotations

import pytest

import coterie
from coterie import codec, data
from coterie.errors import SpecError
from coterie.runs.build import build
from coterie.runs.spec import Spec
from coterie.runs.summary import drift_of

TINY = {
    "data": {"name": "blobs", "clients": 10, "clusters": 2, "samples": 20, "side": 4, "classes": 3},
    "local": {"batch_size": 8, "learning_rate": 0.1},
    "run": {"rounds": 6, "clients_per_round": 4},
}


def spec(**sections):
    return {**TINY, **{name: {**TINY.get(name, {}), **given} for name, given in sections.items()}}


def test_the_record_lists_the_clients_that_shifted_in_each_round():
    record = coterie.run(spec(shift={"name": "swap_all", "probability": 1.0, "rounds": [2, 4]}))
    # Ten clients are five pairs, all of which swap.
    assert [len(row.get("shifted", [])) for row in record.rounds] == [0, 0, 10, 0, 10, 0]
    assert record.summary["shifts"] == 20


def test_a_run_without_drift_has_no_drift_figures():
    assert coterie.run(spec()).summary["drift"] is None


def test_the_oracle_detects_every_change_of_true_cluster_and_migrates_correctly():
    # All clients take part in every round, so there is no delay. A swap within a true cluster is no change.
    shift = {"name": "swap_all", "probability": 0.5}
    record = coterie.run(spec(method={"name": "oracle"}, shift=shift, run={"clients_per_round": 10}))
    images = data.load(**TINY["data"], seed=0)
    truth = dict(zip(images.clients, images.truth.tolist(), strict=True)) | record.rounds[0].get("true_clusters", {})
    changes = 0
    for row in record.rounds[1:]:
        changes += sum(truth[client] != cluster for client, cluster in row.get("true_clusters", {}).items())
        truth |= row.get("true_clusters", {})
    drift = record.summary["drift"]
    assert drift["shifts_unassigned"] == len(record.rounds[0].get("shifted", ()))  # no clusters before round 0
    assert drift["shifts"] == record.summary["shifts"] - drift["shifts_unassigned"]
    assert changes > 0
    assert {
        drift[name]
        for name in (
            "true_cluster_changes",
            "true_cluster_changes_detected",
            "detected",
            "migrations",
            "migrations_correct",
        )
    } == {changes}
    assert drift["delay"] == drift["migrations_wrong"] == drift["false_alarms"] == 0


@pytest.mark.parametrize("method", ["flexcfl", "ifca-mig", "fesem-mig"])
def test_methods_with_drift_detection_are_measured_by_the_clients_they_flag(method):
    # All ten clients swap all data in rounds 2 and 4, so their labels change.
    settings = {"name": method, **({"alpha": 5, "clusters": 2, "assign": "eager"} if method == "flexcfl" else {})}
    shift = {"name": "swap_all", "probability": 1.0, "rounds": [2, 4]}
    record = coterie.run(spec(method=settings, shift=shift, run={"clients_per_round": 10}))
    flagged = [len(row.get("flagged", ())) for row in record.rounds if row["stage"] == "train"]
    drift = record.summary["drift"]
    assert flagged[0] == flagged[1] == flagged[3] == flagged[5] == 0
    assert drift["shifts"] == 20
    assert drift["detected"] == flagged[2] + flagged[4] > 0
    assert drift["missed"] == 20 - drift["detected"]
    assert drift["delay"] == drift["false_alarms"] == 0


def test_drift_figures_follow_from_the_record(tmp_path):
    given = spec(method={"name": "ifca", "clusters": 2}, shift={"name": "rotate", "probability": 0.3})
    whole = coterie.run(given)
    written = coterie.run(given, out=tmp_path / "run")
    read = coterie.RunRecord.read(written.path)
    assert read.summary["drift"] == whole.summary["drift"]
    assert whole.summary["drift"]["shifts"] > 0
    assert drift_of(read.rounds, data.load(**given["data"], seed=0)) == whole.summary["drift"]


def test_shifts_are_the_same_for_every_method():
    shifts = {
        method: [row.get("shifted") for row in coterie.run(spec(method=m, shift={"name": "swap_all"})).rounds]
        for method, m in (("fedavg", {"name": "fedavg"}), ("ifca", {"name": "ifca", "clusters": 2}))
    }
    assert shifts["fedavg"] == shifts["ifca"]


def test_the_oracle_follows_the_true_clusters():
    record = coterie.run(spec(method={"name": "oracle"}, shift={"name": "swap_all", "probability": 0.5}))
    assert record.summary["shifts"] > 0
    assert record.summary["truth"]["adjusted_rand"] == 1.0


@pytest.mark.parametrize("name", ["swap_part", "rotate", "incremental", "new_class"])
def test_a_resumed_run_with_drift_ends_with_the_same_bytes(name):
    rounds = [0, 1, 3] if name in ("incremental", "new_class") else []
    given = Spec.of(spec(shift={"name": name, "probability": 0.5, "rounds": rounds}))
    whole, stopped, resumed = (build(given).session for _ in range(3))
    for _ in range(6):
        whole.step()
    for _ in range(3):
        stopped.step()
    resumed.load(codec.decode(stopped.save()))
    for _ in range(3):
        resumed.step()
    assert resumed.save() == whole.save()


def test_newcomers_join_in_their_round_and_are_reported_separately():
    record = coterie.run(spec(method={"name": "ifca", "clusters": 2}, run={"newcomers": 0.2, "newcomers_join": [2, 4]}))
    joined = {row["t"]: row["newcomers"] for row in record.rounds if "newcomers" in row}
    # 20 % of ten clients are two, one for each of the two rounds.
    assert {t: row["clients"] for t, row in joined.items()} == {2: 1, 4: 1}
    # IFCA sends a newcomer both models, 51 parameters of four bytes each, and receives one number.
    assert joined[2]["bytes"]["down"] == 2 * 51 * 4
    assert joined[2]["accuracy"]["weighted"] >= 0
    early = {client for row in record.rounds[:2] for client in row["assignment"]}
    assert len(early) <= 8
    assert [row["joined"] for row in record.summary["newcomers"]] == [2, 4]


def test_newcomers_are_not_evaluated_before_they_join():
    given = spec(run={"newcomers": 0.3, "newcomers_join": [3]})
    session = build(Spec.of(given)).session
    assert len(session.evaluate().clients) == 7
    for _ in range(3):
        session.step()
    assert len(session.evaluate().clients) == 10


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ({"newcomers": 1.5}, "run.newcomers must be between 0 and 1, got 1.5"),
        ({"newcomers": 0.2, "newcomers_join": [9]}, "run.newcomers_join must be rounds after 0 and before 6"),
        (
            {"newcomers": 0.8},
            "run.clients_per_round must be at most 2, the number of clients that have training examples and do not",
        ),
    ],
)
def test_invalid_settings_of_newcomers_are_rejected(run, text):
    with pytest.raises(SpecError, match=text):
        coterie.run(spec(run=run))
