"""Inputs of a trained model: arrays, or tables whose columns have names."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.checks import first_bad_row
from coterie.data.columns import Table
from coterie.data.formats import tables
from coterie.data.preprocessing import Preprocessing
from coterie.data.problems import Problems
from coterie.errors import DataError, did_you_mean
from coterie.types import Array

#: Column name → values.
Columns = dict[str, Array]


def model_inputs(x: Any, about: Mapping[str, Any]) -> Array:
    """The inputs of a model as an array.

    Args:
        x: An array; or a table: a data frame, a dict of columns, or the path of a .csv or .parquet file.
        about: What is known about the data of the model (`coterie.runs.model_files.DATA_KEYS`).

    Raises:
        DataError: If columns are missing or unknown, or values are not numbers.
    """
    if isinstance(x, str | os.PathLike):
        x = read_columns(Path(x))
    array = _transformed(x, about) if is_table(x) else np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise DataError(f"The inputs must be numbers, got {array.dtype}; encode them as the run's data were encoded")
    row = first_bad_row(array)
    if row is not None:
        raise DataError(f"The inputs are NaN or infinite in row {row}; remove such rows or fill in the values")
    return array


def labels_of(y: Any, about: Mapping[str, Any]) -> Array | None:
    """Labels as class numbers, or targets; class names are looked up.

    Args:
        y: Labels: class names or numbers, or targets; None: not known.
        about: What is known about the data of the model (`coterie.runs.model_files.DATA_KEYS`).

    Raises:
        DataError: If a label is no class.
    """
    if y is None:
        return None
    labels, names = np.asarray(y), about.get("class_names")
    if names is None:
        if labels.dtype.kind in "biuf":
            return labels
        try:
            return labels.astype(np.int64)
        except ValueError:
            pass
        try:
            return labels.astype(np.float32)
        except ValueError as fault:
            raise DataError(f"Labels must be class numbers or targets: {fault}") from fault
    numbers = {str(name): number for number, name in enumerate(names)}
    for label in np.unique(labels):
        if str(label) not in numbers:
            raise DataError(f"The label {str(label)!r} is not a class of the run; its classes are {_some(names)}")
    return np.array([numbers[str(label)] for label in labels], np.int64)


def is_table(x: Any) -> bool:
    """Whether x has columns with names: a table, a dict, or a data frame."""
    return isinstance(x, Mapping) or hasattr(x, "columns")


def columns_of(table: Any) -> Columns:
    """Name → values of a table, a dict of columns or a data frame."""
    if isinstance(table, Table):
        return dict(table.columns)
    names = list(table) if isinstance(table, Mapping) else list(table.columns)
    return {str(name): np.asarray(table[name]) for name in names}


def _transformed(table: Any, about: Mapping[str, Any]) -> Array:
    """The features of a table, in the order in which the model takes them."""
    if about.get("preprocessing") is not None:
        return Preprocessing.from_dict(about["preprocessing"]).transform(table)
    columns = columns_of(table)
    if about.get("features") is not None:
        columns = _in_order(columns, list(about["features"]))
    return np.stack([_numbers(name, values) for name, values in columns.items()], axis=1)


def _in_order(columns: Columns, features: Sequence[str]) -> Columns:
    """The columns in the order of the features; refuses missing and unknown ones."""
    problems = Problems("The table")
    for name in features:
        if name not in columns:
            with problems:
                raise DataError(
                    f"The table has no column {name!r}, which the model needs.{did_you_mean(name, columns)}"
                )
    for name in columns:
        if name not in features:
            with problems:
                raise DataError(
                    f"The model does not know the column {name!r}; it takes {_some(features)}. Remove the column, or "
                    "rename it"
                )
    problems.report()
    return {name: columns[name] for name in features}


def _numbers(name: str, values: Array) -> Array:
    try:
        return values.astype(np.float32)
    except (TypeError, ValueError) as fault:
        raise DataError(
            f"Column {name!r} must hold numbers: {fault}. Encode categories as in the run's data"
        ) from fault


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def read_columns(file: Path, text: Collection[str] = ()) -> Table:
    """A table on disk, read as `coterie.data.from_table` reads them.

    Args:
        file: The file.
        text: Columns that are read as text.

    Raises:
        DataError: If the file is missing, has another ending or cannot be read.
    """
    return tables.read_columns(file, text=text)
