"""coterie keys, admit, revoke, clients: from nothing to a federation with clients."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coterie.federation.network.presence import ClientStatus, Presence, write_presence


@pytest.fixture
def federation(coterie):
    """A federation in the default folder, and the key pairs of the clients a and b in the folder keys."""
    assert coterie("keys", "init", "--host", "fl.example.org", "--host", "10.0.0.1").exit_code == 0
    for name in ("a", "b"):
        assert coterie("keys", "client", name, "--folder", "keys").exit_code == 0
    return Path("federation")


def listed(coterie, *args) -> dict[str, dict]:
    """Client → what `coterie clients --json` says of it."""
    return {row["client"]: row for row in json.loads(coterie("clients", "--json", *args).stdout)["clients"]}


def test_init_says_which_file_goes_to_the_clients_and_which_stay(coterie):
    done = coterie("keys", "init", "--host", "fl.example.org", "--folder", "my federation")
    assert (done.exit_code, done.stderr) == (0, "")
    assert sorted(file.name for file in Path("my federation").iterdir()) == [
        "ca.crt",
        "ca.key",
        "server.crt",
        "server.key",
    ]
    ca = ssl.PEM_cert_to_DER_cert(Path("my federation/ca.crt").read_text())
    assert f"Fingerprint of ca.crt: {hashlib.sha256(ca).digest().hex(':').upper()}\n" in done.stdout
    assert "Send my federation/ca.crt to every client. No other file leaves this folder." in done.stdout
    for key in ("ca.key", "server.key"):
        assert re.search(rf"my federation/{key} +private key .*never leaves this machine", done.stdout)
    assert "coterie admit NAME.pub --folder 'my federation'" in done.stdout


def test_a_wrong_host_leaves_nothing_behind(coterie):
    done = coterie("keys", "init", "--host", "fl.example.org", "--host", "http://a")
    assert done.exit_code == 2
    assert not Path("federation").exists()


def test_a_second_init_changes_nothing_and_names_renew(coterie, federation):
    before = {file.name: file.read_bytes() for file in federation.iterdir()}
    done = coterie("keys", "init", "--host", "other.example.org")
    assert done.exit_code == 2
    assert "coterie keys renew" in done.stderr
    assert {file.name: file.read_bytes() for file in federation.iterdir()} == before


def test_renew_keeps_the_hosts_and_the_ca(coterie, federation):
    before = (federation / "ca.crt").read_bytes(), (federation / "server.crt").read_bytes()
    done = coterie("keys", "renew", "--json")
    about = json.loads(done.stdout)
    assert about["hosts"] == ["fl.example.org", "10.0.0.1"]
    assert datetime.fromisoformat(about["expires"]) > datetime.now(UTC) + timedelta(days=364)
    assert (federation / "ca.crt").read_bytes() == before[0]
    assert (federation / "server.crt").read_bytes() != before[1]
    done = coterie("keys", "renew", "--host", "new.example.org")
    assert done.stdout.startswith("federation/server.crt: certificate of new.example.org, valid until 2")
    assert done.stderr == "Note: A running server uses the new certificate after a restart.\n"


def test_renew_without_a_federation_names_the_missing_file(coterie):
    done = coterie("keys", "renew")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: There is no federation/ca.key. ")


def test_client_prints_the_path_and_fingerprint_of_the_public_key_but_no_key(coterie):
    done = coterie("keys", "client", "hospital-a")
    assert (done.exit_code, done.stderr) == (0, "")
    public = Path("hospital-a.pub").read_text().split()[1]
    assert "Send hospital-a.pub to the server's administrator, who runs: coterie admit hospital-a.pub" in done.stdout
    assert re.search(r"^Fingerprint: SHA256:[A-Za-z0-9+/]{43}$", done.stdout, re.MULTILINE)
    assert public not in done.stdout
    assert "PRIVATE" not in done.stdout
    assert coterie("keys", "client", "hospital-a").exit_code == 2


def test_an_admitted_client_is_listed_and_a_revoked_one_is_not(coterie, federation):
    fingerprint = json.loads(coterie("keys", "client", "c", "--json").stdout)["fingerprint"]
    done = coterie("admit", "c.pub", "--cluster", 3)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"Admitted c, {fingerprint}"
    row = listed(coterie)["c"]
    assert (row["fingerprint"], row["true_cluster"], row["state"]) == (fingerprint, 3, None)
    done = coterie("revoke", f"{fingerprint[:15]}…")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, f"Revoked c, {fingerprint}")
    assert listed(coterie) == {}
    done = coterie("admit", "c.pub")
    assert done.exit_code == 2
    assert "--again" in done.stderr
    assert coterie("admit", "c.pub", "--again", "--name", "d").exit_code == 0
    assert list(listed(coterie)) == ["d"]


def test_a_private_key_is_not_admitted(coterie, federation):
    done = coterie("admit", "keys/a.key")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: keys/a.key is a private key, which must not leave its client.")


def test_a_damaged_file_is_a_note_and_the_others_are_listed(coterie, federation):
    coterie("admit", "keys/a.pub")
    (federation / "admitted" / "b.toml").write_text("broken")
    for args in (["clients"], ["clients", "--json"], ["admit", "keys/b.pub", "--name", "c"]):
        done = coterie(*args)
        assert done.exit_code == 0
        assert done.stderr.startswith("Note: federation/admitted/b.toml is ignored: ")
    assert list(listed(coterie)) == ["a", "c"]


def test_clients_without_any_says_how_to_admit_one(coterie, federation):
    federation.rename("elsewhere")
    done = coterie("clients", "--folder", "elsewhere")
    assert done.stdout == (
        "No client is admitted in elsewhere. To admit one: coterie admit KEY.pub --folder elsewhere\n"
        "No server is running.\n"
    )


def presence(**clients: ClientStatus) -> Presence:
    """A server that started two hours ago and wrote its file now."""
    now = datetime.now(UTC)
    return Presence("runs/one", now - timedelta(hours=2, minutes=5), now, 60.0, clients)


def test_clients_shows_who_is_present_as_a_running_server_states(coterie, federation):
    for name in ("a", "b"):
        coterie("admit", f"keys/{name}.pub")
    now = datetime.now(UTC)
    away = ClientStatus("away", now - timedelta(minutes=3, seconds=10), reason="no reply within 60 s")
    here = ClientStatus("present", now - timedelta(days=3, hours=1), now, 12, 4000, 1)
    write_presence(federation, presence(a=here, b=away))
    done = coterie("clients")
    assert (done.exit_code, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split()[2:] for line in done.stdout.splitlines() if "SHA256:" in line}
    today = f"{now:%Y-%m-%d}"
    assert rows["a"][:5] == [today, "present", "3", "days", "ago"]
    assert rows["a"][-2:] == ["4,000", "1"]
    assert rows["b"][:5] == [today, "away", "3", "min", "ago"]
    assert "b is away: no reply within 60 s\n" in done.stdout
    assert done.stdout.endswith("The server of runs/one is running; it started 2 h ago.\n")
    row = listed(coterie)["a"]
    assert {key: row[key] for key in ("state", "answered", "examples", "cluster", "true_cluster")} == {
        "state": "present",
        "answered": 12,
        "examples": 4000,
        "cluster": 1,
        "true_cluster": None,
    }


def test_a_key_that_was_not_admitted_is_shown_as_refused(coterie, federation):
    refused = ClientStatus("refused", datetime.now(UTC), reason="its key is not\x1b[2J admitted")
    write_presence(federation, presence(**{"SHA256:abc": refused}))
    done = coterie("clients")
    assert re.search(r"SHA256:abc +not admitted +– +refused", done.stdout)
    assert "\x1b[2J" not in done.stdout
    assert "SHA256:abc is refused: its key is not\\x1b[2J admitted\n" in done.stdout


def test_a_server_that_ended_leaves_no_client_present(coterie, federation):
    coterie("admit", "keys/a.pub")
    now = datetime.now(UTC)
    running = presence(a=ClientStatus("present", now, now - timedelta(minutes=4), 12, 40, 1))
    for ended in (replace(running, stopped=True), replace(running, written=now - timedelta(minutes=3, seconds=5))):
        write_presence(federation, ended)
        done = coterie("clients")
        assert "No server is running; the last one, of runs/one, ended " in done.stdout
        row = listed(coterie)["a"]
        assert (row["state"], row["since"]) == (None, None)
        assert row["last_seen"] == (now - timedelta(minutes=4)).isoformat(timespec="seconds")
        assert json.loads(coterie("clients", "--json").stdout)["server"]["running"] is False


def test_a_client_that_a_running_server_has_not_seen_is_listed_so(coterie, federation):
    coterie("admit", "keys/a.pub")
    write_presence(federation, presence())
    assert listed(coterie)["a"]["state"] == "not seen"


def test_a_damaged_status_file_is_a_note(coterie, federation):
    coterie("admit", "keys/a.pub")
    (federation / "clients.json").write_text("{")
    done = coterie("clients")
    assert done.exit_code == 0
    assert done.stderr.startswith("Note: federation/clients.json is damaged: ")
    assert list(listed(coterie)) == ["a"]


def test_without_the_extra_commands_that_need_it_name_it_and_the_others_run(coterie, federation, monkeypatch):
    coterie("admit", "keys/a.pub")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for args in (["keys", "init", "--host", "x"], ["keys", "client", "x"], ["keys", "renew"], ["admit", "keys/b.pub"]):
        done = coterie(*args)
        assert done.exit_code == 2
        assert done.stderr == "Error: Keys and certificates need an extra: pip install 'coterie[network]'\n"
    assert list(listed(coterie)) == ["a"]
    assert coterie("revoke", "keys/a.pub").exit_code == 0


@pytest.mark.parametrize(
    ("args", "suggestion"),
    [
        (["keys", "clinet"], "client"),
        (["keys", "init", "--hots", "a"], "--host"),
        (["kesy"], "keys"),
        (["admit", "a.pub", "--nmae", "b"], "--name"),
        (["revok", "a"], "revoke"),
    ],
)
def test_a_mistyped_command_or_flag_gets_a_suggestion(args, suggestion, coterie):
    done = coterie(*args)
    assert done.exit_code == 2
    # The sentence depends on the version of typer.
    assert re.search(rf"(Did you mean|Possible options:) '?{suggestion}\b", " ".join(done.stderr.split()))


def test_keys_alone_shows_the_help(coterie):
    done = coterie("keys")
    assert done.exit_code == 0
    assert done.stdout.strip() == coterie("keys", "--help").stdout.strip()
