"""The keys that may pass the gate, and the signature of a request.

A SuperNode sends its public key, the time, and the time signed with its private key in the headers of each request, so
both can be checked before the body is read.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.errors import SpecError
from coterie.federation.network.fingerprint import fingerprint, load_public_key, public_key_pem

log = logging.getLogger(__name__)

#: Headers of a SuperNode's requests: its public key (PEM) and the signature, both in base64, and what is signed.
PUBLIC_KEY, SIGNATURE, TIMESTAMP = "flwr-public-key", "flwr-signature", "flwr-timestamp"

#: How old the time of a request may be, and how far ahead of this machine's clock, in seconds; as in Flower.
_OLDEST, _AHEAD = 305.0, 5.0


class Refused(Exception):
    """A request that is not passed on.

    Attributes:
        status: HTTP status of the response.
        reason: Text of the response.
    """

    def __init__(self, status: int, reason: str) -> None:
        """Refuse a request."""
        super().__init__(reason)
        self.status, self.reason = status, reason


class AllowedKeys:
    """The keys in a file, one OpenSSH public key per line. The file is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Use a file. While it is missing, no key is allowed."""
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._keys: dict[bytes, tuple[str, Any]] = {}  # PEM → fingerprint, key

    def check(self, headers: Mapping[str, str]) -> str:
        """The fingerprint of the key that signed a request.

        Raises:
            Refused: If the key is not allowed (403), or if there is no valid signature (401).
        """
        try:
            pem = base64.b64decode(headers[PUBLIC_KEY], validate=True)
            signature = base64.b64decode(headers[SIGNATURE], validate=True)
            timestamp = headers[TIMESTAMP]
            signed = datetime.datetime.fromisoformat(timestamp)
            age = (datetime.datetime.now(datetime.UTC) - signed).total_seconds()
        except (KeyError, ValueError, TypeError, binascii.Error) as fault:
            raise Refused(401, "The request is not signed") from fault
        known = self._current().get(pem)
        if known is None:
            raise Refused(403, "This key is not admitted")
        if not -_AHEAD < age < _OLDEST:
            raise Refused(401, f"The clocks of client and server differ by {abs(age):.0f} seconds")
        name, key = known
        if not _is_valid(key, timestamp.encode(), signature):
            raise Refused(401, "The signature is not valid")
        return name

    def _current(self) -> dict[bytes, tuple[str, Any]]:
        try:
            stat = self._path.stat()
            version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if version != self._version:
                self._keys = _read(self._path.read_text(encoding="utf-8"))
                self._version = version
        except (OSError, UnicodeDecodeError) as fault:
            log.error("The allowed keys cannot be read, so none is allowed: %s", fault)
            self._keys, self._version = {}, None
        return self._keys


def _read(text: str) -> dict[bytes, tuple[str, Any]]:
    keys = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                keys[public_key_pem(line)] = (fingerprint(line), load_public_key(line))
            except SpecError as fault:
                log.error("Line %d of the allowed keys is left out: %s", number, fault)
    return keys


def _is_valid(key: Any, message: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
