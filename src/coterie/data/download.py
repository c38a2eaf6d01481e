"""Downloads of publishers' files. A file gets its final name only when it is complete and its checksum is right.

A broken download is resumed as long as each attempt makes progress. If the server does not support range requests, it
starts again. A partial file is kept for the next call, unless there is no checksum to tell whether both
parts belong to the same file. One process at a time downloads a file (see `cache_writing`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from coterie.data.cache_writing import exclusive, no_follow, remove_link, remove_stale, report_progress
from coterie.data.catalog import Download
from coterie.errors import DataError

if TYPE_CHECKING:
    from requests import Response

log = logging.getLogger(__name__)

_ATTEMPTS = 10
_CHUNK = 1 << 16
_TIMEOUT = (10.0, 30.0)  # seconds to connect, and between bytes


class _Failed(Exception):
    """A transfer failed. `retry`: whether another attempt may succeed."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


def fetch(file: Download, folder: Path) -> Path:
    """Download a file into a folder.

    If no checksum is published, that of the first download is stored next to the file, and later downloads must match.

    Raises:
        DataError: If all addresses fail; the message gives the reason for each.
    """
    final = folder / file.name
    expected = file.checksum or _recorded(final)
    faults = []
    with _partial(final, keep=expected is not None) as part:
        if final.is_file():  # another process has downloaded it
            part.unlink()
            return final
        for address in file.addresses:
            try:
                _download(address, part, file.name, expected)
            except _Failed as fault:
                faults.append(f"{address}: {fault}")
                if expected is None:
                    _empty(part)  # without a checksum, the next address may have another file
                continue
            _move(part, final)
            if expected is None:
                _record(final)
            return final
    raise DataError("; ".join(faults))


def checksum(path: Path, kind: str) -> str:
    """The checksum of a file in hexadecimal digits; `kind`: the algorithm, such as sha256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()


@contextmanager
def _partial(final: Path, *, keep: bool) -> Iterator[Path]:
    """The file to download into. `keep`: continue the partial file of an earlier call, and leave one for the next."""
    left = final.with_name(f".{final.name}.part")
    with exclusive(final) as part:
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(final.parent.glob(f".{final.name}-*.part"))
            remove_link(left)
            try:
                os.replace(left, part)  # without a lock, only one process gets it
            except FileNotFoundError:
                part.open("xb").close()
            if not keep:
                _empty(part)
        except OSError as error:
            raise DataError(f"{final.parent} cannot be written: {error.strerror}") from error
        try:
            yield part
        finally:
            if part.exists():
                if keep and part.stat().st_size:
                    os.replace(part, left)
                else:
                    part.unlink()


def _download(address: str, part: Path, name: str, expected: str | None) -> None:
    """Download the rest of a file and check it."""
    resumed = part.stat().st_size > 0
    _attempts(address, part, name)
    try:
        _check(part, expected)
    except _Failed:
        if not resumed:
            raise
        _attempts(address, part, name)  # the first part may be from another version of the file
        _check(part, expected)


def _attempts(address: str, part: Path, name: str) -> None:
    """Transfer the rest of a file, in several attempts if the connection breaks."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with open(part, "ab", opener=no_follow) as stream:
                _transfer(address, stream, name)
            return
        except _Failed as fault:
            if not fault.retry:
                raise
            if attempt == _ATTEMPTS:
                raise _Failed(f"{fault}, {_ATTEMPTS} times") from fault


def _transfer(address: str, stream: BinaryIO, name: str) -> None:
    """Append the rest of a file to the stream, in one request."""
    import requests
    import urllib3

    start, received = stream.tell(), 0
    # No compression in transit: it would change the bytes.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with requests.get(address, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            start, total = _begin(response, stream, start)
            # Raw bytes: some servers send .gz files with "Content-Encoding: gzip", which requests would decompress.
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                _write(stream, chunk, name)
                received += len(chunk)
                report_progress(f"downloading {name}", start + received, total)
    except requests.exceptions.Timeout as error:
        raise _Failed("no answer in time", retry=received > 0) from error
    except requests.exceptions.ConnectionError as error:
        raise _Failed("no connection", retry=received > 0) from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _Failed("the connection broke", retry=received > 0) from error
    if total is not None and start + received != total:
        reason = f"the connection broke after {start + received:,} of {total:,} bytes"
        raise _Failed(reason, retry=received > 0)
    if start + received == 0:
        raise _Failed("the file there is empty")
    report_progress(f"downloading {name}", start + received, start + received)


def _begin(response: Response, stream: BinaryIO, start: int) -> tuple[int, int | None]:
    """Check status and headers. Returns the position of the first byte, and the size of the whole file if known."""
    length = response.headers.get("Content-Length", "")
    size = int(length) if length.isdecimal() else None
    if response.status_code == 206:
        if response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return start, None if size is None else start + size
        stream.truncate(0)
        raise _Failed("the server sent another range than requested", retry=True)
    if response.status_code == 416:  # the partial file is longer than the file
        stream.truncate(0)
        raise _Failed("the server does not have this range", retry=True)
    if response.status_code != 200:
        raise _Failed(f"the server answers {response.status_code} {response.reason}")
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise _Failed("the server sent a web page instead of the file")
    stream.truncate(0)
    return 0, size


def _write(stream: BinaryIO, chunk: bytes, name: str) -> None:
    try:
        stream.write(chunk)
        stream.flush()
    except OSError as error:
        raise DataError(f"{name} cannot be written to the cache: {error.strerror}") from error


def _check(part: Path, expected: str | None) -> None:
    """Compare the checksum; a wrong file is emptied, so that no later call continues it."""
    if expected is None:
        return
    kind, _, digits = expected.partition(":")
    got = checksum(part, kind)
    if got != digits:
        _empty(part)
        raise _Failed(f"the file is not the published one: its {kind} is {got}, not {digits}")


def _empty(part: Path) -> None:
    with open(part, "r+b", opener=no_follow) as stream:
        stream.truncate(0)


def _move(part: Path, final: Path) -> None:
    """Move a complete file to its final name."""
    try:
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(part, final)
    except OSError as error:
        raise DataError(f"{final} cannot be written: {error.strerror}") from error


def _recorded(final: Path) -> str | None:
    """The stored checksum of the first download of a file, if there is one."""
    try:
        return f"sha256:{_record_of(final).read_text(encoding='ascii').split()[0]}"
    except (OSError, ValueError, IndexError):
        return None


def _record(final: Path) -> None:
    """Store the checksum of a first download next to the file, in the format of sha256sum."""
    beside = _record_of(final)
    work = beside.with_name(f".{beside.name}-{secrets.token_hex(4)}")
    try:
        with work.open("x", encoding="ascii") as stream:
            stream.write(f"{checksum(final, 'sha256')}  {final.name}\n")
        os.replace(work, beside)
    except OSError as error:
        raise DataError(f"{beside} cannot be written: {error.strerror}") from error
    log.warning("No checksum of %s is published; that of this first download is stored in %s", final.name, beside)


def _record_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.sha256")
