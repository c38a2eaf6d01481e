"""A table with the columns `client` and `label`, perhaps `split`, and a feature in every other column.

Labels that are all whole numbers are classes and must be 0..C-1; if one has a decimal point, all are targets, unless
the number of classes is given. `split` says train or test for each row; without it a share of each client's rows is set
aside for testing. A column without a name, such as the row numbers that pandas writes, is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coterie.data.checks import classes_of, note_targets
from coterie.data.federated import FederatedData, Index
from coterie.data.partition import assemble, by_column
from coterie.data.readers.columns import Columns, read_csv, read_parquet
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array, ClientId

_READERS: dict[str, Callable[[Path], Columns]] = {".csv": read_csv, ".parquet": read_parquet}


def read_table(
    path: str | os.PathLike[str], *, test_share: float = 0.1, seed: int = 0, classes: int | None = None
) -> FederatedData:
    """The clients of a table, in the sorted order of their names.

    Args:
        path: A .csv or .parquet file.
        test_share: Without a column `split`, the share of each client's rows set aside for testing.
        seed: Fixes which.
        classes: Number of classes; None: one more than the largest label, or targets if labels are not whole numbers.
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
            note_targets(str(file), table.y)
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
    """Each client's rows that are wanted, in their order."""
    kept = wanted[index.order]
    return Index.from_sizes(index.order[kept], np.bincount(index.owners()[kept], minlength=len(index)))
