"""Tables in CSV (also separated by semicolons or tabs, also compressed: .csv.gz) or Parquet.

One column names the client of each row (`data.client`), one has the label (`data.label`). Optional columns:
`data.split` is train or test for each row, and without it a fraction of each client's rows is used for testing;
`data.truth` is the true cluster of each client; `data.weight` is the weight of a row. Columns in `data.ignore` are left
out. Every other column is a feature.

Features are numbers, booleans (0 and 1) or text, which is one-hot encoded. Missing numbers are replaced by the mean of
the training examples; a missing text is a category of its own; `data.missing = "error"` refuses missing values instead.

Labels that are text, booleans or integers are classes; their sorted values are the class names. Labels with a decimal
point are regression targets, unless `data.task` or `data.classes` says otherwise. A column without a name, such as the
row numbers that pandas writes, is an error.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from coterie.data.class_labels import TaskKind
from coterie.data.columns import Table, as_table
from coterie.data.federated import FederatedData
from coterie.data.formats.csv_files import check_names, read_csv
from coterie.data.from_columns import TableSettings, from_columns
from coterie.data.preprocessing import MissingValues, Preprocessing
from coterie.errors import DataError

#: Endings of the files that are read as tables.
ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def read_table(
    path: str | os.PathLike[str],
    *,
    client: str = "client",
    label: str = "label",
    truth: str = "truth",
    split: str = "split",
    weight: str = "sample_weight",
    ignore: tuple[str, ...] = (),
    missing: MissingValues = "impute",
    max_categories: int = 50,
    task: TaskKind = "auto",
    classes: int | None = None,
    class_names: tuple[str, ...] = (),
    preprocessing: str = "",
    test_share: float = 0.1,
    seed: int = 0,
) -> FederatedData:
    """Read the clients of a table, in the sorted order of their names.

    Args:
        path: A file that ends in .csv, .csv.gz, .tsv, .tsv.gz or .parquet.
        client: Column with the client of each row.
        label: Column with the label.
        truth: Column with the true cluster of each client; used if it exists.
        split: Column with the words train and test; used if it exists.
        weight: Column with the weight of each row, at least 0; used if it exists.
        ignore: Columns that are left out.
        missing: Missing values. impute: numbers become the mean of the training examples, missing text a category
            called missing; error: they are refused.
        max_categories: Largest number of categories of a text column.
        task: classification: labels are classes; regression: labels are numbers; auto: regression if labels have a
            decimal point.
        classes: Number of classes, if labels are the integers 0..classes-1 and not all of them may occur. None: the
            number of distinct labels.
        class_names: All classes in their order, as the labels have them. Empty: the distinct labels, sorted.
        preprocessing: JSON file with the columns and their encoding (`Preprocessing.save`), so that several tables
            are encoded alike. Empty: they are found in this table.
        test_share: Fraction of each client's rows used for testing, if there is no column `split`.
        seed: Random seed of that split.
    """
    file = Path(path)
    settings = TableSettings(
        client=client,
        label=label,
        truth=truth,
        split=split,
        weight=weight,
        ignore=ignore,
        missing=missing,
        max_categories=max_categories,
        task=task,
        classes=classes,
        class_names=class_names,
        preprocessing=_preprocessing(preprocessing) if preprocessing else None,
        test_share=test_share,
        seed=seed,
        name=_stem(file),
    )
    # The text of labels is kept, so that class names are written as in the file; Parquet has types.
    verbatim = set() if file.suffix.lower() == ".parquet" else {label}
    return from_columns(lambda text, skip: read_columns(file, text={*text, *verbatim}, skip=skip), settings)


def read_columns(path: str | os.PathLike[str], *, text: Collection[str] = (), skip: Collection[str] = ()) -> Table:
    """The columns of a table on disk.

    Args:
        path: A file with one of the endings in `ENDINGS`.
        text: Columns that are read as text.
        skip: Columns that are left out.
    """
    file = Path(path)
    if not file.exists():
        raise DataError(f"There is no file or folder {file}")
    ending = "".join(file.suffixes[-2:]).lower() if file.suffix.lower() == ".gz" else file.suffix.lower()
    if ending not in ENDINGS:
        raise DataError(f"{file} must be a folder of .npz files or a table that ends in {', '.join(ENDINGS)}")
    reader: Callable[..., Table] = read_parquet if ending == ".parquet" else read_csv
    return reader(file, text=text, skip=skip)


def read_parquet(file: Path, *, text: Collection[str] = (), skip: Collection[str] = ()) -> Table:
    """The columns of a Parquet file.

    Args:
        file: The file.
        text: Columns that are read as text.
        skip: Columns that are left out.
    """
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError("Parquet needs pyarrow: pip install 'coterie[table]'. Or save the table as .csv") from error
    try:
        table = parquet.read_table(file)
    except Exception as error:  # a damaged file makes Arrow raise nearly anything
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{file} cannot be read as Parquet: {first}") from error
    check_names(str(file), table.column_names, skip)
    return as_table(table, text=text, skip=skip, what=str(file))


def _preprocessing(path: str) -> Preprocessing:
    try:
        return Preprocessing.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"data.preprocessing: {path} cannot be read: {error}") from error


def _stem(file: Path) -> str:
    return Path(file.stem).stem if file.suffix.lower() == ".gz" else file.stem
