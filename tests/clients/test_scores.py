"""Scores, losses, gradients and label counts against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.clients import gradient, label_counts, losses_of, score, scores
from coterie.clients.scores import whole_pass, whole_pass_lengths
from coterie.data import from_arrays
from coterie.federation import sequential
from coterie.models import linear_regression, mclr
from coterie.seeds import Seed

#: Sums of up to 1,300 losses below 10 in float32, which rounds by 6e-8; relative to the sum.
CLOSE = 1e-5


def drawn(name, n):
    draws = Seed(0).fold(name).generator()
    return draws.normal(size=(n, 2)).astype(np.float32), draws.integers(0, 3, n)


# 1,300 is more than two of the pieces of 512 examples in which sums are made.
DATA = from_arrays({"few": drawn("few", 7), "many": drawn("many", 1300), "none": drawn("none", 0)}, test={})
TASK = mclr((2,), 3)
FED = sequential(DATA, TASK)
MODELS = [TASK.init(Seed(i)) for i in range(3)]


def by_hand(params, client):
    """Losses, hits and gradient of the mean loss, in float64."""
    x, y = DATA.examples(client)
    kernel, bias = params["dense0"]["kernel"].astype(float), params["dense0"]["bias"].astype(float)
    logits = x.astype(float) @ kernel.T + bias
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    off = p - np.eye(3)[y]
    return -np.log(p[np.arange(len(y)), y]), logits.argmax(1) == y, {"bias": off.mean(0), "kernel": off.T @ x / len(y)}


@pytest.mark.parametrize("client", ["few", "many"])
def test_a_score_is_the_number_of_hits_and_the_sum_of_losses(client):
    losses, hits, _ = by_hand(MODELS[0], client)
    got = FED.ask([client], score, Seed(0), params=MODELS[0])
    assert got["correct"].tolist() == [hits.sum()]
    assert got["loss"][0] == pytest.approx(losses.sum(), rel=CLOSE)
    assert got.samples.tolist() == [len(losses)]
    assert 0 < hits.sum() < len(hits)  # else the count would prove nothing


@pytest.mark.parametrize("client", ["few", "many"])
def test_losses_of_several_models_are_their_means_in_the_order_of_the_bank(client):
    got = FED.ask([client], losses_of, Seed(0), centers=tree.stack(MODELS))
    expected = [by_hand(model, client)[0].mean() for model in MODELS]
    assert got["losses"][0] == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("abreast", [1, 2, 3, 4])
def test_how_many_models_go_side_by_side_does_not_matter(abreast, monkeypatch):
    # Three models of nine numbers: one by one; two and then one; all at once.
    monkeypatch.setattr(scores, "ABREAST", 9 * abreast)
    fed = sequential(DATA, mclr((2,), 3))  # a task of its own, so that it is compiled anew
    got = fed.ask(["few"], losses_of, Seed(0), centers=tree.stack(MODELS))
    assert got["losses"][0] == pytest.approx([by_hand(model, "few")[0].mean() for model in MODELS], rel=CLOSE)


@pytest.mark.parametrize("client", ["few", "many"])
def test_the_gradient_is_that_of_the_mean_loss_over_all_examples(client):
    losses, _, expected = by_hand(MODELS[0], client)
    got = FED.ask([client], gradient, Seed(0), params=MODELS[0])
    for name, value in expected.items():
        assert got["gradient"]["dense0"][name][0] == pytest.approx(value, abs=CLOSE)
    assert got["loss"][0] == pytest.approx(losses.mean(), rel=CLOSE)


def test_label_counts_count_each_class():
    got = FED.ask(FED.clients, label_counts, Seed(0)).by_client("counts")
    for client in DATA.clients:
        assert got[client].tolist() == [int((DATA.examples(client)[1] == c).sum()) for c in range(3)]


def test_scores_look_at_the_part_that_is_asked_for():
    x, y = drawn("few", 7)
    fed = sequential(from_arrays({"a": (x, y)}, test={"a": (x[:2], y[:2])}), TASK)
    assert fed.ask(["a"], label_counts, Seed(0), part="test")["counts"].sum() == 2
    assert fed.ask(["a"], label_counts, Seed(0), part="fit")["counts"].sum() == 7


def test_a_client_without_examples_has_nothing_to_say():
    for work, sent in (
        (score, {"params": MODELS[0]}),
        (losses_of, {"centers": tree.stack(MODELS)}),
        (gradient, {"params": MODELS[0]}),
        (label_counts, {}),
    ):
        got = FED.ask(["none"], work, Seed(0), **sent)
        assert got.samples.tolist() == [0]
        assert not any(leaf.any() for leaf in tree.leaves(dict(got.answers)))


def test_a_regression_has_losses_and_no_hits():
    # predictions 1·2 and 1·(-1), targets 0 and 1: (2² + 2²)/2 = 4 in all
    fed = sequential(
        from_arrays({"a": (np.array([[2.0], [-1.0]]), np.array([0.0, 1.0]))}, test={}), linear_regression((1,))
    )
    got = fed.ask(["a"], score, Seed(0), params={"linear": {"kernel": np.ones(1, np.float32)}})
    assert (got["correct"].tolist(), got["loss"].tolist()) == ([0], [4])


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 1300])
def test_a_whole_pass_holds_each_example_once_in_order_and_fills_the_end(n):
    index = whole_pass(n, Seed(0), 1.0)["whole"].index
    assert index.reshape(-1)[:n].tolist() == list(range(n))
    assert (index.reshape(-1)[n:] == -1).all()
    assert index.shape[1] <= 512
    assert whole_pass_lengths(n) == {"whole": len(index)}
