"""Local: every client trains its own model, with its own optimizer, for the set budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import tree
from coterie.clients import LocalSGD
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Cached, Cohort, Replies, Sequential, Server
from coterie.methods.global_model import Global
from coterie.methods.local import Local, State, recall
from coterie.methods.srfca import SRFCA
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])


def own_models(state, fed, clients=None):
    """The model in each client's memory, fetched as scoring does."""
    asked = fed.evaluating().ask(
        fed.clients if clients is None else clients, recall, Seed(0), start=Cached(state.start)
    )
    return asked.by_client("params")


def values(state, fed):
    return {client: float(model["w"]) for client, model in own_models(state, fed).items()}


@pytest.fixture
def one_step(step):
    """Three rounds of one step of rate ½ for each of two clients: a budget of 3 steps."""
    return Local(step(0.5), rounds=3, clients_per_round=2, clients=2)


@pytest.fixture
def losing(numbers, quadratic):
    """`losing({1: "b"}, a=[8], b=[8])`: a federation that loses b's reply to the first ask."""

    class Losing(Sequential):
        def __init__(self, lost, clients):
            super().__init__(numbers(**clients), quadratic)
            self._lost = lost

        def send(self, request):
            gone = () if request.evaluating else self._lost.get(request.id, ())
            return (batch for batch in super().send(request) if batch.clients[0] not in gone)

    return lambda lost, **clients: Server(Losing(lost, clients))


@BOTH
def test_one_client_does_plain_stochastic_gradient_descent(backend, tiny, run_rounds):
    # By hand: batches of two of five examples, in the order of the client's own stream; w ← w - r (w - batch mean).
    held, rate, root = [0.0, 8.0, 3.0, -5.0, 20.0], 0.3, Seed(4)
    fed = tiny(backend=backend, a=held)
    method = Local(LocalSGD(epochs=2, batch_size=2, learning_rate=rate), rounds=2, clients_per_round=1, clients=1)
    state, _ = run_rounds(method, fed, 2, seed=4)
    w = float(state.start["w"])
    for t in range(2):
        for order in root.fold("round", t).fold("batches", "a").permutations(2, 5):
            for first in (0, 2, 4):
                w -= rate * (w - np.mean([held[i] for i in order[first : first + 2]]))
    assert values(state, fed)["a"] == pytest.approx(w, rel=1e-5)


@BOTH
def test_with_one_client_it_is_the_global_model_to_the_bit(backend, blobs, run_rounds):
    fed, _ = blobs(backend=backend, clients=1, clusters=1)
    local = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)
    mine, rounds = run_rounds(Local(local, rounds=3, clients_per_round=1, clients=1), fed, 3)
    shared, shared_rounds = run_rounds(Global(local), fed, 3)
    assert tree.same(own_models(mine, fed)["0"], shared)
    assert [r.loss for r in rounds] == [r.loss for r in shared_rounds]


@BOTH
def test_each_client_converges_to_its_own_minimum(backend, tiny, run_rounds):
    # 60 steps of rate ½: the distance to the client's own minimum shrinks by 2⁻⁶⁰, whatever the data of the others.
    fed = tiny(backend=backend, a=[0], b=[10, 14], c=[-7])
    state, rounds = run_rounds(
        Local(LocalSGD(epochs=20, batch_size=0, learning_rate=0.5), rounds=3, clients_per_round=3, clients=3), fed, 3, 1
    )
    assert values(state, fed) == pytest.approx({"a": 0, "b": 12, "c": -7}, abs=1e-5)
    assert rounds[-1].assignment == {"a": 0, "b": 1, "c": 2}


def test_all_clients_train_in_every_round_whatever_the_cohort(tiny, cohort, one_step):
    # One step of rate ½ from the common start s: (s + x)/2.
    fed = tiny(a=[0], b=[8])
    state = one_step.start(fed.task, Seed(0))
    state = one_step.round(state, fed, cohort(fed, clients="a"), Seed(0)).state
    s = float(state.start["w"])
    assert values(state, fed) == pytest.approx({"a": s / 2, "b": (s + 8) / 2})


def test_stragglers_do_all_their_work(tiny, cohort, step):
    # Four steps of rate ½, also for b: the server does not wait for clients that train alone.
    fed = tiny(a=[8], b=[8])
    method = Local(step(0.5, steps=4), rounds=1, clients_per_round=2, clients=2)
    state = method.start(fed.task, Seed(0))
    state = method.round(state, fed, cohort(fed, efforts={"b": 0.1}), Seed(0)).state
    s = float(state.start["w"])
    assert values(state, fed) == pytest.approx(dict.fromkeys("ab", 8 - (8 - s) / 16))


# The optimizer -------------------------------------------------------------------------------------------------------


@BOTH
def test_momentum_continues_from_round_to_round(backend, tiny, run_rounds, step):
    # With d = w - 8: v = d, d → d/2; then v = d/2 + d/2 and d → d/2 - d/2 = 0. A new optimizer would stop at d/4.
    fed = tiny(backend=backend, a=[8], b=[8])
    method = Local(step(0.5, momentum=0.5), rounds=2, clients_per_round=1, clients=2)
    state, _ = run_rounds(method, fed, 2, size=1)
    assert values(state, fed) == pytest.approx({"a": 8, "b": 8})


@BOTH
@pytest.mark.parametrize("batch_size", [0, 1])
def test_it_equals_training_alone_in_srfca_also_with_adam(backend, batch_size, tiny, run_rounds, cohort):
    # Three rounds of two steps are the T_init = 6 batches of ONE_SHOT. One example, so that the order does not matter.
    fed = tiny(backend=backend, a=[8], b=[-3])
    local = LocalSGD(steps=2, batch_size=batch_size, learning_rate=0.3, optimizer="adam")
    state, _ = run_rounds(Local(local, rounds=3, clients_per_round=1, clients=2), fed, 3, size=1)
    srfca = SRFCA(local, distance="l2", threshold=math.inf, init_steps=6, rounds=2)
    alone = srfca.round(srfca.start(fed.task, Seed(0)), fed, cohort(fed, -1), Seed(0)).state.trained
    assert tree.same(srfca.start(fed.task, Seed(0)).w0, state.start)
    expected = dict(zip(alone.clients, alone.models["w"].tolist(), strict=True))
    assert values(state, fed) == pytest.approx(expected, rel=1e-6)


@BOTH
def test_a_client_that_joins_later_starts_with_a_new_optimizer(backend, tiny, cohort, step):
    # As above, a has a velocity in the second round and reaches 8; for b it is the first step, to the half of d.
    fed = tiny(backend=backend, a=[8], b=[8])
    method = Local(step(0.5, momentum=0.5), rounds=2, clients_per_round=1, clients=2)
    state = method.start(fed.task, Seed(0))
    s = float(state.start["w"])
    state = method.round(state, fed, Cohort(0, ("a",), Seed(0), ("a",)), Seed(0)).state
    assert values(state, fed) == pytest.approx({"a": (s + 8) / 2, "b": s})
    state = method.round(state, fed, cohort(fed, 1), Seed(1)).state
    assert values(state, fed) == pytest.approx({"a": 8, "b": (s + 8) / 2})


# The budget ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["epochs", "steps"])
def test_by_default_a_client_trains_as_if_it_took_part_in_every_round(unit):
    # SR-FCA's Local on rotated MNIST: 250 batches, as many as 50 rounds of 5; the cohort of 10 of 100 does not matter.
    assert Local(LocalSGD(**{unit: 5}), rounds=50, clients_per_round=10, clients=100).total == 250


@pytest.mark.parametrize("unit", ["epochs", "steps"])
@pytest.mark.parametrize(
    ("rounds", "size", "clients", "each", "budget"),
    [
        (100, 10, 100, 5, 50),  # 100·10·5/100
        (3, 1, 100, 4, 4),  # 3·1·4/100 = 0.12 is less than one round of a federated client
        (7, 3, 10, 2, 4),  # 7·3·2/10 = 4.2, rounded
        (8, 3, 10, 2, 5),  # 8·3·2/10 = 4.8, rounded
    ],
)
def test_the_average_budget_is_that_of_an_average_federated_client(unit, rounds, size, clients, each, budget):
    local = LocalSGD(**{unit: each})
    assert Local(local, "average", rounds=rounds, clients_per_round=size, clients=clients).total == budget


def test_an_unknown_budget_is_refused():
    with pytest.raises(SpecError, match=r"method\.budget must be one of 'full', 'average', got 'long'"):
        Local(budget="long", rounds=1, clients_per_round=1, clients=1)


class Recorder:
    """Records the settings of local training of each ask; no client replies or trains."""

    clients = ("a",)

    def __init__(self):
        self.asked = []

    def ask(self, cohort, work, seed, *, local, **_):
        self.asked.append(local.steps or local.epochs)
        return Replies((), np.zeros(0, np.int64), {"loss": np.zeros(0)})


@settings(max_examples=100, deadline=None)
@given(
    rounds=st.integers(1, 60),
    clients=st.integers(1, 50),
    size=st.integers(1, 50),
    each=st.integers(1, 30),
    unit=st.sampled_from(["epochs", "steps"]),
    budget=st.sampled_from(["full", "average"]),
)
def test_the_budget_is_spent_evenly_and_to_the_last_epoch(rounds, clients, size, each, unit, budget):
    size = min(size, clients)
    method = Local(LocalSGD(**{unit: each}), budget, rounds=rounds, clients_per_round=size, clients=clients)
    exact = rounds * each if budget == "full" else rounds * size * each / clients
    assert method.total == each or abs(method.total - exact) <= 0.5
    assert method.total >= max(each, exact - 0.5)
    fed, spent = Recorder(), []
    state = State(start={})
    for t in range(rounds):
        before = sum(fed.asked)
        state = method.round(state, fed, Cohort(t, ("a",), Seed(t), ("a",)), Seed(t)).state
        spent.append(sum(fed.asked) - before)
    assert sum(spent) == method.total
    # Even: after t rounds the sum is less than one unit above t/T of the budget, and rounds differ by at most one unit.
    ahead = np.cumsum(spent) - method.total * np.arange(1, rounds + 1) / rounds
    assert (ahead > -1e-9).all()
    assert (ahead < 1).all()
    assert max(spent) - min(spent) <= 1
    assert max(spent) <= math.ceil(method.total / rounds)


@BOTH
def test_no_model_is_sent_to_the_server(backend, blobs, run_rounds):
    # Up: a loss and a number of steps, four bytes each, for each of 12 clients in each of 3 rounds.
    fed, _ = blobs(backend=backend)
    run_rounds(Local(LocalSGD(batch_size=8), rounds=3, clients_per_round=12, clients=12), fed, 3, 5)
    assert fed.traffic.total("up", "train") == 0
    assert fed.traffic.total("up") == 3 * 12 * (4 + 4)
    # Down: the initial model, once for each client.
    assert fed.traffic.total("down", "base") == 12 * tree.nbytes(fed.task.init(Seed(0)))


def test_newcomers_are_served_the_initial_model(tiny, run_rounds, step):
    fed = tiny(a=[8], newcomer=[8])
    state, _ = run_rounds(Local(step(0.5), rounds=2, clients_per_round=1, clients=1), fed, 2, among=["a"])
    s = float(state.start["w"])
    # Two steps of rate ½ leave a quarter of the distance.
    assert values(state, fed) == pytest.approx({"a": 8 - (8 - s) / 4, "newcomer": s})


def test_clients_are_served_the_model_from_their_memory(tiny, run_rounds, step):
    fed = tiny(a=[0], b=[8])
    method = Local(step(1.0), rounds=1, clients_per_round=2, clients=2)
    state, _ = run_rounds(method, fed, 1)
    placement = method.place(state, fed, ["a", "b"], Seed(0))[1]
    assert placement.row == {"a": 0, "b": 0}
    assert placement.adapt is not None
    assert placement.adapt.work is recall


def test_a_lost_reply_does_not_lose_the_model(losing, run_rounds, one_step):
    # Steps of rate ½ toward 8 from s: the distance d = 8 - s is halved in each round. The second ask loses b's reply:
    # the server continues from the state it accepted, so b has done two steps in the end, and a three.
    fed = losing({2: "b"}, a=[8], b=[8])
    state, rounds = run_rounds(one_step, fed, 2)
    d = 8 - float(state.start["w"])
    assert list(rounds[1].assignment) == ["a"]
    assert values(state, fed) == pytest.approx({"a": 8 - d / 4, "b": 8 - d / 2})
    fed = losing({2: "b"}, a=[8], b=[8])
    state, _ = run_rounds(one_step, fed, 3)
    assert values(state, fed) == pytest.approx({"a": 8 - d / 8, "b": 8 - d / 4})


def test_the_share_of_a_skipped_round_is_made_up_in_the_next(losing, cohort, one_step):
    # All replies to the first ask are lost. By round 1 two of three steps are due, and d = 8 - s is quartered.
    fed = losing({1: "ab"}, a=[8], b=[8])
    state = one_step.start(fed.task, Seed(0))
    with pytest.raises(TooFewReplies):
        one_step.round(state, fed, cohort(fed, 0), Seed(0))
    state = one_step.round(state, fed, cohort(fed, 1), Seed(1)).state
    d = 8 - float(state.start["w"])
    assert values(state, fed) == pytest.approx(dict.fromkeys("ab", 8 - d / 4))


def test_the_learning_rate_decays_from_round_to_round(tiny, run_rounds, step):
    # Rates ½ and ¼: a distance of d becomes d·½·¾.
    fed = tiny(a=[8])
    state, _ = run_rounds(Local(step(0.5, lr_decay=0.5), rounds=2, clients_per_round=1, clients=1), fed, 2)
    d = 8 - float(state.start["w"])
    assert values(state, fed) == pytest.approx({"a": 8 - d * 0.375})
