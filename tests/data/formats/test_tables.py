"""Tables in CSV and Parquet."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError

GOOD = "client,age,label,height\nb,1,0,1.5\na,2,1,2.5\nb,3,1,3.5\n"


def csv(folder, text):
    (folder / "table.csv").write_text(text, encoding="utf-8")
    return str(folder / "table.csv")


def parquet(folder, **columns):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return str(folder / "table.parquet")


def test_a_table_gives_each_client_its_rows(tmp_path):
    data = load(csv(tmp_path, GOOD), test_share=0)
    assert data.clients == ("a", "b")
    x, y = data.examples("b")
    assert sorted(x.tolist()) == [[1, 1.5], [3, 3.5]]  # the columns age and height
    assert sorted(y.tolist()) == [0, 1]
    assert (data.name, data.classes, data.x.dtype) == ("table", 2, np.float32)


def test_without_a_split_column_a_fraction_is_used_for_testing(tmp_path):
    data = load(csv(tmp_path, "client,label,f\n" + "a,0,1\n" * 10))
    assert (data.sizes("fit").tolist(), data.sizes("test").tolist()) == ([9], [1])


def test_the_split_column_marks_test_rows(tmp_path):
    text = "client,label,f,split\na,0,1,train\nb,1,2,test\na,1,3,Test\na,0,4,train\n"
    data = load(csv(tmp_path, text))
    assert data.examples("a")[0].ravel().tolist() == [1, 4]
    assert data.examples("a", "test")[0].ravel().tolist() == [3]
    assert data.sizes("fit").tolist() == [2, 0]


def test_labels_with_a_decimal_point_are_regression_targets(tmp_path):
    data = load(csv(tmp_path, "client,label,f\na,0.5,1\na,2,1\n"))
    assert data.classes is None


@pytest.mark.parametrize(
    ("labels", "which"),
    [
        (["0", "1", "2.0"], "labels are integers written as floats, and"),
        ([*"0123456789", "3.5"], "1 of 11 labels is not integers, such as 3.5, so all"),
    ],
    ids=["all", "all but one"],
)
def test_targets_that_look_like_labels_cause_a_warning(tmp_path, caplog, labels, which):
    path = csv(tmp_path, "client,label,f\n" + "".join(f"a,{label},1\n" for label in labels))
    assert load(path).classes is None
    assert caplog.messages == [f"{path}: {which} are used as regression targets; for classes set data.classes=N"]


def test_clear_targets_and_given_classes_cause_no_warning(tmp_path, caplog):
    assert load(csv(tmp_path, "client,label,f\na,0.5,1\na,2,1\n")).classes is None
    data = load(csv(tmp_path, "client,label,f\na,0,1\na,1.0,1\n"), classes=2)
    assert (data.classes, data.y.tolist(), data.y.dtype) == (2, [0, 1], np.int32)
    assert not caplog.messages


def test_quotes_blank_lines_spaces_and_a_byte_order_mark_are_accepted(tmp_path):
    data = load(csv(tmp_path, '\ufeffclient, label ,f\n"a, b",0, 1\n\n"a, b",1,2\n'), test_share=0)
    assert data.clients == ("a, b",)
    assert sorted(data.x.ravel()) == [1, 2]


def test_a_table_longer_than_a_block_is_read_completely(tmp_path):
    rows = "".join(f"c{i % 7},{i % 3},{i}\n" for i in range(10_000))
    data = load(csv(tmp_path, "client,label,f\n" + rows), test_share=0)
    assert data.x.ravel().tolist() == list(range(10_000))
    assert data.y.tolist() == [i % 3 for i in range(10_000)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'client', only none. Name the columns in the first line"),
        ("client,f\na,1\n", "has no column 'label', only client, f"),
        ("client,label,f,f\na,1,2,3\n", "has two columns 'f'. Rename one"),
        ("client,label\na,1\n", "has no feature columns"),
        (",client,label,f\n0,a,1,2\n", "column 1 is called '', which is pandas' name for row numbers"),
        ("client,label,f,Unnamed: 0\na,1,2,0\n", "column 4 is called 'Unnamed: 0', which is pandas"),
        ("client,label,f\na,0,1\na,100000000000000000000,1\n", "line 3: the label 100000000000000000000 is too large"),
        ("client,label,f\na,0,1\na,1,1\na,90210123,1\n", "3 distinct labels, the largest 90210123: number them 0..2"),
        ("client,label,f\n", "has no rows below its header"),
        ("client,label,f\na,0,1\na,0\n", "line 3: 2 values in 3 columns"),
        ("client,label,f\na,0,1\n\na,0,red\n", "line 4, column 'f': 'red' is not a number. Encode categories"),
        ("client,label,f\na,0,\n", "line 2, column 'f': a value is missing"),
        ("client,label,f\na,0,nan\n", "line 2, column 'f': nan is not a finite 32-bit number"),
        ("client,label,f\na,0,1e300\n", "line 2, column 'f': 1e300 is not a finite 32-bit number"),
        ("client,label,f\na,cat,1\n", "line 2, column 'label': 'cat' is not a number"),
        ("client,label,f\na,-1,1\n", "client 'a' has label -1; labels must be 0, 1, 2, ..."),
        ("client,label,f\n ,0,1\n", "line 2: the client is missing"),
        ("client,label,f,split\na,0,1,valid\n", "line 2: split must be train or test, got 'valid'"),
        ('client,label,f\na,0,"1\n', "cannot be read as CSV in UTF-8"),
    ],
)
def test_a_wrong_table_is_rejected_by_file_line_and_column(tmp_path, text, message):
    with pytest.raises(DataError) as caught:
        load(csv(tmp_path, text))
    assert message in str(caught.value)
    assert "table.csv" in str(caught.value)


def test_a_file_in_another_encoding_is_rejected(tmp_path):
    (tmp_path / "table.csv").write_bytes("client,label,größe\na,0,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="cannot be read as CSV in UTF-8"):
        load(tmp_path / "table.csv")


def test_another_kind_of_file_is_rejected(tmp_path):
    (tmp_path / "table.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match=r"must be a folder of \.npz files or a table that ends in \.csv or \.parquet"):
        load(tmp_path / "table.xlsx")


def test_parquet_gives_the_same_data_as_csv(tmp_path):
    by_csv = load(csv(tmp_path, GOOD))
    by_parquet = load(parquet(tmp_path, client=["b", "a", "b"], age=[1, 2, 3], label=[0, 1, 1], height=[1.5, 2.5, 3.5]))
    assert by_parquet.clients == by_csv.clients
    np.testing.assert_array_equal(by_parquet.x, by_csv.x)
    np.testing.assert_array_equal(by_parquet.y, by_csv.y)
    np.testing.assert_array_equal(by_parquet.fit.order, by_csv.fit.order)


def test_parquet_supports_the_split_column_and_regression_targets(tmp_path):
    data = load(
        parquet(tmp_path, client=[1, 1, 2], label=[0.5, 1.5, 2.5], f=[1, 2, 3], split=["train", "test", "test"])
    )
    assert data.clients == ("1", "2")
    assert data.classes is None
    assert data.sizes("test").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"client": ["a"], "f": [1]}, "has no column 'label'"),
        ({"client": ["a"], "label": [0], "f": ["red"]}, "column 'f' must hold numbers"),
        ({"client": ["a", "a"], "label": [0, 1], "f": [1.0, None]}, "column 'f' has missing values"),
        (
            {"client": ["a", "a"], "label": [0, 1], "f": [1.0, float("inf")]},
            "row 1: column 'f' is inf, which is not",
        ),
        ({"client": ["a"], "label": ["x"], "f": [1.0]}, "column 'label' must hold numbers"),
        ({"client": ["a"], "label": [0], "f": [1.0], "__index_level_0__": [0]}, "Write the table with index=False"),
        ({"client": ["a"], "label": np.array([2**63], np.uint64), "f": [1.0]}, "the label 9223372036854775808 is too"),
        (
            {"client": ["a"], "label": [0], "f": [1.0], "split": ["dev"]},
            "row 0: split must be train or test, got 'dev'",
        ),
    ],
)
def test_a_wrong_parquet_table_is_rejected(tmp_path, columns, message):
    with pytest.raises(DataError) as caught:
        load(parquet(tmp_path, **columns))
    assert message in str(caught.value)


def test_clients_that_are_not_text_in_utf_8_are_rejected(tmp_path):
    pa = pytest.importorskip("pyarrow")
    names = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    with pytest.raises(DataError, match=r"table\.parquet: column 'client' holds text that is not UTF-8"):
        load(parquet(tmp_path, client=names, label=[0], f=[1.0]))


def test_a_file_that_is_not_parquet_is_rejected(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "table.parquet").write_bytes(b"hello")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load(tmp_path / "table.parquet")


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "table.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"Parquet needs pyarrow: pip install 'coterie\[table\]'"):
        load(tmp_path / "table.parquet")
