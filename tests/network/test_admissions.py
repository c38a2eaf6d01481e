"""Which clients may join: admission, revocation, damaged files, concurrent changes."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import filelock
import pytest

from coterie.errors import SpecError
from coterie.federation.network import admissions as module
from coterie.federation.network.admissions import Admissions
from coterie.federation.network.keys import create_client_key


@pytest.fixture
def admissions(tmp_path):
    """A federation that admits no client yet."""
    (tmp_path / "federation" / "admitted").mkdir(parents=True)
    return Admissions(tmp_path / "federation")


@pytest.fixture
def key(tmp_path):
    """Creates public keys: key("a") → its file."""
    return lambda name: create_client_key(tmp_path / "keys", name).public_key


def test_an_admitted_client_has_the_name_in_its_key(admissions, key):
    before = datetime.now(UTC) - timedelta(seconds=1)
    file = key("hospital-a")
    made = admissions.admit(file, cluster=2)
    assert (made.client, made.cluster, made.revoked) == ("hospital-a", 2, None)
    assert f"{made.public_key}\n" == file.read_text()
    assert before <= made.admitted <= datetime.now(UTC)
    assert Admissions(admissions.folder).clients() == {"hospital-a": made}
    content = tomllib.loads((admissions.folder / "admitted" / "hospital-a.toml").read_text())
    assert content == {
        "client": "hospital-a",
        "public_key": made.public_key,
        "fingerprint": made.fingerprint,
        "admitted": made.admitted,
        "cluster": 2,
    }


def test_clients_are_in_the_order_of_their_ids(admissions, key):
    for name in ("c", "a", "b"):
        admissions.admit(key(name))
    assert list(admissions.clients()) == ["a", "b", "c"]


def test_a_given_name_replaces_the_comment_of_the_key(admissions, key):
    made = admissions.admit(key("a"), name="site-1")
    assert made.public_key.endswith(" site-1")
    assert list(admissions.clients()) == ["site-1"]


@pytest.mark.parametrize(
    ("comment", "name", "message"),
    [
        ("ann@laptop", None, "The comment of the key .* is not usable: 'ann@laptop' .*--name NAME"),
        ("", None, "has no comment to use as the client's name; give it: --name NAME"),
        ("../../x", None, "is not usable"),
        ("a", "../x", "'../x' cannot be the name of a client"),
        ("a", "", "'' cannot be the name of a client"),
    ],
)
def test_names_that_are_no_client_ids_are_refused(comment, name, message, admissions, key, tmp_path):
    text = " ".join(key("k").read_text().split()[:2])
    (tmp_path / "other.pub").write_text(f"{text} {comment}\n")
    with pytest.raises(SpecError, match=message):
        admissions.admit(tmp_path / "other.pub", name)
    assert admissions.clients() == {}
    assert [file.name for file in admissions.folder.rglob("*.toml")] == []


def test_a_negative_cluster_is_refused(admissions, key):
    with pytest.raises(SpecError, match="--cluster must be at least 0, got -1"):
        admissions.admit(key("a"), cluster=-1)


def test_a_key_is_admitted_once(admissions, key):
    file = key("a")
    first = admissions.admit(file)
    for name in (None, "b"):
        with pytest.raises(SpecError, match=rf"This key was admitted as a on {first.admitted:%Y-%m-%d}"):
            admissions.admit(file, name)
    assert admissions.clients() == {"a": first}


@pytest.mark.parametrize("name", ["a", "A"])
def test_a_name_belongs_to_one_key_whatever_its_case(admissions, key, name):
    first = admissions.admit(key("a"))
    with pytest.raises(SpecError, match=r"The name a belongs to another key, SHA256:.*coterie revoke a"):
        admissions.admit(key("b"), name)
    assert admissions.clients() == {"a": first}


@pytest.mark.parametrize("by", ["name", "fingerprint", "beginning", "shown", "file"])
def test_a_client_is_revoked_by_its_name_fingerprint_or_file(by, admissions, key):
    file = key("a")
    made, other = admissions.admit(file), admissions.admit(key("b"))
    which = {
        "name": "a",
        "fingerprint": made.fingerprint,
        "beginning": made.fingerprint[:15],
        "shown": made.fingerprint[:15] + "…",
        "file": file,
    }[by]
    gone = admissions.revoke(which)
    assert gone.revoked is not None
    assert (gone.client, gone.fingerprint) == ("a", made.fingerprint)
    assert admissions.clients() == {"b": other}
    assert admissions.revoked() == [gone]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("hospitl-a", "No admitted client 'hospitl-a'. Did you mean 'hospital-a'"),
        ("SHA256:AAAA", "is too short; give at least 8 characters"),
        ("SHA256:" + "A" * 43, "No admitted client 'SHA256:AAAA"),
        ("nothing.pub", r"nothing\.pub cannot be read"),
        ("../admitted/hospital-a.toml", "cannot be read"),
    ],
)
def test_what_is_not_admitted_cannot_be_revoked(which, message, admissions, key):
    made = admissions.admit(key("hospital-a"))
    with pytest.raises(SpecError, match=message):
        admissions.revoke(which)
    assert admissions.clients() == {"hospital-a": made}


def test_a_beginning_that_fits_several_keys_revokes_none(admissions, key, monkeypatch):
    made = {name: admissions.admit(key(name)) for name in ("a", "b")}
    monkeypatch.setattr(module, "_PREFIX", 0)
    with pytest.raises(SpecError, match="Several keys begin with 'SHA256:': a, b"):
        admissions.revoke("SHA256:")
    assert admissions.clients() == made


def test_a_revoked_key_is_refused_unless_it_is_admitted_again(admissions, key):
    file = key("a")
    made = admissions.admit(file)
    admissions.revoke("a")
    for name in (None, "b"):
        with pytest.raises(SpecError, match=rf"The key {re.escape(made.fingerprint)} was revoked .*--again"):
            admissions.admit(file, name)
    with pytest.raises(SpecError, match="is revoked already"):
        admissions.revoke("a")
    again = admissions.admit(file, again=True)
    assert admissions.clients() == {"a": again}
    assert admissions.revoked() == []


def test_a_revoked_name_is_free_for_another_key(admissions, key, tmp_path):
    old = admissions.admit(key("a"))
    admissions.revoke("a")
    new = admissions.admit(create_client_key(tmp_path / "new", "a").public_key)
    assert admissions.clients() == {"a": new}
    admissions.revoke("a")
    assert {entry.fingerprint for entry in admissions.revoked()} == {old.fingerprint, new.fingerprint}


# -------------------------------------------------------------------------------------------------------------- crashes


def test_a_process_killed_after_the_rename_has_revoked_the_key(admissions, key, monkeypatch):
    file = key("a")
    admissions.admit(file)

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.files, "write_over", killed)
        with pytest.raises(KeyboardInterrupt):
            admissions.revoke("a")
    assert admissions.clients() == {}
    with pytest.raises(SpecError, match="was revoked"):
        admissions.admit(file)


def test_a_key_in_both_folders_is_revoked_and_can_be_admitted_again(admissions, key):
    file = key("a")
    admissions.admit(file)
    entry = admissions.folder / "admitted" / "a.toml"
    content = entry.read_bytes()
    admissions.revoke("a")
    entry.write_bytes(content)  # as from a backup, or after a crash
    assert admissions.clients() == {}
    admissions.admit(file, again=True)
    assert list(admissions.clients()) == ["a"]
    assert list((admissions.folder / "revoked").iterdir()) == []


def test_temporary_files_of_a_killed_process_are_ignored_and_removed(admissions, key):
    left = admissions.folder / "admitted" / ".b.toml-0123.part"
    left.write_text("client =")
    assert admissions.clients() == {}
    assert admissions.damaged == {}
    admissions.admit(key("a"))
    assert not left.exists()


# -------------------------------------------------------------------------------------------------------- damaged files


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: b"\xff\xfe", "codec can't decode"),
        (lambda text: b"", "client is missing"),
        (lambda text: text[:60], ""),
        (lambda text: text.replace(b'client = "a"', b'client = "b"'), r"its name should be b\.toml"),
        (lambda text: text.replace(b'client = "a"', b'client = "../a"'), "cannot be the name of a client"),
        (lambda text: text.replace(b'client = "a"', b"client = 1"), "client is missing or is not of type str"),
        (lambda text: text.replace(b"SHA256:", b"SHA256:0"), "the fingerprint is not that of the public key"),
        (lambda text: text.replace(b"ecdsa-sha2", b"dsa"), "must begin with ecdsa-sha2-nistp384"),
        (lambda text: text + b"cluster = true\n", "cluster is missing or is not of type int"),
        (lambda text: text + b"cluster = -1\n", "cluster is negative"),
        (lambda text: text + b"admin = true\n", "it has unknown keys: admin"),
        (lambda text: text + b"#" * 70_000, "it is larger than 65,536 bytes"),
    ],
)
def test_a_damaged_file_is_reported_once_and_the_others_are_read(change, reason, admissions, key, caplog):
    admissions.admit(key("a"))
    good = admissions.admit(key("z"))
    file = admissions.folder / "admitted" / "a.toml"
    file.write_bytes(change(file.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert admissions.clients() == {"z": good}
        assert admissions.clients() == {"z": good}
    assert list(admissions.damaged) == [file]
    assert re.search(reason, admissions.damaged[file])
    (line,) = caplog.messages
    assert line.startswith(f"{file} is ignored: ")


def test_a_damaged_file_is_neither_replaced_nor_revoked(admissions, key):
    pub = key("a")
    file = admissions.folder / "admitted" / "a.toml"
    file.write_text("broken")
    with pytest.raises(SpecError, match=r"a\.toml is damaged: .*Remove it and try again"):
        admissions.admit(pub)
    with pytest.raises(SpecError, match=r"a\.toml is damaged and admits no client"):
        admissions.revoke("a")
    assert file.read_text() == "broken"


def test_a_damaged_revocation_still_revokes_its_key(admissions, key):
    pub = key("a")
    admissions.admit(pub)
    admissions.revoke("a")
    (file,) = (admissions.folder / "revoked").iterdir()
    file.write_text("broken")
    with pytest.raises(SpecError, match="was revoked"):
        admissions.admit(pub)


def test_a_copied_file_does_not_admit_the_same_key_twice(admissions, key):
    made = admissions.admit(key("a"))
    text = (admissions.folder / "admitted" / "a.toml").read_text()
    (admissions.folder / "admitted" / "b.toml").write_text(text.replace('client = "a"', 'client = "b"'))
    assert admissions.clients() == {"a": made}
    assert list(admissions.damaged.values()) == ["it has the key of a.toml"]


# --------------------------------------------------------------------------------------------------------- concurrency


def test_changed_is_true_until_the_clients_are_read(admissions, key):
    assert admissions.changed()
    admissions.clients()
    assert not admissions.changed()
    elsewhere = Admissions(admissions.folder)
    for change in (
        lambda: elsewhere.admit(key("a")),
        lambda: elsewhere.revoke("a"),
        lambda: elsewhere.admit(key("b")),
    ):
        change()
        assert admissions.changed()
        assert admissions.changed(), "asking does not change the answer"
        admissions.clients()
        assert not admissions.changed()


def test_a_file_edited_in_place_is_noticed(admissions, key):
    admissions.admit(key("a"), cluster=1)
    admissions.clients()
    file = admissions.folder / "admitted" / "a.toml"
    text, state = file.read_text(), file.stat()
    with file.open("r+") as opened:
        opened.write(text.replace("cluster = 1", "cluster = 3"))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert admissions.changed()
    assert admissions.clients()["a"].cluster == 3


def test_concurrent_admissions_give_a_name_to_one_key(admissions, tmp_path):
    keys = [create_client_key(tmp_path / str(n), "a").public_key for n in range(8)]

    def admit(file):
        try:
            return Admissions(admissions.folder).admit(file)
        except SpecError:
            return None

    with ThreadPoolExecutor(8) as pool:
        admitted = [entry for entry in pool.map(admit, keys) if entry]
    assert len(admitted) == 1
    assert admissions.clients() == {"a": admitted[0]}


def test_a_reader_finds_whole_files_while_others_admit_and_revoke(admissions, key):
    stay, come = key("stay"), key("come")
    made = admissions.admit(stay)

    def change():
        writer = Admissions(admissions.folder)
        for _ in range(20):
            writer.admit(come, again=True)
            writer.revoke("come")

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(change)
        while not working.done():
            assert admissions.clients()["stay"] == made
            assert admissions.damaged == {}
        working.result()
    assert admissions.clients() == {"stay": made}


def test_a_folder_that_another_process_changes_for_long_is_an_error(admissions, key, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    file = key("a")
    with (
        filelock.FileLock(admissions.folder / ".lock"),
        pytest.raises(SpecError, match=r"Another process is changing the folder .*try again"),
    ):
        admissions.admit(file)
    assert admissions.admit(file).client == "a"


def test_a_folder_without_a_federation_is_an_error_with_advice(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SpecError, match=r"There is no federation in the folder .*coterie keys init --host NAME"):
            Admissions(folder)


def test_reading_and_revoking_need_neither_cryptography_nor_slow_packages(admissions, key):
    pub = key("a")
    admissions.admit(pub)
    code = f"""
import sys
sys.modules["cryptography"] = None
from pathlib import Path
from coterie.federation.network.admissions import Admissions
admissions = Admissions(Path({str(admissions.folder)!r}))
assert list(admissions.clients()) == ["a"]
admissions.revoke({str(pub)!r})
assert not {{"jax", "flwr", "scipy", "sklearn"}} & sys.modules.keys(), "slow packages were loaded"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert admissions.clients() == {}
