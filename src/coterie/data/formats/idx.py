"""Reader of MNIST's idx format: a header with type and shape, then numbers, compressed with gzip.

The first two bytes are 0, the third is the type (8: bytes, 12: four-byte integers), the fourth the number of axes. The
lengths of the axes follow, four bytes each, most significant byte first (LeCun et al., THE MNIST DATABASE).
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coterie.data.cache import Decoded, concatenated
from coterie.errors import DataError
from coterie.types import Array

_TYPES: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 12: np.dtype(">i4")}
_MAX_BYTES = 1 << 31  # more than any of these data sets has


def read_images(paths: Sequence[Path]) -> Decoded:
    """Training images, training labels, test images and test labels, from four files in this order."""
    x, y, x_test, y_test = (read_idx(path, axes) for path, axes in zip(paths, (3, 1, 3, 1), strict=True))
    for images, labels, path in ((x, y, paths[1]), (x_test, y_test, paths[3])):
        if len(images) != len(labels):
            raise DataError(f"{path} has {len(labels)} labels for {len(images)} images. Use files of one data set")
    if x.shape[1:] != x_test.shape[1:]:
        raise DataError(f"{paths[2]}: images have shape {x_test.shape[1:]}, training images {x.shape[1:]}")
    return concatenated(x, y, x_test, y_test)


def read_writers(paths: Sequence[Path], n_test: int) -> tuple[Array, Array, Array, Array]:
    """Writer and NIST series of each training and each test image of MNIST, from QMNIST's label files.

    Args:
        paths: The training file and the test file.
        n_test: Number of test images of MNIST. QMNIST has more; MNIST's come first.
    """
    tables = [read_idx(path, 2) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if table.shape[1] < 3:
            raise DataError(f"{path} must have columns for the class, the series and the writer, got {table.shape[1]}")
    train, test = (table.astype(np.int64) for table in tables)
    return train[:, 2], train[:, 1], test[:n_test, 2], test[:n_test, 1]


def read_idx(path: Path, axes: int) -> Array:
    """The array in a file, which must have this number of axes."""
    try:
        with gzip.open(path, "rb") as stream:
            return _array(path, stream, axes)
    except (OSError, EOFError, zlib.error) as error:  # a file that is not gzip raises BadGzipFile, an OSError
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DataError(f"{path} cannot be read: {why}. Remove it, and download it again") from error


def _array(path: Path, stream: gzip.GzipFile | BinaryIO, axes: int) -> Array:
    head = stream.read(4 + 4 * axes)
    if len(head) < 4 + 4 * axes or head[:2] != b"\0\0" or head[2] not in _TYPES or head[3] != axes:
        expected = f"0 0 {' or '.join(map(str, _TYPES))} {axes}"
        begins = " ".join(map(str, head[:4])) or "nothing"
        raise DataError(f"{path} is not an idx file of {axes} axes: it must begin with bytes {expected}, not {begins}")
    kind = _TYPES[head[2]]
    shape = tuple(int(length) for length in np.frombuffer(head, ">u4", offset=4))
    size = math.prod(shape) * kind.itemsize
    if size > _MAX_BYTES:
        raise DataError(
            f"{path} declares an array of shape {shape}, which is too large for this data set. Download it again"
        )
    content = stream.read(size + 1)
    if len(content) != size:
        less = "less" if len(content) < size else "more"
        raise DataError(f"{path} holds {less} than its header says, an array of shape {shape}. Download it again")
    return np.frombuffer(content, kind).reshape(shape)
