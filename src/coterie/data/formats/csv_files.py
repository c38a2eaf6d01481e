"""Tables in CSV: separated by commas, semicolons, tabs or vertical bars, possibly compressed with gzip.

A column holds numbers if all its values are numbers, booleans if all are true or false, and text otherwise. The words
in `MISSING` are missing values, as pandas has them. In a file that is separated by semicolons, numbers may have a
decimal comma.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Literal

import numpy as np

from coterie.data.columns import Table, check_header
from coterie.data.problems import Problems
from coterie.errors import DataError
from coterie.types import Array

#: Words for a missing value, besides an empty one.
MISSING = frozenset(("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A"))

_BLOCK = 4096  # rows converted at a time: text takes far more memory than numbers
_LONGEST_LINE = 1 << 24  # characters
_SEPARATORS = ",;\t|"
_BOOLEANS = {"true": 1.0, "false": 0.0}
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
#: Names of pandas' row numbers: in CSV, in CSV that was read and written again, and in Parquet.
_ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")

Kind = Literal["unknown", "number", "boolean", "text", "verbatim"]


def read_csv(file: Path, *, text: Collection[str] = (), skip: Collection[str] = ()) -> Table:
    """The columns of a CSV file with a header line; blank lines are skipped.

    Args:
        file: The file.
        text: Columns that are read as text. Nothing but an empty value is missing in them.
        skip: Columns that are left out.
    """
    try:
        columns, lines, header = _read(file, text, skip, {})
        late: dict[str, Kind] = {column.name: "text" for column in columns if column.late}
        if late:  # their first rows looked like numbers, so that the text of those rows was not kept
            columns, lines, header = _read(file, text, skip, late)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as CSV in UTF-8: {error}") from error
    problems, values = Problems(str(file)), {}
    for column in columns:
        with problems:
            values[column.name] = column.values(str(file))
    problems.report()
    return Table(str(file), values, np.asarray(lines, np.int64), tuple(header))


def check_names(what: str, header: Sequence[str], skip: Collection[str] = ()) -> None:
    """Check a header: names are unique, and none is a name that pandas gives to row numbers."""
    check_header(what, header)
    for place, name in enumerate(header, start=1):
        if _ROW_NUMBERS.fullmatch(name) and name not in skip:
            raise DataError(
                f"{what}: column {place} is called {name!r}, which is pandas' name for row numbers, and would be a"
                " feature. Write the table with index=False, or name the column"
            )


class _Column:
    """The values of a column, added block by block."""

    def __init__(self, name: str, kind: Kind, decimal_comma: bool) -> None:
        self.name, self.kind = name, kind
        self.late = False
        self._decimal_comma = decimal_comma
        self._blocks: list[Array] = []
        self._shared: dict[str, str] = {}  # one object for equal texts
        self._bad: tuple[int, str] | None = None  # the first number that is not finite

    def add(self, values: Sequence[str], lines: Sequence[int]) -> None:
        """Add the values of some lines."""
        if self.kind not in ("text", "verbatim"):
            for kind, block in (("number", self._numbers(values)), ("boolean", _booleans(values))):
                if block is not None and self.kind in (kind, "unknown"):
                    if not np.isnan(block).all():
                        self.kind = "number" if kind == "number" else "boolean"
                    self._check(values, block, lines)
                    self._blocks.append(block)
                    return
            self.late = bool(self._blocks)
            self.kind = "text"
        self._blocks.append(self._texts(values))

    def values(self, what: str) -> Array:
        """All values.

        Raises:
            DataError: If a number is not finite in 32 bits.
        """
        if self._bad is not None and self.kind == "number":
            line, value = self._bad
            raise DataError(f"{what}, line {line}, column {self.name!r}: {value} is not a finite 32-bit number")
        if not self._blocks:
            return np.zeros(0, object if self.kind in ("text", "verbatim") else np.float64)
        joined: Array = np.concatenate(self._blocks)
        return joined.astype(bool) if self.kind == "boolean" and not np.isnan(joined).any() else joined

    def _numbers(self, values: Sequence[str]) -> Array | None:
        try:
            return np.asarray([float(value) for value in values])
        except ValueError:
            pass
        try:
            return np.asarray([self._number(value) for value in values])
        except ValueError:
            return None

    def _number(self, value: str) -> float:
        if value.strip() in MISSING:
            return np.nan
        return float(value.replace(",", ".") if self._decimal_comma and _DECIMAL_COMMA.fullmatch(value) else value)

    def _texts(self, values: Sequence[str]) -> Array:
        stripped = [self._shared.setdefault(value, value) for value in map(str.strip, values)]
        missing = MISSING if self.kind == "text" else ("",)
        return np.fromiter((None if value in missing else value for value in stripped), object, len(stripped))

    def _check(self, values: Sequence[str], block: Array, lines: Sequence[int]) -> None:
        outside = np.abs(block) > np.finfo(np.float32).max
        if self._bad is None and outside.any():
            place = int(np.argmax(outside))
            self._bad = lines[place], values[place].strip()


def _booleans(values: Sequence[str]) -> Array | None:
    stripped = [value.strip() for value in values]
    try:
        return np.asarray([np.nan if value in MISSING else _BOOLEANS[value.lower()] for value in stripped])
    except KeyError:
        return None


def _read(
    file: Path, text: Collection[str], skip: Collection[str], kinds: dict[str, Kind]
) -> tuple[list[_Column], list[int], list[str]]:
    """The columns, the line of each row, and the header."""
    with _opened(file) as stream:
        lines = _lines(file, stream)
        first = next(lines, "")
        separator = "\t" if ".tsv" in file.suffixes[-2:] else _separator(first)
        rows = csv.reader(_chained(first, lines), delimiter=separator, strict=True)
        header = [name.strip() for name in next(rows, [])]
        check_names(str(file), header, skip)
        columns = {
            name: _Column(name, "verbatim" if name in text else kinds.get(name, "unknown"), separator == ";")
            for name in header
            if name not in skip
        }
        numbers: list[int] = []
        while block := list(islice(((rows.line_num, row) for row in rows if row), _BLOCK)):
            for line, row in block:
                if len(row) != len(header):
                    raise DataError(f"{file}, line {line}: {len(row)} values in {len(header)} columns")
            numbers += [line for line, _ in block]
            for name, values in zip(header, zip(*(row for _, row in block), strict=True), strict=True):
                if name in columns:
                    columns[name].add(values, numbers[-len(block) :])
    return list(columns.values()), numbers, header


def _opened(file: Path) -> IO[str]:
    if file.suffix.lower() == ".gz":
        return gzip.open(file, "rt", newline="", encoding="utf-8-sig")
    return file.open(newline="", encoding="utf-8-sig")


def _lines(file: Path, stream: IO[str]) -> Iterator[str]:
    """The lines of a file; a damaged compressed file may have one that is larger than the memory."""
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise DataError(f"{file} cannot be read as CSV: a line has more than {_LONGEST_LINE:,} characters")
        yield line


def _chained(first: str, others: Iterator[str]) -> Iterator[str]:
    yield first
    yield from others


def _separator(header: str) -> str:
    """The separator that gives the most column names; a comma if none does."""
    counts = {each: len(next(csv.reader([header], delimiter=each), [])) for each in _SEPARATORS}
    return max(_SEPARATORS, key=lambda each: counts[each])  # ties go to the first, the comma
