"""Data on which `recommend` cannot compare methods are refused before anything is trained."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import data
from coterie.errors import DataError
from coterie.runs.recommending import validation_runs


@pytest.fixture(autouse=True)
def untrained(monkeypatch):
    def trained(job, **given):
        raise AssertionError("a run has started")

    monkeypatch.setattr(validation_runs, "carry_out", trained)


def labeled(*clients, **given):
    arrays = {f"c{i}": (np.arange(2 * len(y), dtype=np.float32).reshape(-1, 2), y) for i, y in enumerate(clients)}
    return data.from_arrays(arrays, name="wards", **given)


def refusal(given):
    with pytest.raises(DataError) as caught:
        coterie.recommend(data=given, methods=["local"])
    return str(caught.value)


def test_one_client_is_refused():
    assert refusal(labeled([0, 1] * 10)) == (
        "recommend compares methods over clients and needs at least 2, but wards has 1 client. Add clients, or train "
        "on its examples alone with the method local"
    )


def test_a_single_client_with_two_training_examples_is_refused():
    assert refusal(labeled([0, 1] * 10, [1], test_share=0)) == (
        "Only 1 client of wards has two training examples, one to train on and one for validation; recommend needs at "
        "least 2 such clients. Give the clients more examples"
    )


def test_the_examples_that_were_set_aside_for_the_test_are_mentioned():
    # Of two examples, one is a test example: one is left for training.
    assert refusal(labeled([0, 1], [1, 0])) == (
        "No client of wards has two training examples, one to train on and one for validation, after 2 of 4 examples "
        "were set aside for the test; recommend needs at least 2 such clients. Give the clients more examples, or set "
        "fewer aside (data.test_share, or the column split)"
    )


def test_without_test_examples_none_are_mentioned():
    assert refusal(labeled([0], [1], test_share=0)) == (
        "No client of wards has two training examples, one to train on and one for validation; recommend needs at "
        "least 2 such clients. Give the clients more examples"
    )


def test_a_single_class_is_refused():
    assert refusal(labeled([1] * 10, [1] * 10, classes=2, test_share=0)) == (
        "All 20 training examples of wards have the same label, 1: there is nothing to learn. Check which column or "
        "array the labels are read from"
    )


def test_a_single_target_of_a_regression_is_refused():
    assert "of wards have the same target, 1.5: there is nothing to learn" in refusal(labeled([1.5] * 10, [1.5] * 10))


def test_a_task_of_ones_own_may_ignore_the_labels():
    same = labeled([0] * 10, [0] * 10, classes=2)
    with pytest.raises(AssertionError, match="a run has started"):
        coterie.recommend(data=same, task=coterie.models.mclr((2,), 2), methods=["local"])
