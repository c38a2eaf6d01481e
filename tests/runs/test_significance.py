"""Tests of the differences between methods, on records written by hand."""

from __future__ import annotations

import math

import pytest

from coterie.runs.record import RunRecord
from coterie.runs.significance import add_holm, difference_tests, headline, higher_is_better

LAST_TEN = "last_ten"


def record(*accuracies, coverage=1.0, clients=4, **spec):
    """A run of a few rounds; the headline is the mean of all of them, as long as there are at most ten."""
    rows = [
        {"t": t, "stage": "train", "coverage": coverage, "accuracy": {"weighted": accuracy}}
        for t, accuracy in enumerate(accuracies)
    ]
    mean = sum(accuracies) / len(accuracies)
    accuracy = {"weighted": accuracies[-1], "weighted_last_ten": mean, "last_ten_coverage": coverage}
    return RunRecord({"clients": clients, "accuracy": accuracy}, rows, None, {"spec": spec})


def losses(*values):
    return [RunRecord({"clients": 4, "accuracy": None, "test_loss": value, "coverage": 1.0}, []) for value in values]


def test_methods_are_tested_on_the_last_ten_rounds_and_compared_over_all():
    reference = [record(0.5, 0.5), record(0.4, 0.6), record(0.5, 0.5)]
    better = [record(0.6, 0.6), record(0.6, 0.8), record(0.7, 0.9)]
    found = difference_tests(better, reference, LAST_TEN)
    # Means of the rounds: 0.6, 0.7, 0.8 against 0.5. Differences 0.1, 0.2, 0.3: t = 0.2/(0.1/√3) = 2√3.
    assert found["difference"] == pytest.approx(0.2)
    # Student's t with 2 degrees: P(T > t) = (1 - t/√(2 + t²))/2 = (1 - √12/√14)/2.
    assert found["t_test"] == pytest.approx((1 - math.sqrt(12 / 14)) / 2)
    assert found["wilcoxon"] == pytest.approx(1 / 8)  # all three signs positive: one of the eight ways
    assert found["no_p"] is None
    # Over seeds, round 0: 1.9/3 - 1.4/3 = 0.5/3; round 1: 2.3/3 - 1.6/3 = 0.7/3.
    assert found["improvement"] == pytest.approx(0.2)
    assert found["improvement_deviation"] == pytest.approx(0.1 / 3)


def test_for_regression_a_lower_test_loss_is_tested():
    better, reference = losses(0.9, 0.8, 0.7), losses(1.0, 1.0, 1.0)
    assert headline([*better, *reference]) == "test_loss"
    found = difference_tests(better, reference, "test_loss")
    assert found["difference"] == pytest.approx(-0.2)
    assert found["t_test"] == pytest.approx((1 - math.sqrt(12 / 14)) / 2)  # as above, with the signs changed
    assert found["wilcoxon"] == pytest.approx(1 / 8)


def scored(metric, *values, greater_is_better, coverage=1.0):
    """Runs whose primary metric is not accuracy or loss."""
    spec = {"run": {"primary_metric": metric}}
    return [
        RunRecord(
            {
                "clients": 4,
                "accuracy": {"weighted": 0.5, "weighted_last_ten": 0.5, "last_ten_coverage": 1.0},
                "metrics": {
                    metric: {"last_ten": value, "last_ten_coverage": coverage, "greater_is_better": greater_is_better}
                },
            },
            [],
            None,
            {"spec": spec},
        )
        for value in values
    ]


@pytest.mark.parametrize(("metric", "sign"), [("auroc", 1), ("ece", -1)])
def test_the_primary_metric_is_tested_in_its_own_direction(metric, sign):
    higher = sign > 0
    reference = scored(metric, 0.5, 0.5, 0.5, greater_is_better=higher)
    better = scored(metric, *(0.5 + sign * each for each in (0.1, 0.2, 0.3)), greater_is_better=higher)
    assert headline([*reference, *better]) == metric
    assert higher_is_better([*reference, *better], metric) is higher
    found = difference_tests(better, reference, metric)
    assert found["difference"] == pytest.approx(sign * 0.2)
    assert found["t_test"] == pytest.approx((1 - math.sqrt(12 / 14)) / 2)  # as for accuracies above
    partly = scored(metric, 0.6, 0.7, 0.9, greater_is_better=higher, coverage=0.5)
    assert difference_tests(partly, reference, metric)["no_p"].startswith("only 50.0 % of the clients")


def test_the_loss_may_be_the_primary_metric_of_classifiers():
    run = record(0.5, run={"primary_metric": "loss"})
    assert headline([run]) == "test_loss"
    assert headline([record(0.5, run={"primary_metric": "accuracy"})]) == "last_ten"


def test_equal_differences_and_single_seeds_have_no_p_values():
    for seeds, reason in ((1, "a test needs at least two seeds"), (2, "the difference is the same for all seeds")):
        found = difference_tests([record(0.6, 0.6)] * seeds, [record(0.5, 0.5)] * seeds, LAST_TEN)
        assert found["difference"] == pytest.approx(0.1)
        assert found["t_test"] is found["wilcoxon"] is found["t_test_holm"] is None
        assert found["no_p"] == reason


PLAIN = [record(0.5, 0.5), record(0.4, 0.6)]
HALF = [record(0.6, 0.6, coverage=0.5), record(0.6, 0.8)]


@pytest.mark.parametrize(
    ("group", "reference", "reason"),
    [
        (HALF, PLAIN, "only 75.0 % of the clients have been assigned a model"),  # (50 % + 100 %)/2
        (PLAIN, HALF, "only 75.0 % of the reference's clients have been assigned a model"),
        (
            [record(0.6, clients=5), record(0.7, clients=5)],
            PLAIN,
            "clients or data are not those of the reference (the number of clients differs)",
        ),
        (
            [record(0.6, data={"name": "blobs", "clusters": 2}), record(0.7, data={"name": "blobs", "clusters": 2})],
            [record(0.5, data={"name": "blobs", "clusters": 4}), record(0.4, data={"name": "blobs", "clusters": 4})],
            "clients or data are not those of the reference (data.clusters differs)",
        ),
        (
            [record(0.6, run={"newcomers": 0.5}), record(0.7, run={"newcomers": 0.5})],
            [record(0.5, run={"newcomers": 0.0}), record(0.4, run={"newcomers": 0.0})],
            "clients or data are not those of the reference (run.newcomers differs)",
        ),
    ],
)
def test_unequal_populations_have_no_p_value_and_the_reason_says_why(group, reference, reason):
    found = difference_tests(group, reference, LAST_TEN)
    assert found["t_test"] is found["wilcoxon"] is None
    assert found["no_p"] == reason
    assert found["difference"] is not None


def test_other_settings_of_the_run_and_of_the_method_may_differ():
    group = [record(0.6, run={"rounds": 2}, method={"name": "a"}), record(0.8, run={"rounds": 2})]
    assert difference_tests(group, PLAIN, LAST_TEN)["no_p"] is None


def test_runs_of_different_length_have_no_improvement():
    assert difference_tests([record(0.6)], [record(0.5, 0.5)], LAST_TEN)["improvement"] is None


def test_p_values_are_corrected_for_the_number_of_tested_methods():
    tests = {"a": {"t_test": 0.03}, "b": {"t_test": None}, "c": {"t_test": 0.01}}
    add_holm(tests)
    assert tests["a"]["t_test_holm"] == pytest.approx(0.03)  # the larger of two: once itself, and not below 0.02
    assert tests["c"]["t_test_holm"] == pytest.approx(0.02)
    assert "t_test_holm" not in tests["b"]
