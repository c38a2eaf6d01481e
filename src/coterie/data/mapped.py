"""Drawn examples that are too many for memory: written into the user's cache once, a piece at a time, and mapped.

The copy is a folder `<data set>-<hash of its settings>` with `x.npy`, `y.npy` and, written last, `copy.json`. It is
made under another name and moved into place whole. Whoever maps it reads from the disk what a round touches, and the
operating system keeps of that what there is room for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.watching import tell
from coterie.errors import DataError
from coterie.types import Array

#: Bytes of examples up to which they are kept in memory.
IN_MEMORY = 1 << 30
_NOTE = "copy.json"


def mapped(
    name: str, key: str, examples: int, features: int, pieces: Iterator[tuple[Array, Array]]
) -> tuple[Array, Array]:
    """Examples (float32) and labels (int32) as memory maps.

    Args:
        name: Of the data set.
        key: Everything that the examples depend on, as text.
        examples: How many there are.
        features: Numbers in each.
        pieces: The examples and labels, piece by piece; drawn only where there is no copy yet.
    """
    folder = files.cache() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    note = {"key": key, "examples": examples, "features": features}
    if not _whole(folder, note):
        _write(folder, note, pieces)
    # The same memory without NumPy's subclass, whose slices are slow.
    x, y = (np.asarray(np.load(folder / f"{part}.npy", mmap_mode="r", allow_pickle=False)) for part in ("x", "y"))
    return x, y


def _whole(folder: Path, note: dict[str, object]) -> bool:
    """Whether there is a finished copy: its note comes last, and its files are as long as they must be."""
    try:
        written = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        return bool({**note, "bytes": [os.path.getsize(folder / f"{part}.npy") for part in ("x", "y")]} == written)
    except (OSError, ValueError):
        return False


def _write(folder: Path, note: dict[str, object], pieces: Iterator[tuple[Array, Array]]) -> None:
    shapes = {"x": (note["examples"], note["features"]), "y": (note["examples"],)}
    dtypes = {"x": np.dtype(np.float32), "y": np.dtype(np.int32)}
    needed = 4 * int(note["examples"]) * (int(note["features"]) + 1)  # type: ignore[call-overload]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
        if free < needed:
            raise DataError(
                f"{folder.name} takes {needed / 1e9:.1f} GB in {folder.parent}, where {free / 1e9:.1f} GB are free."
                f" Make room, name another cache in XDG_CACHE_HOME, or take fewer clients"
            )
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            with open(work / "x.npy", "wb") as xs, open(work / "y.npy", "wb") as ys:
                for part, stream in (("x", xs), ("y", ys)):
                    header = {"descr": dtypes[part].str, "fortran_order": False, "shape": shapes[part]}
                    np.lib.format.write_array_header_1_0(stream, header)
                done = 0
                for x, y in pieces:
                    # Plain writes: through a map, a full disk would kill the process.
                    xs.write(np.ascontiguousarray(x, dtypes["x"]).data)
                    ys.write(np.ascontiguousarray(y, dtypes["y"]).data)
                    done += len(y)
                    tell(f"drawing {folder.name.rpartition('-')[0]}", 4 * done * (x.shape[1] + 1), needed)
            lengths = [os.path.getsize(work / f"{part}.npy") for part in ("x", "y")]
            (work / _NOTE).write_text(json.dumps({**note, "bytes": lengths}), encoding="utf-8")
            if folder.exists() and not _whole(folder, note):
                shutil.rmtree(folder)
            if not folder.exists():
                os.rename(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as fault:
        if not _whole(folder, note):  # another process may have been faster
            raise DataError(f"{folder.name} cannot be kept in {folder.parent}: {fault}") from fault
