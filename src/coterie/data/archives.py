"""The layouts of the .npz files: with a test set, with a writer for each image, Fed-MEx's test part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coterie.data.checks import fits_int32
from coterie.data.decoded import Decoded, joined
from coterie.data.federated import aligned
from coterie.data.readers.archive import read_arrays
from coterie.errors import DataError
from coterie.types import Array

MEMBERS = ("x_train", "y_train", "x_test", "y_test")
_COARSE = ("coarse_train", "coarse_test")
_WRITTEN = ("x", "y", "writer")
_PARTIAL = ("x", "y", "offsets")


def how(members: Sequence[str]) -> str:
    """What to do about a file without one of these arrays, for errors."""
    return f"It must hold arrays {', '.join(members)}, as numpy.savez writes them"


def read_split(paths: Sequence[Path]) -> Decoded:
    """Arrays x_train, y_train, x_test and y_test, and perhaps coarse_train and coarse_test, of one archive."""
    (path,) = paths
    arrays = read_arrays(path, lambda names: MEMBERS + (_COARSE if set(names) & set(_COARSE) else ()), how(MEMBERS))
    x, y, x_test, y_test, *coarse = arrays
    _check_images(path, x, y, "_train")
    _check_images(path, x_test, y_test, "_test")
    if x.shape[1:] != x_test.shape[1:]:
        raise DataError(f"{path}: images of x_train and x_test differ in shape, {x.shape[1:]} and {x_test.shape[1:]}")
    if not coarse:
        return joined(x, y, x_test, y_test)
    _check_numbers(path, coarse[0], x, "coarse_train", "x_train")
    _check_numbers(path, coarse[1], x_test, "coarse_test", "x_test")
    return joined(x, y, x_test, y_test, coarse=(coarse[0], coarse[1]))


def read_written(paths: Sequence[Path]) -> Decoded:
    """Arrays x, y and writer of one archive; all images are for training, and writers go by their numbers."""
    (path,) = paths
    x, y, writer = read_arrays(path, lambda _: _WRITTEN, how(_WRITTEN))
    _check_images(path, x, y, "")
    _check_numbers(path, writer, x, "writer", "x")
    return joined(x, y, x[:0], y[:0], writer=(writer, writer[:0]))


def read_testpart(paths: Sequence[Path]) -> Decoded:
    """Arrays x, y and offsets of one archive, all of them test examples; subject k has rows offsets[k]:offsets[k+1]."""
    (path,) = paths
    x, y, offsets = read_arrays(path, lambda _: _PARTIAL, how(_PARTIAL))
    if x.dtype.kind != "f" or x.ndim < 2:
        raise DataError(f"{path}: x must hold a row of numbers for each example")
    _check_numbers(path, y, x, "y", "x", "example")
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2 or (offsets[1:] < offsets[:-1]).any():
        raise DataError(f"{path}: offsets must be whole numbers that rise, one more than there are subjects")
    if offsets[0] != 0 or offsets[-1] != len(y):
        raise DataError(f"{path}: offsets must go from 0 to {len(y)}, the number of examples")
    subjects = len(offsets) - 1
    client = np.repeat(np.arange(subjects, dtype=np.int32), np.diff(offsets))
    names = [f"f_{number:02d}" for number in range(1, subjects + 1)]  # as in the published files
    x = aligned(x.astype(np.float32))
    return Decoded(x, aligned(y.astype(np.int32)), 0, {"client": client}, {"client": names})


def _check_images(path: Path, images: Array, labels: Array, part: str) -> None:
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DataError(f"{path}: x{part} must hold images of bytes, got {images.dtype} of shape {images.shape}")
    _check_numbers(path, labels, images, f"y{part}", f"x{part}")


def _check_numbers(path: Path, numbers: Array, x: Array, field: str, whose: str, what: str = "image") -> None:
    if numbers.dtype.kind not in "iu" or numbers.shape != x.shape[:1]:
        raise DataError(f"{path}: {field} must hold a whole number for each {what} in {whose}")
    if not fits_int32(numbers):
        raise DataError(f"{path}: {field} must hold whole numbers of 32 bits, got {numbers.min()} to {numbers.max()}")
