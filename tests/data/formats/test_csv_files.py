"""Columns of CSV files: separators, kinds, missing values."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data.formats.csv_files import _BLOCK, read_csv
from coterie.errors import DataError


def columns(folder, content, **options):
    (folder / "t.csv").write_text(content, encoding="utf-8")
    return {name: values.tolist() for name, values in read_csv(folder / "t.csv", **options).columns.items()}


def test_numbers_booleans_and_text_are_told_apart(tmp_path):
    found = columns(tmp_path, "n,b,t,m\n1,true,x,1\n2.5,False,y,true\n")
    assert found == {"n": [1, 2.5], "b": [True, False], "t": ["x", "y"], "m": ["1", "true"]}


@pytest.mark.parametrize("word", ["", " ", "NA", "nan", "null", "None", "N/A"])
def test_words_for_missing_values(tmp_path, word):
    found = columns(tmp_path, f"n,b,t\n{word},{word},{word}\n1,true,x\n")
    assert [np.isnan(found[name][0]) for name in "nb"] == [True, True]
    assert [found["n"][1], found["b"][1], found["t"]] == [1, 1, [None, "x"]]


def test_text_columns_keep_what_is_written(tmp_path):
    # NA may be the client called NA; only an empty value is missing.
    assert columns(tmp_path, "c,n\n007,1\nNA,2\n,3\n", text={"c"})["c"] == ["007", "NA", None]


def test_columns_that_are_left_out_may_hold_anything(tmp_path):
    assert columns(tmp_path, "a,b\n1e999,1\n2,2\n", skip={"a"}) == {"b": [1, 2]}


def test_a_column_whose_first_block_looks_like_numbers_keeps_its_text(tmp_path):
    # The first 4,096 rows are numbers with a leading zero; the last row makes the column text.
    found = columns(tmp_path, "f,g\n" + "01,2\n" * _BLOCK + "x,2\n")
    assert set(found["f"]) == {"01", "x"}
    assert found["g"] == [2] * (_BLOCK + 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a;b\n1,5;2\n", {"a": [1.5], "b": [2]}),  # decimal comma
        ("a;b\n-1,5e3;2.5\n", {"a": [-1500], "b": [2.5]}),
        ("a\tb\n1\t2\n", {"a": [1], "b": [2]}),
        ("a|b\n1|2\n", {"a": [1], "b": [2]}),
        ('"a;b",c\n1,2\n', {"a;b": [1], "c": [2]}),
        ("a\n1\n", {"a": [1]}),
    ],
)
def test_the_separator_is_the_one_that_gives_the_most_names(tmp_path, text, expected):
    assert columns(tmp_path, text) == expected


def test_an_infinite_number_is_an_error_only_in_a_column_of_numbers(tmp_path):
    assert columns(tmp_path, "f\ninf\nsup\n")["f"] == ["inf", "sup"]
    with pytest.raises(DataError, match="line 3, column 'f': -inf is not a finite 32-bit number"):
        columns(tmp_path, "f\n1\n-inf\n")


def test_lines_are_those_of_the_file(tmp_path):
    (tmp_path / "t.csv").write_text('f,g\n1,"a\nb"\n\n2,c\n')
    assert read_csv(tmp_path / "t.csv").lines.tolist() == [3, 5]  # a row ends where its last value ends


def test_numbers_that_are_too_large_are_named_for_all_columns(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("a,b,c\n1,1e99,2\n-1e99,1,2\n")
    with pytest.raises(DataError, match=r"2 problems:\n.*line 3, column 'a': -1e99.*\n.*line 2, column 'b': 1e99"):
        read_csv(file)
