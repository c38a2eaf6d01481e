"""A folder with one .npz file per client: arrays x and y, and optionally the client's own test set x_test and y_test.

The client's id is the file name without its extension. Pickled objects are never loaded.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np

from coterie.data.arrays import from_arrays
from coterie.data.checks import is_utf8, warn_if_targets_look_like_labels
from coterie.data.federated import FederatedData
from coterie.data.formats.npz import read_arrays
from coterie.errors import DataError
from coterie.types import Array

_HOW = "Write it with numpy.savez(path, x=..., y=...)"


def read_folder(
    path: str | os.PathLike[str], *, test_share: float = 0.1, seed: int = 0, classes: int | None = None
) -> FederatedData:
    """Read the clients of a folder, in the order of their names.

    Args:
        path: The folder.
        test_share: Fraction of each client's examples used for testing, for files without x_test and y_test.
        seed: Random seed of that split.
        classes: Number of classes. None: one more than the largest label, or regression if y holds floats.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}")
    files = sorted(file for file in folder.iterdir() if file.suffix == ".npz")
    if not files:
        raise DataError(f"{folder} holds no .npz files. Put one per client there, with arrays x and y")
    for file in files:
        if not is_utf8(file.stem):
            raise DataError(f"{folder} has a file whose name is not UTF-8, {os.fsencode(file.name)!r}. Rename it")
    clients = {file.stem: read_client(file) for file in files}
    targets = [array for arrays in clients.values() for array in arrays[1::2] if array.dtype.kind == "f"]
    if classes is None and targets:
        warn_if_targets_look_like_labels(str(folder), np.concatenate([array.ravel() for array in targets]))
    return from_arrays(
        clients,
        name=folder.resolve().name,
        test_share=test_share,
        seed=seed,
        classes=classes,
        source=f"{len(files)} .npz files in a folder",
    )


def read_client(file: Path) -> tuple[Array, ...]:
    """(x, y) or (x, y, x_test, y_test) from one file."""
    return read_arrays(file, _wanted, _HOW)


def _wanted(names: Collection[str]) -> list[str]:
    return ["x", "y", "x_test", "y_test"] if {"x_test", "y_test"} & set(names) else ["x", "y"]
