"""Named arrays from an .npz file. Nothing that could run code is loaded: no pickles, no objects."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from coterie.errors import DataError
from coterie.types import Array


def read_arrays(file: Path, wanted: Callable[[Collection[str]], Sequence[str]], how: str) -> tuple[Array, ...]:
    """Some arrays of an archive.

    Args:
        file: The archive.
        wanted: From the names that there are to the names that are read.
        how: What to do if the file is not as it should be, for errors.
    """
    # Opened here and not by NumPy, which leaves a file open that turns out to be no archive.
    try:
        opened = file.open("rb")
    except OSError as error:
        raise DataError(f"{file} cannot be opened: {error.strerror}") from error
    with opened as stream:
        try:
            archive = np.load(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{file} is not an archive of arrays: {_first_line(error)}. {how}") from error
        if not isinstance(archive, NpzFile):
            raise DataError(f"{file} holds a single array, not an archive of arrays. {how}")
        names = set(archive.files)
        missing = [name for name in wanted(names) if name not in names]
        if missing:
            raise DataError(f"{file} has no array {missing[0]!r}, only {', '.join(sorted(names)) or 'none'}. {how}")
        return tuple(_array(archive, file, name, how) for name in wanted(names))


def read_lengths(file: Path, wanted: Sequence[str], how: str) -> tuple[list[int], set[str]]:
    """How long some arrays of an archive are, by their headers alone, and the names of all its arrays."""
    try:
        with zipfile.ZipFile(file) as archive:
            lengths = []
            for name in wanted:
                with archive.open(f"{name}.npy") as member:
                    version = np.lib.format.read_magic(member)
                    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
                    shape = (header or np.lib.format.read_array_header_2_0)(member)[0]
                lengths.append(shape[0])
            return lengths, {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception as error:  # a damaged file makes NumPy, zip and the tokenizer raise nearly anything
        raise DataError(f"{file} cannot be read: {_first_line(error)}. {how}") from error


def _array(archive: NpzFile, file: Path, name: str, how: str) -> Array:
    try:
        array = archive[name]
    except Exception as error:  # a damaged header or stream makes NumPy, zip and the tokenizer raise nearly anything
        raise DataError(
            f"{file}: array {name!r} cannot be read: {_first_line(error)}. Store plain numbers, not objects"
        ) from error
    if not isinstance(array, np.ndarray):  # an archive member without the header of an array comes back as bytes
        raise DataError(f"{file}: {name!r} is not an array. {how}")
    return array


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
