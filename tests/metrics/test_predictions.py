"""Metrics of predictions, by hand and against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as reference

from coterie import metrics
from coterie.errors import SpecError
from coterie.seeds import Seed

LABELS = np.array([0, 0, 0, 1, 1, 2])
PREDICTED = np.array([0, 0, 1, 1, 0, 0])


def drawn(classes, n=200):
    draws = Seed(0).fold("metrics", classes).generator()
    logits = draws.normal(size=(n, classes))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return draws.integers(0, classes, n), probabilities, draws.integers(0, 4, n).astype(float)


def test_metrics_of_labels():
    # Hits per class: 2 of 3, 1 of 2, 0 of 1.
    assert metrics.accuracy(LABELS, PREDICTED) == pytest.approx(3 / 6)
    assert metrics.balanced_accuracy(LABELS, PREDICTED) == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    # Predicted per class: 4, 2, 0, so that F1 is 2·2/(3 + 4), 2·1/(2 + 2), 0/(1 + 0).
    assert metrics.macro_f1(LABELS, PREDICTED) == pytest.approx((4 / 7 + 2 / 4 + 0) / 3)


def test_classes_that_do_not_occur_do_not_count():
    # Labels 0 and 5: one of two correct, and one example predicted as 7, which counts for F1 only.
    assert metrics.balanced_accuracy(np.array([0, 5]), np.array([0, 7])) == pytest.approx(1 / 2)
    assert metrics.macro_f1(np.array([0, 5]), np.array([0, 7])) == pytest.approx(1 / 3)


def test_metrics_of_probabilities():
    labels, probabilities = np.array([0, 1, 1]), np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
    assert metrics.log_loss(labels, probabilities) == pytest.approx(-math.log(0.8 * 0.6 * 0.3) / 3)
    # (1 - 0.8)², (1 - 0.6)², (1 - 0.3)²
    assert metrics.brier(labels, probabilities) == pytest.approx((0.04 + 0.16 + 0.49) / 3)
    # Scores of class 1: 0.6 and 0.3 for positives, 0.2 for the negative; both pairs are in order.
    assert metrics.auroc(labels, probabilities) == 1.0


def test_equal_scores_count_half_in_the_auroc():
    # Positives 0.5, 0.9; negatives 0.5, 0.1. Pairs: 0.5 = 0.5 counts half, the other three are in order.
    scores = np.array([0.5, 0.9, 0.5, 0.1])
    both = np.stack([1 - scores, scores], axis=1)
    assert metrics.auroc(np.array([1, 1, 0, 0]), both) == pytest.approx(3.5 / 4)


def test_the_calibration_error_weights_bins_by_their_examples():
    # Two bins, [0, 0.5] and (0.5, 1]. Confidences 0.5 (wrong), 0.9 (right), 0.7 (wrong), 0.8 (right).
    # First bin: |0 - 0.5|, 1 of 4 examples. Second bin: |2/3 - 0.8|, 3 of 4 examples.
    probabilities = np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    found = metrics.ece(np.array([1, 1, 1, 2]), probabilities, bins=2)
    assert found == pytest.approx(1 / 4 * 0.5 + 3 / 4 * (0.8 - 2 / 3))


def test_errors_of_a_regression():
    targets, predictions = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 6.0])
    assert metrics.rmse(targets, predictions) == pytest.approx(math.sqrt(9 / 3))
    assert metrics.mae(targets, predictions) == pytest.approx(1.0)
    assert metrics.r2(targets, predictions) == pytest.approx(1 - 9 / 2)  # Σ(y - 2)² = 2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_of_classifiers_equal_those_of_scikit_learn(classes, weighted):
    labels, probabilities, weight = drawn(classes)
    given = {"sample_weight": weight} if weighted else {}
    predicted = probabilities.argmax(axis=1)
    expected = {
        "accuracy": reference.accuracy_score(labels, predicted, **given),
        "balanced_accuracy": reference.balanced_accuracy_score(labels, predicted, **given),
        "macro_f1": reference.f1_score(labels, predicted, average="macro", **given),
        "log_loss": reference.log_loss(labels, probabilities, **given),
        "auroc": reference.roc_auc_score(
            labels, probabilities[:, 1] if classes == 2 else probabilities, multi_class="ovr", **given
        ),
    }
    for name, value in expected.items():
        metric = metrics.CLASSIFICATION[name]
        predictions = probabilities if metric.needs == "probabilities" else predicted
        assert metric.function(labels, predictions, weight if weighted else None) == pytest.approx(value), name


def test_the_brier_score_of_two_classes_equals_that_of_scikit_learn():
    labels, probabilities, weight = drawn(2)
    expected = reference.brier_score_loss(labels, probabilities[:, 1], sample_weight=weight)
    assert metrics.brier(labels, probabilities, weight) == pytest.approx(expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_of_regressions_equal_those_of_scikit_learn(weighted):
    draws = Seed(1).generator()
    targets, predictions, weight = 1000 + draws.normal(size=50), 1000 + draws.normal(size=50), draws.uniform(size=50)
    given = {"sample_weight": weight} if weighted else {}
    found = [metrics.rmse, metrics.mae, metrics.r2]
    expected = [reference.root_mean_squared_error, reference.mean_absolute_error, reference.r2_score]
    for own, other in zip(found, expected, strict=True):
        value = own(targets, predictions, weight if weighted else None)
        assert value == pytest.approx(other(targets, predictions, **given)), own.__name__


def test_a_metric_that_is_not_defined_is_nan():
    none, alone = np.zeros(0, int), np.zeros(3, int)
    assert math.isnan(metrics.accuracy(none, none))
    assert math.isnan(metrics.auroc(alone, np.full((3, 2), 0.5)))
    assert math.isnan(metrics.r2(np.ones(3), np.zeros(3)))
    assert math.isnan(metrics.ece(none, np.zeros((0, 2))))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: metrics.accuracy(LABELS, PREDICTED[:3]), "shape"),
        (lambda: metrics.log_loss(LABELS, np.full((6, 2), 0.5)), "columns of the probabilities, 0 to 1"),
        (lambda: metrics.ece(LABELS, np.full((6, 3), 0.3), bins=0), "bins must be at least 1"),
        (lambda: metrics.mae(LABELS, PREDICTED, np.full(6, -1.0)), "non-negative"),
    ],
)
def test_bad_input_is_refused(call, text):
    with pytest.raises(SpecError, match=text):
        call()
