"""Tables in CSV and Parquet."""

from __future__ import annotations

import gzip
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
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
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
    path = csv(tmp_path, "client,label,f\n" + "".join(f"a,{label},{n % 2}\n" for n, label in enumerate(labels)))
    assert load(path).classes is None
    assert caplog.messages == [f"{path}: {which} are used as regression targets; for classes set data.classes=N"]


def test_clear_targets_and_given_classes_cause_no_warning(tmp_path, caplog):
    assert load(csv(tmp_path, "client,label,f\na,0.5,1\na,2,2\n")).classes is None
    data = load(csv(tmp_path, "client,label,f\na,0,1\na,1.0,2\n"), classes=2)
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
        ("", "is empty: it has no columns. Name the columns in the first line"),
        ("client,f\na,1\n", "has no column 'label', only client, f"),
        ("client,label,f,f\na,1,2,3\n", "has two columns 'f'. Rename one"),
        ("client,label\na,1\n", "has no feature columns"),
        (",client,label,f\n0,a,1,2\n", "column 1 is called '', which is pandas' name for row numbers"),
        ("client,label,f,Unnamed: 0\na,1,2,0\n", "column 4 is called 'Unnamed: 0', which is pandas"),
        ("client,label,f\n", "has no rows below its header"),
        ("client,label,f\na,0,1\na,0\n", "line 3: 2 values in 3 columns"),
        ("client,label,f\na,0,\n", "column 'f' has no value in any training example. Name it in data.ignore"),
        ("client,label,f\na,0,1e300\n", "line 2, column 'f': 1e300 is not a finite 32-bit number"),
        ("client,label,f\na,0,2\n\na,0,inf\n", "line 4, column 'f': inf is not a finite 32-bit number"),
        ("client,label,f\na,0,1\na,,1\n", "line 3: the label is missing. Remove such rows"),
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
    with pytest.raises(DataError, match=r"must be a folder of \.npz files or a table that ends in \.csv, \.csv\.gz, "):
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
        ({"client": ["a"], "label": [0], "f": [[1, 2]]}, "column 'f' holds values of type"),
        ({"client": ["a", None], "label": [0, 1], "f": [1.0, 2.0]}, "row 1: the client is missing"),
        ({"client": ["a", "a"], "label": [0, None], "f": [1.0, 2.0]}, "row 1: the label is missing"),
        (
            {"client": ["a", "a"], "label": [0, 1], "f": [1.0, float("inf")]},
            "row 1, column 'f': inf is not a finite 32-bit number",
        ),
        ({"client": ["a"], "label": [0], "f": [1.0], "__index_level_0__": [0]}, "Write the table with index=False"),
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
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    names = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    with pytest.raises(DataError, match=r"table\.parquet: column 'client' holds text that is not UTF-8"):
        load(parquet(tmp_path, client=names, label=[0], f=[1.0]))


def test_a_file_that_is_not_parquet_is_rejected(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / "table.parquet").write_bytes(b"hello")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load(tmp_path / "table.parquet")


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "table.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"Parquet needs pyarrow: pip install 'coterie\[table\]'"):
        load(tmp_path / "table.parquet")


#: Two hospitals; the third row has no age, the fourth no color.
MESSY = [
    ["nr", "hospital", "age", "color", "smoker", "outcome"],
    ["17", "south", "40", "red", "True", "well"],
    ["4", "north", "60", "blue", "False", "ill"],
    ["9", "north", "", "red", "True", "ill"],
    ["2", "south", "50", "", "False", "well"],
]
ROLES = {"client": "hospital", "label": "outcome", "ignore": ("nr",), "test_share": 0}


def messy(separator=","):
    return "".join(separator.join(row) + "\n" for row in MESSY)


def check_messy(data):
    assert data.clients == ("north", "south")
    assert data.class_names == ("ill", "well")
    assert data.y.tolist() == [1, 0, 0, 1]
    assert data.features == ("age", "color=blue", "color=missing", "color=red", "smoker")
    # The mean of the ages 40, 60 and 50 is 50; colors are one-hot encoded in sorted order.
    assert data.x.tolist() == [[40, 0, 0, 1, 1], [60, 1, 0, 0, 0], [50, 0, 0, 1, 1], [50, 0, 1, 0, 0]]


def test_a_messy_table_is_encoded(tmp_path):
    data = load(csv(tmp_path, messy()), **ROLES)
    check_messy(data)
    assert data.source == "a table of 4 rows; one-hot encoded: color (3); 2 missing values imputed"


@pytest.mark.parametrize("name", ["table.csv", "table.tsv", "table.csv.gz", "table.tsv.gz"])
@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_and_compressed_files_are_read(tmp_path, name, separator):
    separator = "\t" if "tsv" in name else separator
    content = messy(separator).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    data = load(tmp_path / name, **ROLES)
    check_messy(data)
    assert data.name == "table"


def test_a_messy_parquet_file_gives_the_same_data(tmp_path):
    check_messy(
        load(
            parquet(
                tmp_path,
                nr=[17, 4, 9, 2],
                hospital=["south", "north", "north", "south"],
                age=[40, 60, None, 50],
                color=["red", "blue", "red", None],
                smoker=[True, False, True, False],
                outcome=["well", "ill", "ill", "well"],
            ),
            **ROLES,
        )
    )


def test_missing_values_can_be_refused(tmp_path):
    path = csv(tmp_path, messy())
    with pytest.raises(DataError, match=r"table\.csv, line 4, column 'age': a value is missing\. Fill it in, "):
        load(path, **ROLES, missing="error")


def test_several_tables_share_an_encoding(tmp_path):
    data = load(csv(tmp_path, messy()), **ROLES)
    data.preprocessing.save(tmp_path / "columns.json")
    path = csv(tmp_path, "hospital,smoker,color,age,outcome\neast,False,blue,,ill\n")
    other = load(
        path, **{**ROLES, "ignore": ()}, preprocessing=str(tmp_path / "columns.json"), class_names=("ill", "well")
    )
    assert other.x.tolist() == [[50, 1, 0, 0, 0]]  # columns by name; the mean of the first table
    assert (other.classes, other.features) == (2, data.features)


def test_a_missing_file_of_an_encoding_is_named(tmp_path):
    with pytest.raises(DataError, match=r"data\.preprocessing: .*none\.json cannot be read"):
        load(csv(tmp_path, GOOD), preprocessing=str(tmp_path / "none.json"))


def test_a_broken_compressed_file_is_rejected(tmp_path):
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(messy().encode())[:-9])
    with pytest.raises(DataError, match="cannot be read as CSV"):
        load(tmp_path / "table.csv.gz", **ROLES)
