"""Default normalization of inputs."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.data import from_arrays, from_table
from coterie.data.description import described
from coterie.runs.resolve import normalization


@pytest.mark.parametrize(
    ("numbers", "scaled"),
    [
        ([-8, -2, -4, -1], [-1, -0.25, -0.5, -0.125]),  # divided by 8, the largest magnitude; signs stay
        ([-8, 2, 4, 1], [-1, 0.25, 0.5, 0.125]),
        ([0, 2, 4, 1], [0, 0.5, 1, 0.25]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("rule", ["auto", "unit"])
def test_whole_numbers_are_divided_by_the_largest_magnitude(rule, numbers, scaled):
    x = np.array(numbers)[:, None]
    data = from_arrays({"a": (x, np.zeros(4, int))}, test_share=0)
    scale = normalization(rule, described(data))
    np.testing.assert_allclose(np.asarray(scale(x.astype(np.float32))).ravel(), scaled)


@pytest.mark.parametrize("rule", ["auto", "standard"])
def test_tables_are_standardized_by_their_training_rows(rule):
    # Training rows of f: 1, 3; mean 2, deviation 1. g is constant in training: it is centered, and not scaled.
    table = {
        "client": ["a", "a", "a"],
        "label": [0, 1, 0],
        "split": ["train", "train", "test"],
        "f": [1000.0, 3000.0, 9000.0],
        "g": [0.1, 0.1, 2.1],
        "h": [1e-5, 3e-5, 2e-5],
    }
    data = from_table(table)
    scale = normalization(rule, described(data))
    expected = [[-1, 0, -1], [1, 0, 1], [7, 2, 0]]
    np.testing.assert_allclose(np.asarray(scale(data.x)), expected, atol=1e-4)


def test_float_arrays_are_not_normalized_by_default():
    data = from_arrays({"a": (np.array([[1000.0], [3000.0]]), [0, 1])})
    assert normalization("auto", described(data)) is None


def test_tables_are_left_as_they_are_on_request():
    assert normalization("none", described(from_table({"client": ["a"], "label": [0], "f": [1000]}))) is None


def unscaled(size):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(40, 3)).astype(np.float32) * np.float32([1, size, 1])
    return coterie.data.from_arrays({"a": (x, (x[:, 0] > 0).astype(int)), "b": (x, (x[:, 0] > 0).astype(int))})


def linear(normalize=None):
    return coterie.models.from_functions(
        lambda key: {"w": np.zeros((3, 2))}, lambda w, x: x @ w["w"], (3,), 2, normalize=normalize
    )


def test_large_inputs_that_nothing_scales_are_noted(caplog):
    run = {"run": {"rounds": 1}}
    coterie.run(run, data=unscaled(100))
    (line,) = caplog.messages
    assert "The inputs of arrays are not scaled: input 1 has values around " in line
    assert line.endswith("set model.normalize=standard")
    caplog.clear()
    coterie.run(run, data=unscaled(100), task=linear())
    assert caplog.messages[0].endswith("normalize=coterie.models.Normalize(mean, deviation), or scale the data")


@pytest.mark.parametrize(
    ("spec", "given"),
    [
        ({}, {"data": unscaled(5)}),
        ({"model": {"normalize": "standard"}}, {"data": unscaled(100)}),
        ({"model": {"normalize": "none"}}, {"data": unscaled(100)}),  # the user has decided
        ({}, {"data": unscaled(100), "task": linear(coterie.models.Normalize(0.0, 100.0))}),
    ],
)
def test_inputs_that_are_small_or_scaled_are_not_noted(spec, given, caplog):
    coterie.run({**spec, "run": {"rounds": 1}}, **given)
    assert not caplog.messages
