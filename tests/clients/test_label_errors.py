"""Label errors by hand."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.clients.label_errors import label_errors
from coterie.data import from_arrays
from coterie.federation import sequential, vectorized
from coterie.models import linear_regression, mclr
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("federation", [sequential, vectorized])


@BOTH
def test_errors_are_squared_differences_of_class_numbers_for_each_model(federation):
    # A model without kernel answers the class of its largest bias: 0 for the first, 2 for the second.
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


def test_errors_of_a_regression_are_those_of_its_numbers():
    # Predictions 2·3 and 2·(-1) for targets 5 and 0: 1 + 4.
    held = {"a": (np.array([[3.0], [-1.0]], np.float32), np.array([5.0, 0.0], np.float32))}
    fed = sequential(from_arrays(held, test={}, classes=None), linear_regression((1,)))
    models = {"linear": {"kernel": np.array([[2.0]], np.float32)}}
    assert fed.ask(["a"], label_errors, Seed(0), models=models)["squares"].tolist() == [[5]]
