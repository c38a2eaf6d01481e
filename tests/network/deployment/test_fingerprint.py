"""Fingerprints of public keys."""

import pytest

pytest.importorskip("cryptography", reason="needs the extra: pip install 'coterie[network]'")

from coterie.errors import SpecError
from coterie.federation.network.fingerprint import fingerprint, public_key_pem

pytestmark = pytest.mark.network

#: A key and its fingerprint, from `ssh-keygen -t ecdsa -b 384` and `ssh-keygen -l`.
LINE = (
    "ecdsa-sha2-nistp384 "
    "AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBN4+1qrn9/cy9pXtfzGeHp218vj9cwBDSFv4ZtuC7buoIrlw"
    "qfuvcb2V1r0S8GA+hWitY0ZRnS937H1Gc4iTVLm2ug93++TUn0LMERP4X2oPsFqlFZpJUXq90w1nsle0WA=="
)
SHOWN = "SHA256:egDRiJhXrzGit7X/9Rf2Jy0V6AUr0+eu/EriKV3hibo"


def test_a_fingerprint_is_that_of_ssh_keygen_whatever_the_comment():
    assert fingerprint(LINE) == fingerprint(LINE + " someone@somewhere\n") == fingerprint(LINE.encode()) == SHOWN


def test_openssh_and_pem_and_der_have_the_same_fingerprint(key):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint(key.pem) == fingerprint(key.pem.decode()) == fingerprint(der) == fingerprint(key.openssh)
    assert public_key_pem(key.openssh) == key.pem


@pytest.mark.parametrize(
    "text",
    ["", "ssh-rsa", "ecdsa-sha2-nistp384 !!!", "ecdsa-sha2-nistp384 AAAA", "-----BEGIN PUBLIC KEY-----\n", b"\xff"],
)
def test_what_is_not_a_public_key_is_refused(text):
    with pytest.raises(SpecError, match="Not a public key"):
        fingerprint(text)
