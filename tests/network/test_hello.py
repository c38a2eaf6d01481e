"""Greetings, answered by clients that do not mean well."""

import numpy as np
import pytest

from coterie.data.description import ClientFacts
from coterie.federation.network import wire
from coterie.federation.network.channel import Delivery
from coterie.federation.network.hello import Greeter
from coterie.federation.network.roster import Roster


@pytest.fixture
def roster():
    made = Roster(lambda: {"a": "key of a", "b": "key of b"}, lambda: ["key of a", "key of b"])
    made.refresh()
    return made


@pytest.fixture
def greeter(roster):
    return Greeter(roster, {"data": "ours"}, lambda client, facts: None)


FACTS = ClientFacts((2,), 3, False, 1.0, None, 4, 1).to_dict()


def reply(message, **content):
    """An answer to a greeting, as a client writes it."""
    nonce = wire.unpack(message.own)["nonce"]
    return wire.pack({"version": wire.VERSION, "nonce": nonce, **content})


def test_a_greeting_says_what_the_run_is_about_and_has_another_nonce_for_each_client(greeter):
    messages = greeter.messages()
    assert wire.unpack(messages["a"].common)["data"] == "ours"
    nonces = {wire.unpack(message.own)["nonce"] for message in messages.values()}
    assert len(nonces) == 2


def test_a_client_that_states_its_data_has_joined(greeter, roster):
    messages = greeter.messages()
    greeter.receive("a", reply(messages["a"], facts=FACTS))
    assert roster.clients == ("a",)
    assert roster.to_greet == ("b",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"refused": "I will not"}, "refused: I will not"),
        ({"waiting": "not yet"}, "waiting: not yet"),
        ({"refused": {"a": np.zeros(3)}, "facts": FACTS}, "refused: {'a'"),
        ({}, "does not say what the data are like"),
        ({"facts": [1, 2]}, "does not say what the data are like"),
        ({"facts": {}}, "cannot be read: KeyError"),
        ({"facts": {**FACTS, "classes": 10**9}}, "cannot be read: ValueError"),
        ({"facts": {**FACTS, "magnitude": float("nan")}}, "cannot be read: ValueError"),
        ({"facts": {**FACTS, "shape": [0]}}, "cannot be read: ValueError"),
        ({"facts": FACTS, "nonce": "another"}, "answers another message"),
        ({"facts": FACTS, "version": 99}, "another version of the format"),
    ],
    ids=str,
)
def test_a_client_that_does_not_state_its_data_is_refused_with_the_reason(greeter, roster, content, reason):
    messages = greeter.messages()
    greeter.receive("a", reply(messages["a"], **content))
    assert reason in roster.entries["a"].problem
    assert roster.entries["a"].state == "refused"
    assert roster.clients == ()


@pytest.mark.parametrize("data", [b"", b"junk", wire.pack({"a": 1})[:-1]], ids=["empty", "junk", "cut"])
def test_bytes_that_are_not_a_reply_are_refused(greeter, roster, data):
    greeter.messages()
    greeter.receive("a", data)
    assert roster.entries["a"].state == "refused"


def test_an_answer_to_the_greeting_of_another_client_is_refused(greeter, roster):
    messages = greeter.messages()
    greeter.receive("a", reply(messages["b"], facts=FACTS))
    assert roster.clients == ()
    assert "answers another message" in roster.entries["a"].problem


def test_a_second_answer_to_the_same_greeting_changes_nothing(greeter, roster):
    messages = greeter.messages()
    greeter.receive("a", reply(messages["a"], facts=FACTS))
    greeter.receive("a", reply(messages["a"], refused="I have changed my mind"))
    greeter.receive("stranger", reply(messages["b"], facts=FACTS))
    assert roster.entries["a"].state == "present"
    assert set(roster.entries) == {"a", "b"}


def test_an_answer_to_an_earlier_greeting_does_not_count(greeter, roster):
    early = greeter.messages()
    greeter.messages()
    greeter.receive("a", reply(early["a"], facts=FACTS))
    assert roster.clients == ()


def test_a_client_that_refuses_a_thousand_times_costs_one_entry(greeter, roster):
    for number in range(1000):
        greeter.receive("a", reply(greeter.messages()["a"], refused=f"reason {number} " + "x" * 10_000))
    assert len(roster.entries) == 2
    assert len(roster.entries["a"].problem) <= 300


def test_a_client_whose_data_do_not_fit_is_refused(roster):
    greeter = Greeter(roster, {}, lambda client, facts: f"{client} has {facts.classes} classes")
    greeter.receive("a", reply(greeter.messages()["a"], facts=FACTS))
    assert roster.entries["a"].problem == "a has 3 classes"


def test_clients_that_do_not_answer_are_refused_until_the_next_greeting(greeter, roster):
    class Channel:
        def exchange(self, messages, deadline):
            yield Delivery("a", None, "error 2: OSError")
            yield Delivery("b", reply(messages["b"], facts=FACTS))

    greeter.exchange(Channel(), 1.0)
    assert roster.entries["a"].problem == "error 2: OSError"
    assert roster.present == ("b",)
    assert roster.to_greet == ("a",)
