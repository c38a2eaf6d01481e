"""Compressed updates between machines: the bytes of the simulator, and replies that no honest client sends."""

import numpy as np
import pytest

from coterie import codec, tree
from coterie.clients import Model, Work
from coterie.federation import Compression, Sequential, ServerState
from coterie.federation.network import wire
from coterie.federation.network.channel import Message
from coterie.federation.network.compressed import rebuilt_batch
from coterie.federation.prepare import Preparation
from coterie.models import Task
from coterie.seeds import Seed
from coterie.testing import tiny_data

VICTIM = "0"
COMPRESSIONS = {"int8": {"updates": "int8"}, "top-k": {"updates": "top-k", "fraction": 0.05}}

#: The model of `pair` is a logistic regression of 64 inputs and 10 classes.
PARAMETERS = 650


def same_steps(both, rounds=3):
    while not both.simulated.finished(rounds):
        both.simulated.step()
        both.networked.step()
        assert codec.encode(both.simulated.state) == codec.encode(both.networked.state)
    assert both.simulated.traffic.save() == both.networked.traffic.save()
    assert not both.networked.rejected


@pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_compressed_updates_give_the_bytes_of_the_simulator(pair, compression):
    same_steps(pair("fedavg", compression=compression))


@pytest.mark.exhaustive
@pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS)
@pytest.mark.parametrize("method", ["ifca", "fedgroup", "srfca", "fedsim", "fedsoft", "flag", "perfedavg"])
def test_every_kind_of_work_gives_the_bytes_of_the_simulator(pair, method, compression):
    same_steps(pair(method, compression=compression))


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_gradients_of_clients_that_choose_their_model_give_the_bytes_of_the_simulator(pair, compression):
    same_steps(pair({"name": "ifca", "averaging": "gradients"}, compression=compression))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "ifca"])
def test_a_server_that_resumes_from_an_older_checkpoint_finds_the_residuals_of_that_time(pair, method):
    both = pair(method, run={"rounds": 5, "clients_per_round": 6}, compression=COMPRESSIONS["top-k"])
    saved, states = [], []
    for _ in range(4):
        both.networked.note_checkpoint()
        saved.append(both.networked.save())
        both.networked.step()
        states.append(codec.encode(both.networked.state))
    for back in (1, 2):
        again = both.restart(codec.decode(saved[4 - back]), starts=back)
        for state in states[4 - back :]:
            again.step()
            assert codec.encode(again.state) == state


def test_clients_that_restart_continue_with_the_residuals_on_their_disks(pair):
    both = pair("fedavg", run={"clients_per_round": 6}, compression=COMPRESSIONS["top-k"])
    same_steps(both, 1)
    for client, site in both.sites.items():
        both.channel.sites[client] = type(site)(site._data, site._folder, threads=1).answer
    same_steps(both, 3)


def test_a_message_that_is_delivered_twice_counts_the_residual_once(pair):
    both = pair("fedavg", run={"clients_per_round": 6}, compression=COMPRESSIONS["top-k"])
    answer = both.channel.sites[VICTIM]
    both.channel.sites[VICTIM] = lambda message: (answer(message), answer(message))[1]
    same_steps(both)


def test_replies_are_smaller_by_what_the_ledger_says(pair):
    up = {}
    for name, compression in {"none": {}, **COMPRESSIONS}.items():
        both = pair("fedavg", run={"clients_per_round": 6}, compression=compression)
        both.networked.step()
        up[name] = both.remote.sent.up, both.networked.traffic.total("up")
    # 650 parameters in two arrays: 4 · 650 = 2600, 650 + 4 · 2 = 658, or 8 · ⌈32.5⌉ = 264 bytes from each of 6 clients.
    # zstd hardly changes floats and levels; the framing differs by a few names.
    for name, size in {"int8": 658, "top-k": 264}.items():
        assert up["none"][1] - up[name][1] == 6 * (4 * PARAMETERS - size)
        assert abs((up["none"][0] - up[name][0]) - 6 * (4 * PARAMETERS - size)) < 6 * 300


def _train_with_statistics(task, x, y, seed, *, start):
    moved = {"kernel": start["dense"]["kernel"] + np.arange(6, dtype=np.float32)}
    return {"params": {"dense": moved, "norm": {"stats": {"variance": start["norm"]["stats"]["variance"] * 0.5}}}}


WITH_STATISTICS = Work(
    "tests.train_with_statistics",
    takes={"start": Model()},
    gives={"params": Model(moved=True)},
    plain=_train_with_statistics,
    trains=True,
)


@pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_running_statistics_are_sent_in_full(compression):
    start = {
        "dense": {"kernel": np.linspace(-1, 1, 6, dtype=np.float32)},
        "norm": {"stats": {"variance": np.array([1e-3, 3.0], np.float32)}},
    }
    task = Task("statistics", lambda seed: start, lambda params, x, key: x, tiny_data().shape, 3)
    transport = Sequential(tiny_data(), task)
    prepare = Preparation(ServerState(), task, start, compression=Compression(**compression))
    request = prepare.request(("0",), WITH_STATISTICS, Seed(0), {"start": start})
    (batch,) = transport.send(request)
    assert batch.answers["params"]["norm"]["stats"]["variance"].tolist() == [[np.float32(5e-4), 1.5]]
    sent = wire.pack({"version": wire.VERSION, "nonce": "n", "seconds": 0.5, "replies": [wire.reply_part(batch)]})
    seconds, (received,) = wire.replies_of("0", sent, "n", wire.Limits())
    assert seconds == 0.5
    assert "dense" not in received.answers["params"]
    assert tree.same(rebuilt_batch(request, received, start).answers["params"], batch.answers["params"])


# ------------------------------------------------------------------------------------------------------ hostile replies


def answer_of(reply: bytes):
    content = wire.unpack(reply)
    return content, content["replies"][0]["answers"]


def changed(**entries):
    """A change of the compressed model: entries are replaced, or removed with None."""

    def change(reply):
        content, answers = answer_of(reply)
        coded = {**answers["params"], **entries}
        answers["params"] = {name: value for name, value in coded.items() if value is not None}
        return wire.pack(content)

    return change


def without_compression(reply):
    content, answers = answer_of(reply)
    answers["params"] = {"dense0": {"bias": np.zeros((1, 10), np.float32), "kernel": np.zeros((1, 10, 64), np.float32)}}
    return wire.pack(content)


def without_the_model(reply):
    content, answers = answer_of(reply)
    del answers["params"]
    return wire.pack(content)


K = 33  # ⌈0.05 · 650⌉
INDICES = np.arange(K, dtype=np.int32)[None]

BAD_TOP_K = {
    "no values": changed(values=None),
    "more entries": changed(other=np.zeros(3)),
    "too many": changed(indices=np.arange(K + 1, dtype=np.int32)[None], values=np.zeros((1, K + 1), np.float32)),
    "too few": changed(indices=INDICES[:, 1:], values=np.zeros((1, K - 1), np.float32)),
    "more values than indices": changed(values=np.zeros((1, K + 1), np.float32)),
    "two rows": changed(indices=np.repeat(INDICES, 2, axis=0), values=np.zeros((2, K), np.float32)),
    "negative index": changed(indices=INDICES - 1),
    "index too large": changed(indices=INDICES + (PARAMETERS - K + 1)),
    "not increasing": changed(indices=INDICES[:, ::-1].copy()),
    "the same index twice": changed(indices=np.maximum(INDICES, 1)),
    "wide indices": changed(indices=INDICES.astype(np.int64)),
    "float64": changed(values=np.zeros((1, K))),
    "NaN": changed(values=np.full((1, K), np.nan, np.float32)),
    "statistics that the model does not have": changed(rest={"norm": np.zeros((1, 2), np.float32)}),
    "no statistics": changed(rest=None),
    "statistics as an array": changed(rest=np.zeros(1)),
    "not compressed": without_compression,
    "no model": without_the_model,
}

BAD_INT8 = {
    "no scales": changed(scales=None),
    "too many levels": changed(levels=np.zeros((1, PARAMETERS + 1), np.int8)),
    "levels of another type": changed(levels=np.zeros((1, PARAMETERS), np.int16)),
    "one scale": changed(scales=np.ones((1, 1), np.float32)),
    "NaN as a scale": changed(scales=np.full((1, 2), np.nan, np.float32)),
    "an infinite scale": changed(scales=np.full((1, 2), np.inf, np.float32)),
    "a scale that overflows": changed(
        levels=np.full((1, PARAMETERS), 127, np.int8), scales=np.full((1, 2), 3e38, np.float32)
    ),
    "compressed with top-k": changed(levels=None, scales=None, indices=INDICES, values=np.zeros((1, K), np.float32)),
}

CASES = [
    *(pytest.param("top-k", change, id=f"top-k, {name}") for name, change in BAD_TOP_K.items()),
    *(pytest.param("int8", change, id=f"int8, {name}") for name, change in BAD_INT8.items()),
]


@pytest.mark.parametrize(("compression", "change"), CASES)
def test_a_malformed_compressed_reply_is_rejected_and_counted_and_the_others_are_used(
    pair, round_without, compression, change
):
    sections = {"run": {"clients_per_round": 6}, "compression": COMPRESSIONS[compression]}
    both = pair("fedavg", **sections)
    honest = both.channel.sites[VICTIM]
    both.channel.sites[VICTIM] = lambda message: change(honest(message))
    both.networked.step()
    assert sum(both.networked.rejected.values()) == 1
    assert codec.encode(both.networked.state) == round_without(VICTIM, **sections)


CHOICES = {
    "negative": np.array([-1], np.int32),
    "too large": np.array([99], np.int32),
    "several": np.zeros((1, 1000), np.int32),
    "a float": np.zeros(1, np.float32),
    "no array": {"a": np.zeros(1)},
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_a_choice_of_a_model_that_was_not_sent_is_rejected(pair, choice):
    both = pair("ifca", run={"clients_per_round": 6}, compression=COMPRESSIONS["top-k"])
    honest = both.channel.sites[VICTIM]

    def change(message):
        content, answers = answer_of(honest(message))
        answers["choice"] = choice
        return wire.pack(content)

    both.channel.sites[VICTIM] = change
    both.networked.step()
    assert sum(both.networked.rejected.values()) == 1


@pytest.mark.parametrize("name", ["", "fedsoft.own", 3])
def test_a_server_cannot_replace_another_memory_of_a_client(pair, name):
    both = pair("fedavg", run={"clients_per_round": 6}, compression=COMPRESSIONS["top-k"])
    answer = both.channel.sites[VICTIM]

    def renamed(message):
        content = wire.unpack(message.common)
        content["requests"][0]["residual"] = name
        with pytest.raises(wire.WireError, match="no valid memory for compression"):
            answer(Message(wire.pack(content), message.own))
        return answer(message)

    both.channel.sites[VICTIM] = renamed
    both.networked.step()
    assert not both.networked.rejected
