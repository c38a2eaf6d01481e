"""Keys of clients: formats that OpenSSH and Flower read, file modes, and files that are never replaced."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import stat
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from coterie.errors import SpecError
from coterie.federation.network.keys import (
    check_client_name,
    create_client_key,
    fingerprint_of,
    parse_public_key,
    read_public_key,
)


def test_a_key_pair_is_ecdsa_on_p384_in_the_format_of_openssh(tmp_path):
    made = create_client_key(tmp_path / "keys", "hospital-a")
    assert made.private_key == tmp_path / "keys" / "hospital-a.key"
    private = load_ssh_private_key(made.private_key.read_bytes(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    text = made.public_key.read_text()
    kind, _, comment = text.split()
    assert (kind, comment) == ("ecdsa-sha2-nistp384", "hospital-a")
    assert text.count("\n") == 1
    assert load_ssh_public_key(text.encode()) == private.public_key()


def test_the_fingerprint_is_the_hash_of_the_decoded_key(tmp_path):
    made = create_client_key(tmp_path, "a")
    blob = base64.b64decode(made.public_key.read_text().split()[1])
    # SHA-256 has 32 bytes: 43 characters of base64 and one of padding, which OpenSSH leaves out.
    expected = "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode()[:43]
    assert made.fingerprint == fingerprint_of(made.public_key.read_text()) == expected


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_ssh_keygen_prints_the_same_fingerprint_for_both_files(tmp_path):
    made = create_client_key(tmp_path, "hospital-a")
    for file in (made.private_key, made.public_key):
        done = subprocess.run(["ssh-keygen", "-l", "-f", file], capture_output=True, text=True, timeout=30, check=True)
        bits, fingerprint, *_, kind = done.stdout.split()
        assert (bits, fingerprint, kind) == ("384", made.fingerprint, "(ECDSA)")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes")
@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_only_the_owner_can_read_the_private_key_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        made = create_client_key(tmp_path, "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.private_key.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.public_key.stat().st_mode) == 0o644
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.key", "a.pub"], "no temporary file is left"


def test_a_key_pair_is_never_replaced(tmp_path):
    made = create_client_key(tmp_path, "a")
    before = made.private_key.read_bytes(), made.public_key.read_bytes()
    with pytest.raises(SpecError, match=r"a\.pub exists and is not replaced"):
        create_client_key(tmp_path, "a")
    assert (made.private_key.read_bytes(), made.public_key.read_bytes()) == before


def test_a_missing_public_key_is_written_again_from_the_private_key(tmp_path):
    made = create_client_key(tmp_path, "a")
    private, public = made.private_key.read_bytes(), made.public_key.read_bytes()
    made.public_key.unlink()
    assert create_client_key(tmp_path, "a") == made
    assert (made.private_key.read_bytes(), made.public_key.read_bytes()) == (private, public)


def test_a_file_that_is_not_a_private_key_is_not_replaced(tmp_path):
    (tmp_path / "a.key").write_text("my notes")
    with pytest.raises(SpecError, match=r"a\.key exists, is not replaced, and is not a usable private key"):
        create_client_key(tmp_path, "a")
    assert (tmp_path / "a.key").read_text() == "my notes"


def test_a_broken_link_in_place_of_the_key_is_not_followed(tmp_path):
    (tmp_path / "a.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SpecError, match=r"a\.key exists and is not replaced"):
        create_client_key(tmp_path, "a")
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_hard_links_gets_the_same_files(tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    made = create_client_key(tmp_path, "a")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.key", "a.pub"]
    assert read_public_key(made.public_key).fingerprint == made.fingerprint
    made.public_key.unlink()
    (tmp_path / "a.pub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SpecError, match=r"a\.pub exists and is not replaced"):
        create_client_key(tmp_path, "a")


def test_a_folder_that_cannot_be_created_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"The folder .*file/below cannot be created"):
        create_client_key(tmp_path / "file" / "below", "a")


@pytest.mark.parametrize("name", ["a", "Hospital-7", "site_1.eu", "0", "x" * 64])
def test_ordinary_names_are_valid(name):
    assert check_client_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "a/b",
        "../a",
        "a\\b",
        "a b",
        "a\n",
        "ä",
        "a\0",
        "x" * 65,
        "a.pub",
        "a.KEY",
        "SHA256:a",
    ],
)
def test_names_that_are_paths_or_look_like_key_files_are_refused(name, tmp_path):
    with pytest.raises(SpecError, match="cannot be the name of a client; allowed are"):
        create_client_key(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_public_key_is_read_with_its_comment(tmp_path):
    made = create_client_key(tmp_path, "a")
    kind, encoded, _ = made.public_key.read_text().split()
    (tmp_path / "other.pub").write_text(f"\n  {kind}  {encoded}   Ann's laptop \n\n")
    key = read_public_key(tmp_path / "other.pub")
    assert (key.text, key.comment, key.fingerprint) == (f"{kind} {encoded}", "Ann's laptop", made.fingerprint)


def _off_the_curve(text: str) -> str:
    """A key whose point has another last coordinate byte: right length, not on the curve."""
    blob = bytearray(base64.b64decode(text.split()[1]))
    blob[-1] ^= 1
    return f"ecdsa-sha2-nistp384 {base64.b64encode(blob).decode()} a"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "it must have one line"),
        (lambda text: text * 2, "it must have one line"),
        (lambda text: "x" * 100_000, "it must have one line"),
        (lambda text: text.replace("ecdsa-sha2-nistp384", "ssh-ed25519"), "must begin with ecdsa-sha2-nistp384, got"),
        (lambda text: text.replace("AAAA", "AA!A", 1), "it is not valid base64"),
        (lambda text: text.replace("AAAAE2", "BAAAE2", 1), "its parts do not match"),
        (lambda text: text.split()[0], "its parts do not match"),
        (lambda text: " ".join(text.split()[:2])[:-40], "is not a valid public key"),
        (_off_the_curve, "is not a valid public key"),
    ],
)
def test_a_damaged_or_foreign_public_key_is_refused(change, message, tmp_path):
    text = create_client_key(tmp_path, "a").public_key.read_text()
    file = tmp_path / "changed.pub"
    file.write_text(change(text))
    with pytest.raises(SpecError, match=message) as caught:
        read_public_key(file)
    assert "changed.pub" in str(caught.value)


def test_a_private_key_in_place_of_a_public_one_is_refused_with_advice(tmp_path):
    made = create_client_key(tmp_path, "a")
    with pytest.raises(SpecError, match=r"is a private key, which must not leave its client.*ends with \.pub"):
        read_public_key(made.private_key)


def test_a_missing_public_key_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(SpecError, match=r"nothing\.pub cannot be read: No such file"):
        parse_public_key(tmp_path / "nothing.pub")


def test_without_cryptography_the_error_names_the_extra_and_fingerprints_are_available(tmp_path, monkeypatch):
    made = create_client_key(tmp_path, "a")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SpecError, match=r"pip install 'coterie\[network\]'"):
        create_client_key(tmp_path, "b")
    with pytest.raises(SpecError, match=r"pip install 'coterie\[network\]'"):
        read_public_key(made.public_key)
    assert parse_public_key(made.public_key).fingerprint == made.fingerprint
    assert not (tmp_path / "b.key").exists()
