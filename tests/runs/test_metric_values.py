"""Values of metrics over all clients, per cluster and per client."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coterie.errors import SpecError
from coterie.metrics import CLASSIFICATION, Metric
from coterie.runs.metric_values import MetricValues, Predictions, from_clients, from_predictions, from_sums

# Logits whose largest entry is the predicted class.
ONE, OTHER = [0.0, 1.0], [1.0, 0.0]


def predicted(outputs, labels, weights=None):
    return Predictions(
        np.array(outputs, np.float32).reshape(-1, 2),
        np.array(labels, np.float64),
        None if weights is None else np.array(weights),
    )


CLIENTS = [
    predicted([ONE, ONE, OTHER], [1, 0, 0]),  # 2 of 3 correct
    predicted([ONE], [1]),  # 1 of 1
    predicted([], []),
    predicted([OTHER, OTHER], [1, 1]),  # 0 of 2
]
ROWS = np.array([0, 1, 1, -1])


def share(y_true, y_pred):
    return float(np.mean(y_true == y_pred))


def test_own_metrics_are_pooled_over_the_examples_of_all_clients():
    found = from_predictions({"share": Metric(share)}, CLIENTS, ROWS, 2)["share"]
    assert found.value == pytest.approx(3 / 6)
    assert found.clients == pytest.approx([2 / 3, 1, math.nan, 0], nan_ok=True)
    assert found.clusters == {0: pytest.approx(2 / 3), 1: 1.0}
    assert found.to_row() == {
        "value": 0.5,
        "mean": pytest.approx((2 / 3 + 1 + 0) / 3),
        "worst_tenth": 0.0,
        "per_cluster": {"0": pytest.approx(2 / 3), "1": 1.0},
        "cluster_gap": pytest.approx(1 / 3),
        "how": "pooled",
        "greater_is_better": True,
    }


def test_the_worst_clients_have_the_highest_values_if_lower_is_better():
    # A tenth of 20 clients are two.
    values = np.arange(20.0)
    assert MetricValues(0, values, {}, "pooled", False).to_row()["worst_tenth"] == pytest.approx((19 + 18) / 2)
    assert MetricValues(0, values, {}, "pooled", True).to_row()["worst_tenth"] == pytest.approx((0 + 1) / 2)


def test_a_metric_that_fails_for_some_clients_is_not_defined_there():
    def needs_two(y_true, y_pred):
        if len(set(y_true.tolist())) < 2:
            raise ValueError("one class")
        return 1.0

    found = from_predictions({"two": Metric(needs_two)}, CLIENTS, ROWS, 2)["two"]
    assert found.value == 1.0
    assert found.clients == pytest.approx([1, math.nan, math.nan, math.nan], nan_ok=True)
    assert found.to_row()["per_cluster"] == {"0": 1.0, "1": None}


@pytest.mark.parametrize("function", [lambda y, p: 1 / 0, lambda y, p: "good", lambda y: 0.0])
def test_a_metric_that_fails_for_all_examples_is_an_error(function):
    with pytest.raises(SpecError, match=r"Metric 'bad' failed: \w+Error.*labels of shape \(6,\)"):
        from_predictions({"bad": Metric(function)}, CLIENTS, ROWS, 2)


def test_probabilities_are_given_to_metrics_that_need_them():
    def confidence(y_true, y_prob):
        return float(y_prob.max(axis=1).mean())

    found = from_predictions({"p": Metric(confidence, needs="probabilities")}, CLIENTS, ROWS, 2)["p"]
    assert found.value == pytest.approx(math.e / (math.e + 1))  # of logits 0 and 1


def test_built_in_metrics_use_weights():
    # Scores of class 1 in order: the positive of weight 1 wins against weight 3 and loses against weight 1.
    given = predicted([[0, 2.0], [0, 1.0], [0, 0.0]], [0, 1, 0], [1.0, 1.0, 3.0])
    found = from_predictions({"auroc": CLASSIFICATION["auroc"]}, [given], np.array([0]), 2)["auroc"]
    assert found.value == pytest.approx(3 / 4)


def test_a_regression_gives_its_predictions():
    given = Predictions(np.array([[1.0], [2.0]], np.float32), np.array([1.0, 5.0]))
    found = from_predictions({"largest": Metric(lambda y, p: np.abs(y - p).max())}, [given], np.array([0]), None)
    assert found["largest"].value == 3.0


def test_values_of_clients_are_averaged_where_they_are_defined():
    found = from_clients(np.array([0.5, math.nan, 0.9, 0.7]), np.array([0, 0, 1, -1]), greater_is_better=True)
    assert found.value == pytest.approx(0.7)
    assert found.clusters == {0: 0.5, 1: pytest.approx(0.9)}
    assert found.how == "client mean"


def test_sums_are_added_per_cluster():
    # Hits 1 of 2, 3 of 4, 0 of 4 examples; the first two clients are one cluster.
    sums = {"weight": np.array([2.0, 4, 4]), "hits": np.array([[1.0], [3], [0]])}
    found = from_sums(["accuracy"], sums, np.array([0, 0, 1]), {"accuracy": True})["accuracy"]
    assert found.value == pytest.approx(4 / 10)
    assert found.clusters == {0: pytest.approx(4 / 6), 1: 0.0}
    assert found.clients == pytest.approx([0.5, 0.75, 0])
