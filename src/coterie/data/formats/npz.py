"""Readers of .npz files, in general and in the layouts of Coterie's archives. Pickled objects are never loaded."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from coterie.data.cache import Decoded, concatenated
from coterie.data.checks import fits_int32
from coterie.data.federated import Index, aligned
from coterie.errors import DataError
from coterie.types import Array

_SPLIT = ("x_train", "y_train", "x_test", "y_test")
_COARSE = ("coarse_train", "coarse_test")
_WRITTEN = ("x", "y", "writer")
_TESTPART = ("x", "y", "offsets")


def how(arrays: Sequence[str]) -> str:
    """What an archive must contain, for error messages."""
    return f"It must hold arrays {', '.join(arrays)}, as numpy.savez writes them"


def read_split(paths: Sequence[Path]) -> Decoded:
    """Arrays x_train, y_train, x_test and y_test of one archive, and coarse_train and coarse_test if it has them."""
    (path,) = paths
    arrays = read_arrays(path, lambda names: _SPLIT + (_COARSE if set(names) & set(_COARSE) else ()), how(_SPLIT))
    x, y, x_test, y_test, *coarse = arrays
    _check_images(path, x, y, "_train")
    _check_images(path, x_test, y_test, "_test")
    if x.shape[1:] != x_test.shape[1:]:
        raise DataError(f"{path}: images of x_train and x_test differ in shape, {x.shape[1:]} and {x_test.shape[1:]}")
    if not coarse:
        return concatenated(x, y, x_test, y_test)
    _check_integers(path, coarse[0], x, "coarse_train", "x_train")
    _check_integers(path, coarse[1], x_test, "coarse_test", "x_test")
    return concatenated(x, y, x_test, y_test, coarse=(coarse[0], coarse[1]))


def read_written(paths: Sequence[Path]) -> Decoded:
    """Arrays x, y and writer of one archive; all images are training images."""
    (path,) = paths
    x, y, writer = read_arrays(path, lambda _: _WRITTEN, how(_WRITTEN))
    _check_images(path, x, y, "")
    _check_integers(path, writer, x, "writer", "x")
    return concatenated(x, y, x[:0], y[:0], writer=(writer, writer[:0]))


def read_testpart(paths: Sequence[Path]) -> Decoded:
    """Arrays x, y and offsets of one archive, all test examples; subject k has rows offsets[k]:offsets[k+1]."""
    (path,) = paths
    x, y, offsets = read_arrays(path, lambda _: _TESTPART, how(_TESTPART))
    if x.dtype.kind != "f" or x.ndim < 2:
        raise DataError(f"{path}: x must hold a row of numbers for each example")
    _check_integers(path, y, x, "y", "x", "example")
    _check_offsets(path, offsets, len(y), "offsets", "subjects")
    subjects = len(offsets) - 1
    client = np.repeat(np.arange(subjects, dtype=np.int32), np.diff(offsets))
    names = [f"f_{number:02d}" for number in range(1, subjects + 1)]  # as in the published files
    x = aligned(x.astype(np.float32))
    return Decoded(x, aligned(y.astype(np.int32)), 0, {"client": client}, {"client": names})


def read_clients(path: Path) -> tuple[tuple[Array, Array, Index], tuple[Array, Array, Index]]:
    """x, y and the rows of each client, for training and for testing.

    The archive has arrays x, y and offsets of both parts; client k has the rows offsets[k] to before offsets[k + 1].
    """
    names = tuple(f"{name}_{part}" for part in ("train", "test") for name in ("x", "y", "offsets"))
    arrays = read_arrays(path, lambda _: names, how(names))
    x, y, fit = _client_part(path, arrays[:3], "_train")
    x_test, y_test, tested = _client_part(path, arrays[3:], "_test")
    if len(fit) != len(tested) or x.shape[1:] != x_test.shape[1:]:
        raise DataError(f"{path}: the training and test parts differ in the number of clients or of features")
    return (x, y, fit), (x_test, y_test, tested)


def _client_part(path: Path, arrays: tuple[Array, ...], part: str) -> tuple[Array, Array, Index]:
    x, y, offsets = arrays
    if x.dtype.kind != "f" or x.ndim < 2:
        raise DataError(f"{path}: x{part} must hold a row of numbers for each example")
    _check_integers(path, y, x, f"y{part}", f"x{part}", "example")
    _check_offsets(path, offsets, len(y), f"offsets{part}", "clients")
    return x.astype(np.float32), y.astype(np.int32), Index(np.arange(len(y)), offsets.astype(np.int64))


def _check_offsets(path: Path, offsets: Array, examples: int, field: str, whose: str) -> None:
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2 or (offsets[1:] < offsets[:-1]).any():
        raise DataError(f"{path}: {field} must be increasing integers, one more than the number of {whose}")
    if offsets[0] != 0 or offsets[-1] != examples:
        raise DataError(f"{path}: {field} must go from 0 to {examples}, the number of examples")


def read_arrays(file: Path, wanted: Callable[[Collection[str]], Sequence[str]], how: str) -> tuple[Array, ...]:
    """Some arrays of an archive.

    Args:
        file: The archive.
        wanted: Takes the names in the archive and returns the names to read.
        how: What the archive must contain, for error messages.
    """
    # Opened here and not by NumPy, which leaves the file open if it is not an archive.
    try:
        opened = file.open("rb")
    except OSError as error:
        raise DataError(f"{file} cannot be opened: {error.strerror}") from error
    with opened as stream:
        try:
            archive = np.load(stream, allow_pickle=False)
        except Exception as error:  # a damaged file makes NumPy and zip raise nearly anything
            raise DataError(f"{file} is not an archive of arrays: {_first_line(error)}. {how}") from error
        if not isinstance(archive, NpzFile):
            raise DataError(f"{file} holds a single array, not an archive of arrays. {how}")
        names = set(archive.files)
        missing = [name for name in wanted(names) if name not in names]
        if missing:
            raise DataError(f"{file} has no array {missing[0]!r}, only {', '.join(sorted(names)) or 'none'}. {how}")
        return tuple(_array(archive, file, name, how) for name in wanted(names))


def read_lengths(file: Path, wanted: Sequence[str], how: str) -> tuple[list[int], set[str]]:
    """Lengths of some arrays of an archive, from their headers alone, and the names of all its arrays."""
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
    if not isinstance(array, np.ndarray):  # NumPy returns bytes for a member without the header of an array
        raise DataError(f"{file}: {name!r} is not an array. {how}")
    # NumPy does not check characters, and Python's text functions fail on those that do not exist.
    if array.dtype.kind == "U" and _characters(array).max(initial=0) > sys.maxunicode:
        raise DataError(f"{file}: array {name!r} has characters that do not exist in Unicode. {how}")
    return array


def _characters(text: Array) -> Array:
    """The characters of an array of text, as numbers."""
    return np.ascontiguousarray(text).astype(text.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)


def _check_images(path: Path, images: Array, labels: Array, part: str) -> None:
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DataError(f"{path}: x{part} must hold images of bytes, got {images.dtype} of shape {images.shape}")
    _check_integers(path, labels, images, f"y{part}", f"x{part}")


def _check_integers(path: Path, numbers: Array, x: Array, field: str, whose: str, what: str = "image") -> None:
    if numbers.dtype.kind not in "iu" or numbers.shape != x.shape[:1]:
        raise DataError(f"{path}: {field} must hold an integer for each {what} in {whose}")
    if not fits_int32(numbers):
        raise DataError(f"{path}: {field} must hold 32-bit integers, got {numbers.min()} to {numbers.max()}")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
