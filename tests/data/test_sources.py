"""Data of other libraries. Stand-ins with the same attributes are used for libraries that may not be installed."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import (
    as_federated,
    from_arrays,
    from_datasets,
    from_flwr_partitioner,
    from_pandas,
    from_polars,
    from_table,
    from_torch,
)
from coterie.errors import DataError, SpecError

ROWS = {
    "client": ["b", "a", "b", "a"],
    "label": ["no", "yes", "yes", "no"],
    "f": [1.5, None, 3.5, 4.5],
    "color": ["red", "blue", None, "red"],
    "split": ["train"] * 4,
}


class ClassLabel:
    """The part of `datasets.ClassLabel` that is used."""

    def __init__(self, *names):
        self.names = list(names)


class Dataset:
    """The part of `datasets.Dataset` that is used."""

    def __init__(self, columns, **features):
        self._columns = columns
        self.column_names = list(columns)
        self.features = {name: features.get(name) for name in columns}

    def __getitem__(self, name):
        return self._columns[name]


class Parts(dict):
    """The part of `datasets.DatasetDict` that is used."""

    @property
    def column_names(self):
        return {name: part.column_names for name, part in self.items()}


class Partitioner:
    """The part of a partitioner of flwr-datasets that is used."""

    def __init__(self, *parts):
        self._parts = parts
        self.num_partitions = len(parts)

    def load_partition(self, partition_id):
        return self._parts[partition_id]


class Items:
    """The part of `torch.utils.data.Dataset` that is used."""

    def __init__(self, *items):
        self._items = items

    def __len__(self):
        return len(self._items)

    def __getitem__(self, number):
        return self._items[number]


class Subset(Items):
    """Like `torch.utils.data.Subset`."""

    def __init__(self, dataset, indices):
        super().__init__(*(dataset[i] for i in indices))
        self.dataset = dataset


def same(one, other):
    assert one.clients == other.clients
    assert (one.features, one.class_names, one.preprocessing) == (
        other.features,
        other.class_names,
        other.preprocessing,
    )
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.fit.order, other.fit.order)


def test_frames_and_data_sets_give_the_same_data_as_columns():
    expected = from_table(ROWS)
    assert expected.features == ("f", "color=blue", "color=missing", "color=red")
    same(from_datasets(Dataset(ROWS)), expected)
    same(as_federated(Dataset(ROWS)), expected)


def test_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(ROWS, index=[5, 6, 7, 8])
    same(from_pandas(frame), from_table(ROWS))
    same(as_federated(frame), from_table(ROWS))
    with pytest.raises(SpecError, match="from_pandas takes a DataFrame of pandas, got list"):
        from_pandas([{}])


def test_polars():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    same(from_polars(polars.DataFrame(ROWS)), from_table(ROWS))
    same(as_federated(polars.DataFrame(ROWS)), from_table(ROWS))


def test_pyarrow():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    same(as_federated(arrow.table(ROWS)), from_table(ROWS))


def test_a_path(tmp_path):
    lines = [",".join(ROWS)] + [
        ",".join("" if v is None else str(v) for v in row) for row in zip(*ROWS.values(), strict=True)
    ]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    same(from_table(tmp_path / "mine.csv"), from_table(ROWS))
    same(as_federated(str(tmp_path / "mine.csv")), from_table(ROWS))
    assert from_table(tmp_path / "mine.csv").name == "mine"


def test_a_frame_for_each_client():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    parts = {"u": pandas.DataFrame({"label": [0, 1], "f": [1, 2]}), "v": pandas.DataFrame({"f": ["x"], "label": [1]})}
    data = as_federated(parts, test_share=0)
    assert data.clients == ("u", "v")
    assert data.features == ("f=1", "f=2", "f=x")  # text for one client is text for all
    assert data.y.tolist() == [0, 1, 1]
    with pytest.raises(DataError, match="The columns of 'v' are not those of the first table: g"):
        from_table({**parts, "v": pandas.DataFrame({"f": [1], "label": [1], "g": [2]})})


def test_the_names_of_a_class_label_are_class_names():
    dataset = Dataset({"client": [1, 2], "label": [2, 0], "f": [1, 2]}, label=ClassLabel("low", "mid", "high"))
    data = from_datasets(dataset)
    assert data.class_names == ("low", "mid", "high")
    assert (data.y.tolist(), data.classes) == ([2, 0], 3)


def test_a_label_of_minus_one_is_missing():
    dataset = Dataset({"client": [1, 2], "label": [-1, 0], "f": [1, 2]}, label=ClassLabel("low", "high"))
    with pytest.raises(DataError, match="row 0: the label is missing"):
        from_datasets(dataset)


def test_train_and_test_parts_of_a_data_set():
    parts = Parts(
        {name: Dataset({"client": ["a"], "label": [n], "f": [n + 1]}) for n, name in enumerate(("train", "test"))}
    )
    for read in (from_datasets, as_federated):
        data = read(parts)
        assert data.examples("a", "fit")[0].tolist() == [[1]]
        assert data.examples("a", "test")[0].tolist() == [[2]]
    with pytest.raises(DataError, match="must have the parts train and test, got train, dev"):
        from_datasets({"train": parts["train"], "dev": parts["test"]})


def test_a_column_of_arrays_holds_the_inputs():
    images = [np.full((2, 2), n, np.uint8) for n in range(4)]
    data = from_datasets(Dataset({"image": images, "who": [1, 1, 2, 2], "label": [0, 1, 0, 1]}), client="who")
    assert (data.shape, data.x.dtype) == ((2, 2), np.uint8)
    assert data.preprocessing is None
    with pytest.raises(DataError, match="column 'image' holds arrays, but there are also text; ignore all but one"):
        from_datasets(Dataset({"image": images, "client": [1] * 4, "label": [0] * 4, "text": ["x"] * 4}))
    with pytest.raises(DataError, match="arrays of different shapes"):
        from_datasets(Dataset({"image": [np.zeros(2), np.zeros(3)], "client": [1, 1], "label": [0, 1]}))


def test_partitions_are_clients():
    parts = [Dataset({"label": [0, 1], "f": [n, n + 1]}) for n in range(11)]
    for read in (from_flwr_partitioner, as_federated):
        data = read(Partitioner(*parts), test_share=0)
        assert data.clients == tuple(f"{n:02d}" for n in range(11))
        assert data.examples("10")[0].ravel().tolist() in ([10, 11], [11, 10])


@pytest.mark.parametrize("clients", [list, lambda parts: dict(zip("01", parts, strict=True))])
def test_pytorch_data_sets(clients):
    # A list, or a dict by client; the second client is a subset that knows its classes.
    whole = Items(*((np.array([n, n], np.float32), n % 2) for n in range(4)))
    whole.classes = ["even", "odd"]
    parts = clients([Subset(whole, [0, 1, 2]), Subset(whole, [3])])
    for read in (from_torch, as_federated):
        data = read(parts, test_share=0)
        assert data.clients == ("0", "1")
        assert data.class_names == ("even", "odd")
        assert data.examples("1")[0].tolist() == [[3, 3]]
        assert data.examples("1")[1].tolist() == [1]


def test_pytorch_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    whole = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 0, 1]))
    data = from_torch({"a": whole, "b": torch.utils.data.Subset(whole, [1, 2])}, test_share=0)
    assert data.sizes("fit").tolist() == [4, 2]
    assert sorted(data.examples("b")[0].tolist()) == [[2, 3], [4, 5]]


def test_test_sets_of_pytorch():
    one, two = Items((np.zeros(2), 0)), Items((np.ones(2), 1))
    data = from_torch({"a": one}, {"a": two}, truth={"a": 3})
    assert data.examples("a", "test")[0].tolist() == [[1, 1]]
    assert data.truth.tolist() == [3]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Items(), "Client 'a': its data set is empty"),
        (Items(np.zeros(2)), r"the items of its data set must be pairs \(x, y\)"),
        (Items((np.zeros(2), 0), (np.zeros(3), 0)), r"arrays of different shapes, such as \(2,\) and \(3,\)"),
        (iter(()), "must have a length and items"),
    ],
)
def test_wrong_pytorch_data_sets_are_refused(dataset, message):
    with pytest.raises(DataError, match=message):
        from_torch({"a": dataset})


def test_federated_data_and_arrays_are_accepted_as_they_are():
    data = from_arrays({"a": (np.zeros((2, 3)), [0, 1])})
    assert as_federated(data) is data
    assert as_federated({"a": (np.zeros((2, 3)), [0, 1])}).shape == (3,)
    assert as_federated("blobs", clients=4).name == "blobs"
    with pytest.raises(SpecError, match="FederatedData takes no settings, got seed"):
        as_federated(data, seed=1)


@pytest.mark.parametrize("wrong", [3, [], {}, [1, 2], object()])
def test_other_objects_are_refused(wrong):
    with pytest.raises(SpecError, match="data must be FederatedData, the name of a data set or a path, a DataFrame"):
        as_federated(wrong)


@pytest.mark.parametrize("read", [from_table, from_datasets, from_flwr_partitioner])
def test_unknown_settings_are_refused(read):
    with pytest.raises(SpecError, match=r"No setting of a table 'clients'\. Did you mean 'client'\?"):
        read(Dataset(ROWS), clients="x")
    with pytest.raises(SpecError, match=r"No setting of from_torch 'client'"):
        from_torch([], client="x")
