"""Replies that fail by seeded probability, and methods that learn all the same."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from coterie import codec, data
from coterie.clients import LocalSGD, Values, Work, label_counts
from coterie.data.datasets.blobs import prototypes
from coterie.errors import SpecError
from coterie.federation import Faults, Faulty, Server, Vectorized
from coterie.federation.messages import ReplyBatch, Request
from coterie.methods.fedavg import FedAvg
from coterie.methods.ifca import IFCA
from coterie.models import Normalize, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

MANY = tuple(f"{i:05}" for i in range(2000))
ASKED = Work("tests.asked", takes={}, gives={"v": Values("float32", ("m",))}, plain=lambda task, x, y, seed: {})
FATES = {"drop": 0.1, "late": 0.2, "duplicate": 0.05, "nan": 0.15, "shape": 0.02}


class Prompt:
    """A carrier whose clients all answer (1, 1) at once, in blocks of 500."""

    clients = MANY
    task = None

    def carry(self, order):
        for first in range(0, len(order.clients), 500):
            some = order.clients[first : first + 500]
            yield ReplyBatch(order.id, some, np.ones(len(some), np.int64), {"v": np.ones((len(some), 2), np.float32)})

    def on(self, task):
        return self


def order(number=1, **options):
    return Request(number, ASKED, "fit", Seed(0), MANY, **options)


def fates(transport, number=1, **options):
    """What happened to the reply of each client."""
    found = dict.fromkeys(MANY, "drop")
    for block in transport.carry(order(number, **options)):
        for place, client in enumerate(block.clients):
            values = block.answers["v"][place]
            fate = "late" if block.late else "shape" if values.shape != (2,) else "nan" if values[0] != 1 else "good"
            found[client] = "duplicate" if fate == "good" and found[client] == "good" else fate
    return found


def test_each_fate_is_as_frequent_as_its_probability():
    found = list(fates(Faulty(Prompt(), Faults(**FATES), Seed(0))).values())
    for fate, p in {**FATES, "good": 1 - sum(FATES.values())}.items():
        # Binomial: n·p ± √(n·p·(1-p)); five deviations.
        assert abs(found.count(fate) - len(MANY) * p) < 5 * math.sqrt(len(MANY) * p * (1 - p)), fate


def test_one_seed_gives_the_same_faults_and_every_ask_its_own():
    faulty = Faulty(Prompt(), Faults(**FATES), Seed(0))
    assert fates(faulty) == fates(Faulty(Prompt(), Faults(**FATES), Seed(0)))
    assert fates(faulty) == fates(faulty)  # a repeated order meets the same faults, as a resumed run must
    assert fates(faulty, number=2) != fates(faulty)
    assert fates(Faulty(Prompt(), Faults(**FATES), Seed(1))) != fates(faulty)
    assert fates(faulty.on(None)) == fates(faulty)


def test_the_fate_of_a_reply_does_not_depend_on_who_else_is_asked():
    faulty = Faulty(Prompt(), Faults(**FATES), Seed(0))
    whole = fates(faulty)
    some = MANY[100:1500:7]
    heard = faulty.carry(Request(1, ASKED, "fit", Seed(0), some))
    arrived = {client for block in heard for client in block.clients}
    assert arrived == {client for client in some if whole[client] != "drop"}


def test_certain_faults_happen_always_and_none_never():
    for name in FATES:
        assert set(fates(Faulty(Prompt(), Faults(**{name: 1.0}), Seed(0))).values()) == {name}
    assert set(fates(Faulty(Prompt(), Faults(), Seed(0))).values()) == {"good"}


def test_scoring_never_fails():
    faulty = Faulty(Prompt(), Faults(drop=1.0), Seed(0))
    assert set(fates(faulty, evaluating=True).values()) == {"good"}


def test_what_are_no_probabilities_is_refused():
    for value in (-0.1, 1.5, math.nan, "often", True):
        with pytest.raises(SpecError, match=r"faults\.late must be a probability between 0 and 1, got"):
            Faults(late=value)
    with pytest.raises(SpecError, match="add up to more than 1; lower some of them"):
        Faults(drop=0.5, late=0.3, nan=0.3)
    Faults(drop=0.7, late=0.1, nan=0.2)  # 0.7 + 0.1 + 0.2 is a hair less or more than 1 in floating point


def test_a_faulty_reply_is_none_to_the_desk_and_its_reason_is_counted(wired):
    _, wire = wired()
    faulty = Faulty(wire, Faults(late=0.3, duplicate=0.3, shape=0.3), Seed(3))
    fed = Server(faulty)
    seen = [fed.ask(fed.clients, label_counts, Seed(0)) for _ in range(10)]
    good = wired()[0].ask(fed.clients, label_counts, Seed(0)).by_client("counts")
    for got in seen:
        assert all(np.array_equal(row, good[client]) for client, row in got.by_client("counts").items())
        assert set(got.lost) == set(fed.clients) - set(got.clients)
    shape = "counts has shape (1, 3, 1), not ('replies', 'classes')"
    assert set(fed.refused) == {"late", "repeated", shape}
    assert fed.refused["late"] + fed.refused[shape] == sum(len(got.lost) for got in seen)


def test_a_checkpoint_passes_through_to_the_clients(wired, count):
    _, wire = wired()
    faulty = Server(Faulty(wire, Faults(), Seed(0)))
    faulty.ask(("0",), count, Seed(0))
    _, beneath = wired()
    again = Server(Faulty(beneath, Faults(), Seed(0)))
    again.load(codec.decode(codec.encode(faulty.save())))
    assert again.ask(("0",), count, Seed(0)).by_client("n") == {"0": 2}


# ------------------------------------------------------------------------------------------------ learning all the same

# 30 % of the replies fail.
THIRTY = Faults(drop=0.1, late=0.05, duplicate=0.05, nan=0.05, shape=0.05)


def best_accuracy(classes=4, side=8, noise=0.1):
    """A lower bound of what is possible on blobs.

    Two prototypes at distance D under noise of deviation σ in each pixel are confused with probability Φ(-D/2σ); a
    classifier that takes the nearest prototype errs at most with the sum of these over the other classes.
    """
    looks = prototypes(classes, side, seed=0).reshape(classes, -1)
    apart = np.linalg.norm(looks[:, None] - looks[None], axis=2)
    wrong = [[NormalDist().cdf(-d / (2 * noise)) for d in row if d > 0] for row in apart]
    return 1 - max(sum(row) for row in wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "clusters"), [("fedavg", 1), ("ifca", 2)])
def test_a_method_learns_although_a_third_of_the_replies_fails(method, clusters):
    blobs = data.load("blobs", clients=20, clusters=clusters, samples=50, seed=0)
    task = mclr(blobs.shape, blobs.classes, normalize=Normalize(0.0, 255.0))
    local = LocalSGD(epochs=2, batch_size=10, learning_rate=0.1)
    made = FedAvg(local) if method == "fedavg" else IFCA(local, clusters=clusters)
    accuracy = {}
    for name, faults in {"whole": Faults(), "faulty": THIRTY}.items():
        fed = Server(Faulty(Vectorized(blobs, task), faults, Seed(7)))
        session = Session(made, fed, Seed(0), Sampler(fed.clients, 10, Seed(0)))
        steps = [session.step() for _ in range(15)]
        scores = session.evaluate()
        accuracy[name] = float(scores.correct.sum() / scores.total.sum())
        assert (sum(fed.refused.values()) > 0) is (name == "faulty")
        assert all(step.round is not None for step in steps)
    # Guessing gives ¼. Nearly all is possible; of 200 test examples at 0.98 two deviations are 2·√(0.98·0.02·200) = 4
    # examples, or 2 %. A model that stopped learning, or one that took spoilt replies in, is far below 0.95.
    assert best_accuracy() > 0.99
    assert accuracy["faulty"] > 0.95
    assert accuracy["faulty"] > accuracy["whole"] - 0.04
