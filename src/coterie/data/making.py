"""What is made in the cache, whole under its name or not there at all, by one process at a time.

A thing grows beside its place as `.name.part` and is then moved there. Whoever makes it holds the lock `.name.lock`;
others wait, telling `watching`, and find it made. The system frees the lock with the process that holds it, however
that ends, so the next one finds `.name.part` as it was left. Where there are no such locks, and after an hour of
waiting, a process goes on by itself under a name of its own, `.name-<random>.part`.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.data.watching import tell

log = logging.getLogger(__name__)

_POLL = 0.1  # seconds between two looks at a lock
_PATIENCE = 3600.0  # seconds after which a lock is taken to be held by somebody who makes nothing
_STALE = 24 * 3600  # seconds after which what nobody touches is taken to be abandoned


@contextmanager
def making(final: Path) -> Iterator[Path]:
    """The path under which to make what is to be at `final`, which another process may have made in the meantime."""
    with _alone(final.with_name(f".{final.name}.lock"), final.name) as alone:
        own = "" if alone else f"-{secrets.token_hex(4)}"
        yield final.with_name(f".{final.name}{own}.part")


def sweep(left: Iterable[Path]) -> None:
    """Remove those files and folders, left behind by killed processes, that nobody has touched for a day."""
    for path in left:
        with contextlib.suppress(OSError):  # gone in the meantime
            touched = max(each.stat().st_mtime for each in (path, *path.glob("*")))
            if time.time() - touched > _STALE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def _alone(lock: Path, what: str) -> Iterator[bool]:
    """Whether nobody else has this lock; it is this process's until the end."""
    handle = _taken(lock, f"waiting for another process that makes {what}")
    if handle is None:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()  # while it is held: those who wait for it notice that it is no longer the lock
        os.close(handle)


def _taken(lock: Path, waiting: str) -> int | None:
    """A handle that holds the lock, or None where there are no locks or its holder takes too long."""
    end, waited = time.monotonic() + _PATIENCE, False
    try:
        fcntl: Any = importlib.import_module("fcntl")
        lock.parent.mkdir(parents=True, exist_ok=True)
        while (handle := _attempt(fcntl, lock)) is None:
            if time.monotonic() > end:
                log.warning("%s has been held for an hour; going on without it", lock)
                return None
            tell(waiting, 0, None)
            waited = True
            time.sleep(_POLL)
        return handle
    except (ImportError, OSError):  # neither this system nor every file system has such locks
        return None
    finally:
        if waited:
            tell(waiting, 0, 0)


def _attempt(fcntl: Any, lock: Path) -> int | None:
    """A handle that holds the lock, or None while somebody else has it."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(lock)):
            return handle
    except (BlockingIOError, FileNotFoundError):  # it is held, or its last holder has removed it just now
        pass
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None
