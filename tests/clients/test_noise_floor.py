"""What a client differs by from itself: halves of its examples, and examples that it was not trained on."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import data, models
from coterie.clients import LocalSGD
from coterie.clients.noise_floor import halve_updates, held_out_loss, project_halves, split_half
from coterie.federation import sequential, vectorized
from coterie.seeds import Seed

# F(w) = ½ mean (w - y)²: one full step of rate 1 from 0 ends at the mean of the examples.
STEP = LocalSGD(steps=1, batch_size=0, learning_rate=1.0)
ZERO = {"w": np.zeros((), np.float32)}
BOTH = pytest.mark.parametrize("federation", [sequential, pytest.param(vectorized, marks=pytest.mark.exhaustive)])


@pytest.fixture(scope="module")
def task():
    import jax
    import jax.numpy as jnp

    return models.from_functions(
        lambda key: {"w": jax.random.normal(key)},
        lambda params, x: jnp.broadcast_to(params["w"], (x.shape[0],)),
        (1,),
        None,
        name="a number",
    )


def numbers(**examples):
    arrays = {c: (np.zeros((len(y), 1), np.float32), np.array(y, np.float32)) for c, y in examples.items()}
    return data.from_arrays(arrays, test={}, classes=None)


@BOTH
def test_halves_are_compared_by_the_models_trained_on_them(federation, task):
    # b: {3} and {5} in either order: w = 3 and 5, at distance 2 and in one direction. c: -1 and 2 point apart.
    # d: one example cannot be divided.
    fed = federation(numbers(a=[4, 4, 4, 4], b=[3, 5], c=[-1, 2], d=[7]), task)
    got = fed.ask(list(fed.clients), split_half, Seed(0), start=ZERO, local=STEP)
    assert got["l2"].tolist() == [0, 2, 3, 0]
    assert got.samples.tolist() == [4, 2, 2, 1]
    # Their updates, and their cosines with the direction -1.
    got = fed.ask(list(fed.clients), halve_updates, Seed(0), start=ZERO, local=STEP)
    both = np.sort([got["first"]["w"], got["second"]["w"]], axis=0)
    assert both.tolist() == [[4, 3, -1, 0], [4, 5, 2, 0]]
    down = {"w": np.float32(-1)}
    got = fed.ask(list(fed.clients), project_halves, Seed(0), start=ZERO, direction=down, local=STEP)
    both = np.sort([got["first"], got["second"]], axis=0)
    assert both.tolist() == [[-1, -1, -1, 0], [-1, -1, 1, 0]]


@BOTH
def test_the_held_out_loss_is_on_a_fifth_of_the_examples_that_was_not_trained_on(federation, task):
    # b: w is one of 3 and 5, the loss ½(3 - 5)² = 2. c: one of five is held out. If it is 10, w = 0 and the loss 50;
    # if it is a 0, w = 10/4 and the loss ½ 2.5² = 3.125.
    fed = federation(numbers(a=[4, 4, 4, 4], b=[3, 5], c=[0, 0, 0, 0, 10], d=[7]), task)
    got = fed.ask(list(fed.clients), held_out_loss, Seed(0), start=ZERO, local=STEP)
    assert got["loss"][[0, 1, 3]].tolist() == [0, 2, 0]
    assert got["loss"][2] in (50, 3.125)


def test_only_numbers_leave_the_client_and_their_bytes_count_as_noise_floor(task):
    fed = vectorized(numbers(a=[1, 2], b=[3, 5]), task)
    fed.ask(list(fed.clients), split_half, Seed(0), start=ZERO, local=STEP)
    # Down: a model of one float32 to each of two clients. Up: one float32 of each.
    assert fed.traffic.by_purpose()["noise_floor"] == {"down": 2 * 4, "up": 2 * 4}
