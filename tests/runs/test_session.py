"""Sessions: skipped rounds, stages, evaluation, saving and restoring."""

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
from coterie.errors import Diverged, MethodError, TooFewReplies
from coterie.federation import Adapt, Mean, PerClient, Sequential, Server
from coterie.methods.fedavg import FedAvg, one_model
from coterie.methods.ifca import IFCA
from coterie.methods.protocol import Placement, Round
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)


class Losing:
    """A transport that loses the replies to the works named in `lost`."""

    def __init__(self, transport):
        self.transport, self.lost = transport, ()
        self.clients, self.task, self.outlives_server = transport.clients, transport.task, False
        self.on, self.set_data, self.save, self.load = transport.on, transport.set_data, transport.save, transport.load

    def send(self, request):
        for batch in self.transport.send(request):
            if request.evaluating or request.work.name not in self.lost:
                yield batch


def session_of(method, size=5, seed=0, **options):
    transport = Losing(Sequential(tiny_data(), tiny_task()))
    sampler = Sampler(transport.clients, size, Seed(seed), **options)
    return Session(method, Server(transport), Seed(seed), sampler), transport


# ------------------------------------------------------------------------------------------------------- skipped rounds


def test_a_skipped_round_leaves_the_state_and_counts_as_a_round():
    session, transport = session_of(FedAvg(LOCAL))
    session.step()
    before, state, sent = codec.encode(session.state), session.state, session.traffic.total("down")
    transport.lost = ("fit",)
    step = session.step()
    assert step.round is None
    assert step.skipped == "0 of 5 clients replied to 'fit'; the minimum is 1"
    assert (step.t, step.stage, session.t) == (1, "train", 2)
    assert session.state is state
    assert codec.encode(session.state) == before
    assert session.traffic.total("down") == 2 * sent  # its bytes were sent
    transport.lost = ()
    after = session.step()
    assert after.t == 2
    assert after.skipped is None
    assert codec.encode(session.state) != before


@dataclass(frozen=True)
class Counting(FedAvg):
    """Counts its rounds, including those without replies."""

    def start(self, task, seed):
        return {"w": super().start(task, seed), "rounds": 0}

    def round(self, now, fed, cohort, seed):
        counted = {**now, "rounds": now["rounds"] + 1}
        try:
            return Round({**counted, "w": super().round(now["w"], fed, cohort, seed).state})
        except TooFewReplies as fault:
            return Round(counted, skipped=str(fault))


def test_a_method_may_keep_state_from_a_skipped_round():
    session, transport = session_of(Counting(LOCAL))
    transport.lost = ("fit",)
    step = session.step()
    assert step.skipped == step.round.skipped == "0 of 5 clients replied to 'fit'; the minimum is 1"
    assert session.state["rounds"] == 1
    transport.lost = ()
    assert session.step().skipped is None


def test_a_skipped_round_does_not_change_later_cohorts_and_seeds():
    # They depend only on the number of the round.
    skipping, transport = session_of(FedAvg(LOCAL))
    transport.lost = ("fit",)
    skipping.step()
    transport.lost = ()
    plain_session, _ = session_of(FedAvg(LOCAL))
    plain_session.t = 1
    assert skipping.step().cohort == plain_session.step().cohort
    assert codec.encode(skipping.state) == codec.encode(plain_session.state)


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
    trains=False,
)


@dataclass(frozen=True)
class Watcher:
    """Asks all clients twice whether their labels changed, then trains. Its state: the clients that did."""

    def start(self, task, seed):
        return ()

    def stage(self, now):
        return "train"

    def round(self, now, fed, cohort, seed):
        available = cohort.of(cohort.available)
        found = set(now)
        for _ in range(2):
            got = fed.ask(available, NOTICE, seed).by_client("changed")
            found |= {client for client, changed in got.items() if changed}
        w = fed.task.init(Seed(0))
        fed.ask(cohort, fit, seed, start=w, local=LOCAL, reduce=Mean())
        return Round(tuple(sorted(found)))

    def place(self, now, fed, clients, seed):
        return now, one_model(fed.task.init(Seed(0)), clients)


def test_a_change_reported_in_a_skipped_round_is_reported_again():
    session, transport = session_of(Watcher())
    session.step()
    data = tiny_data()
    lists = [data.fit.of(place) for place in range(10)]
    lists[3], lists[4] = lists[4], lists[3]
    assert not np.array_equal(data.label_counts()[3], data.label_counts()[4])
    transport.set_data(data.rearranged(fit=Index.from_lists(lists)))
    transport.lost = ("fit",)  # the reports arrive, and the round fails after that
    assert session.step().skipped is not None
    assert session.state == ()
    transport.lost = ()
    assert session.step().skipped is None
    assert session.state == ("3", "4")


# ---------------------------------------------------------------------------------------------------------- divergence


def test_replies_that_are_not_finite_stop_the_run_with_round_and_clients():
    session, _ = session_of(FedAvg(dataclasses.replace(LOCAL, learning_rate=1e38, momentum=0.9, epochs=5)), size=3)
    who = ", ".join(session._sampler.cohort(0))
    text = re.escape(f"Round 1: 3 of 3 replies to 'fit' are not finite ({who}); ") + "lower the (learning )?rate"
    with pytest.raises(Diverged, match=text):
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

    def place(self, now, fed, clients, seed):
        raise AssertionError("these tests do not evaluate")


def test_a_state_that_is_not_finite_stops_the_run_and_is_dropped():
    session, _ = session_of(Divides(), size=6)
    session.step()
    names = ", ".join(session._sampler.cohort(1).clients[:5])
    text = f"Round 2: the new models are not finite; lower the learning rate. Trained by {names} and others"
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
    """Two preparation steps and three rounds; its state: number, cohort size and seed of each step."""

    asks: bool = field(default=False)

    def start(self, task, seed):
        return Steps()

    def stage(self, now):
        return "prepare" if len(now.seen) < 2 else "train" if len(now.seen) < 5 else "done"

    def round(self, now, fed, cohort, seed):
        if self.asks:
            fed.ask(cohort, fit, seed, start=fed.task.init(Seed(0)), local=LOCAL, reduce=Mean())
        return Round(Steps((*now.seen, (cohort.t, len(cohort), str(seed.value)))))

    def place(self, now, fed, clients, seed):
        raise AssertionError("these tests do not evaluate")


def test_preparation_includes_all_clients_and_counts_no_rounds():
    session, _ = session_of(Staged())
    steps = list(session.steps(10))
    assert [(step.t, step.stage) for step in steps] == [
        (-1, "prepare"),
        (-1, "prepare"),
        (0, "train"),
        (1, "train"),
        (2, "train"),
    ]
    assert [(t, size) for t, size, _ in session.state.seen] == [(-1, 10), (-1, 10), (0, 5), (1, 5), (2, 5)]
    assert len({seed for _, _, seed in session.state.seen}) == 5  # each step has its own seed
    assert (session.prepared, session.t) == (2, 3)


def test_steps_end_after_the_given_number_of_rounds_and_can_be_continued():
    session, _ = session_of(Staged())
    assert [step.t for step in session.steps(1)] == [-1, -1, 0]
    assert session.finished(1)
    assert not session.finished(2)
    assert [step.t for step in session.steps(2)] == [1]
    assert list(session.steps(2)) == []


def test_a_session_may_start_from_a_given_state():
    session, _ = session_of(Staged())
    seen = ((-1, 10, ""),) * 2
    sampler = Sampler(session.clients, 5, Seed(0))
    later = Session(Staged(), session._fed, Seed(0), sampler, state=Steps(seen))
    assert [step.stage for step in later.steps(3)] == ["train"] * 3


def test_an_observer_wraps_the_federation_of_rounds_and_placements_but_not_of_evaluations():
    calls = []

    def observe(fed, stage, clients):
        calls.append((stage, tuple(clients)))
        return fed

    transport = Sequential(tiny_data(), tiny_task())
    sampler = Sampler(transport.clients[:5], 5, Seed(0))
    session = Session(FedAvg(LOCAL), Server(transport), Seed(0), sampler, observer=observe)
    session.step()
    session.evaluate()
    session.place(("9",))
    assert calls == [("train", tuple(transport.clients[:5])), ("place", ("9",))]


def test_a_skipped_preparation_step_is_repeated_with_another_seed():
    session, transport = session_of(Staged(asks=True))
    transport.lost = ("fit",)
    first = session.step()
    assert (first.stage, first.skipped is not None, session.stage) == ("prepare", True, "prepare")
    transport.lost = ()
    second = session.step()
    assert second.cohort.seed != first.cohort.seed
    assert len(session.state.seen) == 1


# ----------------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True)
class Serves:
    """Serves one fixed model to the clients with numbers below `some`, or lets them train first."""

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
            trained = {client: place for place, client in enumerate(got.clients)}
            return now, Placement(got["params"], trained, fallback=now)
        adapt = Adapt(fit, {"start": now, "local": LOCAL}) if self.adapts else None
        return now, Placement(tree.stack([now]), row, adapt, fallback=self.fallback(now))

    def fallback(self, now):
        return tree.map(np.zeros_like, now)


def test_clients_are_evaluated_on_their_test_examples_with_the_served_model():
    session, _ = session_of(Serves())
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


@pytest.mark.parametrize("adapts", [False, True])
def test_clients_without_a_model_of_their_own_are_evaluated_with_the_fallback_model(adapts):
    session, _ = session_of(Serves(some=4, adapts=adapts))
    scores = session.evaluate()
    assert scores.clients == tiny_data().clients
    assert scores.coverage == 0.4
    assert scores.rows.tolist() == [0] * 4 + [-1] * 6
    for place in range(4, 10):
        _, y = tiny_data().examples(scores.clients[place], "test")
        # The fallback model is zero: all logits are equal, the first class is predicted, the loss is log(3) each.
        assert scores.total[place] == len(y)
        assert scores.correct[place] == (y == 0).sum()
        np.testing.assert_allclose(scores.loss[place], len(y) * np.log(3), rtol=1e-6)


def test_clients_without_a_model_of_their_own_lower_the_coverage():
    session, _ = session_of(Serves(some=4))
    assert session.evaluate(("3", "4")).coverage == 0.5
    assert session.evaluate(("3", "4")).clients == ("3", "4")
    assert session.evaluate(("8", "9")).coverage == 0.0
    assert session.evaluate(()).coverage == 0.0


def test_evaluation_never_trains_but_placing_newcomers_may():
    session, _ = session_of(Serves(trains=True))
    scores = session.evaluate()
    assert scores.coverage == 0.0
    assert scores.rows.tolist() == [-1] * 10
    assert session.traffic.total() == 0
    assert set(session.place(("8", "9")).row) == {"8", "9"}
    assert session.traffic.total("up", "train") == 2 * 204


def test_the_run_continues_if_the_placement_of_a_newcomer_is_lost():
    session, transport = session_of(Serves(trains=True), late={"8": 1, "9": 2})
    assert session.step().newcomers is None
    transport.lost = ("fit",)
    newcomers = session.step().newcomers
    assert newcomers.scores.clients == ("8",)
    assert newcomers.scores.coverage == 0.0
    assert newcomers.bytes["down"] > 0
    transport.lost = ()
    assert session.step().newcomers.scores.clients == ("9",)


def test_clients_are_evaluated_with_their_adapted_models():
    session, _ = session_of(Serves(adapts=True))
    adapted, served = session.evaluate(), session_of(Serves())[0].evaluate()
    assert adapted.clients == served.clients
    assert (adapted.loss < served.loss).all()
    assert session.traffic.total() == 0


@pytest.mark.parametrize("method", [FedAvg(LOCAL), IFCA(LOCAL, clusters=2)], ids=["fedavg", "ifca"])
def test_evaluation_changes_nothing_but_its_own_traffic(method):
    evaluated, _ = session_of(method)
    not_evaluated, _ = session_of(method)
    for _ in range(2):
        evaluated.step()
        evaluated.evaluate()
        evaluated.evaluate(("1", "2"))
        not_evaluated.step()
    assert codec.encode(evaluated.state) == codec.encode(not_evaluated.state)
    assert evaluated.traffic.total() == not_evaluated.traffic.total()
    purposes = evaluated.traffic.by_purpose()
    assert purposes.pop("evaluate")["down"] > 0
    assert purposes == not_evaluated.traffic.by_purpose()


def test_repeated_evaluations_are_equal():
    session, _ = session_of(IFCA(LOCAL, clusters=2))
    session.step()
    one, other = session.evaluate(), session.evaluate()
    assert np.array_equal(one.loss, other.loss)
    assert one.placement.row == other.placement.row


# ------------------------------------------------------------------------------------------------- saving and restoring


def test_a_restored_session_ends_like_an_uninterrupted_one():
    method = Staged(asks=True)
    whole, _ = session_of(method)
    for stop in range(5):
        stopped, _ = session_of(method)
        for _ in range(stop):
            stopped.step()
        resumed, _ = session_of(method)
        resumed.load(codec.decode(stopped.save()))
        assert (resumed.t, resumed.prepared, resumed.state) == (stopped.t, stopped.prepared, stopped.state)
        while resumed.stage != "done":
            resumed.step()
        while whole.stage != "done":
            whole.step()
        assert resumed.save() == whole.save()


def test_a_placement_with_a_row_outside_the_bank_is_an_error():
    @dataclass(frozen=True)
    class Strange(Serves):
        def place(self, now, fed, clients, seed):
            return now, Placement(tree.stack([now]), dict.fromkeys(clients, 1), fallback=now)

    session, _ = session_of(Strange())
    text = "Placement.row of method Strange serves client '0' row 1; the bank has rows 0 to 0"
    with pytest.raises(MethodError, match=re.escape(text)):
        session.evaluate()


def test_each_client_receives_its_row_of_a_bank():
    session, transport = session_of(Serves())
    fed = Server(transport)
    bank = tree.stack([session.state, tiny_task().init(Seed(9))])
    got = fed.ask(
        ("0", "1"),
        fit,
        Seed(0),
        start=PerClient(bank, {"0": 1, "1": 0}),
        local=dataclasses.replace(LOCAL, learning_rate=0.0),
    )
    assert tree.same(
        got["params"], tree.take(bank, [1, 0])
    )  # with a learning rate of 0 the client returns what it received
