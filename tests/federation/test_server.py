"""Asks: which values may be sent, and which replies are accepted."""

from __future__ import annotations

import dataclasses
import logging
import re

import numpy as np
import pytest

from coterie import codec, tree
from coterie.clients import LocalSGD, fit, gradient, label_counts, losses_of, score
from coterie.clients.closest import fit_closest
from coterie.clients.schema import Model, Values
from coterie.clients.work import Work
from coterie.errors import DataError, Diverged, SpecError, TooFewReplies
from coterie.federation import Adapt, Cached, Cohort, Mean, PerClient
from coterie.models import Normalize, mlp
from coterie.seeds import Seed

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
SOME = ("0", "1", "2")


# -------------------------------------------------------------------------------------------------------- sent values


def check_error(fed, text, *args, **sent):
    with pytest.raises(SpecError, match=re.escape(text)):
        fed.ask(*args, Seed(0), **sent)


def test_the_names_of_sent_values_must_be_those_that_the_work_takes(wired, model):
    fed, _ = wired()
    text = "Work 'fit' takes ['local', 'start'], was sent "
    check_error(fed, text + "['local', 'strat']", SOME, fit, strat=model, local=LOCAL)
    check_error(fed, text + "['start']", SOME, fit, start=model)
    after = Adapt(fit, {"start": model, "local": LOCAL})
    check_error(fed, "takes [], was sent ['params']", SOME, score, params=model, after=after)


def test_sent_values_must_have_the_shape_and_dtype_that_the_work_takes(wired, model, bank):
    fed, _ = wired()
    what = "Work 'fit': the sent value "
    narrow = {"dense0": {**model["dense0"], "kernel": model["dense0"]["kernel"][:, :15]}}
    shape = what + "'start' dense0/kernel has shape (3, 15), not (3, 16)"
    check_error(fed, shape, SOME, fit, start=narrow, local=LOCAL)
    check_error(fed, shape, SOME, fit, start=Cached(narrow), local=LOCAL)
    check_error(fed, shape, SOME, fit, start=PerClient(tree.stack([narrow]), dict.fromkeys(SOME, 0)), local=LOCAL)
    check_error(fed, shape, SOME, score, after=Adapt(fit, {"start": narrow, "local": LOCAL}))
    wide = tree.map(lambda leaf: leaf.astype(np.float64), model)
    check_error(fed, "dense0/bias has dtype float64, not float32", SOME, fit, start=wide, local=LOCAL)
    check_error(fed, "has the arrays ['w'], the model has", SOME, fit, start={"w": np.zeros(3)}, local=LOCAL)
    check_error(fed, what + "'local' is a float, not LocalSGD", SOME, fit, start=model, local=0.1)
    check_error(fed, "'start' dense0/bias has shape (2, 3), not (3,)", SOME, fit, start=bank, local=LOCAL)


def test_a_named_dimension_has_the_same_size_everywhere_in_a_message(wired):
    fed, _ = wired()
    pair = Work(
        "tests.pair",
        takes={"a": Values("float32", ("k",)), "b": Values("float32", ("k", "k"))},
        gives={"c": Values("float32", ("k",))},
        body=_pair,
        trains=False,
    )
    two, three = np.ones(2, np.float32), np.ones((3, 3), np.float32)
    check_error(fed, "'b' has shape (3, 3), not ('k', 'k') with k = 2", SOME, pair, a=two, b=three)
    assert fed.ask(SOME, pair, Seed(0), a=two, b=three[:2, :2])["c"].tolist() == [[2.0, 2.0]] * 3


def _pair(task, client, *, a, b):
    return {"c": b @ a}


def test_settings_are_the_same_for_all_clients(wired, model):
    fed, _ = wired()
    text = "Work 'fit': 'local' are settings; send them without PerClient or Cached"
    check_error(fed, text, SOME, fit, start=model, local=Cached(LOCAL))
    check_error(fed, text, SOME, fit, start=model, local=PerClient(LOCAL, dict.fromkeys(SOME, 0)))


def test_every_client_of_an_ask_needs_an_existing_row(wired, bank):
    fed, _ = wired()
    what = "Work 'fit': 'start' "
    text = what + "is sent per client, but has no row for 1, 2"
    check_error(fed, text, SOME, fit, start=PerClient(bank, {"0": 0}), local=LOCAL)
    for row in (2, -1):
        text = what + f"has rows 0 to 1, got rows {min(row, 0)} to {max(row, 0)}"
        check_error(fed, text, SOME, fit, start=PerClient(bank, {"0": 0, "1": 0, "2": row}), local=LOCAL)
    uneven = {"dense0": {**bank["dense0"], "bias": np.zeros((3, 3), np.float32)}}
    text = what + "is not a stack: its arrays have 2, 3 rows"
    check_error(fed, text, SOME, fit, start=PerClient(uneven, dict.fromkeys(SOME, 0)), local=LOCAL)


def test_a_function_that_is_no_work_is_refused(wired):
    fed, _ = wired()
    check_error(fed, "ask takes a Work, got <function _pair", SOME, _pair)


def test_an_unknown_part_raises(wired, model):
    fed, _ = wired()
    check_error(fed, "No part 'tset'. Did you mean 'test'? Known: ", SOME, score, params=model, part="tset")


def test_only_a_model_in_existing_groups_can_be_averaged(wired, model, bank):
    fed, _ = wired()
    sent = {"start": model, "local": LOCAL}
    for of in ("loss", "nothing"):
        text = f"Work 'fit' gives no model {of!r} to average"
        check_error(fed, text, SOME, fit, **sent, reduce=Mean(of))
    for by in ("loss", "nothing"):
        text = f"Work 'fit' gives no whole number {by!r} to group by"
        check_error(fed, text, SOME, fit, **sent, reduce=Mean(by=by))
    text = "Work 'fit': replies are averaged in groups 0 to 1; 1, 2 have no group"
    check_error(fed, text, SOME, fit, **sent, reduce=Mean(groups=2, by={"0": 1, "1": 2}))


def test_asking_an_unknown_client_raises(wired, model):
    for backend in ("sequential", "vectorized"):
        fed, _ = wired(backend)
        with pytest.raises(DataError, match="No client '10'"):
            fed.ask(["10"], fit, Seed(0), start=model, local=LOCAL)


def test_an_ask_without_clients_has_no_replies_and_no_traffic(wired, model):
    for backend in ("sequential", "vectorized"):
        fed, _ = wired(backend)
        got = fed.ask([], fit, Seed(0), start=model, local=LOCAL, reduce=Mean())
        assert len(got) == 0
        assert got.by_client("loss") == {}
        none = fed.ask([], fit, Seed(0), start=model, local=LOCAL)
        assert none.by_client("params") == {}
        assert none["params"]["dense0"]["kernel"].shape == (0, 3, 16)  # an empty bank
        assert got.means()[1].tolist() == [0.0]
        assert fed.traffic.total() == 0


# ------------------------------------------------------------------------------------------------------------ replies


def only(client, change):
    """A touch that changes the reply of one client."""

    def touch(request, batches):
        for batch in batches:
            yield from [change(batch)] if batch.clients == (client,) else [batch]

    return touch


def answer(name, change):
    """A change of one answer of a batch."""
    return lambda batch: dataclasses.replace(batch, answers={**batch.answers, name: change(batch.answers[name])})


def with_nan(bank):
    return tree.map(lambda leaf: np.full_like(leaf, np.nan), bank)


def without_loss(batch):
    return dataclasses.replace(batch, answers={k: v for k, v in batch.answers.items() if k != "loss"})


REJECTED = {
    "of another ask": (lambda batch: dataclasses.replace(batch, request=batch.request + 1), "no reply"),
    "not asked": (lambda batch: dataclasses.replace(batch, clients=("stranger",)), "no reply"),
    "late": (lambda batch: dataclasses.replace(batch, late=True), None),
    "out of memory": (lambda batch: dataclasses.replace(batch, problem="out of memory", answers={}), None),
    "not finite": (answer("params", with_nan), None),
    "loss has shape (1, 1), not ('replies',)": (answer("loss", lambda loss: loss[:, None]), None),
    "loss has shape (2,), not ('replies',) with replies = 1": (answer("loss", lambda loss: loss.repeat(2)), None),
    "loss has dtype float64, not float32": (answer("loss", lambda loss: loss.astype(np.float64)), None),
    "params dense0/bias has shape (1, 1, 3), not ('replies', 3)": (
        answer("params", lambda bank: tree.map(lambda leaf: leaf[:, None], bank)),
        None,
    ),
    "gives ['params', 'steps'], not ['loss', 'params', 'steps']": (without_loss, None),
    "has no valid number of samples": (
        lambda batch: dataclasses.replace(batch, samples=-batch.samples),
        None,
    ),
}


@pytest.mark.parametrize("reason", REJECTED)
@pytest.mark.parametrize("how", [None, Mean(spread=True)], ids=["each", "averaged"])
def test_an_invalid_reply_is_rejected_counted_and_logged_with_its_reason(wired, model, caplog, reason, how):
    change, lost = REJECTED[reason]
    fed, wire = wired(touch=only("1", change))
    with caplog.at_level(logging.WARNING, logger="coterie"):
        got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL, reduce=how)
    assert got.clients == ("0", "2")
    assert got.lost == {"1": lost or reason}
    assert fed.rejected == {reason: 1}
    who = "stranger" if reason == "not asked" else "1"
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        f"reply of {who} rejected: {reason}"
    ]
    wire.touch = lambda request, batches: batches
    good = fed.ask(("0", "2"), fit, Seed(0), start=model, local=LOCAL, reduce=how)
    assert tree.same(dict(got.answers), dict(good.answers))
    assert how is None or tree.same(got.mean, good.mean)


def test_a_repeated_reply_counts_once(wired, model, caplog):
    fed, _ = wired(touch=lambda request, batches: (again for batch in batches for again in (batch, batch)))
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL, reduce=Mean(weights="uniform"))
    assert got.clients == SOME
    assert got.means()[1].tolist() == [3.0]
    assert got.lost == {}
    assert fed.rejected == {"repeated": 3}
    assert sum("repeated" in record.getMessage() for record in caplog.records) == 3


def test_a_client_that_replies_twice_in_one_batch_counts_once(wired, model):
    def twice(batch):
        return dataclasses.replace(
            batch,
            clients=batch.clients * 2,
            samples=batch.samples.repeat(2),
            answers={name: tree.map(lambda leaf: leaf.repeat(2, axis=0), v) for name, v in batch.answers.items()},
        )

    fed, _ = wired(touch=only("1", twice))
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.clients == SOME
    assert fed.rejected == {"repeated": 1}


def test_a_valid_reply_counts_after_an_invalid_one_of_the_same_client(wired, model):
    def late_first(request, batches):
        for batch in batches:
            yield dataclasses.replace(batch, late=True)
            yield batch

    fed, _ = wired(touch=late_first)
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.clients == SOME
    assert got.lost == {}
    assert fed.rejected == {"late": 3}


def test_replies_are_returned_in_the_order_of_client_ids(wired, bank):
    fed, wire = wired()
    in_order = fed.ask(SOME, losses_of, Seed(0), centers=bank)
    wire.touch = lambda request, batches: reversed(list(batches))
    got = fed.ask(SOME, losses_of, Seed(0), centers=bank)
    assert got.clients == SOME
    assert np.array_equal(got["losses"], in_order["losses"])


def test_a_reply_must_fit_the_named_dimensions_of_the_sent_values(wired, bank):
    fed, _ = wired(touch=only("1", answer("losses", lambda losses: losses[:, :1])))
    got = fed.ask(SOME, losses_of, Seed(0), centers=bank)
    assert got.clients == ("0", "2")
    assert got.lost["1"] == "losses has shape (1, 1), not ('replies', 'k') with k = 2"


def test_an_open_dimension_has_the_same_size_in_all_replies(wired):
    open_work = Work("tests.open", takes={}, gives={"v": Values("float32", ("m",))}, plain=_open, trains=False)
    fed, _ = wired(touch=only("1", answer("v", lambda v: v[:, :2])))
    got = fed.ask(SOME, open_work, Seed(0))
    assert got.clients == ("0", "2")
    assert got["v"].shape == (2, 3)
    assert got.lost["1"] == "v has shape (1, 2), not ('replies', 'm') with m = 3"


def _open(task, x, y, seed):
    return {"v": np.ones(3, np.float32)}


def test_a_reply_that_names_an_unknown_group_is_rejected(wired, bank):
    how = Mean(groups=2, by="choice")
    sent = {"base": {}, "heads": bank, "local": LOCAL, "reduce": how}
    for wrong in (2, -1):
        fed, _ = wired(touch=only("1", answer("choice", lambda choice, to=wrong: np.full_like(choice, to))))
        got = fed.ask(SOME, fit_closest, Seed(0), **sent)
        assert got.clients == ("0", "2")
        assert got.lost == {"1": f"choice has integers from {wrong} to {wrong}, allowed: 0 to 1"}


def test_a_ragged_reply_must_be_a_list_of_arrays_of_the_declared_dtype(wired, probe):
    fed, wire = wired()
    good = fed.ask(SOME, probe.class_means, Seed(0))
    cases = {
        "means is not one list of arrays per client": lambda means: np.zeros((1, 3)),
        "means has dtype float64, not float32": lambda means: [[m.astype(np.float64) for m in means[0]]],
        "means has shape (2, 15), not ('rows', 'inputs') with inputs = 16": lambda means: [[np.zeros((2, 15), "f")]],
        "means holds 6 arrays, at most 3 are allowed": lambda means: [means[0] * 2],
        "not finite": lambda means: [[np.full_like(m, np.inf) for m in means[0]]],
    }
    for reason, change in cases.items():
        wire.touch = only("1", answer("means", change))
        got = fed.ask(SOME, probe.class_means, Seed(0))
        assert got.lost == {"1": reason}
        assert [len(means) for means in got["means"]] == [3, 3]
        assert tree.same(got.by_client("means")["2"][1], good.by_client("means")["2"][1])


def test_a_reply_with_large_finite_numbers_is_accepted(wired, model):
    huge = answer("params", lambda bank: tree.map(lambda leaf: np.full_like(leaf, 1e30), bank))
    fed, _ = wired(touch=only("1", huge))
    assert fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL).clients == SOME


def nan_from(*clients):
    def touch(request, batches):
        for batch in batches:
            yield answer("params", with_nan)(batch) if batch.clients[0] in clients else batch

    return touch


def test_the_run_stops_if_more_than_half_of_the_replies_are_not_finite(wired, model):
    fed, wire = wired(touch=nan_from("0", "1"))
    # 2 of 4 is half, not more.
    assert fed.ask(("0", "1", "2", "3"), fit, Seed(0), start=model, local=LOCAL).clients == ("2", "3")
    text = "2 of 3 replies to 'fit' are not finite (0, 1); lower the learning rate or check the data of these clients"
    with pytest.raises(Diverged, match=re.escape(text)):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    wire.touch = nan_from(*fed.clients[:7])
    with pytest.raises(Diverged, match=r"7 of 10 .* \(0, 1, 2, 3, 4 and 2 more\)"):
        fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL)


def test_an_ask_without_replies_raises(wired, model, lose):
    fed, _ = wired(touch=lose({1: "*"}))
    with pytest.raises(TooFewReplies, match="0 of 3 clients replied to 'fit'; the minimum is 1"):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)


def test_the_minimum_of_replies_is_at_most_the_number_of_clients_asked(wired, model, lose):
    fed, _ = wired(touch=lose({1: "1", 2: "1"}), min_replies=3)
    with pytest.raises(TooFewReplies, match="2 of 3 clients replied to 'fit'; the minimum is 3"):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert fed.ask(("2", "3"), fit, Seed(0), start=model, local=LOCAL).clients == ("2", "3")


def test_an_ask_can_set_its_own_minimum_of_replies(wired, model, lose):
    fed, _ = wired(touch=lose({1: "1", 2: "*", 3: "*"}), min_replies=2)
    with pytest.raises(TooFewReplies, match="2 of 3 clients replied to 'fit'; the minimum is 3"):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL, min_replies=3)
    got = fed.ask(("1",), fit, Seed(0), start=model, local=LOCAL, min_replies=0)
    assert got.clients == ()
    assert got.lost == {"1": "no reply"}
    assert got.by_client("params") == {}
    with pytest.raises(TooFewReplies, match="0 of 1 clients replied to 'fit'; the minimum is 1"):
        fed.ask(("1",), fit, Seed(0), start=model, local=LOCAL)


def test_an_ask_without_a_minimum_continues_if_replies_are_not_finite(wired, model):
    # Such an ask often has one client, whose NaN does not mean that the run diverges.
    fed, _ = wired(touch=nan_from("0"))
    got = fed.ask(("0",), fit, Seed(0), start=model, local=LOCAL, min_replies=0)
    assert got.lost == {"0": "not finite"}
    assert fed.rejected == {"not finite": 1}
    with pytest.raises(Diverged, match="1 of 1 replies"):
        fed.ask(("0",), fit, Seed(0), start=model, local=LOCAL)


def test_lost_replies_while_placing_raise_nothing_and_their_bytes_count(wired, model, lose):
    fed, _ = wired(touch=lose({1: "*", 2: "1"}), min_replies=3)
    assert fed.placing().ask(SOME, fit, Seed(0), start=model, local=LOCAL).clients == ()
    assert fed.placing().ask(SOME, fit, Seed(0), start=model, local=LOCAL).clients == ("0", "2")
    assert fed.traffic.total("down", "train") == 2 * 3 * tree.nbytes(model)


def test_lost_gives_the_reason_for_each_client_without_a_valid_reply(wired, model):
    def touch(request, batches):
        for batch in batches:
            if batch.clients == ("1",):
                yield dataclasses.replace(batch, late=True)
            elif batch.clients != ("2",):
                yield batch

    fed, _ = wired(touch=touch)
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.lost == {"1": "late", "2": "no reply"}


# --------------------------------------------------------------------------------------------- evaluation, other tasks


def test_evaluation_changes_no_holdings_versions_memories_or_totals(wired, bank, count):
    for backend in ("sequential", "vectorized"):
        fed, _ = wired(backend)
        fed.ask(SOME, count, Seed(0))
        before = codec.decode(codec.encode(fed.save()))
        total = fed.traffic.total()
        scoring = fed.evaluating()
        assert set(scoring.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}
        assert set(scoring.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}
        scoring.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
        after = codec.decode(codec.encode(fed.save()))
        assert fed.traffic.total() == total
        assert [after[key] for key in ("asks", "versions", "holdings")] == [
            before[key] for key in ("asks", "versions", "holdings")
        ]
        memories = [each["transport"]["memories"] for each in (before, after)]
        assert codec.encode(memories[0]) == codec.encode(memories[1])
        # Not counted as sent, so the next ask sends everything.
        fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
        assert fed.traffic.total("down", "train") == 3 * 408
        assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


def test_test_examples_are_for_the_evaluation_of_the_run_only(wired, model):
    fed, wire = wired()
    for server in (fed, fed.evaluating(), fed.placing(), fed.on(fed.task)):
        with pytest.raises(SpecError, match="test examples, which only the run's evaluation may use"):
            server.ask(SOME, score, Seed(0), part="test", params=model)
    assert wire.requests == []
    assert fed.scoring().ask(SOME, score, Seed(0), part="test", params=model).clients == tuple(SOME)


def test_a_gradient_does_not_train_so_evaluation_may_ask_for_it(wired, model):
    fed, _ = wired()
    assert fed.evaluating().ask(SOME, gradient, Seed(0), params=model).clients == tuple(SOME)


def test_answers_of_no_client_have_the_declared_shape(wired, bank):
    fed = wired()[0].evaluating(exchange=False)
    got = fed.ask(SOME, losses_of, Seed(0), centers=bank)
    assert got["losses"].shape == (0, tree.rows(bank))
    assert got["losses"].argmin(axis=1).tolist() == []
    assert fed.ask(SOME, label_counts, Seed(0))["counts"].shape == (0, 3)  # one number per class


def test_a_server_without_exchange_reaches_no_client(wired, bank):
    fed, wire = wired()
    got = fed.evaluating(exchange=False).ask(SOME, losses_of, Seed(0), centers=bank)
    assert got.clients == ()
    assert got["losses"].shape == (0, tree.rows(bank))
    assert wire.requests == []
    assert fed.traffic.by_purpose() == {}


def test_evaluation_never_trains(wired, model):
    fed, wire = wired()
    got = fed.evaluating().ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.clients == ()
    assert got.lost == dict.fromkeys(SOME, "no reply")
    assert wire.requests == []
    assert fed.traffic.by_purpose() == {}


@pytest.mark.parametrize("backend", ["sequential", "vectorized"])
@pytest.mark.parametrize("part", ["fit", "held", "test"])
def test_a_work_with_after_gets_the_model_of_the_first_work(wired, model, backend, part):
    fed, _ = wired(backend)
    cohort = Cohort(0, SOME, Seed(0), fed.clients, {"1": 0.3})
    local = dataclasses.replace(LOCAL, epochs=5)
    server = fed.scoring() if part == "test" else fed
    got = server.ask(cohort, score, Seed(3), part=part, after=Adapt(fit, {"start": model, "local": local}))
    up = fed.traffic.by_purpose()
    # The adapted model is not sent up: two numbers of 4 bytes per client.
    expected = {"evaluate": 3 * 8} if part == "test" else {"train": 0, "control": 3 * 8}
    assert {purpose: row["up"] for purpose, row in up.items()} == expected
    trained = fed.ask(cohort, fit, Seed(3), start=model, local=local)
    assert trained.by_client("steps") == {"0": 20, "1": 8, "2": 20}  # 4 batches of 8; 1 + ⌊0.3·4⌋ = 2 of 5 epochs
    row = {client: place for place, client in enumerate(SOME)}
    by_hand = server.ask(SOME, score, Seed(3), part=part, params=PerClient(trained["params"], row))
    assert np.array_equal(got["correct"], by_hand["correct"])
    np.testing.assert_allclose(got["loss"], by_hand["loss"], rtol=1e-6)
    assert got.samples.tolist() == by_hand.samples.tolist()


@pytest.mark.parametrize("backend", ["sequential", "vectorized"])
def test_another_task_shares_traffic_and_memories(wired, model, count, backend):
    fed, _ = wired(backend)
    light = mlp(fed.task.shape, fed.task.classes, widths=(2,), normalize=Normalize(0.0, 255.0))
    other = fed.on(light)
    assert other.task is light
    assert other.clients == fed.clients
    w = light.init(Seed(0))
    got = other.ask(SOME, fit, Seed(0), start=w, local=LOCAL)
    assert got["params"]["dense0"]["kernel"].shape == (3, 2, 16)
    # 16·2 + 2 + 2·3 + 3 = 43 numbers of 4 bytes.
    assert fed.traffic.total("up", "train") == 3 * 43 * 4
    check_error(other, "has the arrays", SOME, fit, start=model, local=LOCAL)
    assert set(other.ask(SOME, count, Seed(0)).by_client("n").values()) == {1}
    assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


def test_a_reply_does_not_depend_on_the_other_clients_of_the_ask(wired, model):
    fed, _ = wired("vectorized")
    alone = fed.ask(("4",), fit, Seed(0), start=model, local=LOCAL)
    among = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL)
    assert tree.same(alone.by_client("params")["4"], among.by_client("params")["4"])


def test_replies_without_reduce_have_no_means(wired):
    fed, _ = wired()
    got = fed.ask(SOME, label_counts, Seed(0))
    assert len(got) == 3
    with pytest.raises(ValueError, match=r"not averaged: ask with reduce=Mean\(\.\.\.\)"):
        got.means()


def test_a_partial_model_cannot_be_averaged(wired):
    partial = Work("tests.partial", takes={}, gives={"params": Model(partial=True)}, plain=_open, trains=False)
    fed, _ = wired()
    check_error(fed, "Work 'tests.partial' gives no model 'params' to average", SOME, partial, reduce=Mean())
