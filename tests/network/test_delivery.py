"""The model that each client gets at the end of a run, and clients that confirm what they have not received."""

import numpy as np

from coterie.federation.network import wire
from coterie.federation.network.channel import Delivery
from coterie.federation.network.delivery import deliver, delivered

MODEL = {"w": np.array([1.0, 2.0], np.float32)}


class Channel:
    """Answers messages with functions: client → message → reply."""

    def __init__(self, **answers) -> None:
        self.answers, self.sent = answers, {}

    def exchange(self, messages, deadline):
        self.sent = dict(messages)
        for client, answer in self.answers.items():
            reply = answer(messages)
            yield Delivery(client, reply, "" if reply is not None else "no reply")


def confirmation(client):
    """A confirmation of the message to a client."""
    return lambda messages: wire.pack({"version": wire.VERSION, "nonce": wire.unpack(messages[client].own)["nonce"]})


def send(channel, *clients):
    models = {client: (number, MODEL) for number, client in enumerate(clients)}
    return deliver(channel, "run-1", {"name": "mclr"}, {"method": "fedavg"}, models, 10.0)


def test_clients_that_confirm_their_own_message_are_returned_sorted():
    assert send(Channel(b=confirmation("b"), a=confirmation("a")), "a", "b") == ("a", "b")


def test_confirmations_that_are_missing_malformed_or_of_another_client_do_not_count():
    channel = Channel(
        a=confirmation("b"),
        b=lambda _: None,
        c=lambda _: b"junk",
        d=lambda _: wire.pack({"version": wire.VERSION}),
        e=confirmation("e"),
        stranger=confirmation("e"),
    )
    assert send(channel, "a", "b", "c", "d", "e") == ("e",)


def test_a_client_reads_its_model_and_nothing_of_others():
    channel = Channel()
    send(channel, "a", "b")
    common, own = (wire.unpack(part) for part in (channel.sent["b"].common, channel.sent["b"].own))
    got = delivered(common, own)
    assert (got.run, got.cluster, got.about) == ("run-1", 1, {"method": "fedavg"})
    np.testing.assert_array_equal(got.params["w"], MODEL["w"])
    assert channel.sent["a"].own != channel.sent["b"].own


def test_without_clients_nothing_is_delivered():
    assert send(Channel()) == ()
