"""Rows of data sets whose values may be arrays, such as images: of Hugging Face, of partitioners, of PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie.data.columns import as_table, check_header, is_frame
from coterie.data.federated import FederatedData
from coterie.data.from_columns import TableSettings, from_columns
from coterie.errors import DataError
from coterie.types import Array


def columns_of(dataset: Any) -> dict[str, list[Any]]:
    """The columns of a Hugging Face data set as lists.

    Args:
        dataset: An object with `column_names`.
    """
    names = getattr(dataset, "column_names", None)
    if not is_frame(dataset) or not isinstance(names, list | tuple):
        raise DataError(f"A data set must have named columns, got {type(dataset).__name__}")
    check_header("The data set", [str(name) for name in names])
    return {str(name): list(dataset[name]) for name in names}


def pieces_of(parts: Mapping[str, Mapping[str, Any]], column: str) -> dict[str, list[Any]]:
    """The columns of several tables in pieces, and a column with the name of the part of each row.

    Args:
        parts: Name of the part → its columns.
        column: Name of the new column; a column of the parts that has this name is left out.
    """
    first = next(iter(parts.values()))
    wanted = [name for name in first if name != column]
    pieces: dict[str, list[Any]] = {column: [], **{name: [] for name in wanted}}
    for part, columns in parts.items():
        odd = sorted((set(columns) - {column}) ^ set(wanted))
        if odd:
            raise DataError(f"The columns of {part!r} are not those of the first table: {', '.join(odd[:5])}")
        size = len(columns[wanted[0]]) if wanted else 0
        pieces[column].append(np.fromiter([part] * size, object, size))
        for name in wanted:
            pieces[name].append(columns[name])
    return pieces


def stacked(parts: Mapping[str, Mapping[str, Sequence[Any]]], column: str) -> dict[str, list[Any]]:
    """The columns of several data sets, one below the other, and a column with the name of the part of each row.

    Args:
        parts: Name of the part → its columns.
        column: Name of the new column.
    """
    return {name: [value for piece in each for value in piece] for name, each in pieces_of(parts, column).items()}


def class_names(dataset: Any, label: str) -> tuple[str, ...]:
    """The class names of a Hugging Face data set whose labels are a `ClassLabel`; empty if it has none.

    Args:
        dataset: The data set.
        label: The column with the labels.
    """
    features = getattr(dataset, "features", None)
    kind = features.get(label) if isinstance(features, Mapping) else None
    return tuple(str(name) for name in getattr(kind, "names", None) or ())


def from_rows(
    columns: Mapping[str, list[Any]], settings: TableSettings, names: tuple[str, ...], what: str
) -> FederatedData:
    """Federated data from lists of values: the columns of a table, or one column of arrays, such as images.

    Args:
        columns: Name → values.
        settings: What the columns mean.
        names: Class names, if labels are their numbers; otherwise empty.
        what: The data, for error messages.
    """
    columns = dict(columns)
    if names and settings.label in columns and not settings.class_names:
        columns[settings.label] = [_name(number, names) for number in columns[settings.label]]
        settings = dataclasses.replace(settings, class_names=names)
    roles = (settings.client, settings.label, settings.truth, settings.split, settings.weight, *settings.ignore)
    features = [name for name in columns if name not in roles]
    arrays = [name for name in features if columns[name] and _is_array(columns[name][0])]
    if not arrays:
        return from_columns(lambda text, skip: as_table(columns, text=text, skip=skip, what=what), settings)
    if len(features) > 1:
        others = ", ".join(name for name in features if name != arrays[0])
        raise DataError(f"{what}: column {arrays[0]!r} holds arrays, but there are also {others}; ignore all but one")
    x = _stack(columns.pop(arrays[0]), f"{what}: column {arrays[0]!r}")
    return from_columns(lambda text, skip: as_table(columns, text=text, skip=skip, what=what), settings, x)


def torch_arrays(client: str, dataset: Any) -> tuple[Array, Array]:
    """The inputs and labels of a PyTorch data set.

    Args:
        client: The client, for error messages.
        dataset: Anything with a length and items (x, y).
    """
    tensors = getattr(dataset, "tensors", None)  # a TensorDataset holds them as they are needed
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return np.asarray(tensors[0]), np.asarray(tensors[1])
    try:
        items = [dataset[i] for i in range(len(dataset))]
    except TypeError as error:
        raise DataError(f"Client {client!r}: its data set must have a length and items; {error}") from error
    if not items:
        raise DataError(f"Client {client!r}: its data set is empty. Leave it out")
    if any(not isinstance(item, tuple | list) or len(item) != 2 for item in items):
        raise DataError(f"Client {client!r}: the items of its data set must be pairs (x, y)")
    where = f"Client {client!r}: its data set"
    return _stack([x for x, _ in items], where), _stack([y for _, y in items], where)


def torch_class_names(dataset: Any) -> tuple[str, ...]:
    """The class names of a data set, which torchvision stores as `classes`, also of a `Subset`; empty without.

    Args:
        dataset: The data set.
    """
    for _ in range(8):  # a Subset of a Subset of ...
        names = getattr(dataset, "classes", None)
        if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
            return tuple(names)
        dataset = getattr(dataset, "dataset", None)
    return ()


def _name(number: Any, names: tuple[str, ...]) -> str | None:
    """The name of a class; -1, or None, is a missing label."""
    if number is None or int(number) < 0:
        return None
    return names[int(number)] if int(number) < len(names) else str(number)


def _is_array(value: Any) -> bool:
    return not isinstance(value, str | bytes | Mapping) and np.ndim(value) > 0


def _stack(values: Sequence[Any], where: str) -> Array:
    arrays = [np.asarray(value) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        some = " and ".join(map(str, sorted(shapes)[:2]))
        raise DataError(f"{where} holds arrays of different shapes, such as {some}. Make them equal first")
    return np.stack(arrays)
