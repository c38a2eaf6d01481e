"""`Tail`: the complete lines of a file of JSON objects that another process writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

T = TypeVar("T")

#: Bytes before the place that was reached; if they differ, the file was cut back and written again.
_COMPARED = 512

#: Bytes that are read at once.
_CHUNK = 16 * 2**20


class Tail(Generic[T]):
    """Reads what was added to a file since the last time.

    The last line may be incomplete: it is read when its end has arrived. A run that is resumed cuts its file back to a
    checkpoint; then the file is read again from the beginning.

    Attributes:
        rows: What `keep` made of each complete line.
        damaged: Number of the first line, from 1, that is not a JSON object; 0 if there is none.
    """

    def __init__(self, file: Path, keep: Callable[[dict[str, Any]], T]) -> None:
        """Prepare; nothing is read yet.

        Args:
            file: The file. It need not exist.
            keep: What is kept of a line.
        """
        self._file, self._keep = file, keep
        self._forget()

    def _forget(self) -> None:
        self.rows: list[T] = []
        self.damaged = 0
        self._lines = 0
        self._offset = 0
        self._before = b""
        self._stamp: tuple[int, ...] | None = None

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """Differs whenever the file was written, cut back or replaced; None if there is no file."""
        return self._stamp

    def read(self) -> bool:
        """Read what is new. Returns whether the file changed since the last time."""
        try:
            with self._file.open("rb") as opened:
                return self._read(opened)
        except OSError:
            changed = self._stamp is not None
            self._forget()
            return changed

    def _read(self, opened: BinaryIO) -> bool:
        state = os.fstat(opened.fileno())
        stamp = (state.st_ino, state.st_size, state.st_mtime_ns)
        if stamp == self._stamp:
            return False
        if not self._continues(opened, stamp):
            self._forget()
        opened.seek(self._offset)
        rest = b""
        while content := opened.read(_CHUNK):
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                self._add(line)
        self._stamp = stamp
        return True

    def _continues(self, opened: BinaryIO, stamp: tuple[int, ...]) -> bool:
        """Whether the file still begins with what was read of it."""
        if self._stamp is None or stamp[0] != self._stamp[0] or stamp[1] < self._offset:
            return False
        opened.seek(self._offset - len(self._before))
        return opened.read(len(self._before)) == self._before

    def _add(self, line: bytes) -> None:
        self._offset += len(line) + 1
        self._lines += 1
        self._before = (self._before + line + b"\n")[-_COMPARED:]
        if not line:
            return
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError
            self.rows.append(self._keep(row))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.damaged = self.damaged or self._lines
