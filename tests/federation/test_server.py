"""The server's half of an ask: what may be sent, and which replies count."""

from __future__ import annotations

import dataclasses
import logging
import re

import numpy as np
import pytest

from coterie import tree
from coterie.clients import LocalSGD, fit, label_counts, losses_of, score
from coterie.clients.closest import fit_closest
from coterie.clients.schema import Model, Values
from coterie.clients.work import Work
from coterie.errors import DataError, Diverged, SpecError, TooFewReplies
from coterie.federation import Adapt, Cached, Cohort, Mean, PerClient
from coterie.models import Normalize, mlp
from coterie.seeds import Seed

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
SOME = ("0", "1", "2")


# ---------------------------------------------------------------------------------------------------- what may be sent


def check_refused(fed, text, *args, **sent):
    with pytest.raises(SpecError, match=re.escape(text)):
        fed.ask(*args, Seed(0), **sent)


def test_names_are_those_that_the_work_takes(wired, model):
    fed, _ = wired()
    text = "Work 'fit' takes ['local', 'start'], was sent "
    check_refused(fed, text + "['local', 'strat']", SOME, fit, strat=model, local=LOCAL)
    check_refused(fed, text + "['start']", SOME, fit, start=model)
    after = Adapt(fit, {"start": model, "local": LOCAL})
    check_refused(fed, "takes [], was sent ['params']", SOME, score, params=model, after=after)


def test_what_is_sent_has_the_shape_and_type_that_the_work_takes(wired, model, bank):
    fed, _ = wired()
    what = "Work 'fit': what was sent as "
    narrow = {"dense0": {**model["dense0"], "kernel": model["dense0"]["kernel"][:, :15]}}
    shape = what + "'start' dense0/kernel has shape (3, 15), not (3, 16)"
    check_refused(fed, shape, SOME, fit, start=narrow, local=LOCAL)
    check_refused(fed, shape, SOME, fit, start=Cached(narrow), local=LOCAL)
    check_refused(fed, shape, SOME, fit, start=PerClient(tree.stack([narrow]), dict.fromkeys(SOME, 0)), local=LOCAL)
    check_refused(fed, shape, SOME, score, after=Adapt(fit, {"start": narrow, "local": LOCAL}))
    wide = tree.map(lambda leaf: leaf.astype(np.float64), model)
    check_refused(fed, "dense0/bias has dtype float64, not float32", SOME, fit, start=wide, local=LOCAL)
    check_refused(fed, "has the arrays ['w'], the model has", SOME, fit, start={"w": np.zeros(3)}, local=LOCAL)
    check_refused(fed, what + "'local' is a float, not LocalSGD", SOME, fit, start=model, local=0.1)
    check_refused(fed, "'start' dense0/bias has shape (2, 3), not (3,)", SOME, fit, start=bank, local=LOCAL)


def test_one_name_of_a_dimension_is_one_number_in_a_message(wired):
    fed, _ = wired()
    pair = Work(
        "tests.pair",
        takes={"a": Values("float32", ("k",)), "b": Values("float32", ("k", "k"))},
        gives={"c": Values("float32", ("k",))},
        body=_pair,
    )
    two, three = np.ones(2, np.float32), np.ones((3, 3), np.float32)
    check_refused(fed, "'b' has shape (3, 3), not ('k', 'k') with k = 2", SOME, pair, a=two, b=three)
    assert fed.ask(SOME, pair, Seed(0), a=two, b=three[:2, :2])["c"].tolist() == [[2.0, 2.0]] * 3


def _pair(task, client, *, a, b):
    return {"c": b @ a}


def test_settings_go_to_all_alike(wired, model):
    fed, _ = wired()
    text = "Work 'fit': 'local' are settings, which go to all alike; send them bare"
    check_refused(fed, text, SOME, fit, start=model, local=Cached(LOCAL))
    check_refused(fed, text, SOME, fit, start=model, local=PerClient(LOCAL, dict.fromkeys(SOME, 0)))


def test_every_client_of_an_ask_has_a_row_that_exists(wired, bank):
    fed, _ = wired()
    what = "Work 'fit': 'start' "
    text = what + "was sent by rows, but has none for 1, 2"
    check_refused(fed, text, SOME, fit, start=PerClient(bank, {"0": 0}), local=LOCAL)
    for row in (2, -1):
        text = what + f"has rows 0 to 1, was asked for {min(row, 0)} to {max(row, 0)}"
        check_refused(fed, text, SOME, fit, start=PerClient(bank, {"0": 0, "1": 0, "2": row}), local=LOCAL)
    uneven = {"dense0": {**bank["dense0"], "bias": np.zeros((3, 3), np.float32)}}
    text = what + "is no stack: its arrays hold 2, 3 rows"
    check_refused(fed, text, SOME, fit, start=PerClient(uneven, dict.fromkeys(SOME, 0)), local=LOCAL)


def test_a_part_is_one_that_clients_have(wired, model):
    fed, _ = wired()
    check_refused(fed, "No part 'tset'. Did you mean 'test'? Known: ", SOME, score, params=model, part="tset")


def test_what_is_reduced_is_a_model_and_the_groups_exist(wired, model, bank):
    fed, _ = wired()
    sent = {"start": model, "local": LOCAL}
    for of in ("loss", "nothing"):
        text = f"Work 'fit' gives no model {of!r} to reduce"
        check_refused(fed, text, SOME, fit, **sent, reduce=Mean(of))
    for by in ("loss", "nothing"):
        text = f"Work 'fit' gives no whole number {by!r} to group by"
        check_refused(fed, text, SOME, fit, **sent, reduce=Mean(by=by))
    text = "Work 'fit' is reduced to groups 0 to 1, but 1, 2 are in none"
    check_refused(fed, text, SOME, fit, **sent, reduce=Mean(groups=2, by={"0": 1, "1": 2}))


def test_nobody_is_asked_who_does_not_exist(wired, model):
    for kind in ("sequential", "vectorized"):
        fed, _ = wired(kind)
        with pytest.raises(DataError, match="No client '10'"):
            fed.ask(["10"], fit, Seed(0), start=model, local=LOCAL)


def test_an_ask_of_nobody_has_no_replies_and_costs_nothing(wired, model):
    for kind in ("sequential", "vectorized"):
        fed, _ = wired(kind)
        got = fed.ask([], fit, Seed(0), start=model, local=LOCAL, reduce=Mean())
        assert len(got) == 0
        assert got.by_client("loss") == {}
        none = fed.ask([], fit, Seed(0), start=model, local=LOCAL)
        assert none.by_client("params") == {}
        assert none["params"]["dense0"]["kernel"].shape == (0, 3, 16)  # a bank of no models
        assert got.means()[1].tolist() == [0.0]
        assert fed.traffic.total() == 0


# -------------------------------------------------------------------------------------------------- which replies count


def only(client, change):
    """A wire's touch that changes the reply of one client."""

    def touch(order, blocks):
        for block in blocks:
            yield from [change(block)] if block.clients == (client,) else [block]

    return touch


def answer(name, change):
    """A change of one answer."""
    return lambda block: dataclasses.replace(block, answers={**block.answers, name: change(block.answers[name])})


def spoil(bank):
    return tree.map(lambda leaf: np.full_like(leaf, np.nan), bank)


def without_loss(block):
    return dataclasses.replace(block, answers={k: v for k, v in block.answers.items() if k != "loss"})


REFUSED = {
    "of another ask": (lambda block: dataclasses.replace(block, order=block.order + 1), "no reply"),
    "not asked": (lambda block: dataclasses.replace(block, clients=("stranger",)), "no reply"),
    "late": (lambda block: dataclasses.replace(block, late=True), None),
    "out of memory": (lambda block: dataclasses.replace(block, problem="out of memory", answers={}), None),
    "not finite": (answer("params", spoil), None),
    "loss has shape (1, 1), not ('replies',)": (answer("loss", lambda loss: loss[:, None]), None),
    "loss has shape (2,), not ('replies',) with replies = 1": (answer("loss", lambda loss: loss.repeat(2)), None),
    "loss has dtype float64, not float32": (answer("loss", lambda loss: loss.astype(np.float64)), None),
    "params dense0/bias has shape (1, 1, 3), not ('replies', 3)": (
        answer("params", lambda bank: tree.map(lambda leaf: leaf[:, None], bank)),
        None,
    ),
    "gives ['params', 'steps'], not ['loss', 'params', 'steps']": (without_loss, None),
    "does not say on how many examples it worked": (
        lambda block: dataclasses.replace(block, samples=-block.samples),
        None,
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
@pytest.mark.parametrize("how", [None, Mean(spread=True)], ids=["each", "reduced"])
def test_a_bad_reply_is_refused_counted_and_logged_with_its_reason(wired, model, caplog, reason, how):
    change, lost = REFUSED[reason]
    fed, wire = wired(touch=only("1", change))
    with caplog.at_level(logging.WARNING, logger="coterie"):
        got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL, reduce=how)
    assert got.clients == ("0", "2")
    assert got.lost == {"1": lost or reason}
    assert fed.refused == {reason: 1}
    who = "stranger" if reason == "not asked" else "1"
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [f"reply of {who} refused: {reason}"]
    wire.touch = lambda order, blocks: blocks
    good = fed.ask(("0", "2"), fit, Seed(0), start=model, local=LOCAL, reduce=how)
    assert tree.same(dict(got.answers), dict(good.answers))
    assert how is None or tree.same(got.mean, good.mean)


def test_a_repeated_reply_counts_once(wired, model, caplog):
    fed, _ = wired(touch=lambda order, blocks: (again for block in blocks for again in (block, block)))
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL, reduce=Mean(weights="uniform"))
    assert got.clients == SOME
    assert got.means()[1].tolist() == [3.0]
    assert got.lost == {}
    assert fed.refused == {"repeated": 3}
    assert sum("repeated" in record.getMessage() for record in caplog.records) == 3


def test_a_client_that_answers_twice_in_one_block_counts_once(wired, model):
    def twice(block):
        return dataclasses.replace(
            block,
            clients=block.clients * 2,
            samples=block.samples.repeat(2),
            answers={name: tree.map(lambda leaf: leaf.repeat(2, axis=0), v) for name, v in block.answers.items()},
        )

    fed, _ = wired(touch=only("1", twice))
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.clients == SOME
    assert fed.refused == {"repeated": 1}


def test_a_good_reply_counts_even_after_a_bad_one_of_the_same_client(wired, model):
    def bad_first(order, blocks):
        for block in blocks:
            yield dataclasses.replace(block, late=True)
            yield block

    fed, _ = wired(touch=bad_first)
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.clients == SOME
    assert got.lost == {}
    assert fed.refused == {"late": 3}


def test_replies_that_come_in_any_order_are_handed_over_by_id(wired, bank):
    fed, wire = wired()
    sorted_ones = fed.ask(SOME, losses_of, Seed(0), centers=bank)
    wire.touch = lambda order, blocks: reversed(list(blocks))
    got = fed.ask(SOME, losses_of, Seed(0), centers=bank)
    assert got.clients == SOME
    assert np.array_equal(got["losses"], sorted_ones["losses"])


def test_a_reply_must_fit_the_dimensions_of_what_was_sent(wired, bank):
    fed, _ = wired(touch=only("1", answer("losses", lambda losses: losses[:, :1])))
    got = fed.ask(SOME, losses_of, Seed(0), centers=bank)
    assert got.clients == ("0", "2")
    assert got.lost["1"] == "losses has shape (1, 1), not ('replies', 'k') with k = 2"


def test_a_dimension_that_the_work_leaves_open_is_the_same_in_all_replies(wired):
    open_work = Work("tests.open", takes={}, gives={"v": Values("float32", ("m",))}, plain=_open)
    fed, _ = wired(touch=only("1", answer("v", lambda v: v[:, :2])))
    got = fed.ask(SOME, open_work, Seed(0))
    assert got.clients == ("0", "2")
    assert got["v"].shape == (2, 3)
    assert got.lost["1"] == "v has shape (1, 2), not ('replies', 'm') with m = 3"


def _open(task, x, y, seed):
    return {"v": np.ones(3, np.float32)}


def test_a_reply_that_names_a_group_that_does_not_exist_is_refused(wired, bank):
    how = Mean(groups=2, by="choice")
    sent = {"base": {}, "heads": bank, "local": LOCAL, "reduce": how}
    for wrong in (2, -1):
        fed, _ = wired(touch=only("1", answer("choice", lambda choice, to=wrong: np.full_like(choice, to))))
        got = fed.ask(SOME, fit_closest, Seed(0), **sent)
        assert got.clients == ("0", "2")
        assert got.lost == {"1": "of no group"}


def test_a_ragged_reply_is_one_list_of_arrays_of_the_declared_type(wired, probe):
    fed, wire = wired()
    good = fed.ask(SOME, probe.class_means, Seed(0))
    cases = {
        "means is not one list of arrays": lambda means: np.zeros((1, 3)),
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


def test_large_numbers_are_finite(wired, model):
    huge = answer("params", lambda bank: tree.map(lambda leaf: np.full_like(leaf, 1e30), bank))
    fed, _ = wired(touch=only("1", huge))
    assert fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL).clients == SOME


def sicken(*clients):
    def touch(order, blocks):
        for block in blocks:
            yield answer("params", spoil)(block) if block.clients[0] in clients else block

    return touch


def test_the_run_stops_where_more_than_half_of_the_replies_are_not_finite(wired, model):
    fed, wire = wired(touch=sicken("0", "1"))
    # 2 of 4 is half, not more.
    assert fed.ask(("0", "1", "2", "3"), fit, Seed(0), start=model, local=LOCAL).clients == ("2", "3")
    text = "2 of 3 replies to 'fit' are not finite (0, 1); lower the rate or look at their data"
    with pytest.raises(Diverged, match=re.escape(text)):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    wire.touch = sicken(*fed.clients[:7])
    with pytest.raises(Diverged, match=r"7 of 10 .* \(0, 1, 2, 3, 4 and 2 more\)"):
        fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL)


def test_an_ask_that_nobody_answers_is_too_few(wired, model, lose):
    fed, _ = wired(touch=lose({1: "*"}))
    with pytest.raises(TooFewReplies, match="0 of 3 clients replied to 'fit'; the minimum is 1"):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)


def test_how_many_are_needed_is_the_desks_to_say_but_never_more_than_were_asked(wired, model, lose):
    fed, _ = wired(touch=lose({1: "1", 2: "1"}), min_replies=3)
    with pytest.raises(TooFewReplies, match="2 of 3 clients replied to 'fit'; the minimum is 3"):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert fed.ask(("2", "3"), fit, Seed(0), start=model, local=LOCAL).clients == ("2", "3")


def test_an_ask_says_itself_how_many_it_needs_where_that_is_not_the_desks_number(wired, model, lose):
    fed, _ = wired(touch=lose({1: "1", 2: "*", 3: "*"}), min_replies=2)
    with pytest.raises(TooFewReplies, match="2 of 3 clients replied to 'fit'; the minimum is 3"):
        fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL, min_replies=3)
    got = fed.ask(("1",), fit, Seed(0), start=model, local=LOCAL, min_replies=0)
    assert got.clients == ()
    assert got.lost == {"1": "no reply"}
    assert got.by_client("params") == {}
    with pytest.raises(TooFewReplies, match="0 of 1 clients replied to 'fit'; the minimum is 2"):
        fed.ask(("1",), fit, Seed(0), start=model, local=LOCAL)


def test_an_ask_that_may_come_back_empty_survives_replies_that_are_not_finite(wired, model):
    # One sick client is all of such an ask: it says nothing about the others. To be scored, it does.
    fed, _ = wired(touch=sicken("0"))
    got = fed.ask(("0",), fit, Seed(0), start=model, local=LOCAL, min_replies=0)
    assert got.lost == {"0": "not finite"}
    assert fed.refused == {"not finite": 1}
    with pytest.raises(Diverged, match="1 of 1 replies"):
        fed.ask(("0",), fit, Seed(0), start=model, local=LOCAL)


def test_who_is_lost_while_placing_is_not_placed_and_the_bytes_count(wired, model, lose):
    fed, _ = wired(touch=lose({1: "*", 2: "1"}), min_replies=3)
    assert fed.placing().ask(SOME, fit, Seed(0), start=model, local=LOCAL).clients == ()
    assert fed.placing().ask(SOME, fit, Seed(0), start=model, local=LOCAL).clients == ("0", "2")
    assert fed.traffic.total("down", "train") == 2 * 3 * tree.nbytes(model)


def test_lost_names_who_gave_no_good_answer_and_why(wired, model):
    def touch(order, blocks):
        for block in blocks:
            if block.clients == ("1",):
                yield dataclasses.replace(block, late=True)
            elif block.clients != ("2",):
                yield block

    fed, _ = wired(touch=touch)
    got = fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.lost == {"1": "late", "2": "no reply"}


# ------------------------------------------------------------------------------------------------- scoring, other tasks


def test_evaluating_leaves_holdings_versions_memories_and_totals_alone(wired, bank, count):
    for kind in ("sequential", "vectorized"):
        fed, _ = wired(kind)
        fed.ask(SOME, count, Seed(0))
        before = fed.save()
        total = fed.traffic.total()
        scoring = fed.evaluating()
        assert set(scoring.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}
        assert set(scoring.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}
        scoring.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
        after = fed.save()
        assert fed.traffic.total() == total
        assert [after[key] for key in ("asks", "versions", "holdings")] == [
            before[key] for key in ("asks", "versions", "holdings")
        ]
        assert after["transport"]["memories"] == before["transport"]["memories"]
        # Not counted as sent, so the next ask sends all of it.
        fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
        assert fed.traffic.total("down", "train") == 3 * 408
        assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


def test_nobody_trains_to_be_scored(wired, model):
    fed, wire = wired()
    got = fed.evaluating().ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert got.clients == ()
    assert got.lost == dict.fromkeys(SOME, "no reply")
    assert wire.orders == []
    assert fed.traffic.by_purpose() == {}


@pytest.mark.parametrize("kind", ["sequential", "vectorized"])
@pytest.mark.parametrize("part", ["fit", "held", "test"])
def test_a_work_after_another_gets_its_model_as_if_both_were_asked_by_hand(wired, model, kind, part):
    fed, _ = wired(kind)
    cohort = Cohort(0, SOME, Seed(0), fed.clients, {"1": 0.3})
    local = dataclasses.replace(LOCAL, epochs=5)
    got = fed.ask(cohort, score, Seed(3), part=part, after=Adapt(fit, {"start": model, "local": local}))
    up = fed.traffic.by_purpose()
    # Nothing of the adapted model goes up: two numbers of 4 bytes a client.
    assert {purpose: row["up"] for purpose, row in up.items()} == {"train": 0, "control": 3 * 8}
    trained = fed.ask(cohort, fit, Seed(3), start=model, local=local)
    assert trained.by_client("steps") == {"0": 20, "1": 8, "2": 20}  # 4 batches of 8; 1 + ⌊0.3·4⌋ = 2 of 5 epochs
    row = {client: place for place, client in enumerate(SOME)}
    by_hand = fed.ask(SOME, score, Seed(3), part=part, params=PerClient(trained["params"], row))
    assert np.array_equal(got["correct"], by_hand["correct"])
    np.testing.assert_allclose(got["loss"], by_hand["loss"], rtol=1e-6)
    assert got.samples.tolist() == by_hand.samples.tolist()


@pytest.mark.parametrize("kind", ["sequential", "vectorized"])
def test_the_same_clients_with_another_task_share_the_account(wired, model, count, kind):
    fed, _ = wired(kind)
    light = mlp(fed.task.shape, fed.task.classes, widths=(2,), normalize=Normalize(0.0, 255.0))
    other = fed.on(light)
    assert other.task is light
    assert other.clients == fed.clients
    w = light.init(Seed(0))
    got = other.ask(SOME, fit, Seed(0), start=w, local=LOCAL)
    assert got["params"]["dense0"]["kernel"].shape == (3, 2, 16)
    # 16·2 + 2 + 2·3 + 3 = 43 numbers of 4 bytes.
    assert fed.traffic.total("up", "train") == 3 * 43 * 4
    check_refused(other, "has the arrays", SOME, fit, start=model, local=LOCAL)
    assert set(other.ask(SOME, count, Seed(0)).by_client("n").values()) == {1}
    assert set(fed.ask(SOME, count, Seed(0)).by_client("n").values()) == {2}


def test_an_ask_by_seed_and_name_does_not_depend_on_who_else_is_asked(wired, model):
    fed, _ = wired("vectorized")
    alone = fed.ask(("4",), fit, Seed(0), start=model, local=LOCAL)
    among = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL)
    assert tree.same(alone.by_client("params")["4"], among.by_client("params")["4"])


def test_replies_without_reduction_have_no_means(wired):
    fed, _ = wired()
    got = fed.ask(SOME, label_counts, Seed(0))
    assert len(got) == 3
    with pytest.raises(ValueError, match=r"not reduced: ask with reduce=Mean\(\.\.\.\)"):
        got.means()


def test_a_partial_model_cannot_be_reduced(wired):
    partial = Work("tests.partial", takes={}, gives={"params": Model(partial=True)}, plain=_open)
    fed, _ = wired()
    check_refused(fed, "Work 'tests.partial' gives no model 'params' to reduce", SOME, partial, reduce=Mean())
