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


@pytest.mark.parametrize(
    "method", ["flexcfl", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("ifca-mig", "fesem-mig"))]
)
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
    assert len(session.evaluate().clients) == 7  # after round 2; the newcomers are placed when round 3 begins
    session.step()
    assert len(session.evaluate().clients) == 10


PLACED_BY_WORK = {
    "fedgroup": {"clusters": 2},
    "flexcfl": {"clusters": 2},
    "flhc": {"warm_rounds": 1},
    "pacfl": {},
    "flag": {"update_epochs": 1, "trial_rounds": 1, "trial_epochs": 1, "validation_clients": 2},
    "srfca": {"init_steps": 5, "refine_rounds": 3},
    "fedsoft": {"clusters": 2},
}


#: Methods of `make test`. That every method keeps its placements is part of the contract suite, too.
EACH_TIME = ("fedgroup",)


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.exhaustive) for name in PLACED_BY_WORK],
)
def test_a_newcomer_is_placed_once_and_the_placement_is_kept(method):
    options = {"name": method, **PLACED_BY_WORK[method]}
    session = build(Spec.of(spec(method=options, run={"newcomers": 0.2, "newcomers_join": [2]}))).session
    steps = session.steps(6)
    joined = next(step for step in steps if step.newcomers is not None).newcomers
    assert joined.scores.coverage == 1.0
    assert sum(joined.bytes.values()) > 0
    before = session.traffic.total()
    again = session.place(joined.scores.requested)
    assert session.traffic.total() == before
    assert set(again.row) == set(joined.scores.requested)


def test_ifca_keeps_the_choice_of_a_newcomer_for_its_assignment():
    run = {"newcomers": 0.2, "newcomers_join": [2], "score_with": "assigned"}
    session = build(Spec.of(spec(method={"name": "ifca", "clusters": 2}, run=run))).session
    newcomers = next(step.newcomers for step in session.steps(6) if step.newcomers is not None)
    held = dict(session.state.assignment)
    assert set(newcomers.scores.requested) <= set(held)


DRIFT = {"name": "swap_all", "probability": 1.0, "rounds": [2, 4]}


def test_specs_with_a_shift_are_scored_with_the_assignment_that_the_method_holds():
    assert build(Spec.of(spec(shift=DRIFT))).spec.run.score_with == "assigned"
    assert build(Spec.of(spec())).spec.run.score_with == "current"
    assert build(Spec.of(spec(shift=DRIFT, run={"score_with": "current"}))).spec.run.score_with == "current"


def test_scoring_with_the_assignment_needs_no_exchange_but_sends_the_model_to_score():
    ifca = {"name": "ifca", "clusters": 2}
    session = build(Spec.of(spec(method=ifca, shift=DRIFT, run={"clients_per_round": 10}))).session
    session.step()
    held = dict(session.state.assignment)
    scores = session.evaluate()
    assert scores.score_with == "assigned"
    assert dict(zip(scores.clients, scores.rows.tolist(), strict=True)) == held
    # One model of 51 parameters of four bytes for each of ten clients, and no choice between two.
    assert session.traffic.total("down", "evaluate") == 10 * 51 * 4


def test_the_record_has_both_scores_where_the_assignments_differ():
    ifca = {"name": "ifca", "clusters": 2}
    record = coterie.run(spec(method=ifca, shift=DRIFT, run={"score_with": "current"}))
    others = [row["other_assignment"] for row in record.rounds if "other_assignment" in row]
    assert others
    assert {other["score_with"] for other in others} == {"assigned"}
    # A client that was never sampled has chosen no cluster: it counts with the fallback model.
    assert record.rounds[0]["other_assignment"]["coverage"] == 0.4
    assert record.rounds[0]["coverage"] == 1.0
    drifting = coterie.run(spec(method=ifca, shift=DRIFT))
    assert drifting.summary["score_with"] == "assigned"
    assert not any("other_assignment" in row for row in drifting.rounds[:-1])
    last = drifting.rounds[-1].get("other_assignment") or {"accuracy": drifting.rounds[-1]["accuracy"]}
    # The same models and the same choices, whatever the rule of the run.
    assert last["accuracy"] == record.rounds[-1]["accuracy"]


def test_methods_that_do_not_choose_again_have_one_score():
    record = coterie.run(spec(method={"name": "fedgroup", "clusters": 2}))
    assert not any("other_assignment" in row for row in record.rounds)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ({"newcomers": 1.5}, "run.newcomers must be between 0 and 1, got 1.5"),
        ({"newcomers": 0.2, "newcomers_join": [9]}, "run.newcomers_join must be numbers of rounds from 1 to 5"),
        (
            {"newcomers": 0.8},
            "run.clients_per_round must be at most 2, the number of clients that have training examples and do not",
        ),
    ],
)
def test_invalid_settings_of_newcomers_are_rejected(run, text):
    with pytest.raises(SpecError, match=text):
        coterie.run(spec(run=run))


def test_newcomers_take_part_in_no_preparation_before_the_round_in_which_they_join():
    # REFINE of SR-FCA is a preparation step before round 2, in which the newcomers join, train alone and are placed.
    options = {"name": "srfca", "init_steps": 5, "refine_rounds": 2}
    record = coterie.run(spec(method=options, run={"rounds": 4, "newcomers": 0.2, "newcomers_join": [2]}))
    refine = next(row for row in record.rounds if row.get("phase") == "refine 1")
    assert refine["cohort_size"] == 8
    joined = next(row["newcomers"] for row in record.rounds if "newcomers" in row)
    assert joined["clients"] == 2
    assert joined["bytes"]["down"] > 0


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ({"newcomers_join": [1]}, "run.newcomers_join needs run.newcomers above 0"),
        ({"newcomers": 1.0}, "run.newcomers leaves no client for the first round"),
    ],
)
def test_newcomers_that_make_no_sense_are_rejected(run, text):
    with pytest.raises(SpecError, match=text):
        coterie.run(spec(run=run))
