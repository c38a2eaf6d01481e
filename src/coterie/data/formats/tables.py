"""Tables in CSV or Parquet with columns `client` and `label`, optionally `split`; every other column is a feature.

If all labels are integers, they are classes and must be 0..C-1. If one has a decimal point, all are regression targets,
unless the number of classes is given. `split` is train or test for each row; without it, a fraction of each client's
rows is used for testing. A column without a name, such as the row numbers that pandas writes, is an error.
"""

from __future__ import annotations

import csv
import importlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.checks import classes_of, warn_if_targets_look_like_labels
from coterie.data.federated import FederatedData, Index
from coterie.data.partition import assemble, by_column
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array, ClientId

_BLOCK = 4096  # rows converted at a time: text takes far more memory than numbers
_ROLES = ("client", "label", "split")
#: Names of pandas' row numbers: in CSV, in CSV that was read and written again, and in Parquet.
_ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table by role."""

    client: npt.NDArray[np.str_]
    x: npt.NDArray[np.float32]  # (rows, features)
    y: Array  # integers, or floats for regression targets
    split: npt.NDArray[np.bool_] | None  # whether a row is a test example


def read_table(
    path: str | os.PathLike[str], *, test_share: float = 0.1, seed: int = 0, classes: int | None = None
) -> FederatedData:
    """Read the clients of a table, in the sorted order of their names.

    Args:
        path: A .csv or .parquet file.
        test_share: Fraction of each client's rows used for testing, if there is no column `split`.
        seed: Random seed of that split.
        classes: Number of classes. None: one more than the largest label, or regression if labels are not integers.
    """
    file = Path(path)
    if not file.exists():
        raise DataError(f"There is no file or folder {file}")
    if file.suffix.lower() not in _READERS:
        raise DataError(f"{file} must be a folder of .npz files or a table that ends in .csv or .parquet")
    table = _READERS[file.suffix.lower()](file)
    if len(table.y) == 0:
        raise DataError(f"{file} has no rows below its header")
    whole = table.y.dtype.kind != "f"
    if whole and table.y.min() < 0:
        client = table.client[np.argmin(table.y)]
        raise DataError(f"{file}: client {str(client)!r} has label {table.y.min()}; labels must be 0, 1, 2, ...")
    if classes is None:
        if whole:
            classes = _classes(file, table.y)
        else:
            warn_if_targets_look_like_labels(str(file), table.y)
    index, names = by_column(table.client)
    source = f"a table of {len(table.y)} rows"
    if table.split is None:
        return assemble(
            file.stem,
            (table.x, table.y),
            index,
            test_share=test_share,
            seed=seed,
            classes=classes,
            targets=classes is None,
            clients=names,
            source=source,
        )
    return FederatedData(
        name=file.stem,
        x=table.x,
        y=table.y,
        clients=tuple(ClientId(name) for name in names),
        fit=_only(index, ~table.split),
        test=_only(index, table.split),
        classes=classes,
        source=source,
        held_seed=Seed(seed),
    )


def _classes(file: Path, labels: Array) -> int:
    try:
        return classes_of(labels)
    except DataError as error:
        raise DataError(f"{file}: {error}") from error


def _only(index: Index, wanted: Array) -> Index:
    """Each client's wanted rows, in their order."""
    kept = wanted[index.order]
    return Index.from_sizes(index.order[kept], np.bincount(index.owners()[kept], minlength=len(index)))


def feature_names(file: Path, header: Sequence[str]) -> list[str]:
    """Check a header, and return its feature columns."""
    for name in ("client", "label"):
        if name not in header:
            raise DataError(f"{file} has no column {name!r}, only {_some(header)}. Name the columns in the first line")
    for place, name in enumerate(header, start=1):
        if _ROW_NUMBERS.fullmatch(name):
            raise DataError(
                f"{file}: column {place} is called {name!r}, which is pandas' name for row numbers, and would be a"
                " feature. Write the table with index=False, or name the column"
            )
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise DataError(f"{file} has two columns {twice[0]!r}. Rename one of them")
    features = [name for name in header if name not in _ROLES]
    if not features:
        raise DataError(f"{file} has no feature columns. Every column but client, label and split is a feature")
    return features


def read_csv(file: Path) -> Columns:
    """The columns of a CSV file with a header line; blank lines are skipped."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.reader(stream, strict=True)
            header = [name.strip() for name in next(rows, [])]
            feature_names(file, header)
            client: list[str] = []
            labels: list[str] = []
            split: list[str] = []
            blocks: list[npt.NDArray[np.float32]] = []
            lines: list[int] = []
            while block := list(islice(((rows.line_num, row) for row in rows if row), _BLOCK)):
                for line, row in block:
                    if len(row) != len(header):
                        raise DataError(f"{file}, line {line}: {len(row)} values in {len(header)} columns")
                columns = dict(zip(header, zip(*(row for _, row in block), strict=True), strict=True))
                numbers = [line for line, _ in block]
                client += [value.strip() for value in columns["client"]]
                labels += columns["label"]
                split += columns.get("split", ())
                lines += numbers
                blocks.append(_features(file, columns, numbers))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as CSV in UTF-8: {error}") from error
    _check_clients(file, client, lines)
    x = np.concatenate(blocks) if blocks else np.zeros((0, 1), np.float32)
    return Columns(np.asarray(client, str), x, _labels(file, labels, lines), _split(file, split, lines))


def read_parquet(file: Path) -> Columns:
    """The columns of a Parquet file."""
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError("Parquet needs pyarrow: pip install 'coterie[table]'. Or save the table as .csv") from error
    try:
        table = parquet.read_table(file)
    except Exception as error:  # a damaged file makes Arrow raise nearly anything
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{file} cannot be read as Parquet: {first}") from error
    features = feature_names(file, table.column_names)
    for name in table.column_names:
        if table.column(name).null_count:
            raise DataError(f"{file}: column {name!r} has missing values. Fill them in or drop the rows")
    x = np.empty((table.num_rows, len(features)), np.float32)
    for place, name in enumerate(features):
        values = table.column(name).to_numpy()
        _check_numbers(file, name, values)
        with np.errstate(over="ignore"):  # values too large for float32 become infinite and are rejected below
            x[:, place] = values
        bad = ~np.isfinite(x[:, place])
        if bad.any():
            raise DataError(
                f"{file}, row {int(np.argmax(bad))}: column {name!r} is {values[np.argmax(bad)]}, which is not finite"
            )
    y = table.column("label").to_numpy()
    _check_numbers(file, "label", y)
    if y.dtype.kind == "u" and len(y) and y.max() > np.iinfo(np.int64).max:
        raise DataError(f"{file}: {_too_large(y.max())}")
    rows = list(range(table.num_rows))
    client = np.asarray([str(value) for value in _texts(file, table, "client")], str)
    split = _texts(file, table, "split") if "split" in table.column_names else []
    return Columns(client, x, y.astype(np.int64) if y.dtype.kind in "biu" else y, _split(file, split, rows, "row"))


def _texts(file: Path, table: Any, name: str) -> list[Any]:
    try:
        values: list[Any] = table.column(name).to_pylist()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: column {name!r} holds text that is not UTF-8. Write it as UTF-8") from error
    return values


def _features(file: Path, columns: dict[str, tuple[str, ...]], lines: list[int]) -> npt.NDArray[np.float32]:
    """(rows, features) numbers of a block of lines."""
    names = [name for name in columns if name not in _ROLES]
    x = np.empty((len(lines), len(names)), np.float32)
    for place, name in enumerate(names):
        x[:, place] = _numbers(file, name, columns[name], lines)
    return x


def _numbers(file: Path, name: str, values: Sequence[str], lines: list[int]) -> npt.NDArray[np.float64]:
    """Numbers from text; they must be finite and fit into float32."""
    try:
        numbers = np.asarray([float(value) for value in values])
    except ValueError:
        bad = next(place for place, value in enumerate(values) if not _is_number(value))
        what = f"{values[bad]!r} is not a number" if values[bad].strip() else "a value is missing"
        raise DataError(
            f"{file}, line {lines[bad]}, column {name!r}: {what}. Encode categories as numbers, fill in missing values"
        ) from None
    finite = np.abs(numbers) <= np.finfo(np.float32).max  # false for NaN as well
    if not finite.all():
        bad = int(np.argmin(finite))
        raise DataError(f"{file}, line {lines[bad]}, column {name!r}: {values[bad]} is not a finite 32-bit number")
    return numbers


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _labels(file: Path, labels: list[str], lines: list[int]) -> Array:
    try:
        whole = [int(label) for label in labels]
    except ValueError:
        return _numbers(file, "label", labels, lines)
    bounds = np.iinfo(np.int64)
    for label, line in zip(whole, lines, strict=True):
        if not bounds.min <= label <= bounds.max:
            raise DataError(f"{file}, line {line}: {_too_large(label)}")
    return np.asarray(whole, np.int64)


def _too_large(label: object) -> str:
    return f"the label {label} is too large for a class. Number the classes 0, 1, 2, ..."


def _split(file: Path, split: Sequence[Any], lines: Sequence[int], unit: str = "line") -> npt.NDArray[np.bool_] | None:
    if not split:
        return None
    words = [str(word).strip().lower() for word in split]
    for word, line in zip(words, lines, strict=True):
        if word not in ("train", "test"):
            raise DataError(f"{file}, {unit} {line}: split must be train or test, got {word!r}")
    return np.asarray([word == "test" for word in words])


def _check_clients(file: Path, clients: list[str], lines: list[int]) -> None:
    for client, line in zip(clients, lines, strict=True):
        if not client:
            raise DataError(f"{file}, line {line}: the client is missing. Give one in every line")


def _check_numbers(file: Path, name: str, values: Array) -> None:
    if values.dtype.kind not in "biuf":
        raise DataError(f"{file}: column {name!r} must hold numbers, got {values.dtype}. Encode categories as numbers")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6]) or "none"
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")


_READERS: dict[str, Callable[[Path], Columns]] = {".csv": read_csv, ".parquet": read_parquet}
