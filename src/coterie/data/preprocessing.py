"""`Preprocessing`: how the columns of a table become the inputs of a model.

It is fitted on training examples only, stored with the data and in the record of a run, and applied again to new
examples. Scaling is not part of it: the task normalizes its inputs (`model.normalize`), encoded columns as well.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from coterie.data.columns import Table, as_table, missing_rows, no_column, texts
from coterie.data.problems import Problems
from coterie.errors import DataError, did_you_mean, shown
from coterie.types import Array

log = logging.getLogger(__name__)

#: What a column holds. Booleans become 0 and 1; a category becomes a 0/1 input for each of its values.
Kind = Literal["number", "boolean", "category"]

#: What happens to missing values: they are imputed, or they are an error.
MissingValues = Literal["impute", "error"]

#: The category that stands for a missing value.
MISSING = "missing"

_BOOLEANS = {"true": 1.0, "false": 0.0}
#: A text column is meant to be numbers if at most this part of its values are none.
_OTHER_WORDS = 0.1
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Column:
    """A column of the original table.

    Attributes:
        name: Its name.
        kind: number, boolean or category.
        fill: Value of a missing number or boolean: the mean of the training examples.
        categories: Values of a category that occur in training examples, sorted; `missing` is among them if a value is
            missing in a training example.
    """

    name: str
    kind: Kind
    fill: float = 0.0
    categories: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs that the column becomes: its name, or `name=value` for each category."""
        if self.kind == "category":
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)


@dataclass(frozen=True)
class Preprocessing:
    """The columns of a table and their encoding.

    Attributes:
        columns: The columns that become inputs, in their order.
        missing: What happens to missing values.
        others: Columns that a table may have besides and that are not inputs, such as the client and the label.
    """

    columns: tuple[Column, ...]
    missing: MissingValues = "impute"
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the inputs have different names."""
        features = self.features
        if len(set(features)) < len(features):
            twice = next(name for name in features if features.count(name) > 1)
            raise DataError(f"Two columns would give an input called {twice!r}. Rename one of the columns")

    @classmethod
    def fit(
        cls,
        table: Table,
        names: Sequence[str],
        rows: Array,
        *,
        missing: MissingValues = "impute",
        max_categories: int = 50,
        others: Sequence[str] = (),
    ) -> Preprocessing:
        """Find the kind, the mean or the categories of each column.

        Args:
            table: The table.
            names: The columns that become inputs.
            rows: Rows of the training examples; the statistics of no other row are used.
            missing: What happens to missing values.
            max_categories: Largest number of categories of a column.
            others: Columns that are not inputs.

        Raises:
            DataError: If a column has too many categories, no value in any training example, or, with
                `missing="error"`, a missing value.
        """
        if missing not in get_args(MissingValues):
            raise DataError(f"missing must be 'impute' or 'error', got {shown(missing)}")
        problems, columns = Problems(table.what), []
        for name in names:
            with problems:
                columns.append(_column(table, name, rows, missing, max_categories))
        problems.report()
        return cls(tuple(columns), missing, tuple(others))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(feature for column in self.columns for feature in column.features)

    def transform(self, table: object) -> Array:
        """The inputs of a model, in the order of `features`.

        Columns are found by name, in any order. A category that no training example has becomes zeros, with a warning.

        Args:
            table: A `Table`, the path of a file, a DataFrame, a mapping from column to values; or an array, whose
                columns are in the order of `columns`, or of `features` if they are encoded already.

        Returns:
            (rows, features) float32.

        Raises:
            DataError: If a column is missing or unknown, or a value cannot be used.
        """
        if isinstance(table, np.ndarray) or (not isinstance(table, Mapping | str) and _is_nested(table)):
            array = np.asarray(table)
            if array.ndim == 2 and array.shape[1] == len(self.features) != len(self.columns):
                return self._checked(array)
            table = self._named(array)
        elif not isinstance(table, Table):
            categories = {column.name for column in self.columns if column.kind == "category"}
            table = as_table(table, text=categories, skip=self.others)
        self._check_columns(table)
        x = np.empty((len(table), len(self.features)), np.float32)
        start = 0
        problems = Problems(table.what)
        for column in self.columns:
            values = table.columns[column.name]
            width = len(column.features)
            with problems:
                if self.missing == "error":
                    _refuse_missing(table, column.name, values)
                encode = _one_hot if column.kind == "category" else _filled
                x[:, start : start + width] = encode(table, column, values)
            start += width
        problems.report()
        return x

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as a record stores them."""
        columns = [
            {
                "name": column.name,
                "kind": column.kind,
                **({"categories": list(column.categories)} if column.kind == "category" else {"fill": column.fill}),
            }
            for column in self.columns
        ]
        return {"columns": columns, "missing": self.missing, "others": list(self.others)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Preprocessing:
        """The inverse of `to_dict`.

        Raises:
            DataError: If the data are malformed.
        """
        try:
            columns = tuple(_from_dict(column) for column in plain["columns"])
            missing, others = plain["missing"], tuple(str(name) for name in plain["others"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"The description of the columns cannot be read: {error!r}") from error
        if missing not in get_args(MissingValues):
            raise DataError(f"missing must be 'impute' or 'error', got {shown(missing)}")
        return cls(columns, missing, others)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the columns and their encoding to a JSON file, which `data.preprocessing` takes."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    def sentence(self) -> str:
        """What was done to the columns besides using them as they are; empty if nothing was."""
        encoded = [f"{column.name} ({len(column.categories)})" for column in self.columns if column.kind == "category"]
        return f"one-hot encoded: {', '.join(encoded)}" if encoded else ""

    def _check_columns(self, table: Table) -> None:
        """Check that the table has the columns and no others; all that are missing or unknown are in one error."""
        known = {column.name for column in self.columns}
        lacking = [column.name for column in self.columns if column.name not in table.columns]
        unknown = [name for name in table.columns if name not in known and name not in self.others]
        problems = Problems(table.what)
        for name in lacking:
            with problems:
                given = [each for each in table.columns if each not in known] or table.columns
                raise no_column(table.what, name, given, "The model was trained with this column")
        for name in unknown:
            if not lacking or not did_you_mean(name, lacking):  # otherwise it was suggested above
                with problems:
                    raise DataError(
                        f"{table.what}: the model was trained without a column {name!r}."
                        f"{did_you_mean(name, known)} Leave it out"
                    )
        problems.report()

    def _named(self, array: Array) -> Table:
        """The columns of an array, by position."""
        if array.ndim != 2 or array.shape[1] != len(self.columns):
            names = ", ".join(column.name for column in self.columns[:6])
            raise DataError(
                f"An array must have the shape (rows, {len(self.columns)}), with the columns {names}"
                f"{', ...' if len(self.columns) > 6 else ''}; got {array.shape}"
            )
        return as_table({column.name: array[:, i] for i, column in enumerate(self.columns)}, what="The array")

    def _checked(self, array: Array) -> Array:
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise DataError("An array of encoded inputs must hold finite numbers")
        return array.astype(np.float32)


def _is_nested(table: object) -> bool:
    return isinstance(table, list | tuple)


def _from_dict(plain: Mapping[str, Any]) -> Column:
    kind, fill = plain["kind"], float(plain.get("fill", 0.0))
    if kind not in get_args(Kind) or not math.isfinite(fill):
        raise ValueError(f"{plain['name']}: kind {shown(kind)}, fill {fill}")
    return Column(str(plain["name"]), kind, fill, tuple(str(each) for each in plain.get("categories", ())))


def check_columns(table: Table, missing: MissingValues, max_categories: int, problems: Problems) -> None:
    """Check that columns can be encoded, in all rows, whatever the training examples are.

    Args:
        table: The columns that become inputs.
        missing: What happens to missing values.
        max_categories: Largest number of categories of a column.
        problems: Gets what is wrong.
    """
    rows = np.arange(len(table))
    for name in table.columns:
        with problems:
            _column(table, name, rows, missing, max_categories)


def _column(table: Table, name: str, rows: Array, missing: MissingValues, max_categories: int) -> Column:
    """The encoding of a column, from the rows of the training examples."""
    values = table.columns[name]
    if missing == "error":
        _refuse_missing(table, name, values)
    if values.dtype.kind == "O" and not missing_rows(values).all():
        return _category(table, name, values[rows], max_categories)
    return _number(table, name, values, rows)


def _number(table: Table, name: str, values: Array, rows: Array) -> Column:
    # Text columns come here only if all their values are missing.
    numbers = np.full(len(values), np.nan) if values.dtype.kind == "O" else values.astype(np.float64)
    _check_range(table, name, numbers)
    present = numbers[rows][~np.isnan(numbers[rows])]
    if len(present) == 0:
        raise DataError(f"{table.what}: column {name!r} has no value in any training example. Name it in data.ignore")
    return Column(name, "boolean" if values.dtype.kind == "b" else "number", float(present.mean()))


def _category(table: Table, name: str, values: Array, most: int) -> Column:
    found = {MISSING if value is None else value for value in values}
    if len(found) > most:
        if (note := almost_numbers(table, name)) is not None:
            raise DataError(f"{table.what}: {note}")
        some = ", ".join(shown(value) for value in sorted(found)[:3])
        raise DataError(
            f"{table.what}: column {name!r} is text with {len(found):,} different values, such as {some}; at most "
            f"{most} are one-hot encoded (data.max_categories). Leave it out with data.ignore=[{name!r}], or raise the "
            "limit"
        )
    return Column(name, "category", categories=tuple(sorted(found)))


def almost_numbers(table: Table, name: str) -> str | None:
    """A sentence about a text column in which most values are numbers; None if it is not such a column."""
    values = table.columns[name]
    if values.dtype.kind != "O":
        return None
    counts = Counter(value for value in values.tolist() if value is not None)
    words = {value for value in counts if not _is_number(value)}
    number, total = sum(counts[word] for word in words), counts.total()
    if not 0 < number <= _OTHER_WORDS * total:
        return None
    row = next(row for row, value in enumerate(values) if value in words)
    line = f"row {row}" if table.lines is None else f"line {table.lines[row]}"
    return (
        f"column {name!r} is text, because {number:,} of its {total:,} values "
        f"{'is no number' if number == 1 else 'are no numbers'}: {shown(values[row])} in {line}"
        f"{'' if number == 1 else ' and others'}. Leave a cell empty if its value is missing"
    )


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _refuse_missing(table: Table, name: str, values: Array) -> None:
    missing = missing_rows(values)
    if missing.any():
        raise DataError(
            f"{table.where(int(np.argmax(missing)))}, column {name!r}: a value is missing. Fill it in, remove the row, "
            "or set data.missing=impute"
        )


def _check_range(table: Table, name: str, numbers: Array) -> None:
    outside = np.abs(numbers) > _FLOAT32_MAX
    if outside.any():
        row = int(np.argmax(outside))
        raise DataError(f"{table.where(row)}, column {name!r}: {numbers[row]} is not a finite 32-bit number")


def _filled(table: Table, column: Column, values: Array) -> Array:
    """(rows, 1) numbers without missing values."""
    numbers = _parsed(table, column, values) if values.dtype.kind == "O" else values.astype(np.float64)
    _check_range(table, column.name, numbers)
    return np.where(np.isnan(numbers), column.fill, numbers)[:, None]


def _parsed(table: Table, column: Column, values: Array) -> Array:
    """Numbers from text."""
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is not None:
            try:
                numbers[row] = _BOOLEANS[value.lower()] if value.lower() in _BOOLEANS else float(value)
            except ValueError:
                raise DataError(
                    f"{table.where(row)}, column {column.name!r}: {shown(value)} is not a number, unlike the training "
                    "examples"
                ) from None
    return numbers


def _one_hot(table: Table, column: Column, values: Array) -> Array:
    """(rows, categories), a 1 in each row; zeros for a category that no training example has."""
    place = {category: number for number, category in enumerate(column.categories)}
    words = [MISSING if value is None else value for value in texts(values)]
    numbers = np.fromiter((place.get(word, -1) for word in words), np.int64, len(words))
    encoded = np.zeros((len(words), len(place)), np.float32)
    known = np.flatnonzero(numbers >= 0)
    encoded[known, numbers[known]] = 1
    if len(known) < len(words):
        first = words[int(np.argmin(numbers))]
        log.warning(
            "%s: %d values of column %r, such as %s, occur in no training example; they are encoded as zeros",
            table.what,
            len(words) - len(known),
            column.name,
            shown(first),
        )
    return encoded
