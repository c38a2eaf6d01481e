"""Whether a server would let a client in: asked before a SuperNode is started, which says little about why it fails."""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from coterie.errors import FederationError, SpecError, shown
from coterie.federation.network.address import server_address


def check_admission(
    server: str, *, private_key: Path, root_certificates: Path, timeout: float = 10.0
) -> dict[str, Any]:
    """Check that a server can be reached, is the right one, and admits a key; returns what its run is about.

    Args:
        server: Host and port of its gate.
        private_key: File with the client's private key, as OpenSSH writes it: ECDSA, without a passphrase.
        root_certificates: File with the certificate of the authority that signed the gate's certificate.
        timeout: Seconds to wait.

    Raises:
        SpecError: If one of the files cannot be used, or the certificate of the server is not the right one.
        FederationError: With the reason why the client cannot join.
    """
    server = server_address(server)
    headers = signed_headers(Path(private_key))
    try:
        context = ssl.create_default_context(cafile=str(root_certificates))
    except (OSError, ssl.SSLError) as fault:
        raise SpecError(f"The certificate {str(root_certificates)!r} cannot be read: {fault}") from fault
    said = _health(server, context, headers, timeout)
    if not said.get("admitted"):
        reason = _text(said.get("reason"))
        hint = ". Its administrator can admit it: coterie admit NAME.pub" if "not admitted" in reason else ""
        raise FederationError(f"The server {server} does not admit this client: {reason}{hint}")
    if not said.get("superlink"):
        raise FederationError(f"The server {server} is not ready: its SuperLink does not answer")
    about = said.get("about")
    return about if isinstance(about, dict) else {}


def signed_headers(private_key: Path) -> dict[str, str]:
    """The headers by which a SuperNode proves that it has a key.

    Raises:
        SpecError: If the key cannot be read, or is not an ECDSA key.
    """
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as fault:
        raise SpecError("Runs between machines need an extra: pip install 'coterie[network]'") from fault
    try:
        key = serialization.load_ssh_private_key(private_key.read_bytes(), None)
    except Exception as fault:  # OSError, ValueError, UnsupportedAlgorithm, TypeError for a passphrase
        raise SpecError(f"The private key {str(private_key)!r} cannot be read: {fault}") from fault
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SpecError(f"The private key {str(private_key)!r} is not an ECDSA key. Make one: coterie keys client NAME")
    now = datetime.datetime.now(datetime.UTC).isoformat()
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return {
        "flwr-public-key": base64.b64encode(key.public_key().public_bytes(*form)).decode(),
        "flwr-timestamp": now,
        "flwr-signature": base64.b64encode(key.sign(now.encode(), ec.ECDSA(hashes.SHA256()))).decode(),
    }


def _health(server: str, context: ssl.SSLContext, headers: dict[str, str], timeout: float) -> dict[str, Any]:
    connection = http.client.HTTPSConnection(server, timeout=timeout, context=context)
    try:
        connection.request("GET", "/health", headers=headers)
        response = connection.getresponse()
        said = json.loads(response.read(100_000)) if response.status == 200 else None
    except ssl.SSLCertVerificationError as fault:
        raise SpecError(
            f"The certificate of {server} was not signed by the given authority, or is for another host: "
            f"{fault.verify_message.rstrip('.')}. Get ca.crt from the server, and use a host name in its certificate"
        ) from fault
    except (OSError, http.client.HTTPException, ValueError) as fault:
        why = getattr(fault, "strerror", None) or shown(fault)
        raise FederationError(f"The server {server} cannot be reached: {why}") from fault
    finally:
        connection.close()
    if not isinstance(said, dict):
        raise FederationError(f"The server {server} is not a gate of Coterie, or refuses: HTTP {response.status}")
    return said


def _text(value: object) -> str:
    return str(value)[:200] if value else "it does not say why"
