"""Simulated faults, and methods that learn in spite of them."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from coterie import codec, data
from coterie.clients import LocalSGD, Values, Work, label_counts
from coterie.data.datasets.blobs import prototypes
from coterie.errors import SpecError
from coterie.federation import Faults, FaultTransport, Server, Vectorized
from coterie.federation.messages import ReplyBatch, Request
from coterie.methods.fedavg import FedAvg
from coterie.methods.ifca import IFCA
from coterie.models import Normalize, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

MANY = tuple(f"{i:05}" for i in range(2000))
ASKED = Work(
    "tests.asked", takes={}, gives={"v": Values("float32", ("m",))}, plain=lambda task, x, y, seed: {}, trains=False
)
PROBABILITIES = {"drop": 0.1, "late": 0.2, "duplicate": 0.05, "nan": 0.15, "shape": 0.02}


class Perfect:
    """A transport whose clients all reply (1, 1), in batches of 500."""

    clients = MANY
    task = None

    def send(self, request):
        for first in range(0, len(request.clients), 500):
            some = request.clients[first : first + 500]
            yield ReplyBatch(request.id, some, np.ones(len(some), np.int64), {"v": np.ones((len(some), 2), np.float32)})

    def on(self, task):
        return self


def ask(number=1, **options):
    return Request(number, ASKED, "fit", Seed(0), MANY, **options)


def faults_of(transport, number=1, **options):
    """Client → the fault of its reply, or `none`."""
    found = dict.fromkeys(MANY, "drop")
    for batch in transport.send(ask(number, **options)):
        for place, client in enumerate(batch.clients):
            values = batch.answers["v"][place]
            fault = "late" if batch.late else "shape" if values.shape != (2,) else "nan" if values[0] != 1 else "none"
            found[client] = "duplicate" if fault == "none" and found[client] == "none" else fault
    return found


def test_each_fault_is_as_frequent_as_its_probability():
    found = list(faults_of(FaultTransport(Perfect(), Faults(**PROBABILITIES), Seed(0))).values())
    for fault, p in {**PROBABILITIES, "none": 1 - sum(PROBABILITIES.values())}.items():
        # Binomial: n·p ± √(n·p·(1-p)); five standard deviations.
        assert abs(found.count(fault) - len(MANY) * p) < 5 * math.sqrt(len(MANY) * p * (1 - p)), fault


def test_faults_depend_on_seed_and_request_id():
    faulty = FaultTransport(Perfect(), Faults(**PROBABILITIES), Seed(0))
    assert faults_of(faulty) == faults_of(FaultTransport(Perfect(), Faults(**PROBABILITIES), Seed(0)))
    assert faults_of(faulty) == faults_of(faulty)  # a repeated request has the same faults
    assert faults_of(faulty, number=2) != faults_of(faulty)
    assert faults_of(FaultTransport(Perfect(), Faults(**PROBABILITIES), Seed(1))) != faults_of(faulty)
    assert faults_of(faulty.on(None)) == faults_of(faulty)


def test_the_fault_of_a_reply_does_not_depend_on_the_other_clients():
    faulty = FaultTransport(Perfect(), Faults(**PROBABILITIES), Seed(0))
    whole = faults_of(faulty)
    some = MANY[100:1500:7]
    batches = faulty.send(Request(1, ASKED, "fit", Seed(0), some))
    arrived = {client for batch in batches for client in batch.clients}
    assert arrived == {client for client in some if whole[client] != "drop"}


def test_faults_of_probability_1_always_happen_and_of_probability_0_never():
    for name in PROBABILITIES:
        assert set(faults_of(FaultTransport(Perfect(), Faults(**{name: 1.0}), Seed(0))).values()) == {name}
    assert set(faults_of(FaultTransport(Perfect(), Faults(), Seed(0))).values()) == {"none"}


def test_evaluation_has_no_faults():
    faulty = FaultTransport(Perfect(), Faults(drop=1.0), Seed(0))
    assert set(faults_of(faulty, evaluating=True).values()) == {"none"}


def test_invalid_probabilities_raise():
    for value in (-0.1, 1.5, math.nan, "often", True):
        with pytest.raises(SpecError, match=r"faults\.late must be (a number )?between 0 and 1, got"):
            Faults(late=value)
    with pytest.raises(SpecError, match=r"must add up to at most 1, got 1\.1"):
        Faults(drop=0.5, late=0.3, nan=0.3)
    Faults(drop=0.7, late=0.1, nan=0.2)  # 0.7 + 0.1 + 0.2 is not exactly 1 in floating point


def test_a_faulty_reply_is_rejected_and_its_reason_counted(wired):
    _, wire = wired()
    faulty = FaultTransport(wire, Faults(late=0.3, duplicate=0.3, shape=0.3), Seed(3))
    fed = Server(faulty)
    seen = [fed.ask(fed.clients, label_counts, Seed(0)) for _ in range(10)]
    good = wired()[0].ask(fed.clients, label_counts, Seed(0)).by_client("counts")
    for got in seen:
        assert all(np.array_equal(row, good[client]) for client, row in got.by_client("counts").items())
        assert set(got.lost) == set(fed.clients) - set(got.clients)
    shape = "counts has shape (1, 3, 1), not ('replies', 'classes')"
    assert set(fed.rejected) == {"late", "repeated", shape}
    assert fed.rejected["late"] + fed.rejected[shape] == sum(len(got.lost) for got in seen)


def test_lost_replies_are_counted_and_rejected_ones_are_not(wired):
    _, wire = wired()
    fed = Server(FaultTransport(wire, Faults(drop=0.3, late=0.3), Seed(3)))
    seen = [fed.ask(fed.clients, label_counts, Seed(0)) for _ in range(10)]
    reasons = [reason for got in seen for reason in got.lost.values()]
    assert fed.lost == reasons.count("no reply") > 0
    assert fed.rejected == {"late": reasons.count("late")}
    again = Server(FaultTransport(wired()[1], Faults(), Seed(3)))
    again.load(codec.decode(codec.encode(fed.save())))
    assert again.lost == fed.lost


def test_a_checkpoint_includes_the_clients_behind_a_wrapper(wired, count):
    _, wire = wired()
    faulty = Server(FaultTransport(wire, Faults(), Seed(0)))
    faulty.ask(("0",), count, Seed(0))
    _, other = wired()
    again = Server(FaultTransport(other, Faults(), Seed(0)))
    again.load(codec.decode(codec.encode(faulty.save())))
    assert again.ask(("0",), count, Seed(0)).by_client("n") == {"0": 2}


# ------------------------------------------------------------------------------------------------ learning with faults

# 30 % of the replies fail.
THIRTY = Faults(drop=0.1, late=0.05, duplicate=0.05, nan=0.05, shape=0.05)


def best_accuracy(classes=4, side=8, noise=0.1):
    """A lower bound of the best possible accuracy on blobs.

    Two prototypes at distance D under noise of standard deviation σ in each pixel are confused with probability
    Φ(-D/2σ). The error of the nearest-prototype classifier is at most the sum of these over the other classes.
    """
    images = prototypes(classes, side, seed=0).reshape(classes, -1)
    distances = np.linalg.norm(images[:, None] - images[None], axis=2)
    errors = [[NormalDist().cdf(-d / (2 * noise)) for d in row if d > 0] for row in distances]
    return 1 - max(sum(row) for row in errors)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "clusters"), [("fedavg", 1), ("ifca", 2)])
def test_a_method_learns_although_30_percent_of_the_replies_fail(method, clusters):
    blobs = data.load("blobs", clients=20, clusters=clusters, samples=50, seed=0)
    task = mclr(blobs.shape, blobs.classes, normalize=Normalize(0.0, 255.0))
    local = LocalSGD(epochs=2, batch_size=10, learning_rate=0.1)
    made = FedAvg(local) if method == "fedavg" else IFCA(local, clusters=clusters)
    accuracy = {}
    for name, faults in {"clean": Faults(), "faulty": THIRTY}.items():
        fed = Server(FaultTransport(Vectorized(blobs, task), faults, Seed(7)))
        session = Session(made, fed, Seed(0), Sampler(fed.clients, 10, Seed(0)))
        steps = [session.step() for _ in range(15)]
        scores = session.evaluate()
        accuracy[name] = float(scores.correct.sum() / scores.total.sum())
        assert (sum(fed.rejected.values()) > 0) is (name == "faulty")
        assert all(step.round is not None for step in steps)
    # Guessing gives ¼; nearly 1 is possible. For 200 test examples at 0.98, two standard deviations are
    # 2·√(0.98·0.02·200) = 4 examples, or 2 %. A model that stops learning or averages NaN is far below 0.95.
    assert best_accuracy() > 0.99
    assert accuracy["faulty"] > 0.95
    assert accuracy["faulty"] > accuracy["clean"] - 0.04
