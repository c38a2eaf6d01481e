"""Sample weights of the data and class weights of local training, on both backends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from coterie import tree
from coterie.clients import LocalSGD, fit, gradient, losses_of
from coterie.clients.closest import closest, fit_closest
from coterie.data import from_arrays
from coterie.data.federated import FederatedData
from coterie.errors import DataError, SpecError
from coterie.federation import sequential, vectorized
from coterie.federation.sample_weights import class_weights
from coterie.models import linear_regression, mclr
from coterie.seeds import Seed

BACKENDS = pytest.mark.parametrize("backend", [sequential, vectorized])
TASK = mclr((2,), 3)
CLOSE = 1e-5
ONE_STEP = LocalSGD(steps=1, batch_size=0, learning_rate=0.5)


def drawn(name, n):
    draws = Seed(0).fold(name).generator()
    return draws.normal(size=(n, 2)).astype(np.float32), draws.integers(0, 3, n)


def weighted(x, y, weights) -> FederatedData:
    """One client `a` whose examples have these weights, and one client `b` whose examples have weight 1."""
    data = from_arrays({"a": (x, y), "b": drawn("b", 5)}, test={})
    return dataclasses.replace(data, weights=np.concatenate([weights, np.ones(5)]))


def repeated(x, y, weights) -> FederatedData:
    """The same clients, where each example of `a` occurs as often as its weight says."""
    return from_arrays({"a": (np.repeat(x, weights, axis=0), np.repeat(y, weights)), "b": drawn("b", 5)}, test={})


X, Y = drawn("a", 7)
WEIGHTS = np.array([3, 1, 0, 2, 1, 4, 1])
BANK = tree.stack([TASK.init(Seed(i)) for i in range(2)])
MODEL = TASK.init(Seed(0))


def asked(backend, data, work, **sent):
    return backend(data, TASK).ask(["a", "b"], work, Seed(0), **sent)


@BACKENDS
@pytest.mark.parametrize(
    ("work", "sent"),
    [
        (fit, {"start": MODEL, "local": ONE_STEP}),
        pytest.param(gradient, {"params": MODEL}, marks=pytest.mark.exhaustive),
        (losses_of, {"centers": BANK}),
        pytest.param(closest, {"base": {}, "heads": BANK}, marks=pytest.mark.exhaustive),
        pytest.param(fit_closest, {"base": {}, "heads": BANK, "local": ONE_STEP}, marks=pytest.mark.exhaustive),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_example_of_weight_k_counts_like_k_equal_examples(backend, work, sent):
    got = asked(backend, weighted(X, Y, WEIGHTS), work, **sent)
    expected = asked(backend, repeated(X, Y, WEIGHTS), work, **sent)
    for name in work.gives:
        for one, other in zip(tree.leaves(got[name]), tree.leaves(expected[name]), strict=True):
            np.testing.assert_allclose(one, other, atol=CLOSE, err_msg=name)


@BACKENDS
def test_a_step_on_a_batch_uses_the_weighted_mean_of_its_gradients(backend):
    # Prediction w·x from w = 0: the gradient of ½(w·x - y)² is -y·x. Examples (x, y) = (1, 2), (2, 3) with weights 0.25
    # and 0.5: -(0.25·2 + 0.5·6)/0.75 = -14/3. The loss is (0.25·½·4 + 0.5·½·9)/0.75 = 11/3.
    task = linear_regression((1,), bias=False)
    data = from_arrays({"a": (np.array([[1.0], [2.0]]), np.array([2.0, 3.0]))}, test={})
    data = dataclasses.replace(data, weights=np.array([0.25, 0.5]))
    start = tree.map(np.zeros_like, task.init(Seed(0)))
    local = LocalSGD(steps=1, batch_size=2, learning_rate=1.0)
    got = backend(data, task).ask(["a"], fit, Seed(0), start=start, local=local)
    (moved,) = tree.leaves(got["params"])
    assert moved.reshape(-1) == pytest.approx([14 / 3])
    assert got["loss"][0] == pytest.approx(11 / 3)


@BACKENDS
def test_examples_of_weight_0_change_nothing(backend):
    local = LocalSGD(epochs=2, batch_size=3, learning_rate=0.5)
    got = asked(backend, weighted(X, Y, np.zeros(7)), fit, start=MODEL, local=local)
    for new, old in zip(tree.leaves(got["params"]), tree.leaves(MODEL), strict=True):
        np.testing.assert_array_equal(new[0], old)
    assert got["loss"][0] == 0


@pytest.mark.parametrize("local", [LocalSGD(epochs=2, batch_size=3), LocalSGD(epochs=2, class_weight="balanced")])
def test_both_backends_agree_with_weights(local):
    data = weighted(X, Y, WEIGHTS)
    one, other = (asked(backend, data, fit, start=MODEL, local=local)["params"] for backend in (sequential, vectorized))
    for left, right in zip(tree.leaves(one), tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, atol=CLOSE)


def test_class_weights_are_those_of_scikit_learn_for_the_classes_of_the_client():
    # Classes 0 and 2: 5/(2·1) = 2.5 and 5/(2·4) = 0.625; class 1 does not occur.
    labels = np.array([2, 2, 0, 2, 2])
    assert class_weights(labels, 3).tolist() == [2.5, 0.0, 0.625]
    expected = compute_class_weight("balanced", classes=np.array([0, 2]), y=labels)
    assert class_weights(labels, 3)[[0, 2]] == pytest.approx(expected)


@BACKENDS
def test_balanced_classes_equal_sample_weights_from_the_clients_own_labels(backend):
    balanced = dataclasses.replace(ONE_STEP, class_weight="balanced")
    got = asked(backend, from_arrays({"a": (X, Y), "b": drawn("b", 5)}, test={}), fit, start=MODEL, local=balanced)
    own = [class_weights(labels, 3)[labels] for _, labels in ((X, Y), drawn("b", 5))]
    data = dataclasses.replace(from_arrays({"a": (X, Y), "b": drawn("b", 5)}, test={}), weights=np.concatenate(own))
    expected = asked(backend, data, fit, start=MODEL, local=ONE_STEP)
    for one, other in zip(tree.leaves(got["params"]), tree.leaves(expected["params"]), strict=True):
        np.testing.assert_allclose(one, other, atol=CLOSE)


@BACKENDS
def test_balanced_classes_of_a_regression_are_refused(backend):
    data = from_arrays({"a": (np.ones((2, 1)), np.array([1.0, 2.0]))}, test={})
    task = linear_regression((1,), bias=False)
    with pytest.raises(SpecError, match="the task is a regression"):
        backend(data, task).ask(["a"], fit, Seed(0), start=task.init(Seed(0)), local=LocalSGD(class_weight="balanced"))


def test_a_default_class_weight_is_not_sent():
    # Traffic counts the settings as JSON; `"class_weight":"balanced"` and a comma are 26 bytes.
    sent = {}
    for rule in ("none", "balanced"):
        fed = sequential(from_arrays({"a": (X, Y)}, test={}), TASK)
        fed.ask(["a"], fit, Seed(0), start=MODEL, local=LocalSGD(class_weight=rule))
        sent[rule] = fed.traffic.by_purpose()["control"]["down"]
    assert sent["balanced"] - sent["none"] == 26


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (np.ones(3), "a number for each of the 7 examples"),
        (np.array([1, 1, -1, 1, 1, 1, 1.0]), "'a', example 2: the weight must be finite and at least 0, got -1.0"),
        (np.array([1, 1, np.nan, 1, 1, 1, 1]), "the weight must be finite and at least 0, got nan"),
    ],
)
def test_bad_weights_are_refused(weights, text):
    with pytest.raises(DataError, match=text):
        dataclasses.replace(from_arrays({"a": (X, Y)}, test={}), weights=weights)


def test_the_data_of_one_client_keep_their_weights():
    data = weighted(X, Y, WEIGHTS)
    assert data.only("a").weights.tolist() == WEIGHTS.tolist()
    assert data.sample_weights("b").tolist() == [1.0] * 5
    assert from_arrays({"a": (X, Y)}, test={}).sample_weights("a") is None
