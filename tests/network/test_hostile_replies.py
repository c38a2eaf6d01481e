"""Replies that no honest client sends: each is rejected and counted, and the others are used."""

import numpy as np
import pytest

from coterie import codec
from coterie.clients.metric_scores import predictions
from coterie.federation.network import wire
from coterie.federation.network.channel import Delivery, Message
from coterie.seeds import Seed

VICTIM = "0"


def forged(pair_of, change):
    """A federation in which client 0 changes its replies with `change(message, reply) -> bytes`."""
    both = pair_of("fedavg", run={"clients_per_round": 6})
    honest = both.channel.sites[VICTIM]
    both.channel.sites[VICTIM] = lambda message: change(message, honest(message))
    return both


def edited(reply: bytes, **fields) -> bytes:
    """A reply with some entries of its first answer changed."""
    content = wire.unpack(reply)
    content["replies"][0] |= fields
    return wire.pack(content)


def with_kernel(reply: bytes, value) -> bytes:
    content = wire.unpack(reply)
    content["replies"][0]["answers"]["params"]["dense0"]["kernel"] = value
    return wire.pack(content)


CHANGES = {
    "not zstd": lambda message, reply: b"junk",
    "empty": lambda message, reply: b"",
    "truncated": lambda message, reply: reply[: len(reply) // 2],
    "not a dict": lambda message, reply: wire._zstandard().ZstdCompressor().compress(codec.encode([1, 2])),
    "another version": lambda message, reply: wire.pack({**wire.unpack(reply), "version": 99}),
    "another nonce": lambda message, reply: wire.pack({**wire.unpack(reply), "nonce": "0" * 32}),
    "no replies": lambda message, reply: wire.pack({**wire.unpack(reply), "replies": None}),
    "another id": lambda message, reply: edited(reply, id=12345),
    "negative samples": lambda message, reply: edited(reply, samples=-1),
    "too many samples": lambda message, reply: edited(reply, samples=10**12),
    "samples as text": lambda message, reply: edited(reply, samples="all"),
    "samples as a boolean": lambda message, reply: edited(reply, samples=True),
    "no answers": lambda message, reply: edited(reply, answers={}),
    "answers as text": lambda message, reply: edited(reply, answers={"params": "model"}),
    "another answer": lambda message, reply: edited(reply, answers={"other": np.zeros(1)}),
    "long problem": lambda message, reply: edited(reply, problem="x" * 1000),
    "NaN": lambda message, reply: with_kernel(reply, np.full((1, 10, 64), np.nan, np.float32)),
    "float64": lambda message, reply: with_kernel(reply, np.zeros((1, 10, 64))),
    "wrong shape": lambda message, reply: with_kernel(reply, np.zeros((1, 10, 63), np.float32)),
    "no stack": lambda message, reply: with_kernel(reply, np.zeros((10, 64), np.float32)),
    "two rows": lambda message, reply: with_kernel(reply, np.zeros((2, 10, 64), np.float32)),
}


def test_a_client_on_another_machine_never_shows_single_predictions(pair):
    both = pair("fedavg", run={"clients_per_round": 6})
    server = both.networked._fed.scoring()
    replies = server.ask(server.clients, predictions, Seed(0), part="test", params=server.task.init(Seed(0)))
    assert not replies.clients
    assert set(replies.lost.values()) == {"not allowed: predictions"}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_forged_reply_is_rejected_and_counted_and_the_others_are_used(pair, round_without, change):
    both = forged(pair, change)
    both.networked.step()
    assert sum(both.networked.rejected.values()) == 1
    assert codec.encode(both.networked.state) == round_without(VICTIM, run={"clients_per_round": 6})


def test_an_oversized_reply_is_not_decompressed(pair):
    bomb = wire.pack({"version": 1, "zeros": np.zeros(1 << 22)})  # 32 MB in a few kB
    assert len(bomb) < 100_000
    with pytest.raises(wire.WireError, match="larger than the limit"):
        wire.unpack(bomb, 1 << 20)
    both = forged(pair, lambda message, reply: bomb)
    limits = wire.Limits(bytes=1 << 20)
    object.__setattr__(both.remote._connection, "limits", limits)
    both.networked.step()
    (reason,) = both.networked.rejected
    assert "larger than the limit" in reason


def test_a_reply_to_an_earlier_message_is_rejected(pair):
    earlier = []

    def replay(message, reply):
        earlier.append(reply)
        return earlier[0]

    both = forged(pair, replay)
    both.networked.step()
    assert not both.networked.rejected
    both.networked.step()
    assert both.networked.rejected == {"unreadable: answers another message": 1}


def test_a_second_reply_of_a_client_is_rejected(pair):
    both = pair("fedavg", run={"clients_per_round": 6})
    exchange = both.channel.exchange

    def twice(messages, deadline):
        for delivery in exchange(messages, deadline):
            yield delivery
            if delivery.client == VICTIM:
                yield delivery

    both.channel.exchange = twice
    both.networked.step()
    assert both.networked.rejected == {"repeated": 1}
    both.simulated.step()
    assert codec.encode(both.networked.state) == codec.encode(both.simulated.state)


def test_a_reply_of_a_client_that_was_not_asked_is_rejected(pair):
    both = pair("fedavg", run={"clients_per_round": 6})
    exchange = both.channel.exchange

    def foreign(messages, deadline):
        replies = list(exchange(messages, deadline))
        yield from replies
        yield Delivery("stranger", replies[0].reply)

    both.channel.exchange = foreign
    both.networked.step()
    assert sum(both.networked.rejected.values()) == 1
    both.simulated.step()
    assert codec.encode(both.networked.state) == codec.encode(both.simulated.state)


def test_a_client_that_misses_a_deadline_is_away_until_it_returns(pair):
    both = pair("fedavg", run={"clients_per_round": 6})
    exchange = both.channel.exchange
    silent = {VICTIM}
    both.channel.exchange = lambda messages, deadline: (
        each for each in exchange(messages, deadline) if each.client not in silent
    )
    both.networked.step()
    assert both.networked.lost == 1
    assert VICTIM not in both.members.present
    assert VICTIM in both.networked.clients
    silent.clear()
    both.networked.step()  # it is not asked while it is away
    both.members.see(VICTIM)
    assert VICTIM in both.networked.step().cohort


def test_a_message_has_nothing_of_other_clients(pair):
    both = pair("fedavg", run={"clients_per_round": 6})
    seen = {}
    for client, answer in dict(both.channel.sites).items():

        def spy(message, client=client, answer=answer):
            seen[client] = message
            return answer(message)

        both.channel.sites[client] = spy
    step = both.networked.step()
    assert len({id(message.common) for message in seen.values()}) == 1  # encoded once
    seeds = {}
    for client, message in seen.items():
        own = wire.unpack(message.own)
        assert own["client"] == client
        seeds[client] = own["requests"][0]["seed"]
        texts = str(wire.unpack(message.common)) + str(own)
        assert "'seed': Seed(" in texts
        assert str(step.cohort.seed.value) not in texts
    assert len(set(seeds.values())) == 6


# ------------------------------------------------------------------------------------------- hostile or broken servers


MESSAGES = {
    "junk": lambda message: Message(b"junk", message.own),
    "own junk": lambda message: Message(message.common, b""),
    "other version": lambda message: Message(wire.pack({**wire.unpack(message.common), "version": 2}), message.own),
    "run as a path": lambda message: Message(wire.pack({**wire.unpack(message.common), "run": "../../x"}), message.own),
    "unknown backend": lambda message: Message(wire.pack({**wire.unpack(message.common), "backend": "x"}), message.own),
    "no requests": lambda message: Message(wire.pack({**wire.unpack(message.common), "requests": 3}), message.own),
    "other counts": lambda message: Message(wire.pack({**wire.unpack(message.common), "requests": []}), message.own),
    "no nonce": lambda message: Message(message.common, _without(message.own, "nonce")),
    "no held": lambda message: Message(message.common, _without(message.own, "held")),
    "value with another hash": lambda message: Message(_swapped(message.common), _swapped(message.own)),
    "value as a path": lambda message: Message(message.common, _named(message.own, "../../../etc/passwd")),
}


def _without(part, name):
    return wire.pack({key: value for key, value in wire.unpack(part).items() if key != name})


def _swapped(part):
    content = wire.unpack(part)
    content["values"] = {digest: data[::-1].copy() for digest, data in content["values"].items()}
    return wire.pack(content)


def _named(part, path):
    content = wire.unpack(part)
    content["values"], content["stored"] = {path: np.zeros(1, np.uint8)}, [path]
    return wire.pack(content)


@pytest.mark.parametrize("change", MESSAGES.values(), ids=MESSAGES)
def test_a_malformed_message_is_refused_by_the_client(pair, change, tmp_path):
    both = pair("fedavg")
    client = both.networked.clients[0]
    answer = both.channel.sites[client]
    caught = []

    def broken(message):
        with pytest.raises(wire.WireError):
            answer(change(message))
        caught.append(message)
        return answer(message)

    both.channel.sites[client] = broken
    for each in both.networked.clients:
        if each != client:
            both.channel.sites[each] = both.sites[each].answer
    both.networked.evaluate()
    both.networked.step()
    assert caught
    assert not both.networked.rejected
    assert not list(tmp_path.glob("x*"))


def test_an_unknown_work_is_reported_and_does_not_run(pair):
    both = pair("fedavg", run={"clients_per_round": 6})
    answer = both.channel.sites[VICTIM]

    def renamed(message):
        content = wire.unpack(message.common)
        content["requests"][0]["work"] = "steal.examples"
        with pytest.raises(wire.WireError, match="steal"):
            answer(Message(wire.pack(content), message.own))
        return answer(message)

    both.channel.sites[VICTIM] = renamed
    both.networked.step()


def test_a_failure_of_the_work_is_reported_by_its_type_only(pair):
    both = pair("fedavg", run={"clients_per_round": 6})
    site = both.sites[VICTIM]
    original = site._transport

    class Broken:
        task = original

        def send(self, request):
            raise ValueError("example 17 has the name Jane Doe")

    broken = Broken()
    broken.task = both.networked._fed.task
    site._transport = lambda *_: broken
    both.networked.step()
    assert both.networked.rejected == {"failed: ValueError": 1}


def test_a_message_that_is_delivered_twice_gets_the_stored_reply(pair):
    both = pair("local", run={"clients_per_round": 6})
    answer = both.channel.sites[VICTIM]
    replies = []

    def twice(message):
        replies.append((answer(message), answer(message)))
        return replies[-1][0]

    both.channel.sites[VICTIM] = twice
    both.networked.step()
    assert all(one == other for one, other in replies)
    both.simulated.step()
    assert codec.encode(both.networked.state) == codec.encode(both.simulated.state)
