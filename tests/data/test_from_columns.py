"""Clients, parts, true clusters and weights of a table."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import TableSettings, from_table
from coterie.errors import DataError, SpecError

ROWS = {"client": ["b", "a", "b", "a"], "label": [0, 1, 1, 0], "f": [1.5, 2.5, 3.5, 4.5]}


def table(rows=ROWS, *, more=None, **settings):
    return from_table({**rows, **(more or {})}, **settings)


def test_columns_with_the_names_of_roles_are_no_features():
    more = {"truth": [7, 2, 7, 2], "split": ["train", "test", "test", "train"], "sample_weight": [1, 2, 0, 0.5]}
    data = table(more=more)
    assert data.features == ("f",)
    assert data.truth.tolist() == [2, 7]  # of a and b
    assert (data.sizes("fit").tolist(), data.sizes("test").tolist()) == ([1, 1], [1, 1])
    assert (data.weights.tolist(), data.weights.dtype) == ([1, 2, 0, 0.5], np.float32)


def test_a_column_called_weight_is_a_feature():
    # It may be the weight of a patient.
    data = table(more={"weight": [70, 80, 90, 60]})
    assert data.features == ("f", "weight")
    assert data.weights is None
    assert table(more={"weight": [70, 80, 90, 60]}, weight="weight").features == ("f",)


def test_true_clusters_that_are_text_are_numbered_in_sorted_order():
    assert table(more={"truth": ["south", "north", "south", "north"]}).truth.tolist() == [0, 1]


def test_other_columns_can_have_the_roles():
    rows = {"hospital": ["x", "y"], "outcome": ["ill", "well"], "kind": [0, 1], "part": ["test", "train"], "f": [1, 2]}
    data = table(rows, client="hospital", label="outcome", truth="kind", split="part")
    assert data.clients == ("x", "y")
    assert data.class_names == ("ill", "well")
    assert data.sizes("test").tolist() == [1, 0]


@pytest.mark.parametrize("ignore", [("id", "note"), ["id", "note"], ("id, note",), "id,note"])
def test_ignored_columns_are_left_out(ignore):
    # On a command line, data.ignore=id,note is one text.
    data = table(more={"id": [object()] * 4, "note": ["x"] * 4}, ignore=ignore)
    assert data.features == ("f",)
    assert data.preprocessing.others == ("client", "label", "id", "note")


def test_statistics_are_those_of_training_rows():
    more = {"g": [1, 3, None, 100], "split": ["train", "train", "train", "test"]}
    assert table(more=more).x[:, 1].tolist() == [1, 3, 2, 100]  # (1 + 3) / 2


def test_a_random_split_is_decided_before_the_statistics():
    # Each client has 10 rows, one of them for testing. The mean is that of the 18 training rows.
    values = np.arange(20.0)
    rows = {"client": ["a", "b"] * 10, "label": [0, 1] * 10, "f": [*values[:-1], None]}
    data = table(rows, seed=3)
    known = [row for row in data.fit.order if row != 19]
    assert data.preprocessing.columns[0].fill == pytest.approx(values[known].mean())


def test_a_table_without_columns_is_empty():
    with pytest.raises(DataError, match=r"^The dict is empty: it has no columns\. Name the columns in the first line$"):
        table({})


def test_one_note_names_ids_and_constants(caplog):
    rows = {
        "client": ["a"] * 20,
        "label": [0, 1] * 10,
        "nr": range(20),
        "f": [0.5, 1.5] * 10,
        "country": ["DE"] * 20,
        "measured": np.arange(20) / 3,  # different in every row, but not an id
    }
    table(rows)
    assert caplog.messages == [
        "The dict: column 'nr' has a different value in every row, like an id; column 'country' has the same value in "
        'every row. To leave out such columns, set data.ignore=["nr", "country"]'
    ]


def test_a_note_names_the_words_that_make_a_column_of_numbers_text(caplog):
    rows = {
        "client": ["a"] * 40,
        "label": [0, 1] * 20,
        "age": [*["3", "4"] * 19, "unknown", "n.a."],  # 2 of 40
        "grade": ["1", "2", "3", "A"] * 10,  # a quarter: letters are meant
    }
    table(rows)
    assert caplog.messages == [
        "The dict: column 'age' is text, because 2 of its 40 values are no numbers: 'unknown' in row 38 and others. "
        "Leave a cell empty if its value is missing; now every number is a category"
    ]


@pytest.mark.parametrize(
    ("more", "settings", "message"),
    [
        ({}, {"client": "clinet"}, r"no column 'clinet', only client, label, f\. Did you mean 'client'\? Set data\.cl"),
        ({}, {"truth": "kind"}, r"no column 'kind', .* It is the value of data\.truth"),
        ({}, {"ignore": ("ff",)}, r"no column 'ff', only client, label, f\. .* It is a value of data\.ignore"),
        ({"truth": [0, 1, 1, 1]}, {}, r"client 'b' has several true clusters \(0, 1\) in column 'truth'"),
        ({"truth": [0, 1, None, 1]}, {}, "row 2: the true cluster is missing"),
        ({"split": ["train", "dev", "test", "test"]}, {}, "row 1: split must be train or test, got 'dev'"),
        ({"split": ["test"] * 4}, {}, "has no training examples"),
        ({"sample_weight": [1, -1, 1, 1]}, {}, "row 1: the weight must be finite and at least 0, got -1"),
        ({"sample_weight": [1, None, 1, 1]}, {}, "row 1: the weight must be finite and at least 0, got nan"),
        ({"sample_weight": ["x"] * 4}, {}, "must hold weights"),
    ],
)
def test_wrong_tables_are_refused(more, settings, message):
    with pytest.raises(DataError, match=message):
        table(more=more, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"missing": "drop"}, r"data\.missing must be one of 'impute', 'error', got 'drop'"),
        ({"task": "rank"}, r"data\.task must be one of"),
        ({"client": "label"}, "The column 'label' has two meanings"),
        ({"test_share": 1}, "test_share must be"),
        ({"max_categories": 1}, "max_categories must be at least 2"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(SpecError, match=message):
        TableSettings(**settings)


def test_the_column_of_the_label_cannot_be_ignored():
    with pytest.raises(SpecError, match=r"data\.ignore has 'label', which is the column of the client or of the label"):
        table(ignore=("label",))


def test_all_columns_that_are_missing_are_in_one_error():
    table = {"hospital": ["a"], "age": [1.0], "y": [0]}
    with pytest.raises(DataError) as found:
        from_table(table, weight="w", ignore=("id",))
    first, *lines = str(found.value).splitlines()
    assert first == "The dict has 4 problems:"
    for line, name in zip(lines, ("id", "client", "label", "w"), strict=True):
        assert line.startswith(f"- The dict has no column {name!r}, only hospital, age, y.")


def test_all_problems_of_values_are_in_one_error():
    rows = 60
    table = {
        "client": ["a"] * (rows - 1) + [None],
        "label": [None] + [0] * (rows - 1),
        "split": ["trian"] * rows,
        "sample_weight": [-1.0] * rows,
        "name": [f"n{i}" for i in range(rows)],
        "empty": [None] * rows,
        "size": [1e300] * rows,
        "good": list(range(rows)),
    }
    with pytest.raises(DataError) as found:
        from_table(table)
    first, *lines = str(found.value).splitlines()
    assert first == "The dict has 7 problems:"
    words = ["client is missing", "label is missing", "split must be", "weight must be", "'name' is text with 60"]
    words += ["'empty' has no value", "'size': 1e+300 is not"]
    for line, text in zip(lines, words, strict=True):
        assert text in line
        assert line.startswith("- ")


def test_all_problems_of_features_are_in_one_error_and_long_lists_end():
    table = {"client": ["a"] * 3, "label": [0, 1, 0]}
    with pytest.raises(DataError, match=r"has 2 problems:\n- column 'f' has no value .*\n- column 'g' has no value"):
        from_table({**table, "f": [None] * 3, "g": [None] * 3})
    many = {f"f{i}": [None] * 3 for i in range(20)}
    with pytest.raises(DataError, match=r"has 20 problems:\n(- column.*\n){8}- and 12 more$"):
        from_table({**table, **many})
    with pytest.raises(SpecError, match=r"data\.ignore has 'label'"):  # a single problem is as it was
        from_table(table, ignore=("label",))
