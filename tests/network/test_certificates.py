"""The CA and the server certificate, checked with Python's ssl module and with OpenSSL."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from coterie.errors import SpecError
from coterie.federation.network import certificates
from coterie.federation.network.certificates import (
    check_hosts,
    create_ca,
    create_server_certificate,
    read_certificate,
)


@pytest.fixture
def folder(tmp_path):
    """A federation whose server is fl.example.org or 127.0.0.1."""
    create_ca(tmp_path / "federation")
    create_server_certificate(tmp_path / "federation", ["fl.example.org", "127.0.0.1"])
    return tmp_path / "federation"


def connect(folder, ca, host: str) -> str:
    """Shake hands in memory between a server of this folder and a client that trusts `ca`; returns the TLS version."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "server.crt", folder / "server.key")
    client_context = ssl.create_default_context(cafile=ca)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        waiting = 0
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return client.version()
    raise AssertionError("the handshake does not end")


@pytest.mark.parametrize("host", ["fl.example.org", "127.0.0.1"])
def test_a_client_with_the_ca_accepts_the_server_under_each_of_its_hosts(folder, host):
    assert connect(folder, folder / "ca.crt", host) == "TLSv1.3"


@pytest.mark.parametrize("host", ["other.example.org", "127.0.0.2", "example.org"])
def test_a_client_refuses_the_server_under_another_host(folder, host):
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        connect(folder, folder / "ca.crt", host)


def test_a_client_refuses_a_server_of_another_ca(folder, tmp_path):
    create_ca(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        connect(folder, tmp_path / "other" / "ca.crt", "fl.example.org")


def test_a_server_certificate_cannot_sign_other_certificates(folder, tmp_path):
    # A server whose key was stolen must not become a CA: its certificate as the CA of another folder.
    fake = tmp_path / "fake"
    fake.mkdir()
    for name, source in (("ca.crt", "server.crt"), ("ca.key", "server.key")):
        shutil.copy(folder / source, fake / name)
    create_server_certificate(fake, ["fl.example.org"])
    chain = (fake / "server.crt").read_bytes() + (folder / "server.crt").read_bytes()
    (fake / "server.crt").write_bytes(chain)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(fake, folder / "ca.crt", "fl.example.org")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_verifies_the_certificate_and_prints_the_same_fingerprint(folder, tmp_path):
    def openssl(*args):
        return subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True, timeout=30)

    ca, server = folder / "ca.crt", folder / "server.crt"
    accepted = openssl("verify", "-x509_strict", "-CAfile", ca, "-purpose", "sslserver", server)
    assert accepted.stdout == f"{server}: OK\n", accepted.stderr
    create_ca(tmp_path / "other")
    assert openssl("verify", "-CAfile", tmp_path / "other" / "ca.crt", server).returncode != 0
    assert openssl("verify", "-CAfile", ca, "-purpose", "sslclient", server).returncode != 0
    for file in (ca, server):
        printed = openssl("x509", "-in", file, "-noout", "-fingerprint", "-sha256").stdout
        assert printed.strip().partition("=")[2] == read_certificate(file).fingerprint


def test_the_ca_is_valid_for_ten_years_and_the_server_certificate_for_one(folder):
    now = datetime.now(UTC)
    ca, server = read_certificate(folder / "ca.crt"), read_certificate(folder / "server.crt")
    assert abs(ca.expires - (now + timedelta(days=3650))) < timedelta(minutes=5)
    assert abs(server.expires - (now + timedelta(days=365))) < timedelta(minutes=5)
    assert (ca.hosts, server.hosts) == ((), ("fl.example.org", "127.0.0.1"))
    assert (server.certificate, server.key) == (folder / "server.crt", folder / "server.key")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes")
def test_only_the_owner_can_read_private_keys_and_the_folder(folder):
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {"ca.key": 0o600, "server.key": 0o600, "ca.crt": 0o644, "server.crt": 0o644}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_ca_is_never_replaced(folder):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(SpecError, match=r"ca\.key exists and is not replaced.*coterie keys renew"):
        create_ca(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_ca_certificate_without_its_key_is_not_replaced_either(folder):
    (folder / "ca.key").unlink()
    before = (folder / "ca.crt").read_bytes()
    with pytest.raises(SpecError, match=r"ca\.crt exists, but not its key ca\.key\. Restore ca\.key from a backup"):
        create_ca(folder)
    assert (folder / "ca.crt").read_bytes() == before


def test_a_renewed_certificate_keeps_ca_key_and_hosts(folder):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    renewed = create_server_certificate(folder)
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert [name for name in sorted(after) if after[name] != before[name]] == ["server.crt"]
    assert renewed.hosts == ("fl.example.org", "127.0.0.1")
    assert connect(folder, folder / "ca.crt", "fl.example.org") == "TLSv1.3"


def test_a_renewed_certificate_can_have_other_hosts(folder):
    assert create_server_certificate(folder, ["new.example.org", "::1"]).hosts == ("new.example.org", "::1")
    assert connect(folder, folder / "ca.crt", "::1") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        connect(folder, folder / "ca.crt", "fl.example.org")


def test_a_removed_server_key_is_created_anew(folder):
    before = (folder / "server.key").read_bytes()
    (folder / "server.key").unlink()
    create_server_certificate(folder)
    assert (folder / "server.key").read_bytes() != before
    assert connect(folder, folder / "ca.crt", "fl.example.org") == "TLSv1.3"


def test_the_server_certificate_does_not_outlive_its_ca(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "CA_DAYS", 30)
    ca = create_ca(tmp_path)
    assert create_server_certificate(tmp_path, ["a"]).expires == ca.expires


def test_an_expired_ca_signs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "CA_DAYS", -0.5)  # it begins a day ago and ended half a day ago
    create_ca(tmp_path)
    with pytest.raises(SpecError, match=r"expired on .*send its ca\.crt to every client"):
        create_server_certificate(tmp_path, ["a"])
    assert not (tmp_path / "server.key").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "ca.key").write_text("nothing"), r"ca\.key is damaged"),
        (lambda folder: (folder / "ca.crt").write_text("nothing"), r"ca\.crt is not a certificate"),
        (lambda folder: (folder / "ca.key").unlink(), r"There is no .*ca\.key\. Restore it from a backup"),
        (lambda folder: shutil.copy(folder / "server.key", folder / "ca.key"), r"ca\.key is not the key of"),
        (lambda folder: (folder / "server.key").write_text(""), r"server\.key is damaged"),
        (lambda folder: (folder / "server.crt").write_text(""), r"server\.crt is not a certificate"),
        (lambda folder: (folder / "server.crt").unlink(), r"There is no .*server\.crt to renew.*--host NAME"),
    ],
)
def test_a_damaged_or_missing_file_is_named_and_nothing_is_changed(damage, message, folder):
    damage(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(SpecError, match=message):
        create_server_certificate(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_hosts_are_listed_once_in_their_usual_form():
    hosts = ["FL.example.org", "fl.example.org", "::0001", "10.0.0.1", "my_container", "localhost"]
    assert check_hosts(hosts) == ("fl.example.org", "::1", "10.0.0.1", "my_container", "localhost")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "https://a.org",
        "a.org:443",
        "a b",
        "300.1.1.1",
        "-a",
        "a..b",
        "fe80::1%eth0",
        "ä.org",
        "*.a.org",
        "a" * 64,
        "a." * 130 + "b",
    ],
)
def test_what_is_not_a_host_is_refused(host):
    with pytest.raises(SpecError, match="--host must be a host name or an IP address without protocol and port"):
        check_hosts([host])
