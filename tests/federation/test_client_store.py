"""What clients keep: values that are sent once, and memories by version."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import codec, tree
from coterie.clients import LocalSGD, fit, losses_of, score
from coterie.clients.schema import Model, Values
from coterie.clients.work import Work
from coterie.data.federated import Index
from coterie.errors import TooFewReplies
from coterie.federation import Adapt, Cached, Mean
from coterie.federation.client_store import ClientStore
from coterie.methods.local import fit_own
from coterie.methods.local import recall as own_model
from coterie.seeds import Seed
from coterie.testing import tiny_data

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
SOME = ("0", "1", "2")
KINDS = ("sequential", "vectorized")

# Two models of 51 numbers: 408 bytes. A hash has 16 bytes, a version 8.
BANK, HASH, VERSION = 408, 16, 8


def down(fed):
    return {purpose: row["down"] for purpose, row in fed.traffic.by_purpose().items()}


# ------------------------------------------------------------------------------------------------------- sent only once


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_value_is_sent_the_first_time_and_its_hash_every_time(wired, bank, kind):
    fed, _ = wired(kind)
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed) == {"train": 3 * BANK, "control": 3 * HASH}
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed) == {"train": 3 * BANK, "control": 6 * HASH}
    fed.ask((*SOME, "3"), losses_of, Seed(0), centers=Cached(bank))  # 3 is new, the others have it
    assert down(fed) == {"train": 4 * BANK, "control": 10 * HASH}


def test_another_value_is_another_hash(wired, bank):
    fed, _ = wired()
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(tree.map(lambda leaf: leaf + 1, bank)))
    assert down(fed)["train"] == 6 * BANK


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_lost_a_kept_value_is_sent_it_again_and_answers_rightly(wired, bank, kind):
    fed, wire = wired(kind)
    first = fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    wire.homes.forget("1")
    again = fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert again.clients == SOME
    assert again.lost == {}
    assert np.array_equal(again["losses"], first["losses"])
    # Three hashes twice, and once more value and hash for client 1.
    assert down(fed) == {"train": 4 * BANK, "control": 7 * HASH}
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed) == {"train": 4 * BANK, "control": 10 * HASH}


def test_what_is_sent_again_is_counted_for_those_who_lack_it_only(wired, model):
    fed, wire = wired()
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    first = down(fed)["control"]  # to three clients: settings and a hash
    wire.homes.forget("1")
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    # To three clients and once more to one: settings, a hash, and now a version.
    assert down(fed) == {"base": (3 + 1) * 204, "control": first + 4 * (first // 3 + VERSION)}


def test_clients_that_a_resumed_server_believes_to_hold_a_value_get_it_again_where_they_do_not(wired, bank):
    fed, _ = wired()
    first = fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    resumed, _ = wired()
    resumed.load({**fed.save(), "transport": ClientStore(tiny_data()).save()})
    again = resumed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert np.array_equal(again["losses"], first["losses"])
    assert down(resumed) == {"train": 6 * BANK, "control": (3 + 3 + 3) * HASH}


def test_only_a_client_whose_reply_was_accepted_counts_as_holding_the_value(wired, bank, lose):
    fed, _ = wired(touch=lose({1: "1"}))
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed)["train"] == 3 * BANK
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed)["train"] == 4 * BANK  # to client 1 again: nobody knows that it arrived
    fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert down(fed)["train"] == 4 * BANK


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_the_work_before_needs_is_sent_again_too(wired, model, kind):
    fed, wire = wired(kind)
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    adapt = Adapt(own_model, {"start": Cached(model)})
    before = fed.ask(SOME, score, Seed(0), after=adapt)
    sent = fed.traffic.total("down", "base")
    wire.homes.forget("1")
    got = fed.ask(SOME, score, Seed(0), after=adapt)
    assert got.clients == SOME
    # The others still have what they trained; client 1 lost that with its disk, and has the start, sent once more.
    fresh = fed.ask(SOME, score, Seed(0), params=model)
    expected = [before["loss"][0], fresh["loss"][1], before["loss"][2]]
    np.testing.assert_allclose(got["loss"], expected, rtol=1e-6)
    assert fed.traffic.total("down", "base") == sent + 204


@pytest.mark.parametrize("kind", KINDS)
def test_a_mean_is_the_same_to_the_bit_when_some_clients_were_sent_a_value_again(wired, model, kind):
    fed, wire = wired(kind)
    sent = {"start": Cached(model), "local": LOCAL, "reduce": Mean(spread=True)}
    first = fed.ask(fed.clients, fit, Seed(0), **sent)
    for client in ("0", "4", "8"):
        wire.homes.forget(client)
    again = fed.ask(fed.clients, fit, Seed(0), **sent)
    assert again.clients == first.clients
    assert "params" not in again.answers
    assert tree.same(again.mean, first.mean)
    assert np.array_equal(again.spread, first.spread)


# -------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", ["count", "count_plainly"])
def test_a_client_goes_on_from_what_it_remembers(wired, kind, work, request):
    fed, _ = wired(kind)
    work = request.getfixturevalue(work)
    assert fed.ask(SOME, work, Seed(0)).by_client("n") == {"0": 1, "1": 1, "2": 1}
    assert fed.ask(("1", "2"), work, Seed(0)).by_client("n") == {"1": 2, "2": 2}
    assert fed.ask((*SOME, "3"), work, Seed(0)).by_client("n") == {"0": 2, "1": 3, "2": 3, "3": 1}


def test_the_last_accepted_version_is_named_to_each_client_that_has_one(wired, count):
    fed, wire = wired()
    fed.ask(SOME, count, Seed(0))
    fed.ask(("1",), count, Seed(0))
    fed.ask((*SOME, "3"), count, Seed(0))
    first, second, third = (order.id for order in wire.orders)
    assert wire.orders[2].versions == {"0": first, "1": second, "2": first}
    assert third not in (first, second)
    # Nobody had a version at first; then client 1, then three of four.
    assert down(fed) == {"control": (0 + 1 + 3) * VERSION}


def test_a_lost_reply_does_no_harm_the_client_goes_on_from_the_last_accepted_version(wired, count, lose):
    fed, _ = wired(touch=lose({2: "1", 3: "1"}))
    fed.ask(SOME, count, Seed(0))
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {"0": 2, "2": 2}  # client 1 counted, too, and was not heard
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {"0": 3, "2": 3}
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {"0": 4, "1": 2, "2": 4}


def test_an_ask_that_too_few_answered_moves_nobodys_memory(wired, count, lose):
    fed, _ = wired(touch=lose({2: ("1", "2")}), min_replies=2)
    fed.ask(SOME, count, Seed(0))
    with pytest.raises(TooFewReplies):
        fed.ask(SOME, count, Seed(0))
    assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


def test_a_round_that_is_undone_moves_nobodys_memory_however_often_it_asked(wired, count):
    fed, _ = wired()
    fed.ask(SOME, count, Seed(0))
    fed.begin()
    for expected in (2, 3, 4):
        assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {expected}
    fed.undo()
    assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_keeps_no_more_versions_than_may_be_asked_for(wired, count, kind):
    fed, wire = wired(kind)
    for _ in range(5):
        fed.begin()
        fed.ask(SOME, count, Seed(0))
        fed.ask(SOME, count, Seed(0))
    # The new one, the one accepted before it, and the one from before the round.
    kept = wire.homes.save()["memories"]["tests.count"]
    assert {client: len(versions) for client, versions in kept.items()} == dict.fromkeys(SOME, 3)


def test_a_client_that_lost_its_home_begins_anew(wired, count):
    fed, wire = wired()
    fed.ask(SOME, count, Seed(0))
    wire.homes.forget("1")
    assert fed.ask(SOME, count, Seed(0)).by_client("n") == {"0": 2, "1": 1, "2": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_work_that_only_recalls_leaves_the_memory_as_it_is(wired, count, recall, kind):
    fed, _ = wired(kind)
    fed.ask(SOME, count, Seed(0))
    for _ in range(2):
        assert fed.ask((*SOME, "3"), recall, Seed(0)).by_client("n") == {"0": 1, "1": 1, "2": 1, "3": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_order_gives_the_same_bytes(wired, model, kind):
    fed, wire = wired(kind)
    fed.ask(SOME, fit_own, Seed(0), start=Cached(model), local=LOCAL)
    first = fed.ask(SOME, fit_own, Seed(1), start=Cached(model), local=LOCAL)
    before = codec.encode(wire.homes.save())
    blocks = list(wire.transport.carry(wire.orders[-1]))
    assert np.array_equal(np.concatenate([block.answers["loss"] for block in blocks]), first["loss"])
    assert codec.encode(wire.homes.save()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_shift_that_nobody_heard_of_is_noticed_again(wired, probe, kind):
    fed, wire = wired(kind)
    data = tiny_data()
    counts = data.label_counts()
    assert not np.array_equal(counts[0], counts[1])
    deaf = False
    wire.touch = lambda order, blocks: (b for b in blocks if not deaf)
    assert set(fed.ask(fed.clients, probe.notice, Seed(0)).by_client("changed").values()) == {0}
    lists = [data.fit.of(place) for place in range(len(data.clients))]
    lists[0], lists[1] = lists[1], lists[0]
    wire.transport.move(data.rearranged(fit=Index.from_lists(lists)))
    deaf = True
    with pytest.raises(TooFewReplies):
        fed.ask(fed.clients, probe.notice, Seed(1))
    deaf = False
    for expected in (1, 0):  # heard of now; and then no news any more
        changed = fed.ask(fed.clients, probe.notice, Seed(2)).by_client("changed")
        assert changed == {client: expected if client in "01" else 0 for client in fed.clients}


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_works_in_a_row_the_second_remembers_and_the_first_does_not(wired, count, kind):
    fed, wire = wired(kind)
    first = Work(
        "tests.count_then_model",
        takes={"start": Model()},
        gives={"params": Model()},
        body=_count_then_model,
        memory="tests.first",
        blank=count.blank,
    )
    second = Work(
        "tests.count_model",
        takes={"params": Model()},
        gives={"n": Values("int32"), "seen": Values("float32")},
        body=_count_model,
        memory="tests.second",
        blank=count.blank,
    )
    start = tree.map(np.zeros_like, fed.task.init(Seed(0)))
    for n in (1, 2, 3):
        got = fed.ask(SOME, second, Seed(0), after=Adapt(first, {"start": start}))
        # The bias of each client's model is what the first work counted: 1 every time, as nothing was accepted of it.
        assert got.by_client("n") == dict.fromkeys(SOME, n)
        assert got.by_client("seen") == dict.fromkeys(SOME, 1.0)
    assert set(wire.homes.save()["memories"]) == {"tests.second"}


def _count_then_model(task, client, *, start):
    n = client.memory["n"] + 1
    return {"params": tree.map(lambda leaf: leaf + n, start), "memory": {"n": n}}


def _count_model(task, client, *, params):
    n = client.memory["n"] + 1
    return {"n": n, "seen": params["dense0"]["bias"][0], "memory": {"n": n}}


# ---------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("kind", KINDS)
def test_a_federation_goes_on_from_a_checkpoint_as_it_would_have_without(wired, bank, count, kind):
    def session(fed, seed):
        got = fed.ask(SOME, count, seed)
        losses = fed.ask(fed.clients, losses_of, seed, centers=Cached(bank))["losses"]
        return codec.encode([got["n"], losses])

    fed, _ = wired(kind)
    session(fed, Seed(0))
    saved = codec.encode(fed.save())
    resumed, _ = wired(kind)
    resumed.load(codec.decode(saved))
    assert codec.encode(resumed.save()) == saved
    assert session(resumed, Seed(1)) == session(fed, Seed(1))
    assert codec.encode(resumed.save()) == codec.encode(fed.save())


def test_a_checkpoint_does_not_change_while_the_run_goes_on(wired, count):
    fed, _ = wired()
    fed.ask(SOME, count, Seed(0))
    saved = fed.save()
    before = codec.encode(saved)
    fed.ask(SOME, count, Seed(0))
    assert codec.encode(saved) == before
