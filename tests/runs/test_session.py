"""A method at play: skipped rounds, stages, scores, and stopping in between."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

import numpy as np
import pytest

from coterie import codec, tree
from coterie.clients import Client, LocalSGD, Values, Work, fit
from coterie.codec import state as plain
from coterie.data.federated import Index
from coterie.errors import Diverged, TooFewReplies
from coterie.federation import Adapt, Mean, PerClient, Sequential, Server
from coterie.methods.fedavg import FedAvg
from coterie.methods.ifca import IFCA
from coterie.methods.protocol import Placement, Round
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)


class Deaf:
    """A carrier whose replies to works of some names are lost while `deaf` names them."""

    def __init__(self, transport):
        self.transport, self.deaf = transport, ()
        self.clients, self.task = transport.clients, transport.task
        self.on, self.set_data, self.save, self.load = transport.on, transport.set_data, transport.save, transport.load

    def send(self, request):
        for batch in self.transport.send(request):
            if request.evaluating or request.work.name not in self.deaf:
                yield batch


def playing(method, size=5, seed=0, **options):
    transport = Deaf(Sequential(tiny_data(), tiny_task()))
    sampler = Sampler(transport.clients, size, Seed(seed), **options)
    return Session(method, Server(transport), Seed(seed), sampler), transport


# ------------------------------------------------------------------------------------------------------- skipped rounds


def test_a_skipped_round_leaves_the_state_and_counts_as_a_round():
    session, transport = playing(FedAvg(LOCAL))
    session.step()
    before, state, sent = codec.encode(session.state), session.state, session.traffic.total("down")
    transport.deaf = ("fit",)
    step = session.step()
    assert step.round is None
    assert step.skipped == "0 of 5 clients replied to 'fit'; the minimum is 1"
    assert (step.t, step.stage, session.t) == (1, "train", 2)
    assert session.state is state
    assert codec.encode(session.state) == before
    assert session.traffic.total("down") == 2 * sent  # its bytes were sent all the same
    transport.deaf = ()
    after = session.step()
    assert after.t == 2
    assert after.skipped is None
    assert codec.encode(session.state) != before


@dataclass(frozen=True)
class Counting(FedAvg):
    """Counts its rounds, those that nobody answers too."""

    def start(self, task, seed):
        return {"w": super().start(task, seed), "rounds": 0}

    def round(self, now, fed, cohort, seed):
        counted = {**now, "rounds": now["rounds"] + 1}
        try:
            return Round({**counted, "w": super().round(now["w"], fed, cohort, seed).state})
        except TooFewReplies as fault:
            return Round(counted, skipped=str(fault))


def test_a_method_may_count_a_round_that_nobody_answers():
    session, transport = playing(Counting(LOCAL))
    transport.deaf = ("fit",)
    step = session.step()
    assert step.skipped == step.round.skipped == "0 of 5 clients replied to 'fit'; the minimum is 1"
    assert session.state["rounds"] == 1
    transport.deaf = ()
    assert session.step().skipped is None


def test_the_round_after_a_skipped_one_is_the_same_as_after_none():
    # Its cohort and its seeds depend on its number alone.
    skipping, transport = playing(FedAvg(LOCAL))
    transport.deaf = ("fit",)
    skipping.step()
    transport.deaf = ()
    plain_play, _ = playing(FedAvg(LOCAL))
    plain_play.t = 1
    assert skipping.step().cohort == plain_play.step().cohort
    assert codec.encode(skipping.state) == codec.encode(plain_play.state)


def _counts(task, x, y):
    import jax.numpy as jnp

    return {"counts": (y[:, None] == jnp.arange(task.classes)).astype(jnp.float32)}


def _notice(task, client: Client):
    import jax.numpy as jnp

    now, then = client.sums["counts"], client.memory["counts"]
    changed = (then[0] >= 0) & (jnp.abs(now - then).sum() > 0)
    return {"changed": changed.astype(jnp.int32), "memory": {"counts": now}}


NOTICE = Work(
    "tests.notice",
    takes={},
    gives={"changed": Values("int32")},
    each=_counts,
    body=_notice,
    memory="tests.labels",
    blank=lambda task: {"counts": np.full(task.classes, -1.0, np.float32)},
)


@dataclass(frozen=True)
class Watcher:
    """Asks who has changed, twice; then trains. Its state is who ever told it so."""

    def start(self, task, seed):
        return ()

    def stage(self, now):
        return "train"

    def round(self, now, fed, cohort, seed):
        everyone = cohort.of(cohort.available)
        found = set(now)
        for _ in range(2):
            got = fed.ask(everyone, NOTICE, seed).by_client("changed")
            found |= {client for client, changed in got.items() if changed}
        w = fed.task.init(Seed(0))
        fed.ask(cohort, fit, seed, start=w, local=LOCAL, reduce=Mean())
        return Round(tuple(sorted(found)))

    def place(self, now, fed, clients, seed):
        return Placement(tree.stack([fed.task.init(Seed(0))]), dict.fromkeys(clients, 0))


def test_a_shift_noticed_in_a_skipped_round_is_noticed_again():
    session, transport = playing(Watcher())
    session.step()
    data = tiny_data()
    lists = [data.fit.of(place) for place in range(10)]
    lists[3], lists[4] = lists[4], lists[3]
    assert not np.array_equal(data.label_counts()[3], data.label_counts()[4])
    transport.set_data(data.rearranged(fit=Index.from_lists(lists)))
    transport.deaf = ("fit",)  # the clients' notices arrive, and the round fails after that
    assert session.step().skipped is not None
    assert session.state == ()
    transport.deaf = ()
    assert session.step().skipped is None
    assert session.state == ("3", "4")


# ---------------------------------------------------------------------------------------------------------- divergence


def test_a_run_whose_replies_are_not_finite_stops_and_names_round_and_clients():
    session, _ = playing(FedAvg(dataclasses.replace(LOCAL, learning_rate=1e38, momentum=0.9, epochs=5)), size=3)
    who = ", ".join(session._sampler.cohort(0))
    text = f"Round 0: 3 of 3 replies to 'fit' are not finite ({who}); lower the learning rate or check the data of "
    with pytest.raises(Diverged, match=re.escape(text)):
        session.step()


@dataclass(frozen=True)
class Divides:
    """Divides by zero on the server, in its second round."""

    def start(self, task, seed):
        return {"w": np.ones(2, np.float32)}

    def stage(self, now):
        return "train"

    def round(self, now, fed, cohort, seed):
        return Round({"w": now["w"] * np.float32(np.nan if cohort.t else 1)})


def test_a_state_that_is_not_finite_stops_the_run_and_is_not_taken_over():
    session, _ = playing(Divides(), size=6)
    session.step()
    names = ", ".join(session._sampler.cohort(1).clients[:5])
    text = f"Round 1: the new models are not finite; lower the learning rate. Trained by {names} and others"
    with pytest.raises(Diverged, match=re.escape(text)):
        session.step()
    assert session.state["w"].tolist() == [1.0, 1.0]
    assert session.t == 1


# -------------------------------------------------------------------------------------------------------------- stages


@plain
@dataclass(frozen=True)
class Steps:
    seen: tuple = ()


@dataclass(frozen=True)
class Staged:
    """Prepares twice, plays three rounds, and is done; its state is what it saw of them."""

    asks: bool = field(default=False)

    def start(self, task, seed):
        return Steps()

    def stage(self, now):
        return "prepare" if len(now.seen) < 2 else "train" if len(now.seen) < 5 else "done"

    def round(self, now, fed, cohort, seed):
        if self.asks:
            fed.ask(cohort, fit, seed, start=fed.task.init(Seed(0)), local=LOCAL, reduce=Mean())
        return Round(Steps((*now.seen, (cohort.t, len(cohort), str(seed.value)))))


def test_preparing_is_for_everyone_and_counts_no_rounds():
    session, _ = playing(Staged())
    steps = []
    while session.stage != "done":
        steps.append(session.step())
    assert [(step.t, step.stage) for step in steps] == [
        (-1, "prepare"),
        (-1, "prepare"),
        (0, "train"),
        (1, "train"),
        (2, "train"),
    ]
    assert [(t, many) for t, many, _ in session.state.seen] == [(-1, 10), (-1, 10), (0, 5), (1, 5), (2, 5)]
    assert len({seed for _, _, seed in session.state.seen}) == 5  # each step draws from a seed of its own
    assert (session.prepared, session.t) == (2, 3)


def test_a_skipped_step_of_preparing_is_tried_again_with_another_seed():
    session, transport = playing(Staged(asks=True))
    transport.deaf = ("fit",)
    first = session.step()
    assert (first.stage, first.skipped is not None, session.stage) == ("prepare", True, "prepare")
    transport.deaf = ()
    second = session.step()
    assert second.cohort.seed != first.cohort.seed
    assert len(session.state.seen) == 1


# -------------------------------------------------------------------------------------------------------------- scoring


@dataclass(frozen=True)
class Serves:
    """Serves one fixed model to those whose number is below `some`; or asks them to train first."""

    some: int = 10
    trains: bool = False
    adapts: bool = False

    def start(self, task, seed):
        return task.init(seed)

    def stage(self, now):
        return "train"

    def round(self, now, fed, cohort, seed):
        return Round(now)

    def place(self, now, fed, clients, seed):
        row = {client: 0 for client in clients if int(client) < self.some}
        if self.trains:
            got = fed.ask(clients, fit, seed, start=now, local=LOCAL)
            return Placement(got["params"], {client: place for place, client in enumerate(got.clients)})
        adapt = Adapt(fit, {"start": now, "local": LOCAL}) if self.adapts else None
        return Placement(tree.stack([now]), row, adapt)


def test_scores_are_those_of_the_model_served_on_each_clients_test_examples():
    session, _ = playing(Serves())
    scores = session.evaluate()
    assert scores.clients == tiny_data().clients
    assert scores.coverage == 1.0
    assert scores.rows.tolist() == [0] * 10
    for place, client in enumerate(scores.clients):
        x, y = tiny_data().examples(client, "test")
        logits = x.reshape(len(y), -1) / np.float32(255) @ session.state["dense0"]["kernel"].T
        assert scores.total[place] == len(y)
        assert scores.correct[place] == (logits.argmax(axis=1) == y).sum()
        # The sum of the cross-entropies.
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]
        np.testing.assert_allclose(scores.loss[place], losses.sum(), rtol=1e-5)


def test_those_who_have_no_model_lower_the_coverage():
    session, _ = playing(Serves(some=4))
    scores = session.evaluate()
    assert scores.clients == ("0", "1", "2", "3")
    assert scores.coverage == 0.4
    assert session.evaluate(("3", "4")).coverage == 0.5
    assert session.evaluate(("3", "4")).clients == ("3",)
    assert session.evaluate(("8", "9")).coverage == 0.0
    assert session.evaluate(()).coverage == 0.0


def test_nobody_trains_to_be_placed_for_scoring_but_newcomers_are_placed_whatever_it_costs():
    session, _ = playing(Serves(trains=True))
    scores = session.evaluate()
    assert scores.coverage == 0.0
    assert len(scores.correct) == 0
    assert session.traffic.total() == 0
    assert set(session.place(("8", "9")).row) == {"8", "9"}
    assert session.traffic.total("up", "train") == 2 * 204


def test_a_newcomer_whose_placing_is_lost_waits_and_the_run_goes_on():
    session, transport = playing(Serves(trains=True), late={"8": 1, "9": 2})
    session.step()
    transport.deaf = ("fit",)
    welcome = session.welcome()
    assert welcome.scores.clients == ()
    assert welcome.scores.coverage == 0.0
    assert welcome.bytes["down"] > 0
    transport.deaf = ()
    session.step()
    assert session.welcome().scores.clients == ("9",)


def test_adapted_models_are_scored_not_those_of_the_bank():
    session, _ = playing(Serves(adapts=True))
    adapted, served = session.evaluate(), playing(Serves())[0].evaluate()
    assert adapted.clients == served.clients
    assert (adapted.loss < served.loss).all()
    assert session.traffic.total() == 0


@pytest.mark.parametrize("method", [FedAvg(LOCAL), IFCA(LOCAL, clusters=2)], ids=["fedavg", "ifca"])
def test_scoring_leaves_no_trace_but_its_own_bytes(method):
    scored, _ = playing(method)
    unscored, _ = playing(method)
    for _ in range(2):
        scored.step()
        scored.evaluate()
        scored.evaluate(("1", "2"))
        unscored.step()
    assert codec.encode(scored.state) == codec.encode(unscored.state)
    assert scored.traffic.total() == unscored.traffic.total()
    purposes = scored.traffic.by_purpose()
    assert purposes.pop("evaluate")["down"] > 0
    assert purposes == unscored.traffic.by_purpose()


def test_scores_of_one_state_are_the_same_every_time():
    session, _ = playing(IFCA(LOCAL, clusters=2))
    session.step()
    one, other = session.evaluate(), session.evaluate()
    assert np.array_equal(one.loss, other.loss)
    assert one.placement.row == other.placement.row


# ----------------------------------------------------------------------------------------------------- stopping between


def test_a_run_goes_on_from_its_bytes_as_it_would_have_without():
    method = Staged(asks=True)
    whole, _ = playing(method)
    for stop in range(5):
        stopped, _ = playing(method)
        for _ in range(stop):
            stopped.step()
        resumed, _ = playing(method)
        resumed.load(codec.decode(stopped.save()))
        assert (resumed.t, resumed.prepared, resumed.state) == (stopped.t, stopped.prepared, stopped.state)
        while resumed.stage != "done":
            resumed.step()
        while whole.stage != "done":
            whole.step()
        assert resumed.save() == whole.save()


def test_an_unheard_of_row_in_a_placement_is_an_error_not_a_score():
    @dataclass(frozen=True)
    class Strange(Serves):
        def place(self, now, fed, clients, seed):
            return Placement(tree.stack([now]), dict.fromkeys(clients, 1))

    session, _ = playing(Strange())
    with pytest.raises(Exception, match="has rows 0 to 0, got rows 1 to 1"):
        session.evaluate()


def test_what_a_method_is_handed_by_row_reaches_the_client():
    session, transport = playing(Serves())
    fed = Server(transport)
    bank = tree.stack([session.state, tiny_task().init(Seed(9))])
    got = fed.ask(
        ("0", "1"),
        fit,
        Seed(0),
        start=PerClient(bank, {"0": 1, "1": 0}),
        local=dataclasses.replace(LOCAL, learning_rate=0.0),
    )
    assert tree.same(got["params"], tree.take(bank, [1, 0]))  # a rate of 0 gives back what was received
