"""Reader of SVHN's cropped digits: MATLAB files with X, (32, 32, 3, n) bytes, and y, (n, 1) labels.

Label 10 is the digit 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.cache import Decoded, concatenated
from coterie.errors import DataError
from coterie.types import Array


def read_digits(paths: Sequence[Path]) -> Decoded:
    """Training and test images with their labels, from two files in this order."""
    (x, y), (x_test, y_test) = (_read(path) for path in paths)
    return concatenated(x, y, x_test, y_test)


def _read(path: Path) -> tuple[Array, Array]:
    """(n, 32, 32, 3) bytes and (n,) labels 0..9."""
    from scipy.io import loadmat

    try:
        # Opened here: SciPy leaves the file open if it is not a MATLAB file.
        stream = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    try:
        with stream:
            held: dict[str, Any] = loadmat(stream, variable_names=("X", "y"))
    except Exception as error:  # a damaged file makes SciPy and zlib raise nearly anything
        first = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(f"{path} is not a readable MATLAB file: {first}. Download it again") from error
    x, y = held.get("X"), held.get("y")
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3):
        raise DataError(f"{path}: X must hold bytes of shape (32, 32, 3, images), got {_shown(x)}")
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "iuf" or y.shape != (x.shape[3], 1):
        raise DataError(f"{path}: y must hold a number for each of the {x.shape[3]} images, got {_shown(y)}")
    labels = y[:, 0]
    if not np.isin(labels, np.arange(1, 11)).all():
        raise DataError(f"{path}: labels must be 1..10, where 10 is the digit 0")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), labels.astype(np.int32) % 10


def _shown(value: object) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else "nothing"
