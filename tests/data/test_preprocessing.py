"""Encoding of the columns of a table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.data import Column, Preprocessing
from coterie.data.columns import as_table
from coterie.errors import DataError

NUMBERS = {"age": [20, 40, None, 900], "color": ["red", "blue", None, "pink"], "flag": [True, False, True, True]}


def fitted(columns=NUMBERS, rows=(0, 1, 2), **options):
    """Fitted on the first three rows; the last one is a test example."""
    return Preprocessing.fit(as_table(columns), list(columns), np.asarray(rows), **options)


def test_statistics_come_from_training_rows_only():
    # The mean of 20 and 40 is 30; 900 and pink are in the test row. Two of three flags are true.
    assert fitted().columns == (
        Column("age", "number", 30.0),
        Column("color", "category", categories=("blue", "missing", "red")),
        Column("flag", "boolean", pytest.approx(2 / 3)),
    )


def test_a_category_of_no_training_row_becomes_zeros_with_a_warning(caplog):
    x = fitted().transform(NUMBERS)
    assert x.dtype == np.float32
    # age, color=blue, color=missing, color=red, flag
    assert x.tolist() == [[20, 0, 0, 1, 1], [40, 1, 0, 0, 0], [30, 0, 1, 0, 1], [900, 0, 0, 0, 1]]
    assert caplog.messages == [
        "The dict: 1 values of column 'color', such as 'pink', occur in no training example; they are encoded as zeros"
    ]


def test_columns_are_found_by_name():
    rows = {"flag": [False], "color": ["blue"], "age": [1]}
    assert fitted().transform(rows).tolist() == [[1, 1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aeg": [1]}, r"has no column 'age', only aeg\. Did you mean 'aeg'\? The model was trained with this column"),
        ({"age": [1], "height": [2]}, r"trained without a column 'height'\. Leave it out"),
        ({"age": [1], "colour": ["red"]}, r"trained without a column 'colour'\. Did you mean 'color'\? Leave it out"),
        ({"age": ["old"]}, r"row 0, column 'age': 'old' is not a number, unlike the training examples"),
        ({"age": [1e39]}, r"row 0, column 'age': 1e\+39 is not a finite 32-bit number"),
    ],
)
def test_wrong_columns_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        fitted().transform({"color": ["red"], "flag": [True], **change})


def test_columns_that_were_no_inputs_may_be_there():
    rows = {"client": [object()], "age": [1], "color": ["red"], "flag": [True]}
    assert fitted(others=["client"]).transform(rows).shape == (1, 5)


def test_an_array_has_its_columns_in_order():
    plain = fitted({"a": [1.0, 3.0], "b": [2.0, 4.0]}, rows=[0, 1])
    assert plain.transform(np.array([[5, np.nan]])).tolist() == [[5, 3]]  # the mean of 2 and 4
    assert plain.transform([[5, 6]]).tolist() == [[5, 6]]
    assert fitted().transform(np.array([[1, "red", True]], object)).tolist() == [[1, 0, 0, 1, 1]]
    assert fitted().transform(np.array([[1, 0, 0, 1, 1]])).tolist() == [[1, 0, 0, 1, 1]]  # encoded already
    with pytest.raises(DataError, match=r"must have the shape \(rows, 2\), with the columns a, b; got \(1, 3\)"):
        plain.transform(np.zeros((1, 3)))


def test_missing_values_are_refused_on_request():
    clean = fitted({"a": [1.0, 3.0]}, rows=[0, 1], missing="error")
    with pytest.raises(DataError, match="row 1, column 'a': a value is missing"):
        clean.transform({"a": [1.0, None]})
    with pytest.raises(DataError, match="row 2, column 'age': a value is missing"):
        fitted(missing="error")


def test_too_many_categories_are_refused():
    columns = {"name": ["Ann", "Bob", "Cem"]}
    message = r"'name' is text with 3 different values, such as 'Ann', .*; at most 2 .* data\.ignore=\['name'\]"
    with pytest.raises(DataError, match=message):
        fitted(columns, max_categories=2)


def test_too_many_categories_name_the_value_that_is_no_number():
    columns = {"age": [*map(str, range(20)), "?"]}
    message = r"'age' is text, because 1 of its 21 values is no number: '\?' in row 20\. Leave a cell empty"
    with pytest.raises(DataError, match=message):
        fitted(columns, rows=range(21), max_categories=10)
    with pytest.raises(DataError, match="is text with 4 different values"):  # half of the values are words
        fitted({"age": ["1", "2", "a", "b"]}, rows=range(4), max_categories=3)


def test_a_column_without_a_value_in_training_is_refused():
    for values in ([None, None, None, 3], [None] * 4):
        with pytest.raises(DataError, match=r"column 'f' has no value in any training example"):
            fitted({"f": values})


def test_two_inputs_of_one_name_are_refused():
    with pytest.raises(DataError, match=r"an input called 'a=b'\. Rename"):
        fitted({"a": ["b", "b"], "a=b": [1, 2]}, rows=[0, 1])


@pytest.mark.parametrize("missing", ["impute", "error"])
def test_the_encoding_is_plain_data(missing):
    one = Preprocessing(fitted().columns, missing, ("client",))
    assert Preprocessing.from_dict(json.loads(json.dumps(one.to_dict()))) == one


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"columns": [{"name": "a"}], "missing": "impute", "others": []},
        {"columns": [{"name": "a", "kind": "date"}], "missing": "impute", "others": []},
        {"columns": [{"name": "a", "kind": "number", "fill": float("nan")}], "missing": "impute", "others": []},
        {"columns": [], "missing": "drop", "others": []},
    ],
)
def test_a_malformed_description_is_refused(plain):
    with pytest.raises(DataError, match=r"cannot be read|missing must be"):
        Preprocessing.from_dict(plain)


@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(-1e6, 1e6)), st.sampled_from(["a", "b", None])), min_size=1))
def test_the_order_of_columns_and_rows_does_not_matter(rows):
    numbers, words = [row[0] for row in rows], [row[1] for row in rows]
    if all(number is None for number in numbers) or all(word is None for word in words):
        return  # refused: no value in any training example
    columns = {"n": numbers, "w": words}
    one = fitted(columns, rows=range(len(rows)))
    x = one.transform(columns)
    turned = {name: values[::-1] for name, values in reversed(columns.items())}
    np.testing.assert_array_equal(one.transform(turned), x[::-1])
    assert (x[:, 1:].sum(axis=1) == 1).all()  # one category in each row


def test_all_columns_that_are_missing_or_unknown_are_in_one_error():
    columns = tuple(Column(name, "number") for name in ("age", "height", "income"))
    with pytest.raises(DataError) as found:
        Preprocessing(columns, others=("label",)).transform({"income": [1], "hight": [2], "city": [3], "label": [0]})
    first, *lines = str(found.value).splitlines()
    assert first == "The dict has 3 problems:"
    assert lines[0].startswith("- The dict has no column 'age', only hight, city.")
    assert "no column 'height', only hight, city. Did you mean 'hight'?" in lines[1]
    assert lines[2] == "- the model was trained without a column 'city'. Leave it out"
