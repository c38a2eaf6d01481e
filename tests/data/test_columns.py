"""Columns of files and of objects of other libraries."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pytest

from coterie.data.columns import as_table, texts, values_of
from coterie.errors import DataError


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2], "i", [1, 2]),
        ([1, 2.5], "f", [1, 2.5]),
        ([True, False], "b", [True, False]),
        (["a ", None], "O", ["a", None]),
        ([1, "a"], "O", ["1", "a"]),
        ([Decimal("1.5"), 2], "f", [1.5, 2]),
        ([2**70, 1], "O", [str(2**70), "1"]),  # too large for a number of 64 bits
        ([None, None], "O", [None, None]),
    ],
)
def test_values_become_numbers_booleans_or_text(values, kind, expected):
    found = values_of(values, "column 'f'")
    assert (found.dtype.kind, found.tolist()) == (kind, expected)


@pytest.mark.parametrize("values", [[1, None], [True, None], [Decimal(1), None]])
def test_a_missing_number_or_boolean_is_nan(values):
    found = values_of(values, "column 'f'")
    assert found[0] == 1
    assert np.isnan(found[1])


@pytest.mark.parametrize(
    "values", [[datetime.date(2020, 1, 1)], [[1, 2]], [b"x"], np.array(["2020-01-01"], "datetime64[D]")]
)
def test_other_values_are_refused(values):
    with pytest.raises(DataError, match=r"column 'f' holds .*Convert it, or name it in data\.ignore"):
        values_of(values, "column 'f'")


def test_whole_numbers_as_text_have_no_decimal_point():
    assert texts(np.array([1.0, 2.5, np.nan])).tolist() == ["1", "2.5", None]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="The dict has columns of different lengths: 1, 2"):
        as_table({"a": [1], "b": [1, 2]})


def test_what_has_no_columns_is_refused():
    with pytest.raises(DataError, match=r"A table is a path, a DataFrame, .* got int"):
        as_table(3)


def test_the_types_of_pandas_are_read():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(
        {
            "whole": pandas.array([1, None], dtype="Int64"),
            "kind": pandas.Categorical([3, None]),
            "flag": pandas.array([True, None], dtype="boolean"),
            "text": ["a", None],
            7: [0.5, 1.5],
        }
    )
    columns = as_table(frame).columns
    assert list(columns) == ["whole", "kind", "flag", "text", "7"]
    assert columns["kind"].tolist() == ["3", None]  # a category, although it is a number
    assert columns["text"].tolist() == ["a", None]
    np.testing.assert_array_equal(columns["whole"], [1, np.nan])
    np.testing.assert_array_equal(columns["flag"], [1, np.nan])
    np.testing.assert_array_equal(columns["7"], [0.5, 1.5])


def test_the_types_of_polars_are_read():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame(
        {"whole": [1, None], "text": ["a", None], "flag": [True, None]},
        schema_overrides={"text": polars.Categorical},
    )
    for source in (frame, frame.lazy()):
        columns = as_table(source).columns
        assert columns["text"].tolist() == ["a", None]
        np.testing.assert_array_equal(columns["whole"], [1, np.nan])
        np.testing.assert_array_equal(columns["flag"], [1, np.nan])
