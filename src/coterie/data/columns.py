"""`Table`: named columns, from a file or from an object of pandas, polars, pyarrow or Hugging Face datasets.

None of these packages is imported: an object is recognized by its attributes. A column is an array of numbers, an array
of booleans, or an array of text, of dtype object, in which None is a missing value. A missing number is NaN.
"""

from __future__ import annotations

import numbers
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from coterie.data.problems import Problems
from coterie.errors import DataError, did_you_mean
from coterie.types import Array

_COLUMNS_SHOWN = 12
#: Types of missing values in pandas, which are neither None nor a float.
_MISSING_TYPES = ("NAType", "NaTType")


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a table.

    Attributes:
        what: The table, for error messages: its path, or a description.
        columns: Name → values, one for each row.
        lines: (rows,) the line of the file of each row; None if the table has no lines.
        header: Names of all columns, also of those that were left out.
    """

    what: str
    columns: Mapping[str, Array]
    lines: Array | None = None
    header: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def where(self, row: int) -> str:
        """A row, for error messages."""
        return f"{self.what}, row {row}" if self.lines is None else f"{self.what}, line {self.lines[row]}"


def is_frame(source: object) -> bool:
    """Whether an object has named columns: a DataFrame, an Arrow table, or a Hugging Face data set."""
    return _names(source) is not None


def as_table(
    source: object, *, text: Collection[str] = (), skip: Collection[str] = (), what: str | None = None
) -> Table:
    """The columns of a file, of an object with named columns, or of a mapping from name to values.

    Args:
        source: The path of a table, a DataFrame of pandas or polars, an Arrow table, a Hugging Face data set, or a
            mapping from column name to values.
        text: Columns that are read as text, even if they look like numbers.
        skip: Columns that are left out.
        what: The table, for error messages; None: its path, or its type.
    """
    if isinstance(source, str | os.PathLike):
        from coterie.data.formats.tables import read_columns

        return read_columns(source, text=text, skip=skip)
    if callable(collect := getattr(source, "collect", None)) and hasattr(source, "collect_schema"):
        source = collect()  # a LazyFrame of polars
    what = what or f"The {type(source).__name__}"
    names = list(source) if isinstance(source, Mapping) else _names(source)
    if names is None:
        raise DataError(
            f"A table is a path, a DataFrame, an Arrow table, a data set with columns or a mapping from column to "
            f"values, got {type(source).__name__}"
        )
    named = [str(name) for name in names]
    check_header(what, named)
    wanted = [(name, key) for name, key in zip(named, names, strict=True) if name not in skip]
    problems, columns = Problems(what), {}
    for name, key in wanted:
        with problems:
            columns[name] = _values(source, key, f"{what}: column {name!r}", text=name in text)
    problems.report()
    sizes = {len(values) for values in columns.values()}
    if len(sizes) > 1:
        raise DataError(f"{what} has columns of different lengths: {', '.join(map(str, sorted(sizes)))}")
    return Table(what, columns, header=tuple(named))


def check_header(what: str, header: Sequence[str]) -> None:
    """Check that column names are unique."""
    twice = next((name for name, count in Counter(header).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{what} has two columns {twice!r}. Rename one of them")


def no_column(what: str, name: str, known: Iterable[str], do: str) -> DataError:
    """The error for a column that is missing.

    Args:
        what: The table.
        name: The column.
        known: The columns that the table has.
        do: What to do about it.
    """
    names = list(known)
    if not names:
        return DataError(f"{what} is empty: it has no columns. {do}")
    shown = ", ".join(names[:_COLUMNS_SHOWN])
    shown += f" and {len(names) - _COLUMNS_SHOWN} more" if len(names) > _COLUMNS_SHOWN else ""
    return DataError(f"{what} has no column {name!r}, only {shown}.{did_you_mean(name, names)} {do}")


def values_of(values: Any, where: str, *, text: bool = False) -> Array:
    """A column as an array of numbers, of booleans, or of text with None for missing values.

    Args:
        values: The values, as an array or a sequence.
        where: The column, for error messages.
        text: Whether numbers become text, too.

    Raises:
        DataError: If the values are of another kind, such as dates.
    """
    array = values if isinstance(values, np.ndarray) else _array(values)
    if array.ndim != 1:
        raise DataError(f"{where} holds arrays of shape {array.shape[1:]}; a column of a table has one value per row")
    if array.dtype.kind in "biuf":
        return texts(array) if text else array
    if array.dtype.kind == "U":
        array = array.astype(object)
    if array.dtype.kind != "O":
        raise DataError(f"{where} holds {array.dtype}. {_ALLOWED}")
    found = [None if is_missing(value) else value for value in array.tolist()]
    present = [value for value in found if value is not None]
    if present and not text:
        if all(isinstance(value, bool | np.bool_) for value in present):
            return _numbers(found) if len(present) < len(found) else np.asarray(found, bool)
        if all(_is_number(value) for value in present):
            return _whole(found) if len(present) == len(found) else _numbers(found)
    for value in present:
        if not isinstance(value, str) and not _is_number(value):
            raise DataError(f"{where} holds values of type {type(value).__name__}. {_ALLOWED}")
    return _objects([None if value is None else _text(value) for value in found])


_ALLOWED = "Columns hold numbers, booleans or text. Convert it, or name it in data.ignore"


def texts(values: Array) -> Array:
    """A column as text, with None for missing values; whole numbers are written without a decimal point."""
    if values.dtype.kind == "O":
        return values
    return _objects([None if is_missing(value) else _text(value) for value in values.tolist()])


def is_missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, or NA of pandas."""
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def missing_rows(values: Array) -> Array:
    """(rows,) whether each value of a column is missing."""
    if values.dtype.kind == "O":
        return np.fromiter((value is None for value in values), bool, len(values))
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)


def _names(source: object) -> list[Any] | None:
    """The column names of an object, or None."""
    names = getattr(source, "column_names", None)  # Arrow, Hugging Face
    if names is None and hasattr(source, "dtypes"):
        names = getattr(source, "columns", None)  # pandas, polars
    return None if names is None or isinstance(names, Callable) else list(names)  # type: ignore[arg-type]


def _values(source: Any, key: Any, where: str, *, text: bool) -> Array:
    try:
        return values_of(_column(source, key), where, text=text)
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{where} holds text that is not UTF-8. Write it as UTF-8") from error
    except Exception as error:  # nested and other types that NumPy does not have: each library has its own errors
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{where} cannot be converted: {first}. {_ALLOWED}") from error


def _column(source: Any, name: Any) -> Any:
    column = source[name]
    if str(getattr(column, "dtype", "")) == "category":  # of pandas; its values may be numbers
        return _objects([None if is_missing(value) else str(value) for value in column])
    if hasattr(column, "to_pylist") and str(column.type).startswith(("string", "large_string", "dictionary")):
        return column.to_pylist()  # of Arrow
    convert = getattr(column, "to_numpy", None)
    return convert() if callable(convert) else column


def _array(values: Any) -> Array:
    """An array of a sequence; of dtype object unless all values have one type that NumPy knows."""
    listed = values if isinstance(values, list) else list(values)
    kinds = {type(value) for value in listed}
    if len(kinds) == 1 and kinds <= {int, float, bool}:
        try:
            return np.asarray(listed)
        except OverflowError:
            return _objects(listed)
    return _objects([value.item() if isinstance(value, np.generic) else value for value in listed])


def _objects(values: Sequence[Any]) -> Array:
    return np.fromiter(values, object, len(values))


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | Decimal | np.number | np.bool_)


def _numbers(values: Sequence[Any]) -> Array:
    return np.asarray([np.nan if value is None else float(value) for value in values], np.float64)


def _whole(values: Sequence[Any]) -> Array:
    """int64 if all values are integers, otherwise float64."""
    try:
        return (
            np.asarray(values, np.int64)
            if all(isinstance(each, numbers.Integral) for each in values)
            else (_numbers(values))
        )
    except OverflowError:
        return _objects([str(value) for value in values])


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value).strip()
