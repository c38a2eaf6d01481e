"""What a running server does beside the run: the gate and Flower are told of admissions, clients are listed."""

import threading

import pytest

from coterie.data.description import ClientFacts
from coterie.errors import FederationError, SpecError
from coterie.federation.network import live
from coterie.federation.network.admissions import Admissions
from coterie.federation.network.certificates import create_ca
from coterie.federation.network.keys import create_client_key
from coterie.federation.network.live import LiveAdmissions, reported
from coterie.federation.network.presence import read_presence
from coterie.federation.network.roster import Roster


@pytest.fixture
def folder(tmp_path):
    create_ca(tmp_path / "federation")
    return tmp_path / "federation"


def admit(folder, client):
    """Make a key and admit it; returns its fingerprint."""
    made = create_client_key(folder.parent / "keys", client)
    Admissions(folder).admit(made.public_key)
    return made.fingerprint


def allowed(members):
    """The clients whose keys the gate lets pass."""
    return [line.split()[-1] for line in members.allowed.read_text().splitlines()]


def test_flower_knows_a_key_before_the_gate_lets_it_pass(folder):
    first = admit(folder, "a")
    members, told = LiveAdmissions(folder), []
    members.register = lambda key, client: told.append((client, members.allowed.exists()))
    assert members.keys() == {"a": first}
    assert told == [("a", False)]
    assert allowed(members) == ["a"]


def test_keys_are_told_once_and_changes_at_the_next_look(folder):
    first = admit(folder, "a")
    members, told = LiveAdmissions(folder), []
    members.register = lambda key, client: told.append(client)
    members.keys()
    second = admit(folder, "b")
    assert members.keys() == {"a": first, "b": second}
    assert members.keys() == {"a": first, "b": second}
    assert told == ["a", "b"]
    Admissions(folder).revoke("a")
    assert members.keys() == {"b": second}
    assert allowed(members) == ["b"]


def test_a_key_that_flower_refuses_does_not_end_the_run_and_is_not_told_again(folder):
    admit(folder, "a")
    members, told = LiveAdmissions(folder), []

    def refuse(key, client):
        told.append(client)
        raise SpecError("it was unregistered before")

    members.register = refuse
    members.keys()
    members.keys()
    assert told == ["a"]


def test_a_key_that_could_not_be_told_is_told_again(folder):
    admit(folder, "a")
    members, told = LiveAdmissions(folder), []

    def fail_once(key, client):
        told.append(client)
        if len(told) == 1:
            raise FederationError("The SuperLink does not answer")

    members.register = fail_once
    with pytest.raises(FederationError):
        members.keys()
    members.keys()
    members.keys()
    assert told == ["a", "a"]


def test_true_clusters_are_those_of_the_admissions(folder):
    made = create_client_key(folder.parent / "keys", "a")
    Admissions(folder).admit(made.public_key, cluster=3)
    admit(folder, "b")
    assert LiveAdmissions(folder).truth() == {"a": 3}


def test_clients_are_listed_while_the_server_runs_and_admissions_are_read_without_the_run(folder, monkeypatch):
    monkeypatch.setattr(live, "INTERVAL", 0.01)
    key = admit(folder, "a")
    members = LiveAdmissions(folder)
    roster = Roster(members.keys, lambda: [key])
    roster.refresh()
    roster.join("a", ClientFacts((2,), 3, False, 1.0, None, 4, 1))
    roster.served({"a": 1})
    looked = event_of(members, monkeypatch)
    with reported(folder, "record", roster, members):
        assert looked.wait(10)
        presence = read_presence(folder)
        assert (presence.run, presence.stopped) == ("record", False)
        assert (presence.clients["a"].state, presence.clients["a"].examples) == ("present", 4)
        assert presence.clients["a"].cluster == 1
    assert read_presence(folder).stopped


def event_of(members, monkeypatch):
    """An event that is set when the admissions are read."""
    looked, original = threading.Event(), members.keys

    def keys():
        looked.set()
        return original()

    monkeypatch.setattr(members, "keys", keys)
    return looked
