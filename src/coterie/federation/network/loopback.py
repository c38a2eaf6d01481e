"""What processes on one machine need to talk to each other: ports, a certificate, a secret, a look at their health."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import secrets
import socket
import ssl
from pathlib import Path

from coterie.errors import SpecError
from coterie.federation.network import files

#: The address on which everything but the gate listens.
HOST = "127.0.0.1"


def free_port() -> int:
    """A port on the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def new_secret(path: Path) -> bytes:
    """Write a new secret into a file that only its owner can read, and return it."""
    secret = secrets.token_bytes(32)
    files.write_over(path, secret, files.PRIVATE)
    return secret


def new_certificate(certificate: Path, key: Path) -> bytes:
    """Write a certificate for the loopback interface, which is its own authority, and its key; returns the certificate.

    It is made anew at each start. Only processes that get it from here accept it.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as fault:
        raise SpecError("Runs between machines need an extra: pip install 'coterie[network]'") from fault
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Coterie loopback")])
    now = datetime.datetime.now(datetime.UTC)
    usage = {each: False for each in _KEY_USAGES} | {"digital_signature": True, "key_cert_sign": True}
    identifier = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    built = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(private, hashes.SHA256())
    )
    pem: bytes = built.public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    content = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    files.write_over(key, content, files.PRIVATE)
    files.write_over(certificate, pem, files.PUBLIC)
    return pem


_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def answers(port: int, *, tls: bool, host: str = HOST, path: str = "/health", timeout: float = 2.0) -> bool:
    """Whether a process on this machine answers `GET` with 200.

    The certificate is not verified: nothing is sent, and that of a gate may name another host than the loopback
    address.
    """
    if tls:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
