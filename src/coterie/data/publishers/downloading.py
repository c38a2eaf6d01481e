"""Files from their publishers' addresses: whole and checked under their names, or not there at all.

If the connection breaks, a download goes on where it stopped as long as each attempt brings something; if the server
cannot begin in the middle, it starts again. What was received is left for the next call, unless there is no checksum
to tell whether both pieces are of the same file. One process at a time downloads a file; others wait and find it there
(see `making`).

Progress is told to `watching`. Of pooch this takes the transfer alone: its `retrieve` writes to stderr and begins again
whenever a connection breaks.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from coterie.data.publishers.growing import growing, place, record, recorded, wrong
from coterie.data.publishers.listing import File
from coterie.data.watching import tell
from coterie.errors import DataError

_ATTEMPTS = 10
_CHUNK = 1 << 16
_TIMEOUT = (10.0, 30.0)  # seconds for a connection, and for the next bytes


def fetch(file: File, folder: Path) -> Path:
    """The path of a file that is downloaded into a folder; a `DataError` says what went wrong at each address.

    Where no checksum is published, that of the first download is kept beside the file, and later ones must agree.
    """
    final = folder / file.name
    expected = file.checksum or recorded(final)
    faults = []
    with growing(final, keep=expected is not None) as part:
        if final.is_file():  # another process has fetched it
            part.unlink()
            return final
        for address in file.addresses:
            fault = _attempt(address, part, file.name, expected)
            if fault is None:
                place(part, final)
                if expected is None:
                    record(final)
                return final
            faults.append(f"{address}: {fault}")
            if expected is None:
                os.truncate(part, 0)  # nothing would tell that the next address has the same file
    raise DataError("; ".join(faults))


def _attempt(address: str, part: Path, name: str, expected: str | None) -> str | None:
    """Download what is missing of a file and check it; None if it is right, else what went wrong."""
    resumed = part.stat().st_size > 0
    fault = _transfer(address, part, name)
    if fault is not None:
        return fault
    fault = wrong(part, expected)
    if fault is not None and resumed:  # what an earlier call has left was perhaps of another version
        fault = _transfer(address, part, name) or wrong(part, expected)
    return fault


def _transfer(address: str, part: Path, name: str) -> str | None:
    """Download what is missing of a file; None if it is whole now, else what went wrong."""
    pooch: Any = importlib.import_module("pooch")
    fault = ""
    for _ in range(_ATTEMPTS):
        with _Stream(part, name) as stream:
            get = pooch.HTTPDownloader(
                chunk_size=_CHUNK, timeout=_TIMEOUT, headers=stream.headers(), hooks={"response": stream.begun}
            )
            try:
                get(address, stream, None)
                stream.check()
            except OSError as error:  # what requests raises, and `_Fault`
                fault = _reason(error)
            else:
                return None
            if stream.received == 0 and not stream.again:
                return fault
    return f"{fault}, {_ATTEMPTS} times"


class _Fault(OSError):
    """An answer that is not the file."""


class _Stream:
    """A growing file that looks at the server's answer before anything is written."""

    def __init__(self, part: Path, name: str) -> None:
        """At the end of what is there already."""
        self._name = name
        self._file = part.open("ab")
        self._start = self._file.tell()
        self._total: int | None = None
        self._response: Any = None
        self.received = 0
        self.again = False  # whether what was there is of no use, and another attempt starts without it

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._response is not None:
            self._response.close()

    def headers(self) -> dict[str, str]:
        """What to ask for: the rest, and no compression on the way, which would change the bytes."""
        return {"Accept-Encoding": "identity"} | ({"Range": f"bytes={self._start}-"} if self._start else {})

    def begun(self, response: Any, *_: object, **__: object) -> None:
        """The server's answer has begun."""
        self._response = response
        # Some servers call a .gz file an encoding of what is in it; it is to be kept as it is.
        response.raw.headers.pop("Content-Encoding", None)
        announced = response.headers.get("Content-Length", "")
        length = int(announced) if announced.isdecimal() else None
        if response.status_code == 416:  # there is no such rest
            self._restart()
            self.again = True
        elif response.status_code == 206:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {self._start}-"):
                self._restart()
                self.again = True
                raise _Fault("the server sent another piece than it was asked for")
            self._total = None if length is None else self._start + length
        elif response.status_code == 200:
            if response.headers.get("Content-Type", "").startswith("text/html"):
                raise _Fault("the server sent a page instead of the file")
            self._restart()
            self._total = length

    def _restart(self) -> None:
        self._start = 0
        self._file.truncate(0)

    def write(self, chunk: bytes) -> None:
        """Bytes have come."""
        try:
            self._file.write(chunk)
            self._file.flush()
        except OSError as error:
            raise DataError(f"{self._name} cannot be written to the cache: {error.strerror}") from error
        self.received += len(chunk)
        tell(f"downloading {self._name}", self._start + self.received, self._total)

    def flush(self) -> None:
        """Asked for by pooch after each chunk; it is done already."""

    def check(self) -> None:
        """Whether all came that was announced."""
        there = self._start + self.received
        if self._total is not None and there != self._total:
            raise _Fault(f"the connection broke after {there:,} of {self._total:,} bytes")
        if there == 0:
            raise _Fault("the file there is empty")
        tell(f"downloading {self._name}", there, there)


def _reason(error: OSError) -> str:
    """What went wrong, in a few words."""
    if isinstance(error, _Fault):
        return str(error)
    requests: Any = importlib.import_module("requests")
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answers {response.status_code} {response.reason}"
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke"
    if isinstance(error, requests.exceptions.ConnectionError):
        return "no connection"
    return (str(error) or type(error).__name__).splitlines()[0]
