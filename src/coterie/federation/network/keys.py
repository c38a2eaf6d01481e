"""Keys of clients: pairs of files in the format of OpenSSH, on the curve NIST P-384.

    NAME.key   private key; readable by its owner only, never leaves the client
    NAME.pub   public key, one line with the client's name as its comment; the server admits it

A client signs its messages with the private key. People compare the fingerprint of the public key, which has the form
that `ssh-keygen -l` prints. Certificates of the server are in certificates.py.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import SpecError, shown
from coterie.federation.network import files
from coterie.federation.network.fingerprint import fingerprint

#: Type of a public key, as OpenSSH names it.
KEY_TYPE = "ecdsa-sha2-nistp384"

#: Names of clients. They become file names: no separators, no leading dot, no space.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_ENDINGS = (".pub", ".key", ".toml")

#: Largest file that is read as a public key, in bytes.
_MAX_BYTES = 16_384


@dataclass(frozen=True)
class KeyPair:
    """The files of a client's key pair.

    Attributes:
        private_key: File that never leaves the client.
        public_key: File for the server.
        fingerprint: Fingerprint of the public key.
    """

    private_key: Path
    public_key: Path
    fingerprint: str


@dataclass(frozen=True)
class PublicKey:
    """A public key.

    Attributes:
        text: Type and key in base64, without the comment.
        comment: Comment of the key, usually the client's name; may be empty.
        fingerprint: Its fingerprint.
    """

    text: str
    comment: str
    fingerprint: str


def check_client_name(name: str) -> str:
    """Return the name of a client if it can be used in file names.

    Raises:
        SpecError: If it cannot.
    """
    if not _NAME.fullmatch(name) or name.lower().endswith(_FILE_ENDINGS):
        raise SpecError(
            f"{shown(name)} cannot be the name of a client; allowed are 1 to 64 of the characters A-Z a-z 0-9 . _ -, "
            f"beginning with a letter or digit, not ending with {', '.join(_FILE_ENDINGS)}"
        )
    return name


def fingerprint_of(public_key: str) -> str:
    """The fingerprint of a public key in the one-line format of OpenSSH: `SHA256:` and the hash in base64.

    Raises:
        SpecError: If the text is not such a key.
    """
    return _split(public_key).fingerprint


def create_client_key(folder: Path, name: str) -> KeyPair:
    """Create the key pair of a client.

    If only NAME.key exists, as after a crash, NAME.pub is written again from it.

    Args:
        folder: Folder for both files; it is created if it does not exist.
        name: The client's name.

    Returns:
        Paths and fingerprint.

    Raises:
        SpecError: If the pair exists, a file cannot be written, or the extra `network` is missing.
    """
    check_client_name(name)
    check_installed()
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    if public.exists():
        raise SpecError(f"{public} exists and is not replaced. Use it, or choose another name or folder")
    files.create_folder(folder)
    key = _load_private(private) if private.exists() else _generate(private)
    text = _public_text(key)
    files.write_new(public, f"{text} {name}\n".encode(), files.PUBLIC)
    return KeyPair(private, public, fingerprint_of(text))


def read_public_key(file: Path) -> PublicKey:
    """Read a public key and check that it is a valid key of the type that clients use.

    Raises:
        SpecError: If it is not, the file cannot be read, or the extra `network` is missing.
    """
    key = parse_public_key(file)
    check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        load_ssh_public_key(key.text.encode())  # checks that the point is on the curve
    except (ValueError, UnsupportedAlgorithm) as fault:
        raise SpecError(f"{file} is not a valid public key: {fault}. Ask the client to send it again") from fault
    return key


def parse_public_key(file: Path) -> PublicKey:
    """Read the type, comment and fingerprint of a public key without checking its numbers.

    Raises:
        SpecError: If the file cannot be read or is not a public key of the type that clients use.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
    except OSError as fault:
        raise SpecError(f"{file} cannot be read: {fault.strerror or fault}") from fault
    if b"PRIVATE KEY" in content:
        raise SpecError(
            f"{file} is a private key, which must not leave its client. The server needs the file that ends with .pub. "
            "If the private key was sent here, create a new pair on the client: coterie keys client NAME"
        )
    lines = [line for line in content.decode(errors="replace").splitlines() if line.strip()]
    if len(content) > _MAX_BYTES or len(lines) != 1:
        raise SpecError(f"{file} is not a public key: it must have one line. Create one with: coterie keys client NAME")
    try:
        return _split(lines[0])
    except SpecError as fault:
        raise SpecError(f"{file}: {fault}") from fault


def check_installed() -> None:
    """Raise SpecError if the package `cryptography` is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError as fault:
        raise SpecError("Keys and certificates need an extra: pip install 'coterie[network]'") from fault


def _split(line: str) -> PublicKey:
    kind, _, rest = line.strip().partition(" ")
    encoded, _, comment = rest.strip().partition(" ")
    if kind != KEY_TYPE:
        raise SpecError(
            f"A public key must begin with {KEY_TYPE}, got {shown(kind[:40])}. Create one: coterie keys client NAME"
        )
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise SpecError("The public key is damaged: it is not valid base64. Ask the client to send it again") from fault
    # The blob begins with the type once more, after its length. Without this check, one key could have several texts.
    start = len(KEY_TYPE).to_bytes(4, "big") + KEY_TYPE.encode()
    if not blob.startswith(start) or base64.b64encode(blob).decode() != encoded:
        raise SpecError("The public key is damaged: its parts do not match. Ask the client to send it again")
    text = f"{kind} {encoded}"
    return PublicKey(text, comment.strip(), fingerprint(text))


def _generate(file: Path) -> Any:
    """Create a private key, also as a file."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    files.write_new(file, content, files.PRIVATE)
    return key


def _load_private(file: Path) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        return load_ssh_private_key(file.read_bytes(), password=None)
    except OSError as fault:
        raise SpecError(f"{file} cannot be read: {fault.strerror or fault}") from fault
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise SpecError(f"{file} exists, is not replaced, and is not a usable private key: {fault}") from fault


def _public_text(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    encoded: bytes = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return encoded.decode()
