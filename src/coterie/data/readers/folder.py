"""A folder with one .npz file a client: arrays x and y, and where the client has its own test examples x_test, y_test.

The name of a file without its ending is the client's id. Nothing that could run code is loaded: no pickles, no objects.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from coterie.data.arrays import from_arrays
from coterie.data.federated import FederatedData
from coterie.errors import DataError
from coterie.types import Array

_HOW = "Write it with numpy.savez(path, x=..., y=...)"


def read_folder(
    path: str | os.PathLike[str], *, test_share: float = 0.1, seed: int = 0, classes: int | None = None
) -> FederatedData:
    """The clients of a folder, in the order of their names.

    Args:
        path: The folder.
        test_share: Share of the examples set aside for testing in files without x_test and y_test.
        seed: Fixes which.
        classes: Number of classes; None: one more than the largest label, or targets if y holds floats.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}")
    files = sorted(file for file in folder.iterdir() if file.suffix == ".npz")
    if not files:
        raise DataError(f"{folder} holds no .npz files. Put one for each client there, with arrays x and y")
    clients = {file.stem: read_client(file) for file in files}
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
    # Opened here and not by NumPy, which leaves a file open that turns out to be no archive.
    try:
        opened = file.open("rb")
    except OSError as error:
        raise DataError(f"{file} cannot be opened: {error.strerror}") from error
    with opened as stream:
        try:
            archive = np.load(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{file} is not an archive of arrays: {_first_line(error)}. {_HOW}") from error
        if not isinstance(archive, NpzFile):
            raise DataError(f"{file} holds a single array, not an archive of arrays. {_HOW}")
        names = set(archive.files)
        wanted = ["x", "y", "x_test", "y_test"] if names & {"x_test", "y_test"} else ["x", "y"]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise DataError(f"{file} has no array {missing[0]!r}, only {', '.join(sorted(names)) or 'none'}. {_HOW}")
        return tuple(_array(archive, file, name) for name in wanted)


def _array(archive: NpzFile, file: Path, name: str) -> Array:
    try:
        array = archive[name]
    except Exception as error:  # a damaged header or stream makes NumPy, zip and the tokeniser raise nearly anything
        raise DataError(
            f"{file}: array {name!r} cannot be read: {_first_line(error)}. Store plain numbers, not objects"
        ) from error
    if not isinstance(array, np.ndarray):  # an archive member without the header of an array comes back as bytes
        raise DataError(f"{file}: {name!r} is not an array. {_HOW}")
    return array


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
