"""Writing to the cache: locks between processes, and progress reports.

An entry is written next to its final path as `.name.part` and moved to its final name when it is complete. The writing
process holds the lock `.name.lock` (`filelock`); other processes wait and then find the finished entry. The operating
system releases the lock when its process ends, so the `.name.part` of a killed process can be continued. On file
systems without locks, and after waiting for an hour, a process writes to a name of its own, `.name-<random>.part`.
Files are created exclusively, and links in their place are removed, not followed.

Downloads, checks of large files and waiting for a lock report their progress to a callback, if one is set with
`report_progress_to`. The library itself prints nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

log = logging.getLogger(__name__)

#: Called with a description, the number of bytes done, and the total if it is known. In the last call both are equal.
ProgressCallback = Callable[[str, int, int | None], None]

_callback: ContextVar[ProgressCallback | None] = ContextVar("callback", default=None)

_POLL = 0.1  # seconds between two progress reports while waiting
_PATIENCE = 3600.0  # seconds after which the lock is ignored
_STALE = 24 * 3600  # seconds after which an untouched partial entry is removed


@contextmanager
def exclusive(final: Path) -> Iterator[Path]:
    """Hold the lock of `final` and yield the path to write to. Another process may have written `final` meanwhile."""
    with contextlib.ExitStack() as held:
        own = "" if _acquire(final, held) else f"-{secrets.token_hex(4)}"
        yield final.with_name(f".{final.name}{own}.part")


def remove_link(path: Path) -> None:
    """Remove a symbolic or hard link: writing to it would change another file."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
            path.unlink()


def no_follow(path: str, flags: int) -> int:
    """Opener for `open` that does not follow a symbolic link."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def remove_stale(partial: Iterable[Path]) -> None:
    """Remove partial files and folders of killed processes that have not changed for a day."""
    for path in partial:
        with contextlib.suppress(OSError):  # another process may have removed it
            touched = max(each.stat().st_mtime for each in (path, *path.glob("*")))
            if time.time() - touched > _STALE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _acquire(final: Path, held: contextlib.ExitStack) -> bool:
    """Take the lock of an entry until `held` is closed. Returns False without locks, or after waiting too long."""
    import filelock

    end, waited = time.monotonic() + _PATIENCE, False
    waiting = f"waiting for another process that writes {final.name}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(final.with_name(f".{final.name}.lock"))
        while True:
            try:
                held.enter_context(lock.acquire(timeout=_POLL))
                return True
            except filelock.Timeout:
                if time.monotonic() > end:
                    log.warning("%s has been held for an hour; continuing without it", lock.lock_file)
                    return False
                report_progress(waiting, 0, None)
                waited = True
    except (OSError, NotImplementedError):  # not every file system has locks
        return False
    finally:
        if waited:
            report_progress(waiting, 0, 0)


@contextmanager
def report_progress_to(callback: ProgressCallback) -> Iterator[None]:
    """Call this function with the progress of downloads and checks inside the `with` block."""
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def report_progress(what: str, done: int, total: int | None) -> None:
    """Report progress to the current callback, if there is one."""
    if (callback := _callback.get()) is not None:
        callback(what, done, total)
