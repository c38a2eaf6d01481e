"""Drawn examples that are too many for memory: written into the user's cache once, a piece at a time, and mapped.

The copy is a folder `<data set>-<hash of its settings>` with `x.npy` and `y.npy` (see `copies`). Whoever maps it reads
from the disk what a round touches, and the operating system keeps of that what there is room for.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.copies import Writing, begin, finish, opened
from coterie.data.making import making
from coterie.data.watching import tell
from coterie.errors import DataError
from coterie.types import Array

#: Bytes of examples up to which they are kept in memory.
IN_MEMORY = 1 << 30


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
    kept = opened(folder, key)
    if kept is None:
        with making(folder) as work:
            kept = opened(folder, key)
            if kept is None:
                _write(folder, work, key, (examples, features), pieces)
                kept = opened(folder, key)
    if kept is None:
        raise DataError(f"{folder} was written and is not what was written. Look at the disk, or try again")
    return kept[0]["x"], kept[0]["y"]


def _write(folder: Path, work: Path, key: str, shape: tuple[int, int], pieces: Iterator[tuple[Array, Array]]) -> None:
    needed = 4 * shape[0] * (shape[1] + 1)
    try:
        begin(work)
        free = shutil.disk_usage(folder.parent).free
        if free < needed:
            raise DataError(
                f"{folder.name} takes {needed / 1e9:.1f} GB in {folder.parent}, where {free / 1e9:.1f} GB are free."
                f" Make room, name another cache in XDG_CACHE_HOME, or take fewer clients"
            )
        with (
            Writing(work / "x.npy", np.float32, shape) as xs,
            Writing(work / "y.npy", np.int32, shape[:1]) as ys,
        ):
            done = 0
            for x, y in pieces:
                xs.add(x)
                ys.add(y)
                done += len(y)
                tell(f"drawing {folder.name.rpartition('-')[0]}", 4 * done * (x.shape[1] + 1), needed)
        finish(work, folder, key, {"x": xs, "y": ys})
    except OSError as fault:
        raise DataError(f"{folder.name} cannot be kept in {folder.parent}: {fault}") from fault
    finally:
        shutil.rmtree(work, ignore_errors=True)
