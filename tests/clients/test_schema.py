"""Schemas: dtypes and shapes of the values that works take and return."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.clients import LocalSGD, Model, Ragged, Settings, Values
from coterie.clients.schema import problem, purpose_of
from coterie.models import mclr
from coterie.seeds import Seed

TASK = mclr((2, 2), 3)
MODEL = TASK.init(Seed(0))  # dense0/bias (3,), dense0/kernel (3, 4)


def fault(schema, value, **dims):
    return problem(schema, value, TASK, MODEL, dims)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Values("float32"), np.float32(1)),
        (Values("float32", ("classes",)), np.zeros(3, np.float32)),
        (Values("int32", ("inputs", 2)), np.zeros((4, 2), np.int32)),
        (Values("float32", ("parameters",)), np.zeros(15, np.float32)),
        (Values("float32", ("k", "k")), np.zeros((5, 5), np.float32)),
        (Values("bool", (0,)), np.zeros(0, bool)),
        (Model(), MODEL),
        (Model(("k",)), tree.stack([MODEL, MODEL])),
        (Model(partial=True), {"dense0": {"bias": np.zeros(3, np.float32)}}),
        (Model(partial=True), {}),
        (Ragged("float32", ("r", "inputs"), "classes"), [np.zeros((2, 4), np.float32), np.zeros((0, 4), np.float32)]),
        (Ragged("float32", ("r",), 1), []),
        (Settings(LocalSGD), LocalSGD()),
    ],
)
def test_a_matching_value_has_no_problem(schema, value):
    assert fault(schema, value) is None


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (Values("float32"), np.float64(1), "has dtype float64, not float32"),
        (Values("int32"), 3, "has dtype int64, not int32"),
        (Values("float32"), np.zeros(1, np.float32), "has shape (1,), not ()"),
        (Values("float32", ("classes",)), np.zeros(4, np.float32), "has shape (4,), not ('classes',) with classes = 3"),
        (Values("float32", (2,)), np.zeros(3, np.float32), "has shape (3,), not (2,)"),
        (Values("float32", ("k", "k")), np.zeros((5, 4), np.float32), "has shape (5, 4), not ('k', 'k') with k = 5"),
        (Model(), None, "has the arrays [''], the model has ['dense0/bias', 'dense0/kernel']"),
        (Model(), {}, "has the arrays [], the model has ['dense0/bias', 'dense0/kernel']"),
        (Model(partial=True), {"dense9": np.zeros(3, np.float32)}, "has the arrays ['dense9'], the model has"),
        (Model(), tree.map(lambda leaf: leaf.astype(np.float64), MODEL), "dense0/bias has dtype float64, not float32"),
        (Model(), tree.stack([MODEL]), "dense0/bias has shape (1, 3), not (3,)"),
        (
            Model(("k",)),
            {"dense0": {"bias": np.zeros((2, 3), np.float32), "kernel": np.zeros((1, 3, 4), np.float32)}},
            "dense0/kernel has shape (1, 3, 4), not ('k', 3, 4) with k = 2",
        ),
        (Ragged("float32", ("r",), 2), np.zeros(2), "is a ndarray, not a list of arrays"),
        (Ragged("float32", ("r",), "classes"), [np.zeros(1, np.float32)] * 4, "holds 4 arrays, at most 3 are allowed"),
        (Ragged("float32", ("r",), 2), [np.zeros(1, np.float32), np.zeros(1)], "has dtype float64, not float32"),
        (Ragged("float32", ("r", 2), 2), [np.zeros((7, 3), np.float32)], "has shape (7, 3), not ('r', 2)"),
        (Settings(LocalSGD), {"rate": 0.1}, "is a dict, not LocalSGD"),
    ],
)
def test_the_problem_of_a_value_that_does_not_match_is_described(schema, value, text):
    assert fault(schema, value).startswith(text)


def test_a_named_dimension_has_one_size_within_a_message():
    dims: dict[str, int] = {}
    assert problem(Values("float32", ("k",)), np.zeros(4, np.float32), TASK, MODEL, dims) is None
    assert dims == {"k": 4}
    assert problem(Model(("k",)), tree.stack([MODEL] * 3), TASK, MODEL, dims) == (
        "dense0/bias has shape (3, 3), not ('k', 3) with k = 4"
    )


def test_arrays_of_a_ragged_value_may_differ_in_their_own_dimensions_but_not_in_those_of_the_message():
    schema = Ragged("float32", ("r", "k"), 9)
    rows = [np.zeros((n, 2), np.float32) for n in (1, 5, 0)]
    assert fault(schema, rows, k=2) is None
    assert fault(schema, rows, k=3) == "has shape (1, 2), not ('r', 'k') with k = 3"


def test_scalars_count_as_control_and_other_values_as_the_purpose_of_their_work():
    assert purpose_of(Values("float32"), "train") == "control"
    assert purpose_of(Values("float32", ("k",)), "train") == "train"
    assert purpose_of(Values("float32", (), purpose="labels"), "train") == "labels"
    assert purpose_of(Model(), "pretrain") == "pretrain"
    assert purpose_of(Model(purpose="base"), "pretrain") == "base"
    assert purpose_of(Settings(LocalSGD), "train") == "control"
