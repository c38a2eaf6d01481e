"""Works: combinations of functions, and the registry of names."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from coterie.clients import Batches, Model, Steps, Values, Work, fit, known_work
from coterie.clients.work import Batch
from coterie.errors import SpecError


def each(task, x, y):
    return {}


def body(task, client):
    return {}


def plan(n, seed, effort):
    return {"all": Steps(np.zeros((0, 1), np.int32))}


def lengths(n):
    return {"all": 0}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "has no function: give it each, body or plain"),
        ({"plain": each, "body": body}, "is plain and cannot have plan, each or body"),
        ({"plain": each, "each": each}, "is plain and cannot have plan, each or body"),
        ({"body": body, "plan": plan}, "needs plan, lengths and body together"),
        ({"body": body, "lengths": lengths}, "needs plan, lengths and body together"),
        ({"each": each, "plan": plan, "lengths": lengths}, "needs plan, lengths and body together"),
        ({"body": body, "memory": "kept"}, "needs memory and blank together"),
        ({"body": body, "blank": body}, "needs memory and blank together"),
    ],
)
def test_an_invalid_combination_of_functions_is_rejected_and_not_registered(parts, text):
    with pytest.raises(SpecError, match=f"Work 'test.wrong' {text}"):
        Work("test.wrong", {}, {}, **parts, trains=False)
    with pytest.raises(SpecError, match=r"No work 'test\.wrong'"):
        known_work("test.wrong")


@pytest.mark.parametrize("takes", [(), ("w0",), ("heads",), ("base", "heads")])
def test_a_moved_model_needs_an_initial_model(takes):
    with pytest.raises(SpecError, match=r"Work 'test.wrong' gives 'params' as a moved model, .* it must take start"):
        Work("test.wrong", dict.fromkeys(takes, Model()), {"params": Model(moved=True)}, body=body, trains=False)


def test_a_work_is_found_by_its_name():
    work = Work("test.named", {}, {"n": Values("int32")}, body=body, trains=False)
    assert known_work("test.named") is work
    assert known_work("fit") is fit


def test_an_unknown_name_raises_an_error_with_the_nearest_name():
    with pytest.raises(SpecError, match=r"No work 'fti'. Did you mean 'fit'\? Known: .*losses_of"):
        known_work("fti")


def test_two_works_cannot_have_the_same_name():
    first = Work("test.twice", {}, {}, body=body, trains=False)
    with pytest.raises(SpecError, match=r"There is already a work 'test\.twice'; names must be unique"):
        Work("test.twice", {}, {}, each=each, trains=False)
    assert known_work("test.twice") is first


def test_a_reloaded_module_may_register_its_works_again():
    Work("test.again", {}, {}, body=body, trains=False)
    again = Work("test.again", {}, {}, body=body, trains=False)
    assert known_work("test.again") is again


def test_the_default_stream_of_a_work_is_its_name():
    assert Work("test.stream", {}, {}, body=body, trains=False).stream == "test.stream"
    assert fit.stream == "batches"


def test_a_work_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        fit.name = "other"


def test_fold_goes_over_the_planned_rows_in_order():
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    batches = Batches(2, lambda row: Batch(jnp.asarray(rows)[row], None, None))
    # 10·(10·0 + 1 + 2) + 3 + 4 = 37: the second row after the first, and not the third
    assert float(batches.fold(lambda row, total: 10 * total + batches.take(row).x.sum(), jnp.float32(0))) == 37
