"""What clients state about their tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie.data import from_arrays, from_table
from coterie.data.description import ClientFacts, combined, described, difference
from coterie.errors import DataError


def facts(columns, **settings):
    return ClientFacts.of(from_table({"client": ["a", "a"], **columns}, **settings))


NUMBERS = {"label": [0, 1], "age": [1, 2], "height": [3, 4]}


def test_facts_survive_as_plain_data():
    one = facts(NUMBERS)
    assert one.table
    assert ClientFacts.from_dict(one.to_dict()) == one
    with pytest.raises(DataError, match="cannot be read"):
        ClientFacts.from_dict({**one.to_dict(), "features": "x" * 1000})


def test_arrays_are_no_table():
    data = from_arrays({"a": (np.zeros((2, 2)), [0, 1])})
    assert not described(data).table
    assert not ClientFacts.of(data).table


def test_only_tables_give_a_table():
    table, arrays = facts(NUMBERS), ClientFacts.of(from_arrays({"a": (np.zeros((2, 2)), [0, 1])}))
    assert combined("mine", {"a": table, "b": table}).table
    assert not combined("mine", {"a": table, "b": arrays}).table


@pytest.mark.parametrize(
    ("columns", "settings", "problem"),
    [
        (NUMBERS, {}, None),
        ({"label": [0, 1], "height": [3, 4], "age": [1, 2]}, {}, "the columns of its table, their order"),
        ({"label": [0, 1], "age": [1, 2], "size": [3, 4]}, {}, "the columns of its table, their order"),
        ({"label": [0, 2], "age": [1, 2], "height": [3, 4]}, {}, "its classes differ from those of other clients"),
        ({"label": [0, 2], "age": [1, 2], "height": [3, 4]}, {"classes": 3}, None),  # labels as they are
        ({"label": [0, 0], "age": [1, 2], "height": [3, 4]}, {}, None),  # it has one of the classes
        ({"label": ["0", "1"], "age": [1, 2], "height": [3, 4]}, {}, None),
        ({"label": ["ill", "well"], "age": [1, 2], "height": [3, 4]}, {}, "its classes differ"),
    ],
)
def test_tables_that_are_encoded_differently_do_not_fit_together(columns, settings, problem):
    found = difference(facts(NUMBERS), facts(columns, **settings))
    assert found is None if problem is None else problem in found


def test_the_description_has_names_and_encoding():
    data = from_table({"client": ["a", "a"], "label": ["no", "yes"], "f": ["u", "v"]}, test_share=0)
    about = described(data)
    assert (about.class_names, about.features) == (("no", "yes"), ("f=u", "f=v"))
    assert about.preprocessing == data.preprocessing
    assert dataclasses.replace(data, name="other").preprocessing == data.preprocessing
