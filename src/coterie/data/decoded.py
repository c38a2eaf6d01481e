"""Examples as memory maps: a decoded copy of what a file, or several, hold is kept in the user's cache.

The copy is a folder `<data set>-<sha256 of the files>` with `x.npy` (training examples followed by test examples),
`y.npy` (int32), an array for each further column, and `copy.json`, which says the version of this format and the
checksums of all arrays. It is built under another name and moved into place whole, so that processes can build it at
the same time. A copy that is damaged or of another version is built anew; where nothing can be written, the examples
are kept in memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.federated import aligned
from coterie.errors import DataError
from coterie.types import Array

log = logging.getLogger(__name__)

#: Version of the format; copies of any other version are built anew.
FORMAT = 2

_NOTE = "copy.json"
_TRIES = 5
_STALE = 24 * 3600  # seconds after which an unfinished copy is taken to be abandoned
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
    """

    x: Array
    y: Array
    train: int
    columns: Mapping[str, Array] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


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
        digest = _digest(paths)
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error
    folder = files.cache() / f"{name}-{digest[:16]}"
    kept = _opened(folder, digest)
    if kept is not None:
        return kept
    fresh = read(paths)
    try:
        _store(folder, digest, fresh)
    except OSError as error:
        what = paths[0].name
        log.warning("No decoded copy of %s can be kept in %s (%s); it stays in memory", what, folder, error)
        return fresh
    return _opened(folder, digest) or fresh


def _digest(paths: Sequence[Path]) -> str:
    """A text that is another one if any of the files changes."""
    states = [path.stat() for path in paths]
    if sum(state.st_size for state in states) > _LARGE:
        lines = [f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in zip(paths, states, strict=True)]
    elif len(paths) == 1:
        return _sha256(paths[0])
    else:
        lines = [f"{path.name} {_sha256(path)}" for path in paths]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _opened(folder: Path, digest: str) -> Decoded | None:
    """The copy in a folder, or None if there is none, or none that is whole and of this version."""
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        if (note["format"], note["source"]) != (FORMAT, digest):
            return None
        arrays: dict[str, Array] = {}
        for name, entry in note["arrays"].items():
            path = folder / f"{name}.npy"
            if _sha256(path) != entry["sha256"]:
                return None
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if list(mapped.shape) != entry["shape"] or len(mapped) != note["train"] + note["test"]:
                return None
            arrays[name] = np.asarray(mapped)  # the same memory without the subclass, whose slices are slow
        return Decoded(arrays.pop("x"), arrays.pop("y"), int(note["train"]), arrays, note["names"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, cut short, or not what was written
        return None


def _store(folder: Path, digest: str, fresh: Decoded) -> None:
    """Write a copy and move it into place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        arrays = {"x": fresh.x, "y": fresh.y, **fresh.columns}
        entries = {}
        for name, array in arrays.items():
            np.save(work / f"{name}.npy", array)  # plain writes: through a map, a full disk would kill the process
            entries[name] = {"shape": list(array.shape), "sha256": _sha256(work / f"{name}.npy")}
        note: dict[str, object] = {"format": FORMAT, "source": digest, "train": fresh.train}
        note |= {"test": len(fresh.y) - fresh.train, "arrays": entries}
        note["names"] = {column: list(names) for column, names in fresh.names.items()}
        (work / _NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")
        _move(work, folder, digest)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move(work: Path, folder: Path, digest: str) -> None:
    """Give the finished copy its name, unless another process was faster."""
    for _ in range(_TRIES):
        try:
            os.rename(work, folder)  # refused if there is a folder of that name with something in it
        except OSError:
            if not folder.exists():
                raise
        else:
            return
        if _opened(folder, digest) is not None:
            return
        # It is damaged or old. Whoever has mapped its files goes on reading them.
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            os.rename(folder, aside / "old")
        except FileNotFoundError:
            log.debug("%s was moved by another process", folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    raise OSError(f"{folder} is replaced again and again")


def _sweep(folder: Path) -> None:
    """Remove what killed processes have left behind."""
    for left in folder.parent.glob(f".{folder.name}-*"):
        try:
            stale = time.time() - left.stat().st_mtime > _STALE
        except OSError:  # gone in the meantime
            continue
        if stale:
            shutil.rmtree(left, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
