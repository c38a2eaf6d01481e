"""Losses, correct answers and checks of a task."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.errors import SpecError
from coterie.models import Normalize, linear_regression, mclr

TWO = mclr((2,), 2)
NUMBER = linear_regression((2,), bias=False)


def test_the_loss_of_two_classes_is_the_logarithm_of_one_plus_the_odds_against_the_label():
    # -log(e^z_y / (e^z_0 + e^z_1)) = log(1 + e^(z_other - z_y))
    outputs = jnp.array([[0.0, 0.0], [math.log(3), 0.0], [math.log(3), 0.0]])
    # odds against: 1 → log 2;  label 0: 1/3 → log(4/3);  label 1: 3 → log 4
    losses = TWO.losses_of(outputs, jnp.array([1, 0, 1]))
    assert np.asarray(losses) == pytest.approx([math.log(2), math.log(4 / 3), math.log(4)], rel=1e-6)  # float32


def test_the_loss_of_large_logits_is_their_difference():
    # log(1 + e^2000) is 2000 up to e^-2000; the exponential itself would overflow.
    losses = TWO.losses_of(jnp.array([[1000.0, -1000.0]] * 2), jnp.array([0, 1]))
    assert np.asarray(losses).tolist() == [0, 2000]


def test_the_gradient_of_the_loss_is_probabilities_minus_the_label():
    # probabilities 3/4 and 1/4 at logits log 3 and 0; label 1
    grad = jax.grad(lambda z: TWO.losses_of(z, jnp.array([1]))[0])(jnp.array([[math.log(3), 0.0]]))
    assert np.asarray(grad)[0] == pytest.approx([0.75, 0.25 - 1], rel=1e-6)  # float32


def test_the_loss_of_a_regression_is_half_the_squared_error():
    # (3 - 1)²/2 = 2, (0 - (-3))²/2 = 4.5
    assert np.asarray(NUMBER.losses_of(jnp.array([3.0, 0.0]), jnp.array([1.0, -3.0]))).tolist() == [2, 4.5]


def test_a_task_may_have_a_custom_loss():
    task = dataclasses.replace(NUMBER, loss=lambda outputs, y: jnp.abs(outputs - y))
    # |3 - 1| and |0 - (-3)|; outputs of weights 1 and 0 are the first inputs
    assert np.asarray(task.losses_of(jnp.array([3.0, 0.0]), np.array([1.0, -3.0]))).tolist() == [2, 3]
    params = {"linear": {"kernel": np.array([1.0, 0.0])}}
    assert np.asarray(task.losses(params, np.array([[3.0, 5.0]]), np.array([1.0]))).tolist() == [2]


def test_losses_are_computed_from_the_outputs():
    params = {"dense0": {"kernel": np.eye(2), "bias": np.zeros(2)}}
    x = np.array([[math.log(3), 0.0]])
    assert np.asarray(TWO.losses(params, x, np.array([1]))) == pytest.approx([math.log(4)], rel=1e-6)  # float32


def test_an_example_is_correct_if_the_largest_output_is_its_label_and_ties_go_to_the_lowest_class():
    outputs = jnp.array([[1.0, 2.0], [1.0, 2.0], [5.0, 5.0], [5.0, 5.0]])
    assert np.asarray(TWO.hits(outputs, jnp.array([1, 0, 0, 1]))).tolist() == [1, 0, 1, 0]


def test_a_regression_has_no_correct_answers():
    assert np.asarray(NUMBER.hits(jnp.ones(2), jnp.ones(2))).tolist() == [0, 0]


def test_stored_bytes_are_normalized_as_floats():
    # (0 - 51)/102 = -0.5 and (255 - 51)/102 = 2; in bytes 0 - 51 would wrap around to 205.
    task = mclr((2,), 2, normalize=Normalize(51, 102))
    params = {"dense0": {"kernel": np.eye(2, dtype=np.float32), "bias": np.zeros(2, np.float32)}}
    outputs = np.asarray(task.outputs(params, np.array([[0, 255]], np.uint8)))
    assert outputs.dtype == np.float32
    assert outputs[0] == pytest.approx([-0.5, 2], rel=1e-6)  # 1/102 is rounded


def test_means_and_deviations_may_be_arrays():
    normalize = Normalize(np.array([1.0, 10.0]), np.array([2.0, 4.0]))
    assert np.asarray(normalize(np.array([[3.0, 2.0], [1.0, 10.0]], np.float32))).tolist() == [[1, -2], [0, 0]]


def test_normalize_may_be_any_function_of_floats():
    # (1 - 10) + (2 - 10) = -17; in bytes 1 - 10 would wrap around to 247.
    params = {"linear": {"kernel": np.ones(2, np.float32)}}
    task = linear_regression((2,), bias=False, normalize=lambda x: x - 10)
    assert task.outputs(params, np.array([[1, 2]], np.uint8)).tolist() == [-17]


@pytest.mark.parametrize(
    ("task", "x", "y", "text"),
    [
        (TWO, np.zeros((3, 4)), np.zeros(3, int), "Model mclr takes inputs of shape (2,), the data have (4,)"),
        (TWO, np.zeros((3, 2)), np.zeros(3), "Model mclr is a classifier, but the data have targets; choose linear"),
        (
            NUMBER,
            np.zeros((3, 2)),
            np.zeros(3, int),
            "Model linear-regression is a regression, but the data have labels",
        ),
        (
            TWO,
            np.zeros((3, 2)),
            np.array([0, 1, 9]),
            "Model mclr has the classes 0 to 1, the data have labels from 0 to 9; give it more classes",
        ),
        (
            TWO,
            np.zeros((1, 2)),
            np.array([-1]),
            "Model mclr has the classes 0 to 1, the data have labels from -1 to -1",
        ),
    ],
)
def test_data_that_do_not_match_are_rejected(task, x, y, text):
    with pytest.raises(SpecError) as caught:
        task.check(x, y)
    assert str(caught.value).startswith(text)


def test_matching_data_are_accepted_even_if_empty():
    TWO.check(np.zeros((2, 2), np.uint8), np.array([0, 1]))
    TWO.check(np.zeros((0, 2)), np.zeros(0, int))
    NUMBER.check(np.zeros((1, 2)), np.zeros(1, np.float32))
