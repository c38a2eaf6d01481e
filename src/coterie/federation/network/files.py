"""Atomic writes of small files: if the process is killed, a file has its old content or all of its new content."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from coterie.errors import SpecError

#: File modes: readable by the owner only, and by all.
PRIVATE, PUBLIC = 0o600, 0o644


def write_new(file: Path, content: bytes, mode: int) -> None:
    """Write a file that must not exist yet; nothing is ever overwritten.

    Raises:
        SpecError: If the file exists, also as a broken symbolic link, or cannot be written.
    """
    with _explained(file), _temporary(file, content, mode) as temporary:
        try:
            os.link(temporary, file)  # unlike a rename, it fails if the file exists
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: a crash can leave a part of the file, never replace another
            _write(file, content, mode)
        _sync_folder(file.parent)


def write_over(file: Path, content: bytes, mode: int, *, sync: bool = True) -> None:
    """Write a file, or replace it.

    Args:
        file: The file.
        content: What to write.
        mode: `PRIVATE` or `PUBLIC`.
        sync: Whether the content is on the disk when the function returns.

    Raises:
        SpecError: If the file cannot be written.
    """
    with _explained(file), _temporary(file, content, mode, sync=sync) as temporary:
        temporary.replace(file)
        if sync:
            _sync_folder(file.parent)


def create_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder if it does not exist.

    Raises:
        SpecError: If it cannot be created.
    """
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as fault:
        raise SpecError(f"The folder {folder} cannot be created: {fault.strerror or fault}") from fault


@contextlib.contextmanager
def in_use(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of a folder, so that no second process uses it. The operating system releases it in any case.

    Args:
        folder: The folder, which must exist.
        what: The process in the error of the second one, such as "A server".

    Raises:
        SpecError: If another process holds the lock, or the folder cannot be written.
    """
    import filelock

    lock = filelock.FileLock(folder / ".in-use", timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as fault:
        raise SpecError(f"{what} is running with the folder {folder}. Stop it first, or use another folder") from fault
    except OSError as fault:
        raise SpecError(f"The folder {folder} cannot be used: {fault.strerror or fault}") from fault
    try:
        yield
    finally:
        lock.release()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of a killed process; call it only while no other process writes to the folder."""
    for file in folder.glob(".*.part"):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _temporary(file: Path, content: bytes, mode: int, *, sync: bool = True) -> Iterator[Path]:
    """A temporary file beside `file` with this content; it is removed at the end."""
    temporary = file.with_name(f".{file.name}-{secrets.token_hex(8)}.part")
    try:
        _write(temporary, content, mode, sync=sync)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write(file: Path, content: bytes, mode: int, *, sync: bool = True) -> None:
    # The mode is set when the file is created: a private key is at no time readable by others.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(file, flags, mode), "wb") as out:
        out.write(content)
        if sync:
            out.flush()
            os.fsync(out.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open folders
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as fault:
        raise SpecError(f"{file} exists and is not replaced. Use it, or choose another name or folder") from fault
    except OSError as fault:
        raise SpecError(f"{file} cannot be written: {fault.strerror or fault}") from fault
