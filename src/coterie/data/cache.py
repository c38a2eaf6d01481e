"""Copies of examples in the user's cache, opened as memory maps.

A copy is a folder of .npy files and a metadata file, `copy.json`, with the version of this format, the source of the
copy, and dtype, shape and SHA-256 of each array. It is written under another name, flushed to disk and then moved into
place. Every time it is opened, its arrays are checked against the metadata, at about 1.2 GB per second; a copy that is
damaged or in another version is made again.

There are two kinds of copies:

- `decoded`: the content of files, in `<data set>-<hash of the files>`. If the cache cannot be written, examples stay in
  memory.
- `generated`: random examples that are too large for memory, written piece by piece, in `<data set>-<hash of the
  settings>`. The operating system loads the pages that a round uses and keeps them while there is memory.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import files
from coterie.data.cache_writing import exclusive, remove_link, remove_stale, report_progress
from coterie.data.federated import aligned
from coterie.errors import DataError
from coterie.types import Array

log = logging.getLogger(__name__)

#: Version of the format.
FORMAT = 3

#: Generated examples up to this number of bytes are kept in memory.
IN_MEMORY = 1 << 30

_NOTE = "copy.json"
_TRIES = 5
_PIECE = 1 << 22  # bytes per read
_REPORTED = 1 << 28  # bytes above which the progress of a check is reported
_HASHED = 1 << 30  # bytes above which files are identified by path, size and time instead of a hash


@dataclass(frozen=True, eq=False)
class Decoded:
    """Training examples followed by test examples.

    Attributes:
        x: (train + test, *shape).
        y: (train + test,), int32.
        train: Number of training examples.
        columns: More integers per example, such as its writer.
        names: Names that the integers of a column stand for, if there are names.
        digests: SHA-256 of each file that was read, if it was computed.
    """

    x: Array
    y: Array
    train: int
    columns: Mapping[str, Array] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    digests: Sequence[str] = ()


#: Reads files, given their paths.
Read = Callable[[Sequence[Path]], Decoded]


def concatenated(x: Array, y: Array, x_test: Array, y_test: Array, **columns: tuple[Array, Array]) -> Decoded:
    """Concatenate training and test examples, and the two parts of each column."""
    both = aligned(np.empty((len(x) + len(x_test), *x.shape[1:]), x.dtype))
    np.concatenate([x, x_test], out=both)
    labels, *more = (_int32(*pair) for pair in ((y, y_test), *columns.values()))
    return Decoded(both, labels, len(x), dict(zip(columns, more, strict=True)))


def _int32(first: Array, second: Array) -> Array:
    return aligned(np.concatenate([first, second]).astype(np.int32))


def decoded(name: str, paths: Sequence[Path], read: Read) -> Decoded:
    """The content of files, read from the copy in the cache.

    Args:
        name: Name of the data set, the first part of the name of the folder.
        paths: The files.
        read: Reads them if there is no copy yet.
    """
    try:
        source, digests = _identity(paths)
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error
    folder = files.cache_folder() / f"{name}-{source[:16]}"
    copy = _open_decoded(folder, source)
    if copy is None:
        with exclusive(folder) as work:
            copy = _open_decoded(folder, source)  # another process may have made it
            if copy is None:
                copy = _decode(folder, work, source, paths, read)
    return replace(copy, digests=digests)


def _decode(folder: Path, work: Path, source: str, paths: Sequence[Path], read: Read) -> Decoded:
    content = read(paths)
    try:
        _store(folder, work, source, content)
    except OSError as error:
        what = paths[0].name
        log.warning("No decoded copy of %s can be written to %s (%s); it stays in memory", what, folder, error)
        return content
    return _open_decoded(folder, source) or content


def _identity(paths: Sequence[Path]) -> tuple[str, list[str]]:
    """A string that changes when any of the files changes, and the SHA-256 of each file if it was computed."""
    states = [path.stat() for path in paths]
    digests: list[str] = []
    if sum(state.st_size for state in states) > _HASHED:
        lines = [f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in zip(paths, states, strict=True)]
    else:
        digests = [_digest(path, path.name) for path in paths]
        if len(paths) == 1:
            return digests[0], digests
        lines = [f"{path.name} {digest}" for path, digest in zip(paths, digests, strict=True)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest(), digests


def _open_decoded(folder: Path, source: str) -> Decoded | None:
    """The copy in a folder, or None if there is no intact copy of this version."""
    copy = _open(folder, source)
    if copy is None:
        return None
    arrays, note = copy
    if any(len(array) != note["train"] + note["test"] for array in arrays.values()):
        return None
    return Decoded(arrays.pop("x"), arrays.pop("y"), note["train"], arrays, note["names"])


def _store(folder: Path, work: Path, source: str, content: Decoded) -> None:
    """Write a copy and move it into place."""
    try:
        _begin(work)
        written: dict[str, ArrayWriter] = {}
        for name, array in {"x": content.x, "y": content.y, **content.columns}.items():
            with ArrayWriter(work / f"{name}.npy", array.dtype, array.shape) as written[name]:
                written[name].add(array)
        names = {column: list(names) for column, names in content.names.items()}
        _finish(work, folder, source, written, train=content.train, test=len(content.y) - content.train, names=names)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def generated(
    name: str, key: str, examples: int, features: int, pieces: Iterator[tuple[Array, Array]]
) -> tuple[Array, Array]:
    """Examples (float32) and labels (int32) as memory maps.

    Args:
        name: Name of the data set.
        key: Everything that the examples depend on, as a string.
        examples: Number of examples.
        features: Number of features.
        pieces: Examples and labels, piece by piece; used only if there is no copy yet.
    """
    folder = files.cache_folder() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    copy = _open(folder, key)
    if copy is None:
        with exclusive(folder) as work:
            copy = _open(folder, key)
            if copy is None:
                _generate(folder, work, key, (examples, features), pieces)
                copy = _open(folder, key)
    if copy is None:
        raise DataError(f"{folder} does not contain what was written to it. Check the disk, or try again")
    return copy[0]["x"], copy[0]["y"]


def _generate(
    folder: Path, work: Path, key: str, shape: tuple[int, int], pieces: Iterator[tuple[Array, Array]]
) -> None:
    needed = 4 * shape[0] * (shape[1] + 1)
    try:
        _begin(work)
        free = shutil.disk_usage(folder.parent).free
        if free < needed:
            raise DataError(
                f"{folder.name} takes {needed / 1e9:.1f} GB in {folder.parent}, where {free / 1e9:.1f} GB are free."
                f" Make room, set XDG_CACHE_HOME to another folder, or use fewer clients"
            )
        with (
            ArrayWriter(work / "x.npy", np.float32, shape) as xs,
            ArrayWriter(work / "y.npy", np.int32, shape[:1]) as ys,
        ):
            done = 0
            for x, y in pieces:
                xs.add(x)
                ys.add(y)
                done += len(y)
                report_progress(f"generating {folder.name.rpartition('-')[0]}", 4 * done * (x.shape[1] + 1), needed)
        _finish(work, folder, key, {"x": xs, "y": ys})
    except OSError as fault:
        raise DataError(f"{folder.name} cannot be written to {folder.parent}: {fault}") from fault
    finally:
        shutil.rmtree(work, ignore_errors=True)


class ArrayWriter:
    """Writes an array piece by piece, in the format of numpy.save."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
        """Create the file and write the header."""
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._digest = hashlib.sha256()
        header = io.BytesIO()
        described = np.lib.format.dtype_to_descr(self._dtype)
        fields = {"descr": described, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, fields)
        self._file = path.open("xb")
        self._write(header.getvalue())

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def add(self, piece: Array) -> None:
        """Append rows."""
        self._write(np.ascontiguousarray(piece, self._dtype).reshape(-1).view(np.uint8).data)

    def entry(self) -> dict[str, Any]:
        """Dtype, shape and hash of the array, for the metadata."""
        return {"dtype": self._dtype.str, "shape": list(self._shape), "sha256": self._digest.hexdigest()}

    def _write(self, content: bytes | memoryview) -> None:
        self._file.write(content)  # not through a memory map: a full disk would kill the process
        self._digest.update(content)


def _begin(work: Path) -> None:
    """Create an empty folder for a copy, and remove old partial copies next to it."""
    remove_link(work)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    remove_stale(path for path in work.parent.glob(".*-*") if path.is_dir())


def _finish(work: Path, folder: Path, source: str, arrays: Mapping[str, ArrayWriter], **more: object) -> None:
    """Write the metadata of a copy, with more entries, and move the copy into place."""
    entries = {name: array.entry() for name, array in arrays.items()}
    note = {"format": FORMAT, "source": source, "arrays": entries, **more}
    with (work / _NOTE).open("x", encoding="utf-8") as stream:
        json.dump(note, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    _move(work, folder, lambda: _open(folder, source) is not None)


def _open(folder: Path, source: str) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """The arrays of a copy as memory maps, and its metadata; None without an intact copy of this version and source."""
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        if (note["format"], note["source"]) != (FORMAT, source):
            return None
        arrays = {name: _map(folder / f"{name}.npy", entry) for name, entry in note["arrays"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, truncated or damaged
        return None
    return arrays, note


def _map(path: Path, entry: Mapping[str, Any]) -> Array:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    name = path.parent.name.rpartition("-")[0]
    if (array.dtype.str, list(array.shape)) != (entry["dtype"], entry["shape"]) or _digest(path, name) != entry[
        "sha256"
    ]:
        raise ValueError(f"{path} is damaged")
    return np.asarray(array)  # a view without the memmap class, whose slices are slow


def _digest(path: Path, name: str) -> str:
    """SHA-256 of a file; progress is reported for large ones."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            done += len(piece)
            if total > _REPORTED:
                report_progress(f"checking {name}", done, total)
    return digest.hexdigest()


def _move(work: Path, folder: Path, intact: Callable[[], bool]) -> None:
    """Move the finished copy to its final name, unless another process was faster."""
    for _ in range(_TRIES):
        try:
            os.rename(work, folder)  # fails if there is a non-empty folder of that name
        except OSError as error:
            if not folder.exists() and error.errno not in (
                errno.EEXIST,
                errno.ENOTEMPTY,
            ):  # it may have been removed meanwhile
                raise
        else:
            return
        if intact():
            return
        # The existing copy is damaged or old. Processes that have mapped its files can still read them.
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            os.rename(folder, aside / "old")
        except FileNotFoundError:
            log.debug("%s was moved by another process", folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    raise OSError(f"{folder} is being replaced repeatedly by other processes")
