"""Examples as memory maps: a decoded copy of what a file, or several, hold is kept in the user's cache.

The copy is a folder `<data set>-<sha256 of the files>` with `x.npy` (training examples followed by test examples),
`y.npy` (int32), an array for each further column, and a note (see `copies`). One that is damaged or of another version
is built anew; where nothing can be written, the examples are kept in memory.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from coterie.data import copies, files
from coterie.data.copies import Writing
from coterie.data.federated import aligned
from coterie.data.making import making
from coterie.errors import DataError
from coterie.types import Array

log = logging.getLogger(__name__)

_LARGE = 1 << 30  # bytes above which files are known by names, sizes and times, for reading them would take too long


@dataclass(frozen=True, eq=False)
class Decoded:
    """Training examples followed by test examples.

    Attributes:
        x: (train + test, *shape).
        y: (train + test,), int32.
        train: How many are for training.
        columns: Further whole numbers, one for each example, such as its writer.
        names: What the numbers of a column stand for, where they stand for names.
        digests: The SHA-256 of each file that they were read from, where it was computed.
    """

    x: Array
    y: Array
    train: int
    columns: Mapping[str, Array] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    digests: Sequence[str] = ()


#: From the paths of files to what they hold.
Read = Callable[[Sequence[Path]], Decoded]


def joined(x: Array, y: Array, x_test: Array, y_test: Array, **columns: tuple[Array, Array]) -> Decoded:
    """Training examples and test examples, and pairs of further columns, put one after the other."""
    both = aligned(np.empty((len(x) + len(x_test), *x.shape[1:]), x.dtype))
    np.concatenate([x, x_test], out=both)
    labels, *more = (_numbers(*pair) for pair in ((y, y_test), *columns.values()))
    return Decoded(both, labels, len(x), dict(zip(columns, more, strict=True)))


def _numbers(first: Array, second: Array) -> Array:
    return aligned(np.concatenate([first, second]).astype(np.int32))


def decoded(name: str, paths: Sequence[Path], read: Read) -> Decoded:
    """What some files hold, from the copy in the cache.

    Args:
        name: Of the data set; the copy's folder begins with it.
        paths: The files.
        read: Reads them where there is no copy yet.
    """
    try:
        source, digests = _known_by(paths)
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error
    folder = files.cache() / f"{name}-{source[:16]}"
    kept = _opened(folder, source)
    if kept is None:
        with making(folder) as work:
            kept = _opened(folder, source)  # another process may have built it
            if kept is None:
                kept = _built(folder, work, source, paths, read)
    return replace(kept, digests=digests)


def _built(folder: Path, work: Path, source: str, paths: Sequence[Path], read: Read) -> Decoded:
    fresh = read(paths)
    try:
        _store(folder, work, source, fresh)
    except OSError as error:
        what = paths[0].name
        log.warning("No decoded copy of %s can be kept in %s (%s); it stays in memory", what, folder, error)
        return fresh
    return _opened(folder, source) or fresh


def _known_by(paths: Sequence[Path]) -> tuple[str, list[str]]:
    """A text that is another one if any of the files changes, and the checksum of each where they are computed."""
    states = [path.stat() for path in paths]
    digests: list[str] = []
    if sum(state.st_size for state in states) > _LARGE:
        lines = [f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in zip(paths, states, strict=True)]
    else:
        digests = [_sha256(path) for path in paths]
        if len(paths) == 1:
            return digests[0], digests
        lines = [f"{path.name} {digest}" for path, digest in zip(paths, digests, strict=True)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest(), digests


def _opened(folder: Path, source: str) -> Decoded | None:
    """The copy in a folder, or None if there is none, or none that is whole and of this version."""
    kept = copies.opened(folder, source)
    if kept is None:
        return None
    arrays, note = kept
    if any(len(array) != note["train"] + note["test"] for array in arrays.values()):
        return None
    return Decoded(arrays.pop("x"), arrays.pop("y"), note["train"], arrays, note["names"])


def _store(folder: Path, work: Path, source: str, fresh: Decoded) -> None:
    """Write a copy and move it into place."""
    try:
        copies.begin(work)
        written: dict[str, Writing] = {}
        for name, array in {"x": fresh.x, "y": fresh.y, **fresh.columns}.items():
            with Writing(work / f"{name}.npy", array.dtype, array.shape) as written[name]:
                written[name].add(array)
        names = {column: list(names) for column, names in fresh.names.items()}
        copies.finish(work, folder, source, written, train=fresh.train, test=len(fresh.y) - fresh.train, names=names)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
