"""The figures of a summary, from lines written by hand and from small runs."""

from __future__ import annotations

import pytest

import coterie
from coterie import data
from coterie.metrics import adjusted_rand
from coterie.runs.summary import cluster_agreement, final, loss_warning, trained_curve


def line(t, accuracy=None, coverage=1.0, stage="train", down=0, **more):
    scores = dict.fromkeys(("weighted", "mean", "worst_tenth"), accuracy)
    evaluated = {} if accuracy is None else {"accuracy": scores, "coverage": coverage}
    traffic = {"train": {"down": down, "up": 1}, "evaluate": {"down": 1000, "up": 0}}
    return {"t": t, "stage": stage, "traffic": traffic, **evaluated, **more}


def test_a_client_without_a_cluster_counts_as_misclustered():
    # a and b are in one true cluster, c and d in another; e is in a third and has no found cluster.
    truth = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2}
    found = cluster_agreement({"a": 5, "b": 5, "c": 3, "d": 3}, truth)
    assert found == {"adjusted_rand": 1.0, "misclustering": pytest.approx(1 / 5), "clusters": 3}
    assert cluster_agreement({"a": 5}, {}) is None
    assert cluster_agreement({}, truth) is None


def test_clients_whose_replies_are_lost_count_as_misclustered():
    spec = {
        "data": {"name": "blobs", "clients": 8},
        "method": {"name": "localkmeans", "clusters": 4},
        "local": {"epochs": 1},
        "faults": {"drop": 0.3},
        "run": {"rounds": 1},
    }
    summary = coterie.run(spec).summary
    assert 0 < summary["coverage"] < 1
    assert summary["truth"]["misclustering"] >= 1 - summary["coverage"] - 1e-9
    assert summary["truth"]["clusters"] == 4


def test_the_best_round_and_the_last_ten_show_their_coverage():
    # All rounds cover all clients: those without a model of their own count with the fallback model.
    rows = [line(0, 0.9, 0.5), line(1, 0.6), line(2, 0.7), line(3, 0.8, 0.9)]
    shown = final(rows, 0.0)["accuracy"]
    assert (shown["weighted_best"], shown["weighted_best_coverage"]) == (0.9, 0.5)
    assert shown["weighted_last_ten"] == pytest.approx((0.9 + 0.6 + 0.7 + 0.8) / 4)
    assert shown["last_ten_coverage"] == pytest.approx((0.5 + 1 + 1 + 0.9) / 4)


def test_the_last_ten_are_rounds_and_not_evaluations():
    # Evaluated in every fourth of 20 rounds: of the last ten rounds, 10 to 19, only 11, 15 and 19 have a score.
    rows = [line(t, t / 100 if t % 4 == 3 else None) for t in range(20)]
    shown = final(rows, 0.0)["accuracy"]
    assert shown["weighted_last_ten"] == pytest.approx((0.11 + 0.15 + 0.19) / 3)
    assert shown["mean_last_ten"] == pytest.approx((0.11 + 0.15 + 0.19) / 3)
    assert shown["worst_tenth_last_ten"] == pytest.approx((0.11 + 0.15 + 0.19) / 3)


def test_an_evaluation_after_a_round_and_before_the_next_counts_for_that_round():
    # As after MERGE of SR-FCA: what clients are served when round 1 begins.
    rows = [
        line(-1, 0.1, stage="prepare"),
        line(0, 0.2),
        line(-1, 0.4, stage="prepare"),
        line(1, 0.3),
        line(-1, 0.6, stage="prepare"),
    ]
    shown = final(rows, 0.0)["accuracy"]
    assert shown["weighted"] == shown["weighted_best"] == 0.6
    assert shown["weighted_last_ten"] == pytest.approx((0.4 + 0.6) / 2)
    assert trained_curve(rows) == [0.4, 0.6]


def test_a_method_without_rounds_is_described_by_its_last_evaluation():
    rows = [line(-1, 0.1, stage="prepare"), line(-1, 0.5, stage="prepare")]
    assert final(rows, 0.0)["accuracy"]["weighted_best"] == 0.5
    assert final(rows, 0.0)["accuracy"]["weighted_last_ten"] == 0.5


def test_bytes_to_a_target_include_preparation_and_newcomers():
    rows = [
        line(-1, stage="prepare", down=100),
        line(0, 0.2, down=10),
        line(-1, 0.3, stage="prepare", down=200),  # preparation between rounds
        line(1, down=10, newcomers={"bytes": {"down": 5, "up": 2}}),
        line(2, 0.5, down=10, last_newcomers={"bytes": {"down": 3, "up": 1}}),
        line(3, 0.9, down=10),
    ]
    # 100 + 10 + 200 + 10 + 10 down until the end of round 2, 1 up in 5 lines, and 7 + 4 for newcomers; no evaluation.
    assert final(rows, 0.5)["target"] == {"accuracy": 0.5, "rounds": 3, "bytes": 346}
    assert final(rows, 0.95)["target"] == {"accuracy": 0.95, "rounds": None, "bytes": None}


@pytest.mark.parametrize(
    "method", ["srfca", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("flhc", "pacfl"))]
)
def test_the_bytes_of_the_lines_add_up_to_the_total(method):
    spec = {"data": {"name": "blobs", "clients": 8}, "method": method, "local": {"epochs": 1}, "run": {"rounds": 12}}
    record = coterie.run(spec)
    sent = {"down": 0, "up": 0}
    for row in record.rounds:
        for what, ways in row["traffic"].items():
            for way, count in ways.items() if what != "evaluate" else ():
                sent[way] += count
    assert sent == {"down": record.summary["traffic"]["down_bytes"], "up": record.summary["traffic"]["up_bytes"]}


def test_a_method_that_clusters_its_cohorts_gets_a_score_for_them():
    # FedSim serves one model to all clients and clusters each cohort.
    spec = {"data": {"name": "blobs", "clients": 12}, "method": "fedsim", "run": {"rounds": 3, "clients_per_round": 12}}
    record, blobs = coterie.run(spec), data.load("blobs", clients=12)
    truth, found = dict(zip(blobs.clients, blobs.truth.tolist(), strict=True)), record.rounds[-1]["assignment"]
    assert record.summary["truth"]["adjusted_rand"] == 0
    assert len(set(found.values())) > 1
    assert record.summary["truth"]["cohort_adjusted_rand"] == adjusted_rand(found, truth) > 0.5


def test_the_default_cohort_leaves_out_newcomers():
    spec = {"data": {"name": "blobs", "clients": 8}, "run": {"rounds": 2, "newcomers": 0.5}, "local": {"epochs": 1}}
    record = coterie.run(spec)
    assert record.rounds[0]["cohort_size"] == 4


@pytest.mark.parametrize(
    ("losses", "warns"),
    [([2.0, 20.5], True), ([2.0, 20.0], False), ([2.0, None, 1.0], False), ([5.0], False), ([], False)],
)
def test_a_loss_that_grows_tenfold_is_a_warning(losses, warns):
    warning = loss_warning([{"test_loss": loss} for loss in losses])
    assert (warning is not None) is warns
    if warns:
        assert warning.startswith("The test loss grew from 2 to 20.5: the training diverges; lower local.learning_rate")
