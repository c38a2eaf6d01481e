"""Copies of examples in the user's cache: a folder of arrays in the form of numpy.save, and a note `copy.json`.

The note, written last, says the version of this format, what the copy was made from, and the type, shape and SHA-256 of
each array. A copy is made under another name, reaches the disk and is then moved into place whole. All of it is read
and compared with the note each time it is opened, so whatever happened to an array is noticed and the copy made anew.
At 1.2 GB a second this is next to nothing for images, and four seconds for the five gigabytes of a million synthetic
clients, which take minutes to draw and are looked at anyway, for numbers that are not finite.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.making import sweep
from coterie.data.watching import tell
from coterie.types import Array

log = logging.getLogger(__name__)

#: Version of the format; copies of any other version are made anew.
FORMAT = 3

_NOTE = "copy.json"
_TRIES = 5
_PIECE = 1 << 22  # bytes that are read in one go
_LARGE = 1 << 28  # bytes of an array from which on it is told how far the check is


class Writing:
    """An array that is written piece by piece, in the form of numpy.save."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
        """A file with the header of an array of this type and shape."""
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._digest = hashlib.sha256()
        header = io.BytesIO()
        described = np.lib.format.dtype_to_descr(self._dtype)
        fields = {"descr": described, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, fields)
        self._file = path.open("wb")
        self._put(header.getvalue())

    def __enter__(self) -> Writing:
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
        """Further rows."""
        self._put(np.ascontiguousarray(piece, self._dtype).reshape(-1).view(np.uint8).data)

    def entry(self) -> dict[str, Any]:
        """What the note says of the array."""
        return {"dtype": self._dtype.str, "shape": list(self._shape), "sha256": self._digest.hexdigest()}

    def _put(self, content: bytes | memoryview) -> None:
        self._file.write(content)  # plain writes: through a map, a full disk would kill the process
        self._digest.update(content)


def begin(work: Path) -> None:
    """An empty folder in which to make a copy; what killed processes have left beside it goes."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    sweep(path for path in work.parent.glob(".*-*") if path.is_dir())


def finish(work: Path, folder: Path, source: str, arrays: Mapping[str, Writing], **more: object) -> None:
    """Write the note of a copy, which may say more, and give the copy its name."""
    entries = {name: array.entry() for name, array in arrays.items()}
    note = {"format": FORMAT, "source": source, "arrays": entries, **more}
    with (work / _NOTE).open("w", encoding="utf-8") as stream:
        json.dump(note, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    _move(work, folder, lambda: opened(folder, source) is not None)


def opened(folder: Path, source: str) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """The arrays of a copy, mapped, and its note; None: there is none that is whole, of this version and source."""
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        if (note["format"], note["source"]) != (FORMAT, source):
            return None
        arrays = {name: _mapped(folder / f"{name}.npy", entry) for name, entry in note["arrays"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, cut short, or not what was written
        return None
    return arrays, note


def _mapped(path: Path, entry: Mapping[str, Any]) -> Array:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if (array.dtype.str, list(array.shape)) != (entry["dtype"], entry["shape"]) or _sha256(path) != entry["sha256"]:
        raise ValueError(f"{path} is damaged")
    return np.asarray(array)  # the same memory without the subclass, whose slices are slow


def _sha256(path: Path) -> str:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            done += len(piece)
            if total > _LARGE:
                tell(f"checking {path.parent.name.rpartition('-')[0]}", done, total)
    return digest.hexdigest()


def _move(work: Path, folder: Path, whole: Callable[[], bool]) -> None:
    """Give the finished copy its name, unless another process was faster."""
    for _ in range(_TRIES):
        try:
            os.rename(work, folder)  # refused if there is a folder of that name with something in it
        except OSError as error:
            if not folder.exists() and error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # it may be gone just now
                raise
        else:
            return
        if whole():
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
