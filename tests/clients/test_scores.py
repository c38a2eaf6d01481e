"""Scores, losses, gradients, label counts and label errors against NumPy and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.clients import gradient, label_counts, label_errors, losses_of, score, scores
from coterie.clients.scores import whole_pass, whole_pass_lengths
from coterie.data import from_arrays
from coterie.federation import sequential, vectorized
from coterie.models import linear_regression, mclr
from coterie.seeds import Seed

#: Sums of up to 1,300 losses below 10 in float32, which rounds by 6e-8; relative to the sum.
CLOSE = 1e-5


def drawn(name, n):
    draws = Seed(0).fold(name).generator()
    return draws.normal(size=(n, 2)).astype(np.float32), draws.integers(0, 3, n)


# 1,300 examples are more than two chunks of 512, in which sums are computed.
DATA = from_arrays({"few": drawn("few", 7), "many": drawn("many", 1300), "none": drawn("none", 0)}, test={})
TASK = mclr((2,), 3)
FED = sequential(DATA, TASK)
MODELS = [TASK.init(Seed(i)) for i in range(3)]


def by_hand(params, client):
    """Losses, correct answers and gradient of the mean loss, in float64."""
    x, y = DATA.examples(client)
    kernel, bias = params["dense0"]["kernel"].astype(float), params["dense0"]["bias"].astype(float)
    logits = x.astype(float) @ kernel.T + bias
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    off = p - np.eye(3)[y]
    return -np.log(p[np.arange(len(y)), y]), logits.argmax(1) == y, {"bias": off.mean(0), "kernel": off.T @ x / len(y)}


@pytest.mark.parametrize("client", ["few", "many"])
def test_a_score_is_the_number_of_correct_answers_and_the_sum_of_losses(client):
    losses, hits, _ = by_hand(MODELS[0], client)
    got = FED.ask([client], score, Seed(0), params=MODELS[0])
    assert got["correct"].tolist() == [hits.sum()]
    assert got["loss"][0] == pytest.approx(losses.sum(), rel=CLOSE)
    assert got.samples.tolist() == [len(losses)]
    assert 0 < hits.sum() < len(hits)  # otherwise the count would be trivial


@pytest.mark.parametrize("client", ["few", "many"])
def test_losses_of_several_models_are_mean_losses_in_bank_order(client):
    got = FED.ask([client], losses_of, Seed(0), centers=tree.stack(MODELS))
    expected = [by_hand(model, client)[0].mean() for model in MODELS]
    assert got["losses"][0] == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_losses_do_not_depend_on_the_number_of_models_evaluated_together(at_once, monkeypatch):
    # Three models of nine parameters: one by one; two and then one; all at once.
    monkeypatch.setattr(scores, "BATCHED_PARAMETERS", 9 * at_once)
    fed = sequential(DATA, mclr((2,), 3))  # a new task, so that it is compiled again
    got = fed.ask(["few"], losses_of, Seed(0), centers=tree.stack(MODELS))
    assert got["losses"][0] == pytest.approx([by_hand(model, "few")[0].mean() for model in MODELS], rel=CLOSE)


@pytest.mark.parametrize("client", ["few", "many"])
def test_the_gradient_is_that_of_the_mean_loss_over_all_examples(client):
    losses, _, expected = by_hand(MODELS[0], client)
    got = FED.ask([client], gradient, Seed(0), params=MODELS[0])
    for name, value in expected.items():
        assert got["gradient"]["dense0"][name][0] == pytest.approx(value, abs=CLOSE)
    assert got["loss"][0] == pytest.approx(losses.mean(), rel=CLOSE)


def test_label_counts_are_the_class_sizes():
    got = FED.ask(FED.clients, label_counts, Seed(0)).by_client("counts")
    for client in DATA.clients:
        assert got[client].tolist() == [int((DATA.examples(client)[1] == c).sum()) for c in range(3)]


def test_scores_use_the_requested_part():
    x, y = drawn("few", 7)
    fed = sequential(from_arrays({"a": (x, y)}, test={"a": (x[:2], y[:2])}), TASK)
    assert fed.scoring().ask(["a"], label_counts, Seed(0), part="test")["counts"].sum() == 2
    assert fed.ask(["a"], label_counts, Seed(0), part="fit")["counts"].sum() == 7


def test_a_client_without_examples_returns_zeros():
    for work, sent in (
        (score, {"params": MODELS[0]}),
        (losses_of, {"centers": tree.stack(MODELS)}),
        (gradient, {"params": MODELS[0]}),
        (label_counts, {}),
    ):
        got = FED.ask(["none"], work, Seed(0), **sent)
        assert got.samples.tolist() == [0]
        assert not any(leaf.any() for leaf in tree.leaves(dict(got.answers)))


def test_a_regression_has_losses_and_no_correct_answers():
    # predictions 1·2 and 1·(-1), targets 0 and 1: (2² + 2²)/2 = 4 in total
    fed = sequential(
        from_arrays({"a": (np.array([[2.0], [-1.0]]), np.array([0.0, 1.0]))}, test={}),
        linear_regression((1,), bias=False),
    )
    got = fed.ask(["a"], score, Seed(0), params={"linear": {"kernel": np.ones(1, np.float32)}})
    assert (got["correct"].tolist(), got["loss"].tolist()) == ([0], [4])


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 1300])
def test_a_whole_pass_has_each_example_once_in_order_and_padding_at_the_end(n):
    index = whole_pass(n, Seed(0), 1.0)["whole"].index
    assert index.reshape(-1)[:n].tolist() == list(range(n))
    assert (index.reshape(-1)[n:] == -1).all()
    assert index.shape[1] <= 512
    assert whole_pass_lengths(n) == {"whole": len(index)}


BOTH = pytest.mark.parametrize("federation", [sequential, vectorized])


@BOTH
def test_label_errors_are_squared_differences_of_class_numbers_for_each_model(federation):
    # A model with a zero kernel predicts the class of its largest bias: 0 for the first, 2 for the second.
    #   a: labels 0, 1, 2, 2    0 + 1 + 4 + 4 = 9    and    4 + 1 + 0 + 0 = 5
    #   b: label 1              1                    and    1
    clients = {"a": [0, 1, 2, 2], "b": [1], "none": []}
    held = {name: (np.ones((len(y), 2), np.float32), np.array(y, np.int64)) for name, y in clients.items()}
    fed = federation(from_arrays(held, test={}, classes=3), mclr((2,), 3))
    biases = ([5.0, 0, 0], [0, 1.0, 2])
    models = tree.stack(
        {"dense0": {"bias": np.array(bias, np.float32), "kernel": np.zeros((3, 2), np.float32)}} for bias in biases
    )
    got = fed.ask(fed.clients, label_errors, Seed(0), models=models)
    assert got["squares"].tolist() == [[9, 5], [1, 1], [0, 0]]
    assert got.samples.tolist() == [4, 1, 0]


def test_label_errors_of_a_regression_use_its_predictions():
    # Predictions 2·3 and 2·(-1) for targets 5 and 0: 1 + 4.
    held = {"a": (np.array([[3.0], [-1.0]], np.float32), np.array([5.0, 0.0], np.float32))}
    fed = sequential(from_arrays(held, test={}, classes=None), linear_regression((1,), bias=False))
    models = {"linear": {"kernel": np.array([[2.0]], np.float32)}}
    assert fed.ask(["a"], label_errors, Seed(0), models=models)["squares"].tolist() == [[5]]
