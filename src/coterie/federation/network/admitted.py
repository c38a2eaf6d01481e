"""`Admitted`: a client that may join a federation, and the file that says so."""

from __future__ import annotations

import base64
import tomllib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coterie.errors import SpecError
from coterie.federation.network.keys import check_client_name, fingerprint_of
from coterie.types import ClientId

#: Largest file that is read, in bytes.
_MAX_BYTES = 65_536


@dataclass(frozen=True)
class Admitted:
    """A client that may join.

    Attributes:
        client: Client id.
        public_key: Public key in the one-line format of OpenSSH.
        fingerprint: Fingerprint of the public key.
        admitted: When it was admitted.
        cluster: Its true cluster, if known; for evaluation only.
        revoked: When it was revoked; None for a client that may join.
    """

    client: ClientId
    public_key: str
    fingerprint: str
    admitted: datetime
    cluster: int | None = None
    revoked: datetime | None = None


def encode(entry: Admitted) -> bytes:
    """The content of its file."""
    import tomli_w

    return tomli_w.dumps({key: value for key, value in asdict(entry).items() if value is not None}).encode()


def decode(file: Path) -> Admitted:
    """Read a file and check what it says.

    Raises:
        SpecError: If something is missing or wrong.
        ValueError: If it is not TOML in UTF-8.
        OSError: If it cannot be read.
    """
    with file.open("rb") as opened:
        data = opened.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise SpecError(f"it is larger than {_MAX_BYTES:,} bytes")
    content = tomllib.loads(data.decode())
    kinds: dict[str, Any] = {"client": str, "public_key": str, "fingerprint": str, "admitted": datetime}
    optional: dict[str, Any] = {"cluster": int, "revoked": datetime}
    for key, kind in {**kinds, **optional}.items():
        if (key in kinds or key in content) and type(content.get(key)) is not kind:
            raise SpecError(f"{key} is missing or is not of type {kind.__name__}")
    if surplus := sorted(content.keys() - {*kinds, *optional}):
        raise SpecError(f"it has unknown keys: {', '.join(surplus)}")
    check_client_name(content["client"])
    if fingerprint_of(content["public_key"]) != content["fingerprint"]:
        raise SpecError("the fingerprint is not that of the public key")
    if content.get("cluster", 0) < 0:
        raise SpecError("cluster is negative")
    return Admitted(**content)


def file_part(fingerprint: str) -> str:
    """A fingerprint in file names: the first half of its hash in hexadecimal digits; base64 may contain slashes."""
    return base64.b64decode(fingerprint.removeprefix("SHA256:") + "=")[:16].hex()


def now() -> datetime:
    """The time in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
