"""The files of a record: their names, atomic writes, checked reads, and the lock of the process that writes them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from coterie import codec
from coterie.errors import RecordError

if TYPE_CHECKING:
    import filelock

log = logging.getLogger(__name__)

SPEC, ROUNDS, SUMMARY, MODELS, LOCK = "spec.toml", "rounds.jsonl", "summary.json", "models.safetensors", ".lock"
RECORD_FILES = (SPEC, ROUNDS, SUMMARY, MODELS, LOCK)
LATEST, PREVIOUS = Path("checkpoint") / "latest.safetensors", Path("checkpoint") / "previous.safetensors"

#: Key of the name of a binary file in its content. Both checkpoints have the name of their folder.
_NAME = "@file"

#: The page of `--report`; it is made from the other files, and not part of the record.
REPORT = "report.html"

#: Folders with one file per step.
EVIDENCE, CLIENTS = "evidence", "clients"

#: Error numbers of file systems without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def digest(content: bytes) -> str:
    """The hash by which a text file of a record is recognized."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def step_file(folder: str, step: int) -> Path:
    """Path in a record of the evidence or the client results of a step: the number of its line, from 0."""
    return Path(folder) / f"{step:05d}.safetensors"


def step_files(folder: Path) -> dict[int, Path]:
    """Step → file, in the order of steps, for a folder with one file per step."""
    return {int(file.stem): file for file in sorted(folder.glob("*.safetensors")) if file.stem.isdecimal()}


def encoded(content: Mapping[str, Any], name: Path | str) -> bytes:
    """The bytes of a binary file, with a checksum and its name in the record, so that swapped files are noticed."""
    return codec.encode({**content, _NAME: Path(name).as_posix()}, checksum=True)


def read_checked(file: Path, name: Path | str) -> dict[str, Any]:
    """Read a binary file, and verify its checksum and that it was written under this name."""
    try:
        value = codec.decode(file.read_bytes())
    except RecordError as fault:
        raise RecordError(f"{file}: {fault}") from fault
    except OSError as fault:
        raise RecordError(f"{file} cannot be read: {fault.strerror or fault}") from fault
    if not isinstance(value, dict):
        raise RecordError(f"{file} is damaged: it does not contain a dict")
    expected = Path(name).as_posix()
    if (written := value.pop(_NAME, expected)) != expected:  # files of earlier versions have no name
        raise RecordError(f"{file} is damaged: it has the content of {written}")
    return value


def write_whole(file: Path, content: bytes, *, sync: bool = True, previous: Path | None = None) -> None:
    """Write a file atomically: to a temporary file beside it, which is then moved into place.

    Args:
        file: The file. A symbolic link is replaced, not followed.
        content: What to write.
        sync: Whether the content is on the disk when the function returns.
        previous: Where the file that is replaced is kept; None: it is not kept.
    """
    temporary = file.with_name(f".{file.name}-{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as out:  # x: fails if the name exists, also as a symbolic link
            out.write(content)
            if sync:
                out.flush()
                os.fsync(out.fileno())
        if previous is not None:
            with contextlib.suppress(FileNotFoundError):
                file.replace(previous)
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_file(file.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of a killed process. Only the process that holds the lock may do this."""
    for each in (folder, *(folder / name for name in (LATEST.parent, EVIDENCE, CLIENTS))):
        for file in each.glob(".*.part"):
            file.unlink()


def open_existing(file: Path, flags: int) -> BinaryIO:
    """Open a file of a record that must exist and must not be a symbolic link."""
    more = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # each exists on some systems only
    return os.fdopen(os.open(file, flags | more), "ab" if flags & os.O_APPEND else "r+b")


def sync_file(path: Path) -> None:
    """Wait until a file or the entries of a folder are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    opened = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a RecordError that names the record."""
    try:
        yield
    except OSError as fault:
        raise RecordError(f"The record in {path} cannot be written: {fault.strerror or fault}") from fault


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a record. The operating system releases it when the process ends, however that happens.

    The lock file stays: removing it would allow two processes to hold a lock each, on the old and on a new file.

    Raises:
        RecordError: If another process holds the lock.
    """
    import filelock

    file = folder / LOCK
    lock = filelock.FileLock(file, timeout=0)
    acquired = _acquire(lock, file)
    try:
        if acquired:
            _note_holder(lock, file, str(os.getpid()))
        yield
    finally:
        if acquired:
            _note_holder(lock, file, "")
            lock.release()


def _acquire(lock: filelock.BaseFileLock, file: Path) -> bool:
    """Take a lock; False if the file system has no locks."""
    import filelock

    try:
        lock.acquire()
    except filelock.Timeout as fault:
        raise RecordError(
            f"Another process{_holder(file)} is writing the record in {file.parent}; wait until it has finished, or "
            "stop it"
        ) from fault
    except (NotImplementedError, OSError) as fault:
        if isinstance(fault, OSError) and fault.errno not in _NO_LOCKS:
            raise RecordError(f"The record in {file.parent} cannot be written: {fault.strerror or fault}") from fault
        log.warning("%s cannot be locked here (%s); do not write to it from another process", file.parent, fault)
        return False
    return True


def _note_holder(lock: filelock.BaseFileLock, file: Path, pid: str) -> None:
    """Write the process id into the lock file, for the error message of other processes."""
    import filelock

    if isinstance(lock, filelock.SoftFileLock):  # it has content of its own
        return
    with contextlib.suppress(OSError), open_existing(file, os.O_RDWR) as opened:  # the folder may have been removed
        opened.truncate(0)
        opened.write(pid.encode())


def _holder(file: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return f" (process {int(file.read_bytes()[:20])})"
    return ""
