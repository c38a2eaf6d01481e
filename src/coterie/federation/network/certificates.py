"""The federation's own certificate authority (CA), and the server certificate that it signs.

    ca.key       private key of the CA; signs server certificates; never leaves the folder
    ca.crt       certificate of the CA; every client has a copy and trusts only servers that it signed
    server.key   private key of the server; never leaves the folder
    server.crt   certificate of the server, for its host names and IP addresses; renewed every year with the same CA

Keys are on the curve NIST P-384. Private keys are readable by their owner only and are never replaced.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from coterie.errors import SpecError, shown
from coterie.federation.network import files
from coterie.federation.network.keys import check_installed

CA_KEY, CA_CERTIFICATE, SERVER_KEY, SERVER_CERTIFICATE = "ca.key", "ca.crt", "server.key", "server.crt"

#: Days for which certificates are valid.
CA_DAYS, SERVER_DAYS = 3650, 365

#: Certificates are valid from a day before they are made: clocks of clients may be slow.
_CLOCK_ERROR = timedelta(days=1)

#: One part of a host name. Underscores are not allowed in names on the Internet, but are common in containers.
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key.

    Attributes:
        certificate: File of the certificate.
        key: File of the private key, which never leaves its folder.
        fingerprint: SHA-256 of the certificate, in the form of `openssl x509 -noout -fingerprint -sha256`.
        expires: When it expires.
        hosts: Host names and IP addresses of the server; empty for a CA.
    """

    certificate: Path
    key: Path
    fingerprint: str
    expires: datetime
    hosts: tuple[str, ...] = ()


def create_ca(folder: Path) -> Certificate:
    """Create a CA: ca.key and ca.crt. The folder is created if it does not exist, readable by its owner only.

    Raises:
        SpecError: If one of the files exists or cannot be written, or the extra `network` is missing.
    """
    check_installed()
    from cryptography import x509

    files.create_folder(folder, 0o700)
    _check_no_ca(folder)
    key = _new_key()
    name = _name(f"Coterie CA {x509.random_serial_number() % 16**8:08x}")  # tells the CAs of federations apart
    now = datetime.now(UTC)
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    made = (
        _begun(name, name, key.public_key(), now, now + timedelta(days=CA_DAYS), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    # The key comes last: what a killed process leaves behind has no value and can be removed.
    files.write_new(folder / CA_CERTIFICATE, _signed(made, key), files.PUBLIC)
    files.write_new(folder / CA_KEY, _private_text(key), files.PRIVATE)
    return read_certificate(folder / CA_CERTIFICATE)


def create_server_certificate(folder: Path, hosts: Sequence[str] = ()) -> Certificate:
    """Create or renew the certificate of the server; server.key is created if it is missing, otherwise kept.

    Args:
        folder: Folder with ca.key and ca.crt.
        hosts: Host names and IP addresses under which clients reach the server; empty: those of the certificate that
            is replaced.

    Returns:
        The new certificate. A running server uses it after a restart; clients need no change.

    Raises:
        SpecError: If a host is not valid, the CA is missing, damaged or expired, a file cannot be written, or the extra
            `network` is missing.
    """
    check_installed()
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ca_key, ca = _read_ca(folder)
    file = folder / SERVER_CERTIFICATE
    if not hosts and not file.exists():
        raise SpecError(f"There is no {file} to renew; give the server's host name or IP address: --host NAME")
    names = check_hosts(hosts or read_certificate(file).hosts)
    key_file = folder / SERVER_KEY
    key = _load_key(key_file) if key_file.exists() else _new_key()
    now = datetime.now(UTC)
    end = min(now + timedelta(days=SERVER_DAYS), ca.not_valid_after_utc)
    if end <= now:
        raise SpecError(
            f"The CA in {folder} expired on {end:%Y-%m-%d}; create another one in a new folder with coterie keys init, "
            "and send its ca.crt to every client"
        )
    made = (
        _begun(_name("Coterie server"), ca.subject, key.public_key(), now, end, ca_key)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    if not key_file.exists():
        files.write_new(key_file, _private_text(key), files.PRIVATE)
    files.write_over(file, _signed(made, ca_key), files.PUBLIC)
    return read_certificate(file)


def check_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts without repetitions, IP addresses in their usual form.

    Raises:
        SpecError: If one is neither a host name nor an IP address.
    """
    found: dict[str, None] = {}
    for host in hosts:
        if _is_address(host):
            found[str(ipaddress.ip_address(host))] = None
            continue
        labels = host.split(".")
        # The last part of a host name is no number: 300.1.1.1 is a mistyped address.
        if not all(map(_LABEL.fullmatch, labels)) or len(host) > 253 or labels[-1].isdecimal():
            raise SpecError(
                f"--host must be a host name or an IP address without protocol and port, such as fl.example.org or "
                f"192.0.2.7, got {shown(host)}"
            )
        found[host.lower()] = None
    return tuple(found)


def read_certificate(file: Path) -> Certificate:
    """Read the hosts, fingerprint and expiry of a certificate.

    Raises:
        SpecError: If it cannot be read, or the extra `network` is missing.
    """
    check_installed()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    loaded = _load_certificate(file)
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = ()
    hosts = tuple(str(each.value) for each in names)
    digest = loaded.fingerprint(hashes.SHA256()).hex(":").upper()
    return Certificate(file, file.with_suffix(".key"), digest, loaded.not_valid_after_utc, hosts)


def _check_no_ca(folder: Path) -> None:
    key, certificate = folder / CA_KEY, folder / CA_CERTIFICATE
    if key.exists():
        raise SpecError(
            f"{key} exists and is not replaced: {folder} already has a CA. For a new server certificate: coterie keys "
            "renew. For another federation, choose another folder with --folder"
        )
    if certificate.exists():
        raise SpecError(
            f"{certificate} exists, but not its key {key.name}. Restore {key.name} from a backup; if there is none, or "
            f"the command was interrupted, remove {certificate} and try again"
        )


def _read_ca(folder: Path) -> tuple[Any, Any]:
    """Key and certificate of the CA."""
    key_file, file = folder / CA_KEY, folder / CA_CERTIFICATE
    for each in (key_file, file):
        if not each.exists():
            raise SpecError(
                f"There is no {each}. Restore it from a backup, give the folder of the federation with --folder, or "
                "create a federation: coterie keys init --host NAME"
            )
    key, certificate = _load_key(key_file), _load_certificate(file)
    if key.public_key() != certificate.public_key():
        raise SpecError(f"{key_file} is not the key of {file}; restore both from the same backup")
    return key, certificate


def _begun(subject: Any, issuer: Any, public: Any, now: datetime, end: datetime, issuer_key: Any) -> Any:
    """A certificate with the fields that all have, before it is signed."""
    from cryptography import x509

    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_ERROR)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(authority, critical=False)
    )


def _signed(begun: Any, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    content: bytes = begun.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)
    return content


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> Any:
    from cryptography import x509

    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host  # an interface, as in fe80::1%eth0, has no place in a certificate


def _key_usage(**allowed: bool) -> Any:
    from cryptography import x509

    every = "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign"
    names = (*every.split(), "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{**dict.fromkeys(names, False), **allowed})


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _private_text(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    content: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return content


def _load_key(file: Path) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(_read(file), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise SpecError(f"{file} is damaged or needs a password: {fault}. Restore it from a backup") from fault


def _load_certificate(file: Path) -> Any:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(_read(file))
    except ValueError as fault:
        raise SpecError(f"{file} is not a certificate: {fault}. Restore it from a backup") from fault


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as fault:
        raise SpecError(f"{file} cannot be read: {fault.strerror or fault}") from fault
