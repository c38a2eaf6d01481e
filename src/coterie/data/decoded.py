"""Images as memory maps: a decoded copy of an archive is kept in the user's cache.

The copy is a folder `<data set>-<sha256 of the archive>` with `x.npy` (uint8, training images followed by test
images), `y.npy` (int32) and `copy.json`, which says the version of this format and the checksums of both. It is built
under another name and moved into place whole, so that processes can build it at the same time. A copy that is damaged
or of another version is built anew; where nothing can be written, the images are kept in memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.federated import aligned
from coterie.data.readers.archive import read_arrays
from coterie.errors import DataError
from coterie.types import Array

log = logging.getLogger(__name__)

#: Version of the format; copies of any other version are built anew.
FORMAT = 1

MEMBERS = ("x_train", "y_train", "x_test", "y_test")
HOW = f"It must hold arrays {', '.join(MEMBERS)}, as numpy.savez writes them"

_NOTE = "copy.json"
_TRIES = 5
_STALE = 24 * 3600  # seconds after which an unfinished copy is taken to be abandoned


@dataclass(frozen=True, eq=False)
class Decoded:
    """Training images followed by test images."""

    x: Array  # (train + test, *shape), uint8
    y: Array  # (train + test,), int32
    train: int  # how many are for training


def decoded(name: str, source: Path) -> Decoded:
    """The images of an archive with arrays x_train, y_train, x_test and y_test, from the copy in the cache.

    Args:
        name: Of the data set; the copy's folder begins with it.
        source: The archive.
    """
    try:
        digest = _sha256(source)
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror}") from error
    folder = files.cache() / f"{name}-{digest[:16]}"
    kept = _opened(folder, digest)
    if kept is not None:
        return kept
    fresh = _read(source)
    try:
        _store(folder, digest, fresh)
    except OSError as error:
        log.warning("No decoded copy of %s can be kept in %s (%s); it stays in memory", source.name, folder, error)
        return fresh
    return _opened(folder, digest) or fresh


def _opened(folder: Path, digest: str) -> Decoded | None:
    """The copy in a folder, or None if there is none, or none that is whole and of this version."""
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        if (note["format"], note["source"]) != (FORMAT, digest):
            return None
        arrays = []
        for name in ("x", "y"):
            path = folder / f"{name}.npy"
            if _sha256(path) != note[name]["sha256"]:
                return None
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if list(mapped.shape) != note[name]["shape"]:
                return None
            arrays.append(np.asarray(mapped))  # the same memory without the subclass, whose slices are slow
        x, y = arrays
        return Decoded(x, y, int(note["train"])) if len(x) == len(y) == note["train"] + note["test"] else None
    except (OSError, ValueError, KeyError, TypeError):  # missing, cut short, or not what was written
        return None


def _read(source: Path) -> Decoded:
    x, y, x_test, y_test = read_arrays(source, lambda _: MEMBERS, HOW)
    for images, labels, part in ((x, y, "train"), (x_test, y_test, "test")):
        if images.dtype != np.uint8 or images.ndim not in (3, 4):
            raise DataError(f"{source}: x_{part} must hold images of bytes, got {images.dtype} of shape {images.shape}")
        if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
            raise DataError(f"{source}: y_{part} must hold a whole number for each image in x_{part}")
    if x.shape[1:] != x_test.shape[1:]:
        raise DataError(f"{source}: images of x_train and x_test differ in shape, {x.shape[1:]} and {x_test.shape[1:]}")
    joined = aligned(np.empty((len(x) + len(x_test), *x.shape[1:]), np.uint8))
    np.concatenate([x, x_test], out=joined)
    return Decoded(joined, aligned(np.concatenate([y, y_test]).astype(np.int32)), len(x))


def _store(folder: Path, digest: str, fresh: Decoded) -> None:
    """Write a copy and move it into place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        note: dict[str, object] = {"format": FORMAT, "source": digest}
        note |= {"train": fresh.train, "test": len(fresh.y) - fresh.train}
        for name, array in (("x", fresh.x), ("y", fresh.y)):
            np.save(work / f"{name}.npy", array)  # plain writes: through a map, a full disk would kill the process
            note[name] = {"shape": list(array.shape), "sha256": _sha256(work / f"{name}.npy")}
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
