"""Federated data from what users have: files, DataFrames, data sets of other libraries, partitioners.

All functions of the family take the settings of a table (`TableSettings`): `client`, `label`, `truth`, `split`,
`weight`, `ignore`, `missing`, `task`, `classes`, `class_names`, `test_share`, `seed`, `name` and others. No other
library is imported: its objects are recognized by their attributes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.arrays import from_arrays
from coterie.data.columns import Table, as_table, is_frame, texts
from coterie.data.federated import FederatedData
from coterie.data.from_columns import TableSettings, from_columns
from coterie.data.loading import load
from coterie.data.partition.assembling import numbered
from coterie.data.rows import class_names, columns_of, from_rows, pieces_of, stacked, torch_arrays, torch_class_names
from coterie.errors import DataError, SpecError, unknown

_HOW = (
    "FederatedData, the name of a data set or a path, a DataFrame, a data set with columns, a partitioner, PyTorch "
    "data sets (a list, or a dict by client), or {client: (x, y)}"
)


def from_table(source: object, **settings: Any) -> FederatedData:
    """Federated data from a table with a column for the client and one for the label.

    Args:
        source: The path of a CSV or Parquet file; a DataFrame of pandas or polars; an Arrow table; a mapping from
            column to values; or a dict of DataFrames by client.
        settings: Fields of `coterie.data.TableSettings`, such as `client="hospital"`, `ignore=["id"]`.
    """
    chosen = _settings(settings)
    if isinstance(source, str | os.PathLike):
        from coterie.data.formats.tables import ENDINGS, read_columns

        file = Path(source)
        ending = next((each for each in sorted(ENDINGS, key=len, reverse=True) if file.name.lower().endswith(each)), "")
        if "name" not in settings:
            chosen = dataclasses.replace(chosen, name=file.name[: len(file.name) - len(ending)] or file.name)
        verbatim = set() if ending == ".parquet" else {chosen.label}
        return from_columns(lambda text, skip: read_columns(file, text={*text, *verbatim}, skip=skip), chosen)
    if isinstance(source, Mapping) and source and all(is_frame(each) for each in source.values()):
        parts = {str(client): part for client, part in source.items()}
        return from_columns(lambda text, skip: _below_each_other(parts, chosen.client, text, skip), chosen)
    return from_columns(lambda text, skip: as_table(source, text=text, skip=skip), chosen)


def from_pandas(frame: object, **settings: Any) -> FederatedData:
    """Federated data from a pandas DataFrame; its index is not used.

    Args:
        frame: The DataFrame, or a dict of DataFrames by client.
        settings: As in `from_table`.
    """
    return from_table(_frames(frame, "pandas"), **settings)


def from_polars(frame: object, **settings: Any) -> FederatedData:
    """Federated data from a polars DataFrame or LazyFrame.

    Args:
        frame: The frame, or a dict of frames by client.
        settings: As in `from_table`.
    """
    return from_table(_frames(frame, "polars"), **settings)


def from_datasets(dataset: object, **settings: Any) -> FederatedData:
    """Federated data from a Hugging Face data set with a column for the client.

    The names of a `ClassLabel` are the class names. If the data set has one more column besides client, label and
    split, and it holds arrays or images, these are the inputs; otherwise its columns are those of a table.

    Args:
        dataset: A `datasets.Dataset`, or a `DatasetDict` with the parts train and test.
        settings: As in `from_table`.
    """
    chosen = _settings(settings)
    if not isinstance(dataset, Mapping):
        return from_rows(columns_of(dataset), chosen, class_names(dataset, chosen.label), "The data set")
    parts = {name: part for name, part in dataset.items() if name in ("train", "test")}
    if not parts or len(parts) < len(dataset):
        raise DataError(f"A DatasetDict must have the parts train and test, got {', '.join(map(str, dataset))}")
    columns = stacked({str(name): columns_of(part) for name, part in parts.items()}, chosen.split)
    return from_rows(columns, chosen, class_names(next(iter(parts.values())), chosen.label), "The data set")


def from_flwr_partitioner(partitioner: Any, **settings: Any) -> FederatedData:
    """Federated data from a partitioner of flwr-datasets: partition i is client i.

    Args:
        partitioner: An object with `num_partitions` and `load_partition(i)`, whose data set is assigned.
        settings: As in `from_table`; `client` is not used.
    """
    chosen = _settings(settings)
    count = int(partitioner.num_partitions)
    loaded = [partitioner.load_partition(i) for i in range(count)]
    if not loaded:
        raise DataError("The partitioner has no partitions")
    parts = {str(client): columns_of(part) for client, part in zip(numbered(count), loaded, strict=True)}
    return from_rows(stacked(parts, chosen.client), chosen, class_names(loaded[0], chosen.label), "The partitions")


def from_torch(
    clients: Mapping[str, Any] | Sequence[Any], test: Mapping[str, Any] | Sequence[Any] | None = None, **settings: Any
) -> FederatedData:
    """Federated data from PyTorch data sets, one for each client, whose items are pairs (x, y).

    Args:
        clients: A list, or a dict by client, of `torch.utils.data.Dataset`, `Subset` or anything with a length and
            items.
        test: Test data sets of the same clients; None: a fraction of each client's examples.
        settings: Of those in `from_table`: `name`, `test_share`, `seed`, `classes`, `class_names`; `truth` is a dict or
            list with the true cluster of each client.
    """
    own, tests = _by_client(clients), None if test is None else _by_client(test)
    allowed = ("name", "test_share", "seed", "classes", "class_names", "truth")
    for key in settings:
        if key not in allowed:
            raise SpecError(unknown("setting of from_torch", key, allowed))
    names = tuple(settings.pop("class_names", ())) or torch_class_names(next(iter(own.values()), None))
    options = {"name": "torch", "source": "PyTorch data sets", **settings}
    data = from_arrays(
        {client: torch_arrays(client, each) for client, each in own.items()},
        None if tests is None else {client: torch_arrays(client, each) for client, each in tests.items()},
        **{**options, "classes": options.get("classes") or (len(names) or None)},
    )
    return dataclasses.replace(data, class_names=tuple(map(str, names))) if names else data


def as_federated(data: Any, **settings: Any) -> FederatedData:
    """Federated data from any object that one of the functions of this module takes.

    Args:
        data: FederatedData, the name of a data set or a path, a DataFrame, a data set with columns, a partitioner,
            PyTorch data sets (a list, or a dict by client), or {client: (x, y)}.
        settings: Settings of the function that is used.
    """
    if isinstance(data, FederatedData):
        if settings:
            raise SpecError(f"FederatedData takes no settings, got {', '.join(settings)}")
        return data
    return _reader(data)(data, **settings)


def _reader(data: Any) -> Callable[..., FederatedData]:
    """The function that takes such an object."""
    if isinstance(data, str | os.PathLike):
        return load
    if hasattr(data, "num_partitions") and hasattr(data, "load_partition"):
        return from_flwr_partitioner
    if not isinstance(data, Mapping) and is_frame(data):  # a DatasetDict has column names of its parts
        return from_datasets if hasattr(data, "features") else from_table
    values = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, list | tuple) else []
    if isinstance(data, Mapping) and values:
        if all(hasattr(each, "column_names") and hasattr(each, "features") for each in values):
            return from_datasets
        if all(is_frame(each) for each in values):
            return from_table
        if all(isinstance(each, tuple | list) and len(each) in (2, 4) and np.ndim(each[0]) > 1 for each in values):
            return from_arrays
    if values and all(hasattr(each, "__getitem__") and hasattr(each, "__len__") for each in values):
        return from_torch
    raise SpecError(f"data must be {_HOW}, got {type(data).__name__}")


def _settings(given: Mapping[str, Any]) -> TableSettings:
    known = [each.name for each in dataclasses.fields(TableSettings)]
    for key in given:
        if key not in known:
            raise SpecError(unknown("setting of a table", key, known))
    return TableSettings(**given)


def _frames(frame: object, library: str) -> object:
    for each in frame.values() if isinstance(frame, Mapping) else (frame,):
        if type(each).__module__.partition(".")[0] != library:
            raise SpecError(f"from_{library} takes a DataFrame of {library}, got {type(each).__name__}")
    return frame


def _below_each_other(parts: Mapping[str, Any], client: str, text: Collection[str], skip: Collection[str]) -> Table:
    """One table from a table for each client, with a column for the client."""
    tables = {
        name: as_table(part, text=text, skip=skip, what=f"The table of client {name!r}") for name, part in parts.items()
    }
    header = next(iter(tables.values())).header
    kinds = {column for each in tables.values() for column, values in each.columns.items() if values.dtype.kind == "O"}
    # A column that is text for one client is text for all.
    columns = {
        name: {column: texts(values) if column in kinds else values for column, values in each.columns.items()}
        for name, each in tables.items()
    }
    stack = {column: np.concatenate(pieces) for column, pieces in pieces_of(columns, client).items()}
    return Table("The tables", stack, header=(client, *header))


def _by_client(given: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Client → data set; those of a list are numbered."""
    if isinstance(given, Mapping):
        return {str(client): each for client, each in given.items()}
    return dict(zip(numbered(len(given)), given, strict=True))
