"""Scores with weights, sums for metrics, AUROC and predictions, against the metrics of all predictions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import metrics, tree
from coterie.clients.metric_scores import (
    classification_scores,
    client_auroc,
    predictions,
    regression_scores,
    softmax,
    weighted_score,
)
from coterie.data import from_arrays
from coterie.federation import sequential, vectorized
from coterie.metrics import CLASSIFICATION, FROM_SUMS, REGRESSION, add_up
from coterie.models import linear_regression, mclr
from coterie.seeds import Seed

BACKENDS = pytest.mark.parametrize("backend", [sequential, vectorized])
WEIGHTED = pytest.mark.parametrize("weighted", [False, True])

#: Sums of up to 600 float32 values, relative to the sum.
CLOSE = 1e-5


def drawn(name, n, classes):
    draws = Seed(0).fold(name).generator()
    x = draws.normal(size=(n, 2)).astype(np.float32)
    return x, draws.integers(0, classes, n) if classes else (1000 + 3 * x[:, 0]).astype(np.float32)


def data_of(classes, weighted):
    # 600 examples are more than one chunk of 512; the second client has no test examples.
    data = from_arrays(
        {"few": drawn("few", 7, classes), "none": drawn("none", 0, classes), "many": drawn("many", 600, classes)},
        test={},
    )
    weights = Seed(1).generator().integers(0, 3, len(data.y)) if weighted else None
    return dataclasses.replace(data, weights=weights)


def outputs_of(data, task, params, client):
    x, y = data.examples(client)
    padded = np.concatenate([x, np.zeros((1, 2), np.float32)])  # models need a row
    return np.asarray(task.outputs(params, padded))[:-1], y, data.sample_weights(client)


@BACKENDS
@WEIGHTED
@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_sums_of_a_classifier_give_the_metrics_of_its_predictions(backend, weighted, classes):
    task, data = mclr((2,), classes), data_of(classes, weighted)
    params = task.init(Seed(3))
    got = backend(data, task).ask(data.clients, classification_scores, Seed(0), params=params)
    sums = {name: got[name] for name in classification_scores.gives}
    each = [outputs_of(data, task, params, client) for client in got.clients]
    joined = [np.concatenate([part[i] for part in each]) if part_exists(each, i) else None for i in range(3)]
    for name, metric in CLASSIFICATION.items():
        if name == "auroc":
            continue
        value = FROM_SUMS[name](sums)
        for place, (outputs, y, weights) in enumerate(each):
            given = outputs.argmax(1) if metric.needs == "labels" else softmax(outputs)
            expected = metric.function(y, given, weights)
            assert value[place] == pytest.approx(expected, rel=CLOSE, abs=CLOSE, nan_ok=True), name
        outputs, y, weights = joined
        given = outputs.argmax(1) if metric.needs == "labels" else softmax(outputs)
        expected = metric.function(y, given, weights)
        assert FROM_SUMS[name](add_up(sums))[0] == pytest.approx(expected, rel=CLOSE, abs=CLOSE), name


def part_exists(each, i):
    return all(part[i] is not None for part in each)


@BACKENDS
@WEIGHTED
def test_sums_of_a_regression_give_the_metrics_of_its_predictions(backend, weighted):
    task, data = linear_regression((2,), bias=False), data_of(0, weighted)
    params = tree.map(lambda leaf: leaf + 1, task.init(Seed(3)))
    got = backend(data, task).ask(data.clients, regression_scores, Seed(0), params=params)
    sums = {name: got[name] for name in regression_scores.gives}
    each = [outputs_of(data, task, params, client) for client in got.clients]
    weights = np.concatenate([part[2] for part in each]) if weighted else None
    outputs, y = (np.concatenate([part[i] for part in each]) for i in (0, 1))
    for name, metric in REGRESSION.items():
        expected = metric.function(y.astype(float), outputs.astype(float), weights)
        assert FROM_SUMS[name](add_up(sums))[0] == pytest.approx(expected, rel=1e-4), name
    total = len(y) if weights is None else weights.sum()
    assert got["weight"].sum() == total
    # The loss of the task is half the squared error.
    assert got["loss"].sum() == pytest.approx(got["squared"].sum() / 2, rel=CLOSE)


@BACKENDS
def test_a_weighted_score_adds_up_weights(backend):
    # Three examples at x = 1, -1, 2 with logits (0, x): classes 1, 0, 1 are predicted. Labels 1, 1, 1, weights 2, 3 and
    # 0.5: the weights of correct ones add up to 2.5, all weights to 5.5.
    task = mclr((1,), 2)
    data = from_arrays({"a": (np.array([[1.0], [-1.0], [2.0]]), np.array([1, 1, 1]))}, test={}, classes=2)
    data = dataclasses.replace(data, weights=np.array([2, 3, 0.5]))
    params = {"dense0": {"kernel": np.array([[0], [1]], np.float32), "bias": np.zeros(2, np.float32)}}
    got = backend(data, task).ask(["a"], weighted_score, Seed(0), params=params)
    assert (got["correct"].tolist(), got["weight"].tolist(), got.samples.tolist()) == ([2.5], [5.5], [3])
    # -log p(1) = log(1 + exp(-x))
    losses = np.log1p(np.exp([-1, 1, -2]))
    assert got["loss"][0] == pytest.approx(np.dot([2, 3, 0.5], losses), rel=CLOSE)


@BACKENDS
@WEIGHTED
def test_clients_compute_their_own_auroc_where_it_is_defined(backend, weighted):
    task, data = mclr((2,), 3), data_of(3, weighted)
    params = task.init(Seed(3))
    got = backend(data, task).ask(data.clients, client_auroc, Seed(0), params=params)
    outputs, y, weights = outputs_of(data, task, params, "many")
    values = got.by_client("auroc")
    assert values["many"] == pytest.approx(metrics.auroc(y, softmax(outputs), weights), abs=1e-4)
    assert got.by_client("defined") == {"few": 1, "many": 1, "none": 0}


@BACKENDS
def test_predictions_are_those_of_each_example(backend):
    task, data = mclr((2,), 3), data_of(3, True)
    params = task.init(Seed(3))
    got = backend(data, task).ask(data.clients, predictions, Seed(0), params=params)
    for client in data.clients:
        outputs, y, weights = outputs_of(data, task, params, client)
        np.testing.assert_allclose(got.by_client("outputs")[client][0], outputs, atol=CLOSE)
        assert got.by_client("labels")[client][0].tolist() == y.tolist()
        assert got.by_client("weights")[client][0].tolist() == weights.tolist()
