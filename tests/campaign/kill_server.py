"""Runs and resumes specs in forked processes that kill themselves at a given file operation.

The server imports everything but does not start JAX, whose threads a fork would not copy. It reads requests from stdin,
one JSON object per line, and answers each with a line:

    {"spec": {...}, "out": "folder", "kill": 12, "half": false}     → {"killed": true, "operations": []}
    {"out": "folder", "kill": null}                                 → {"killed": false, "operations": ["mkdir", ...]}

Without `spec`, the record is resumed. `kill` is the number of the operation before which the process ends with SIGKILL;
with `half`, the operation must be a write, and the first half of its bytes gets to the disk. Operations are those on
files in the folder: open for writing, write, flush, close, fsync, truncate, replace, unlink, mkdir.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

from coterie.methods import METHODS
from coterie.runs import loop

#: Longest run in seconds; a child that hangs is killed by its own alarm.
LIMIT = 120


class Operations:
    """Counts the file operations in a folder, and kills this process at one of them."""

    def __init__(self, folder: str, kill: int | None, half: bool) -> None:
        self._folder, self._kill, self._half = os.path.abspath(folder), kill, half
        self._files: set[int] = set()  # descriptors of open files in the folder
        self.names: list[str] = []

    def watch(self) -> None:
        """Replace the functions of the standard library that change files."""
        for name in ("replace", "unlink", "mkdir", "truncate", "ftruncate", "fsync"):
            setattr(os, name, self._counted(name, getattr(os, name)))
        os.open = self._opening(os.open, lambda _, flags=0, *__, **___: flags & (os.O_WRONLY | os.O_RDWR))
        io.open = self._opening(io.open, lambda _, mode="r", *__, **___: set(mode) & set("wax+"))

    def now(self, name: str, write: Callable[[], object] | None = None) -> None:
        """An operation begins; `write` does half of it."""
        if len(self.names) == self._kill:
            if self._half and write is not None:
                write()
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)

    def _inside(self, what: Any) -> bool:
        if isinstance(what, int):
            return what in self._files
        return os.path.abspath(os.fsdecode(what)).startswith(self._folder)

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(what: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside(what):
                self.now(name)
            return real(what, *args, **kwargs)

        return operation

    def _opening(self, real: Callable[..., Any], writes: Callable[..., Any]) -> Callable[..., Any]:
        def operation(what: Any, *args: Any, **kwargs: Any) -> Any:
            inside = self._inside(what)
            if inside and writes(what, *args, **kwargs):
                self.now("open")
            opened = real(what, *args, **kwargs)
            if inside:
                self._files.add(opened if isinstance(opened, int) else opened.fileno())
            return WatchedFile(opened, self) if inside and not isinstance(opened, int) else opened

        return operation


class WatchedFile:
    """An open file whose operations are counted."""

    def __init__(self, file: Any, operations: Operations) -> None:
        self._file, self._operations = file, operations

    def write(self, content: Any) -> Any:
        self._operations.now("write", lambda: (self._file.write(content[: len(content) // 2]), self._file.flush()))
        return self._file.write(content)

    def flush(self) -> None:
        self._operations.now("flush")
        self._file.flush()

    def truncate(self, *args: Any) -> Any:
        self._operations.now("truncate")
        return self._file.truncate(*args)

    def close(self) -> None:
        if self._file.writable():
            self._operations.now("close")
        self._file.close()

    def __enter__(self) -> WatchedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def work(request: dict[str, Any], answer: int) -> None:
    """Run or resume in this process, and write the names of the operations to a pipe."""
    operations = Operations(request["out"], request["kill"], request.get("half", False))
    operations.watch()
    if "spec" in request:
        loop.run(request["spec"], out=request["out"])
    else:
        loop.resume(request["out"])
    os.write(answer, json.dumps(operations.names).encode())


def serve() -> None:
    """Answer requests until stdin ends."""
    for module in {path.partition(":")[0] for path in METHODS.values()}:
        importlib.import_module(module)
    for module in (
        "jax",
        "optax",
        "scipy.linalg",
        "sklearn",
        "coterie.data.datasets.blobs",
        "coterie.federation.kernels",
    ):
        importlib.import_module(module)
    for line in sys.stdin:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receive)
            signal.alarm(LIMIT)
            warnings.simplefilter("ignore")
            work(json.loads(line), send)
            os._exit(0)
        os.close(send)
        with os.fdopen(receive, "rb") as pipe:
            names = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = {"killed": status == -signal.SIGKILL, "code": status, "operations": json.loads(names or "[]")}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
