"""Client storage: cached values, and memories by version."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from coterie import codec, tree
from coterie.clients import LocalSGD, fit, label_counts, losses_of, score
from coterie.clients.schema import Model, Values
from coterie.clients.work import Work
from coterie.data.federated import Index
from coterie.errors import TooFewReplies
from coterie.federation import Adapt, Cached, Mean
from coterie.federation.client_store import ClientStore
from coterie.federation.server_state import ServerState
from coterie.methods.local import fit_own
from coterie.methods.local import recall as own_model
from coterie.seeds import Seed
from coterie.testing import tiny_data

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
SOME = ("0", "1", "2")
BACKENDS = ("sequential", "vectorized")

# Two models of 51 numbers: 408 bytes. A hash has 16 bytes, a version 8.
BANK, HASH, VERSION = 408, 16, 8


def down(fed):
    return {purpose: row["down"] for purpose, row in fed.traffic.by_purpose().items()}


# ------------------------------------------------------------------------------------------------------- cached values


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cached_value_is_sent_the_first_time_and_its_hash_every_time(wired, bank, backend):
    fed, _ = wired(backend)
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed) == {"train": 3 * BANK, "control": 3 * HASH}
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed) == {"train": 3 * BANK, "control": 6 * HASH}
    fed.ask((*SOME, "3"), losses_of, Seed(0), centers=Cached(bank))  # client 3 does not have it yet
    assert down(fed) == {"train": 4 * BANK, "control": 10 * HASH}


def test_another_value_is_sent_in_full(wired, bank):
    fed, _ = wired()
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(tree.map(lambda leaf: leaf + 1, bank)))
    assert down(fed)["train"] == 6 * BANK


def test_the_hash_of_a_value_is_that_of_its_bytes_also_if_it_was_hashed_before(bank):
    state, equal, other = ServerState(), tree.map(np.copy, bank), tree.map(lambda leaf: leaf + 1, bank)
    expected = hashlib.blake2b(codec.encode(bank), digest_size=HASH).hexdigest()
    assert [state.digest(value) for value in (bank, bank, equal)] == [expected] * 3
    assert state.digest(other) == hashlib.blake2b(codec.encode(other), digest_size=HASH).hexdigest() != expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_that_lost_a_cached_value_is_sent_it_again(wired, bank, backend):
    fed, wire = wired(backend)
    first = fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    wire.store.forget("1")
    again = fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert again.clients == SOME
    assert again.lost == {}
    assert np.array_equal(again["losses"], first["losses"])
    # Three hashes twice; value and hash once more for client 1.
    assert down(fed) == {"train": 4 * BANK, "control": 7 * HASH}
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed) == {"train": 4 * BANK, "control": 10 * HASH}


def test_a_resend_is_counted_only_for_the_clients_that_miss_the_value(wired, model):
    fed, wire = wired()
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    first = down(fed)["control"]  # to three clients: settings and a hash
    wire.store.forget("1")
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    # To three clients and once more to one: settings, a hash, and now a version.
    assert down(fed) == {"base": (3 + 1) * 204, "control": first + 4 * (first // 3 + VERSION)}


def test_a_resumed_server_sends_a_value_again_to_clients_that_lost_it(wired, bank):
    fed, _ = wired()
    first = fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    resumed, _ = wired()
    resumed.load({**fed.save(), "transport": ClientStore(tiny_data()).save()})
    again = resumed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert np.array_equal(again["losses"], first["losses"])
    assert down(resumed) == {"train": 6 * BANK, "control": (3 + 3 + 3) * HASH}


def test_a_value_counts_as_delivered_only_when_the_reply_is_accepted(wired, bank, lose):
    fed, _ = wired(touch=lose({1: "1"}))
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed)["train"] == 3 * BANK
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed)["train"] == 4 * BANK  # again to client 1, which did not confirm it
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed)["train"] == 4 * BANK


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cached_value_of_the_work_in_after_is_sent_again_too(wired, model, backend):
    fed, wire = wired(backend)
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    adapt = Adapt(own_model, {"start": Cached(model)})
    before = fed.ask(SOME, score, Seed(0), after=adapt)
    sent = fed.traffic.total("down", "base")
    wire.store.forget("1")
    got = fed.ask(SOME, score, Seed(0), after=adapt)
    assert got.clients == SOME
    # Clients 0 and 2 still have their trained model; client 1 lost it and uses the start model, sent once more.
    fresh = fed.ask(SOME, score, Seed(0), params=model)
    expected = [before["loss"][0], fresh["loss"][1], before["loss"][2]]
    np.testing.assert_allclose(got["loss"], expected, rtol=1e-6)
    assert fed.traffic.total("down", "base") == sent + 204


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_resend_does_not_change_the_bytes_of_a_mean(wired, model, backend):
    fed, wire = wired(backend)
    sent = {"start": Cached(model), "local": LOCAL, "reduce": Mean(spread=True)}
    first = fed.ask(fed.clients, fit, Seed(0), **sent)
    for client in ("0", "4", "8"):
        wire.store.forget(client)
    again = fed.ask(fed.clients, fit, Seed(0), **sent)
    assert again.clients == first.clients
    assert "params" not in again.answers
    assert tree.same(again.mean, first.mean)
    assert np.array_equal(again.spread, first.spread)


# -------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("work", ["count", "count_plainly"])
def test_a_client_continues_from_its_memory(wired, backend, work, request):
    fed, _ = wired(backend)
    work = request.getfixturevalue(work)
    assert fed.ask(SOME, work, Seed(0)).by_client("n") == {"0": 1, "1": 1, "2": 1}
    assert fed.ask(("1", "2"), work, Seed(0)).by_client("n") == {"1": 2, "2": 2}
    assert fed.ask((*SOME, "3"), work, Seed(0)).by_client("n") == {"0": 2, "1": 3, "2": 3, "3": 1}


def test_a_request_names_the_last_accepted_version_of_each_client(wired, count):
    fed, wire = wired()
    fed.ask(SOME, count, Seed(0))
    fed.ask(("1",), count, Seed(0))
    fed.ask((*SOME, "3"), count, Seed(0))
    first, second, third = (sent.id for sent in wire.requests)
    assert wire.requests[2].versions == {"0": first, "1": second, "2": first}
    assert third not in (first, second)
    # No client has a version at first; then client 1, then three of four.
    assert down(fed) == {"control": (0 + 1 + 3) * VERSION}


def test_after_a_lost_reply_the_client_continues_from_the_last_accepted_version(wired, count, lose):
    fed, _ = wired(touch=lose({2: "1", 3: "1"}))
    fed.ask(SOME, count, Seed(0))
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {
        "0": 2,
        "2": 2,
    }  # client 1 counted too, but its reply was lost
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {"0": 3, "2": 3}
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {"0": 4, "1": 2, "2": 4}


def test_an_ask_with_too_few_replies_changes_no_memory(wired, count, lose):
    fed, _ = wired(touch=lose({2: ("1", "2")}), min_replies=2)
    fed.ask(SOME, count, Seed(0))
    with pytest.raises(TooFewReplies):
        fed.ask(SOME, count, Seed(0))
    assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


def test_an_undone_round_changes_no_memory(wired, count):
    fed, _ = wired()
    fed.ask(SOME, count, Seed(0))
    fed.begin()
    for expected in (2, 3, 4):
        assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {expected}
    fed.undo()
    assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_stores_only_versions_that_may_be_named_again(wired, count, backend):
    fed, wire = wired(backend)
    for _ in range(5):
        fed.begin()
        fed.ask(SOME, count, Seed(0))
        fed.ask(SOME, count, Seed(0))
    # The new version, the one accepted before it, and the one before the round.
    (kept,) = codec.plain(wire.store.save()["memories"]["tests.count"])
    assert kept["clients"] == ["0", "0", "0", "1", "1", "1", "2", "2", "2"]


def test_a_client_that_lost_its_storage_starts_from_a_blank_memory(wired, count):
    fed, wire = wired()
    fed.ask(SOME, count, Seed(0))
    wire.store.forget("1")
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {"0": 2, "1": 1, "2": 2}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_work_that_only_reads_its_memory_does_not_change_it(wired, count, recall, backend):
    fed, _ = wired(backend)
    fed.ask(SOME, count, Seed(0))
    for _ in range(2):
        assert fed.ask((*SOME, "3"), recall, Seed(0)).by_client("n") == {"0": 1, "1": 1, "2": 1, "3": 0}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_repeated_request_gives_the_same_bytes(wired, model, backend):
    fed, wire = wired(backend)
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    first = fed.ask(SOME, fit_own, Seed(1), start=Cached(model), local=LOCAL)
    before = codec.encode(wire.store.save())
    batches = list(wire.transport.send(wire.requests[-1]))
    assert np.array_equal(np.concatenate([batch.answers["loss"] for batch in batches]), first["loss"])
    assert codec.encode(wire.store.save()) == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_shift_whose_report_was_lost_is_reported_again(wired, probe, backend):
    fed, wire = wired(backend)
    data = tiny_data()
    counts = data.label_counts()
    assert not np.array_equal(counts[0], counts[1])
    lost = False
    wire.touch = lambda request, batches: (batch for batch in batches if not lost)
    assert set(fed.ask(fed.clients, probe.notice, Seed(0)).by_client("changed").values()) == {0}
    lists = [data.fit.of(place) for place in range(len(data.clients))]
    lists[0], lists[1] = lists[1], lists[0]
    wire.transport.set_data(data.rearranged(fit=Index.from_lists(lists)))
    lost = True
    with pytest.raises(TooFewReplies):
        fed.ask(fed.clients, probe.notice, Seed(1))
    lost = False
    for expected in (1, 0):  # reported now, and not again afterwards
        changed = fed.ask(fed.clients, probe.notice, Seed(2)).by_client("changed")
        assert changed == {client: expected if client in "01" else 0 for client in fed.clients}


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_after_only_the_second_work_writes_its_memory(wired, count, backend):
    fed, wire = wired(backend)
    first = Work(
        "tests.count_then_model",
        takes={"start": Model()},
        gives={"params": Model()},
        body=_count_then_model,
        memory="tests.first",
        blank=count.blank,
        trains=False,
    )
    second = Work(
        "tests.count_model",
        takes={"params": Model()},
        gives={"n": Values("int32"), "seen": Values("float32")},
        body=_count_model,
        memory="tests.second",
        blank=count.blank,
        trains=False,
    )
    start = tree.map(np.zeros_like, fed.task.init(Seed(0)))
    for n in (1, 2, 3):
        got = fed.ask(SOME, second, Seed(0), after=Adapt(first, {"start": start}))
        # The bias of the model is the count of the first work: always 1, since its memory is not stored.
        assert got.by_client("n") == dict.fromkeys(SOME, n)
        assert got.by_client("seen") == dict.fromkeys(SOME, 1.0)
    assert set(wire.store.save()["memories"]) == {"tests.second"}


def _count_then_model(task, client, *, start):
    n = client.memory["n"] + 1
    return {"params": tree.map(lambda leaf: leaf + n, start), "memory": {"n": n}}


def _count_model(task, client, *, params):
    n = client.memory["n"] + 1
    return {"n": n, "seen": params["dense0"]["bias"][0], "memory": {"n": n}}


# ---------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_federation_continues_from_a_checkpoint_with_the_same_bytes(wired, bank, count, backend):
    def session(fed, seed):
        got = fed.ask(SOME, count, seed)
        losses = fed.ask(fed.clients, losses_of, seed, centers=Cached(bank))["losses"]
        return codec.encode([got["n"], losses])

    fed, _ = wired(backend)
    session(fed, Seed(0))
    saved = codec.encode(fed.save())
    resumed, _ = wired(backend)
    resumed.load(codec.decode(saved))
    assert codec.encode(resumed.save()) == saved
    assert session(resumed, Seed(1)) == session(fed, Seed(1))
    assert codec.encode(resumed.save()) == codec.encode(fed.save())


def test_a_checkpoint_does_not_change_while_the_run_continues(wired, count):
    fed, _ = wired()
    fed.ask(SOME, count, Seed(0))
    saved = fed.save()
    before = codec.encode(saved)
    fed.ask(SOME, count, Seed(0))
    assert codec.encode(saved) == before


# ----------------------------------------------------------------------------------------------------------- snapshots


def test_a_snapshot_has_one_bank_for_the_memories_of_all_clients_and_is_not_changed_by_later_requests(wired, model):
    fed, wire = wired()
    fed.ask(SOME, fit_own, Seed(0), start=model, local=LOCAL)
    snapshot = wire.store.save()
    before = codec.encode(snapshot)
    fed.ask(SOME, fit_own, Seed(1), start=model, local=LOCAL)
    assert codec.encode(snapshot) == before
    (table,) = codec.decode(before)["memories"]["local.own"]
    assert table["clients"] == list(SOME)
    assert tree.rows(table["memories"]) == 3


def test_a_restored_store_saves_the_same_bytes(wired, model):
    fed, wire = wired()
    fed.ask(SOME, fit_own, Seed(0), start=model, local=LOCAL)
    saved = codec.encode(wire.store.save())
    for snapshot in (wire.store.save(), codec.decode(saved)):
        other = ClientStore(tiny_data())
        other.load(snapshot)
        assert codec.encode(other.save()) == saved


def test_memories_of_checkpoints_of_earlier_versions_are_read(wired, model):
    # They had client → version → memory.
    fed, wire = wired()
    fed.ask(SOME, fit_own, Seed(0), start=model, local=LOCAL)
    other = ClientStore(tiny_data())
    each = wire.store._memories["local.own"]
    other.load({"memories": {"local.own": {client: each.versions_of(client) for client in SOME}}, "holders": {}})
    assert codec.encode(other.save()["memories"]) == codec.encode(wire.store.save()["memories"])


# ----------------------------------------------------------------------------------- sums that depend on examples only


def test_label_counts_are_computed_once_until_the_examples_change(wired, monkeypatch):
    fed, wire = wired("vectorized")
    computed = []
    original = type(wire.transport)._each

    def counting(self, request, clients):
        computed.append([member.id for member in clients])
        return original(self, request, clients)

    monkeypatch.setattr(type(wire.transport), "_each", counting)
    first = fed.ask(SOME, label_counts, Seed(0))["counts"]
    more = fed.ask(("0", "1", "2", "3"), label_counts, Seed(1))["counts"]
    np.testing.assert_array_equal(more[:3], first)
    assert computed == [["0", "1", "2"], ["3"]]
    # Clients 0 and 1 swap their examples, and so their counts.
    data = tiny_data()
    lists = [data.fit.of(position) for position in range(len(data.clients))]
    lists[0], lists[1] = lists[1], lists[0]
    fed.set_data(data.rearranged(fit=Index.from_lists(lists)))
    np.testing.assert_array_equal(fed.ask(SOME, label_counts, Seed(2))["counts"], first[[1, 0, 2]])
