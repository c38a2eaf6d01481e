"""Works that choose the model with the lowest loss."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.clients import LocalSGD, fit, gradient
from coterie.clients.closest import closest, fit_closest, gradient_closest
from coterie.data import from_arrays
from coterie.federation import sequential
from coterie.models import mclr, mlp
from coterie.seeds import Seed


def model(first, second):
    """A task whose logits do not depend on the input."""
    return {"dense0": {"kernel": np.zeros((2, 1), np.float32), "bias": np.array([first, second], np.float32)}}


X = np.array([[1.0], [2.0], [3.0]], np.float32)
FED = sequential(
    from_arrays({"ones": (X, np.array([1, 1, 1])), "zeros": (X, np.array([0, 0, 0]))}, test={}), mclr((1,), 2)
)
# The first model predicts class 0 for all inputs, the second class 1, the third equal logits.
BANK = tree.stack([model(1, 0), model(0, 1), model(0, 0)])
LOCAL = LocalSGD(steps=2, batch_size=2, learning_rate=0.5)


def test_a_client_chooses_the_model_with_the_lowest_mean_loss():
    got = FED.ask(FED.clients, closest, Seed(0), base={}, heads=BANK)
    # The losses of a correct, a wrong and an undecided answer: log(1 + e^-1), log(1 + e), log 2.
    right, wrong, unsure = np.log1p(np.exp(-1)), np.log1p(np.exp(1)), np.log(2)
    assert got["losses"] == pytest.approx(
        np.array([[wrong, right, unsure], [right, wrong, unsure]]), rel=1e-6
    )  # float32
    assert got.by_client("choice") == {"ones": 1, "zeros": 0}


def test_ties_go_to_the_first_model():
    bank = tree.stack([model(1, 0), model(0, 1), model(0, 1)])
    assert FED.ask(["ones"], closest, Seed(0), base={}, heads=bank)["choice"].tolist() == [1]


def test_the_chosen_model_is_trained_as_if_it_had_been_sent_alone():
    got = FED.ask(["ones"], fit_closest, Seed(5), base={}, heads=BANK, local=LOCAL)
    alone = FED.ask(["ones"], fit, Seed(5), start=model(0, 1), local=LOCAL)
    assert got["choice"].tolist() == [1]
    assert tree.same(got["params"], alone["params"])
    assert (got["loss"], got["steps"]) == (alone["loss"], alone["steps"])


def test_the_gradient_is_that_of_the_chosen_model():
    got = FED.ask(["zeros"], gradient_closest, Seed(0), base={}, heads=BANK)
    alone = FED.ask(["zeros"], gradient, Seed(0), params=model(1, 0))
    assert tree.same(got["gradient"], alone["gradient"])
    assert got["loss"] == alone["loss"]


def test_shared_layers_are_sent_once_and_joined_with_each_head():
    task = mlp((1,), 2, widths=(3,))
    data = from_arrays({"a": (X, np.array([0, 1, 1]))}, test={})
    fed = sequential(data, task)
    models = [task.init(Seed(i)) for i in range(3)]
    heads = tree.stack([{"dense1": one["dense1"]} for one in models])
    base = {"dense0": models[0]["dense0"]}
    shared = fed.ask(["a"], closest, Seed(0), base=base, heads=heads)
    joined = tree.stack([{**base, "dense1": one["dense1"]} for one in models])
    whole = fed.ask(["a"], closest, Seed(0), base={}, heads=joined)
    assert shared["losses"] == pytest.approx(whole["losses"], rel=1e-6)  # the same products in other batches
    assert shared["choice"] == whole["choice"]
