"""Compressed updates: what clients send and keep, what the server gets, and what is counted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import codec, tree
from coterie.clients import LocalSGD, Model, Values, Work, fit, gradient
from coterie.clients.closest import fit_closest, gradient_closest
from coterie.clients.directions import update
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Adapt, Averaging, Compression, Mean, PerClient, Privacy
from coterie.methods.fedsim import fit_with_gradient
from coterie.methods.fedsoft_client import fit_mixture, recall
from coterie.models import Task
from coterie.seeds import Seed
from coterie.testing import tiny_data

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.5)
INT8, TOP_1 = Compression("int8"), Compression("top-k", 0.25)
BACKENDS = ("sequential", "vectorized")

#: A model of four numbers in two arrays.
FOUR = {"a": np.array([1, 1, 1], np.float32), "b": np.array([1], np.float32)}


def four_task(**more):
    return Task("four", lambda seed: {**FOUR, **more}, lambda params, x, key: x, tiny_data().shape, 3)


def _move(task, x, y, seed, *, start, by):
    return {"params": {**start, "a": start["a"] + by[:3], "b": start["b"] + by[3:]}}


#: Moves the model that it was sent by a vector that the test chooses.
MOVE = Work(
    "tests.move",
    takes={"start": Model(), "by": Values("float32", (4,))},
    gives={"params": Model(moved=True)},
    plain=_move,
    trains=True,
)


@pytest.fixture
def four(wired):
    """`four(compression)`: a server of clients with models of four numbers, and the wire to them."""

    def make(compression, backend="sequential", touch=None, task=None, **options):
        return wired(backend, touch, task=task or four_task(), compression=compression, **options)

    return make


def moved(fed, by, clients=("0",), start=FOUR, **options):
    """Client → the update that the server gets."""
    got = fed.ask(clients, MOVE, Seed(0), start=start, by=np.array(by, np.float32), **options)
    return {
        client: (tree.flatten(model) - tree.flatten(start)).tolist()
        for client, model in got.by_client("params").items()
    }


# --------------------------------------------------------------------------------------------------------- settings


def test_settings_out_of_bounds_are_refused():
    with pytest.raises(SpecError, match=r"compression\.fraction must be above 0 and at most 1, got 0"):
        Compression("top-k", 0.0)
    with pytest.raises(SpecError, match=r"compression\.updates must be one of 'none', 'int8', 'top-k', got 'int4'"):
        Compression("int4")
    with pytest.raises(SpecError, match=r"compression\.fraction = 0\.2 needs compression\.updates = 'top-k'"):
        Compression("int8", 0.2)


def test_the_number_of_entries_is_rounded_up():
    assert Compression("top-k", 0.1).entries(51) == 6  # 5.1
    assert Compression("top-k", 0.07).entries(100) == 7  # not 8, although 0.07 · 100 > 7 in floating point
    assert Compression("top-k", 1e-6).entries(51) == 1


def test_trained_models_updates_and_gradients_are_compressed(model):
    for work in (fit, fit_closest, fit_with_gradient):
        assert INT8.answers(work, model) == ("params",)
    for work in (gradient, gradient_closest):
        assert INT8.answers(work, model) == ("gradient",)
    assert INT8.answers(update, model) == ("update",)
    # The clients' own models are no updates of what the server has.
    assert INT8.answers(fit_mixture, model) == INT8.answers(recall, model) == ()
    assert Compression().answers(fit, model) == ()


def test_what_would_not_get_smaller_is_not_compressed(model):
    # d = 51: 8 k bytes for k entries, against 204. 0.49 · 51 = 24.99, so k = 25 and 200 bytes; k = 26 is 208.
    assert Compression("top-k", 0.49).answers(fit, model) == ("params",)
    assert Compression("top-k", 0.5).answers(fit, model) == ()


# --------------------------------------------------------------------------------------------------- error feedback


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_8_bits_lose_is_sent_in_the_next_round(four, backend):
    # The scales are 127 / 127 = 1 and 254 / 127 = 2. Client 0, array a:
    #   round 1: (127, 2.5, -0.5) → (127, 2, 0); lost: (0, 0.5, -0.5)
    #   round 2: (127, 3.0, -1.0) → itself; nothing is lost
    #   round 3: as round 1
    fed, _ = four(INT8, backend)
    by = (127, 2.5, -0.5, 254)
    assert moved(fed, by, ("0", "1"))["0"] == [127, 2, 0, 254]
    assert moved(fed, by)["0"] == [127, 3, -1, 254]
    assert moved(fed, by)["0"] == [127, 2, 0, 254]
    assert moved(fed, by, ("1",))["1"] == [127, 3, -1, 254]  # the second time for client 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_entries_that_are_not_sent_add_up_until_they_are(four, backend):
    # k = ⌈0.25 · 4⌉ = 1, over both arrays.
    #   round 1: (1, -3, 2, 2) → -3 at 1;                         lost: (1, 0, 2, 2)
    #   round 2: (2, -3, 4, 4) → 4 at 2, the first of two equal;  lost: (2, -3, 0, 4)
    #   round 3: (3, -6, 2, 6) → -6 at 1, the first of two equal; lost: (3, 0, 2, 6)
    #   round 4: (4, -3, 4, 8) → 8 at 3
    fed, _ = four(TOP_1, backend)
    sent = [moved(fed, (1, -3, 2, 2))["0"] for _ in range(4)]
    assert sent == [[0, -3, 0, 0], [0, 0, 4, 0], [0, -6, 0, 0], [0, 0, 0, 8]]


def test_the_residual_does_not_depend_on_the_model_that_was_sent(four):
    fed, _ = four(TOP_1)
    other = tree.map(lambda leaf: leaf + 7, FOUR)
    assert moved(fed, (1, -3, 2, 2))["0"] == [0, -3, 0, 0]
    assert moved(fed, (1, -3, 2, 2), start=other)["0"] == [0, 0, 4, 0]


def test_a_lost_reply_keeps_the_residual_of_the_last_one_that_arrived(four, lose):
    # Client 0 computes round 2 of the table above, but its reply is lost. Round 3 is then round 2 again.
    fed, _ = four(TOP_1, touch=lose({2: "0"}), min_replies=0)
    by = (1, -3, 2, 2)
    assert moved(fed, by) == {"0": [0, -3, 0, 0]}
    assert moved(fed, by) == {}
    assert moved(fed, by) == {"0": [0, 0, 4, 0]}


def test_an_ask_with_too_few_replies_changes_no_residual(four, lose):
    fed, _ = four(TOP_1, touch=lose({2: "1"}), min_replies=2)
    by, both = (1, -3, 2, 2), ("0", "1")
    assert moved(fed, by, both)["0"] == [0, -3, 0, 0]
    with pytest.raises(TooFewReplies):
        moved(fed, by, both)
    assert moved(fed, by, both) == {"0": [0, 0, 4, 0], "1": [0, 0, 4, 0]}


def test_a_skipped_round_changes_no_residual(four):
    fed, _ = four(TOP_1)
    by = (1, -3, 2, 2)
    assert moved(fed, by)["0"] == [0, -3, 0, 0]
    fed.begin()
    assert moved(fed, by)["0"] == [0, 0, 4, 0]
    assert moved(fed, by)["0"] == [0, -6, 0, 0]
    fed.undo()
    assert moved(fed, by)["0"] == [0, 0, 4, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_repeated_request_gives_the_same_reply_and_counts_no_residual_twice(four, backend):
    fed, wire = four(TOP_1, backend)
    for _ in range(2):
        moved(fed, (1, -3, 2, 2))
    before = codec.encode(wire.store.save())
    (batch,) = wire.transport.send(wire.requests[-1])
    assert batch.answers["params"]["a"].tolist() == [[1, 1, 5]]  # round 2
    assert codec.encode(wire.store.save()) == before


def test_a_client_that_lost_its_storage_starts_without_a_residual(four):
    fed, wire = four(TOP_1)
    moved(fed, (1, -3, 2, 2))
    wire.store.forget("0")
    assert moved(fed, (1, -3, 2, 2))["0"] == [0, -3, 0, 0]


def test_a_resumed_server_continues_with_the_residuals_of_its_checkpoint(four):
    fed, _ = four(TOP_1)
    moved(fed, (1, -3, 2, 2))
    saved = codec.encode(fed.save())
    moved(fed, (1, -3, 2, 2))
    resumed, _ = four(TOP_1)
    resumed.load(codec.decode(saved))
    assert moved(resumed, (1, -3, 2, 2))["0"] == [0, 0, 4, 0]
    assert codec.encode(resumed.save()) == codec.encode(fed.save())


def test_works_and_tasks_have_their_own_residuals(four):
    fed, wire = four(TOP_1)
    again = dataclasses.replace(MOVE, name="tests.move_again")
    by = np.array((1, -3, 2, 2), np.float32)
    for other in (fed, fed.on(dataclasses.replace(fed.task, name="other"))):
        assert moved(other, by)["0"] == [0, -3, 0, 0]
    got = fed.ask(("0",), again, Seed(0), start=FOUR, by=by)
    assert got["params"]["a"].tolist() == [[1, -2, 1]]
    assert sorted(wire.store.save()["memories"]) == [
        "residual/tests.move/four/4",
        "residual/tests.move/other/4",
        "residual/tests.move_again/four/4",
    ]


def test_a_reply_that_is_not_finite_is_rejected_and_its_residual_forgotten(four):
    for compression, expected in ((INT8, [127, 3, -1, 254]), (Compression("top-k", 0.25), [127, 0, 0, 0])):
        fed, _ = four(compression, min_replies=0)
        by = (127, 2.5, -0.5, 254)
        moved(fed, by)
        assert moved(fed, (np.nan, 1, 1, 1)) == {}
        assert fed.rejected == {"not finite": 1}
        if compression == INT8:
            assert moved(fed, by)["0"] == expected
        else:  # round 1 sent 254; lost: (127, 2.5, -0.5, 0), so that round 2 has (254, 5, -1, 254)
            assert moved(fed, by)["0"] == [254, 0, 0, 0]


# --------------------------------------------------------------------------------------------------------- identities


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_a_fraction_that_saves_nothing_gives_the_bytes_without_compression(wired, model, backend, fraction):
    fed, _ = wired(backend, compression=Compression("top-k", fraction))
    plain, _ = wired(backend)
    for t in range(2):
        one, other = (each.ask(each.clients, fit, Seed(t), start=model, local=LOCAL) for each in (fed, plain))
        assert tree.same(one["params"], other["params"])
    assert codec.encode(fed.save()) == codec.encode(plain.save())


@pytest.mark.parametrize("compression", [INT8, TOP_1], ids=["int8", "top-k"])
def test_a_client_that_does_not_move_sends_the_model_that_it_got_to_the_bit(wired, model, compression):
    fed, _ = wired(compression=compression)
    still = dataclasses.replace(LOCAL, learning_rate=0.0)
    for _ in range(2):
        got = fed.ask(fed.clients, fit, Seed(0), start=model, local=still)
        assert all(tree.same(sent, model) for sent in got.by_client("params").values())


@pytest.mark.parametrize("compression", [INT8, Compression("top-k", 0.2)], ids=["int8", "top-k"])
def test_both_backends_agree(wired, bank, compression):
    start = PerClient(bank, {client: int(client) % 2 for client in tiny_data().clients})
    banks = []
    for backend in BACKENDS:
        fed, _ = wired(backend, compression=compression)
        for t in range(2):
            got = fed.ask(fed.clients, fit, Seed(t), start=start, local=LOCAL)
        banks.append(tree.flatten_rows(got["params"]))
    np.testing.assert_allclose(*banks, atol=1e-4)


def test_the_start_of_a_client_that_chooses_its_model_is_the_one_that_it_chose(wired, model):
    # One model trained in each of the two true clusters.
    members = [tiny_data().clients[tiny_data().truth.tolist().index(cluster)] for cluster in (0, 1)]
    long = dataclasses.replace(LOCAL, epochs=20)
    heads = wired()[0].ask(members, fit, Seed(0), start=model, local=long)["params"]
    fed, _ = wired(compression=Compression("top-k", 0.02))  # ⌈1.02⌉ = 2 of 51 entries
    got = fed.ask(fed.clients, fit_closest, Seed(0), base={}, heads=heads, local=LOCAL)
    assert set(got["choice"].tolist()) == {0, 1}
    starts = tree.flatten_rows(tree.take(heads, got["choice"]))
    assert ((tree.flatten_rows(got["params"]) != starts).sum(axis=1) == 2).all()


def test_gradients_are_compressed_around_zero(wired, model):
    fed, _ = wired(compression=Compression("top-k", 0.02))
    plain, _ = wired()
    sent = tree.flatten_rows(fed.ask(fed.clients, gradient, Seed(0), params=model)["gradient"])
    full = tree.flatten_rows(plain.ask(fed.clients, gradient, Seed(0), params=model)["gradient"])
    assert (np.count_nonzero(sent, axis=1) == 2).all()
    assert np.array_equal(sent[sent != 0], full[sent != 0])


def test_running_statistics_are_sent_in_full(four):
    task = four_task(norm={"stats": {"variance": np.full(2, 1e-3, np.float32)}})
    fed, _ = four(TOP_1, task=task)
    start = task.init(Seed(0))
    got = fed.ask(("0",), MOVE, Seed(0), start=start, by=np.array((1, -3, 2, 2), np.float32))
    assert tree.same(tree.row(got["params"], 0)["norm"], start["norm"])
    assert got["params"]["a"].tolist() == [[1, -2, 1]]
    assert fed.traffic.total("up") == 8 + 8  # one entry, two statistics


def test_evaluation_is_not_compressed(wired, model):
    fed, wire = wired(compression=TOP_1)
    fed.evaluating().ask(fed.clients, gradient, Seed(0), params=model)
    assert wire.requests[-1].compressed == ()
    assert wire.store.save()["memories"] == {}


# ------------------------------------------------------------------------------------------------------------ privacy


def test_updates_are_clipped_before_they_are_compressed(four):
    # (0, 0, 30, 40) has norm 50 and is clipped to (0, 0, 3, 4). Sent is 4; lost is 3, not 30.
    # Then (0, 0, 6, 4) → 6, which the server clips to the norm 5.
    fed, wire = four(TOP_1, averaging=Averaging(privacy=Privacy(5.0)))
    mean = Mean(weights="uniform")
    for expected in ([0, 0, 0, 4], [0, 0, 5, 0]):
        by = np.array((0, 0, 30, 40), np.float32)
        got = fed.ask(("0",), MOVE, Seed(0), start=FOUR, by=by, reduce=mean)
        moved_by = tree.flatten(tree.row(got.mean, 0)) - tree.flatten(FOUR)
        np.testing.assert_allclose(moved_by, expected, atol=1e-5)
    (saved,) = wire.store.save()["memories"].values()
    (residuals,) = codec.plain(saved)
    second = residuals["versions"].tolist().index(2)
    np.testing.assert_allclose(residuals["memories"]["params"][second], [0, 0, 0, 4], atol=1e-5)


@pytest.mark.parametrize("compression", [INT8, TOP_1], ids=["int8", "top-k"])
def test_with_noise_a_compressed_update_changes_a_sum_by_at_most_the_maximum_norm(four, compression):
    # The same noise is drawn with and without a move, so that the difference is the sum of updates: D = 1 client.
    def release(by):
        fed, _ = four(compression, averaging=Averaging(privacy=Privacy(5.0, 1.0, 1e-5), seed=Seed(7)))
        vector = np.array(by, np.float32)
        sums = [
            fed.ask(("0",), MOVE, Seed(t), start=FOUR, by=vector, reduce=Mean(weights="uniform")).mean for t in range(3)
        ]
        return np.stack([tree.flatten(tree.row(each, 0)) for each in sums]).astype(np.float64)

    norms = np.linalg.norm(release((10, 20, 30, 40)) - release((0, 0, 0, 0)), axis=1)
    assert (norms <= 5.0 + 1e-4).all()
    assert (norms > 3.0).all()  # the residuals of earlier rounds did not vanish, and nothing was sent twice


# ------------------------------------------------------------------------------------------------------------- ledger


@pytest.mark.parametrize(
    ("compression", "expected"),
    # d = 51 in two arrays. int8: 51 + 2 · 4 = 59 bytes; top-k: ⌈0.1 · 51⌉ = 6 entries of 8 bytes; none: 51 · 4.
    [(Compression(), 204), (INT8, 59), (Compression("top-k"), 48)],
    ids=["none", "int8", "top-k"],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_ledger_counts_what_is_sent(wired, model, backend, compression, expected):
    fed, _ = wired(backend, compression=compression)
    fed.ask(("0", "1", "2"), fit, Seed(0), start=model, local=LOCAL)
    by_purpose = fed.traffic.by_purpose()
    assert by_purpose["train"]["up"] == 3 * expected
    down = by_purpose["control"]["down"]
    fed.ask(("0", "1"), fit, Seed(1), start=model, local=LOCAL)
    # The second request also names the version of the residual of its clients, in 8 bytes each.
    again = fed.traffic.by_purpose()["control"]["down"] - down
    assert again == 2 * (down // 3) + (2 * 8 if compression.updates != "none" else 0)


def test_the_work_that_only_prepares_a_model_is_not_compressed(wired, model):
    fed, wire = wired(compression=INT8)
    fed.ask(("0",), gradient, Seed(0), after=Adapt(fit, {"start": model, "local": LOCAL}))
    assert [step.compressed for step in wire.requests[-1].steps] == [(), ()]
    assert wire.store.save()["memories"] == {}


def test_a_server_compresses_nothing_by_default(wired, model):
    fed, wire = wired()
    fed.ask(("0",), fit, Seed(0), start=model, local=LOCAL)
    assert wire.requests[-1].compressed == ()
    assert wire.store.save()["memories"] == {}
