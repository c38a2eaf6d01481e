"""Fingerprints of public keys, as OpenSSH shows them. A client is identified by the fingerprint of its key."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

from coterie.errors import SpecError, shown

_ALLOWED = "Allowed: an OpenSSH public key ('ecdsa-sha2-nistp384 AAAA...'), PEM or DER"


def fingerprint(key: str | bytes) -> str:
    """The fingerprint of a public key: `SHA256:` and 43 characters, as `ssh-keygen -l` shows it.

    Args:
        key: The key as an OpenSSH line (with or without comment), PEM or DER.

    Raises:
        SpecError: If it is none of these.
    """
    text = _openssh_text(key)
    blob = _blob(text) if text is not None else _blob(_serialized(_loaded(key), "OpenSSH").decode())
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def public_key_pem(key: str | bytes) -> bytes:
    """The same public key as PEM.

    Args:
        key: The key as an OpenSSH line, PEM or DER.

    Raises:
        SpecError: If it is none of these.
    """
    return _serialized(_loaded(key), "PEM")


def load_public_key(key: str | bytes) -> Any:
    """A public key as an object of `cryptography`.

    Args:
        key: The key as an OpenSSH line, PEM or DER.

    Raises:
        SpecError: If it is none of these.
    """
    return _loaded(key)


def _openssh_text(key: str | bytes) -> str | None:
    """The key as text if it is an OpenSSH line, else None."""
    if isinstance(key, bytes):
        try:
            key = key.decode("ascii")
        except UnicodeDecodeError:
            return None  # DER
    text = key.strip()
    return text if text.startswith(("ecdsa-sha2-", "ssh-")) else None


def _blob(text: str) -> bytes:
    """The binary part of an OpenSSH line, which starts with the type of the key."""
    parts = text.split()
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except (IndexError, binascii.Error) as fault:
        raise SpecError(f"Not a public key: {shown(text)}. {_ALLOWED}") from fault
    kind = parts[0].encode()
    if not blob.startswith(len(kind).to_bytes(4, "big") + kind):
        raise SpecError(f"Not a public key: {shown(text)}. {_ALLOWED}")
    return blob


def _loaded(key: str | bytes) -> Any:
    serialization = _serialization()
    data = key.encode() if isinstance(key, str) else key
    text = _openssh_text(key)
    try:
        if text is not None:
            return serialization.load_ssh_public_key(text.encode())
        if data.lstrip().startswith(b"-----BEGIN"):
            return serialization.load_pem_public_key(data)
        return serialization.load_der_public_key(data)
    except Exception as fault:  # ValueError, UnsupportedAlgorithm, and others for odd DER
        raise SpecError(f"Not a public key: {shown(key)}. {_ALLOWED}") from fault


def _serialized(key: Any, encoding: str) -> bytes:
    serialization = _serialization()
    kind = "OpenSSH" if encoding == "OpenSSH" else "SubjectPublicKeyInfo"
    encoded: bytes = key.public_bytes(
        getattr(serialization.Encoding, encoding), getattr(serialization.PublicFormat, kind)
    )
    return encoded


def _serialization() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as fault:
        raise SpecError("Keys of clients need an extra: pip install 'coterie[network]'") from fault
    return serialization
