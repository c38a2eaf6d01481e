"""Reader of CIFAR-10 and CIFAR-100, Python version: a tar of pickled dicts with bytes of shape (images, 3·32·32).

Members are read one by one; nothing is unpacked to disk. An archive with a link, a device or a path that leads out of
it is rejected; the published archives have none. CIFAR-100 has two labels per image: the fine label (100 classes) is
`y`, the coarse label (20 classes) is the column `coarse`.
"""

from __future__ import annotations

import posixpath
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.cache import Decoded, concatenated
from coterie.data.formats.pickled import read_pickle
from coterie.errors import DataError
from coterie.types import Array

_MAX_BYTES = 1 << 28  # per member; the largest, the training images of CIFAR-100, has 155 million
_MAX_MEMBERS = 50  # per archive; the published ones have fewer than ten
_CIFAR10 = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")


def read_cifar10(paths: Sequence[Path]) -> Decoded:
    """The five training batches and the test batch of cifar-10-python.tar.gz."""
    (path,) = paths
    *batches, (x_test, y_test) = _read(path, "cifar-10-batches-py", _CIFAR10, ("labels",))
    x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return concatenated(x, y, x_test, y_test)


def read_cifar100(paths: Sequence[Path]) -> Decoded:
    """The training and the test images of cifar-100-python.tar.gz, with fine and coarse labels."""
    (path,) = paths
    (x, y, coarse), (x_test, y_test, coarse_test) = _read(
        path, "cifar-100-python", ("train", "test"), ("fine_labels", "coarse_labels")
    )
    return concatenated(x, y, x_test, y_test, coarse=(coarse, coarse_test))


def _read(path: Path, folder: str, members: Sequence[str], labels: Sequence[str]) -> list[tuple[Array, ...]]:
    """Images and labels of each member: (n, 32, 32, 3) bytes and (n,) numbers."""
    wanted = {posixpath.join(folder, member): member for member in members}
    found: dict[str, tuple[Array, ...]] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for number, entry in enumerate(archive):
                _check_entry(path, entry, number)
                if entry.name in wanted:
                    opened = archive.extractfile(entry)
                    content = b"" if opened is None else opened.read()
                    found[wanted[entry.name]] = _batch(f"{path}, member {entry.name}", content, labels)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DataError(f"{path} cannot be read: {why}. Remove it, and download it again") from error
    missing = [name for name, member in wanted.items() if member not in found]
    if missing:
        raise DataError(f"{path} has no member {missing[0]}. Use the Python version of the data set")
    return [found[member] for member in members]


def _check_entry(path: Path, entry: tarfile.TarInfo, number: int) -> None:
    steps = entry.name.split("/")
    if entry.name.startswith("/") or ".." in steps or "\\" in entry.name or ":" in entry.name:
        raise DataError(f"{path} is rejected: its member {entry.name!r} leads out of the archive")
    if not (entry.isreg() or entry.isdir()):
        raise DataError(f"{path} is rejected: its member {entry.name!r} is a link or a device")
    if entry.size > _MAX_BYTES or number >= _MAX_MEMBERS:
        raise DataError(f"{path} is rejected: its member {entry.name!r} is too large, or there are too many members")


def _batch(what: str, content: bytes, labels: Sequence[str]) -> tuple[Array, ...]:
    # Python 2 wrote the keys as byte strings, which later versions read as bytes or as text.
    held = {_text(key): value for key, value in read_pickle(content, what).items()}
    images = held.get("data")
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3 * 32 * 32:
        raise DataError(f"{what}: 'data' must hold bytes of shape (images, 3072)")
    numbers = [_labels(what, name, held.get(name), len(images)) for name in labels]
    # Stored as a red, a green and a blue plane.
    return np.ascontiguousarray(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), *numbers


def _labels(what: str, name: str, values: Any, count: int) -> Array:
    if not isinstance(values, list) or len(values) != count or not all(type(each) is int for each in values):
        raise DataError(f"{what}: {name!r} must be a list of {count} integers, one for each image")
    numbers = np.asarray(values)
    if count and not (numbers.min() >= 0 and numbers.max() < 100):
        raise DataError(f"{what}: {name!r} must be integers from 0 to 99")
    return numbers.astype(np.int32)


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key
