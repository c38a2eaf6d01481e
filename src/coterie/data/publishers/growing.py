"""Files that grow under another name until they are whole, and the checksums that tell whether they are right."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.data.making import making, sweep
from coterie.errors import DataError

log = logging.getLogger(__name__)


@contextmanager
def growing(final: Path, *, keep: bool) -> Iterator[Path]:
    """A file beside the final one, with another name, on which no other process works.

    Args:
        final: The path that the file is to have when it is whole (`place`).
        keep: Whether to begin with what an earlier call has left, and to leave for a later one what is there in the
            end.
    """
    left = final.with_name(f".{final.name}.part")
    with making(final) as part:
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            sweep(final.parent.glob(f".{final.name}-*.part"))
            try:
                os.replace(left, part)  # without a lock another name: whoever moves it has it
            except FileNotFoundError:
                part.touch()
            if not keep:
                os.truncate(part, 0)
        except OSError as error:
            raise DataError(f"nothing can be kept in {final.parent}: {error.strerror}") from error
        try:
            yield part
        finally:
            if part.exists():
                if keep and part.stat().st_size:
                    os.replace(part, left)
                else:
                    part.unlink()


def place(part: Path, final: Path) -> None:
    """Give a file that is whole its name."""
    try:
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(part, final)
    except OSError as error:
        raise DataError(f"{final} cannot be written: {error.strerror}") from error


def wrong(part: Path, expected: str | None) -> str | None:
    """Why this is not the file with the expected checksum, or None; a wrong one is emptied: nobody goes on with it."""
    if expected is None:
        return None
    kind, _, digits = expected.partition(":")
    got = checksum(part, kind)
    if got == digits:
        return None
    os.truncate(part, 0)
    return f"another file came: its {kind} is {got}, not {digits}"


def recorded(final: Path) -> str | None:
    """The checksum of the first download of a file, if there was one."""
    try:
        return f"sha256:{_record_of(final).read_text(encoding='ascii').split()[0]}"
    except (OSError, ValueError, IndexError):
        return None


def record(final: Path) -> None:
    """Keep the checksum of a first download beside the file, in the form of sha256sum."""
    beside = _record_of(final)
    work = beside.with_name(f".{beside.name}-{secrets.token_hex(4)}")
    try:
        work.write_text(f"{checksum(final, 'sha256')}  {final.name}\n", encoding="ascii")
        os.replace(work, beside)
    except OSError as error:
        raise DataError(f"{beside} cannot be written: {error.strerror}") from error
    log.warning("Nobody has published a checksum of %s; that of this first download is kept in %s", final.name, beside)


def _record_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.sha256")


def checksum(path: Path, kind: str) -> str:
    """The digits of a file's checksum, such as its sha256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()
