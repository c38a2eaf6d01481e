"""Values that travel once for a round and an evaluation are counted once, against numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import codec, tree
from coterie.clients import LocalSGD, fit, losses_of, score
from coterie.data import from_arrays
from coterie.federation import Cached, PerClient
from coterie.federation.overlap import Overlap
from coterie.runs.build import build
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.testing import serve_in_process, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)

# Two clients with eight examples of two numbers in two classes; logistic regression has 2·2 + 2 = 6 numbers.
CLIENTS, MODEL = 2, 24


def data():
    rng = np.random.default_rng(0)
    return from_arrays({name: _examples(rng) for name in ("a", "b")}, name="two")


def _examples(rng):
    x, y = rng.normal(size=(8, 2)).astype(np.float32), np.arange(8, dtype=np.int32) % 2
    return x, y, x[:4], y[:4]


def spec(method, rounds, **sections):
    run = {"rounds": rounds, "clients_per_round": CLIENTS, "seed": 1, "backend": "sequential"}
    return {"method": method, "local": {"epochs": 1}, "run": {**run, **sections.pop("run", {})}, **sections}


def evaluation_bytes(record):
    return record.summary["traffic"]["by_purpose"]["evaluate"]


def simulated(plain):
    return coterie.run(plain, data=data())


def in_process(plain):
    return serve_in_process(plain, data())[0]


RUNS = pytest.mark.parametrize("run", [simulated, in_process])


# ---------------------------------------------------------------------------------------------------------- whole runs


@RUNS
def test_fedavg_sends_a_model_once_for_an_evaluation_and_the_next_round(run):
    record = run(spec("fedavg", 3))
    # Round t + 1 begins with the model that round t ended with, which the evaluation of round t sends to both clients.
    # Evaluations of rounds 0 and 1 travel with rounds 1 and 2, that of round 2 alone; two numbers come back each time.
    assert evaluation_bytes(record) == {"down": CLIENTS * MODEL, "up": 3 * CLIENTS * 8}
    assert record.summary["traffic"]["by_purpose"]["train"]["down"] == 3 * CLIENTS * MODEL


@RUNS
def test_without_merging_every_evaluation_is_counted_in_full(run):
    record = run(spec("fedavg", 3, network={"merge": False}))
    assert evaluation_bytes(record)["down"] == 3 * CLIENTS * MODEL


@RUNS
def test_an_evaluation_every_other_round_travels_with_the_round_after_it(run):
    # Evaluations after rounds 1 and 3; the first travels with round 2, the second is the last.
    record = run(spec("fedavg", 4, run={"evaluate_every": 2}))
    assert evaluation_bytes(record) == {"down": CLIENTS * MODEL, "up": 2 * CLIENTS * 8}


@RUNS
def test_a_client_outside_the_next_cohort_gets_the_model_for_the_evaluation_alone(run):
    # One of two clients trains in a round: the other one's model is counted in both evaluations.
    record = run(spec("fedavg", 2, run={"clients_per_round": 1}))
    assert evaluation_bytes(record)["down"] == 2 * CLIENTS * MODEL - 1 * MODEL


@RUNS
def test_ifca_sends_the_bank_once_for_the_choice_of_an_evaluation_and_the_next_round(run):
    record = run(spec({"name": "ifca", "clusters": 2}, 3))
    # An evaluation sends both models, then the chosen one. The first request travels with the next round, which sends
    # the same two models; the second with the round after that, whose models have changed.
    alone = 3 * CLIENTS * (2 * MODEL + MODEL)
    assert evaluation_bytes(record)["down"] == alone - 2 * CLIENTS * 2 * MODEL
    assert record.summary["traffic"]["by_purpose"]["train"]["down"] == 3 * CLIENTS * 2 * MODEL


@pytest.mark.parametrize(
    "method",
    ["fedavg", "ifca", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("local", "perfedavg", "cfl"))],
)
def test_the_simulator_and_the_channel_count_the_same(method):
    plain = spec(method, 3)
    assert simulated(plain).summary["traffic"] == in_process(plain).summary["traffic"]


@pytest.mark.parametrize("steps", [1, 2])
def test_a_resumed_run_counts_what_an_uninterrupted_one_counts(steps):
    whole, first, second = (build(Spec.of(spec("ifca", 3)), data=data()).session for _ in range(3))

    def run(session, count):
        for _ in range(count):
            session.step()
            frozen = session.frozen()
            frozen.evaluate()
            session.traffic.include(frozen.traffic)

    run(whole, 3)
    run(first, steps)
    second.load(codec.decode(first.save()))
    run(second, 3 - steps)
    assert second.traffic.save() == whole.traffic.save()


# ------------------------------------------------------------------------------------------------------- single values

# mclr on 4×4 images and 3 classes: 51 numbers of 4 bytes.
TINY = 204
SOME = ("0", "1", "2")


@pytest.fixture
def requests(wired):
    """`requests(clients, work, **sent)`: a request as the server makes it."""

    def make(clients, work, **sent):
        fed, wire = wired()
        fed.ask(clients, work, Seed(0), **sent)
        return wire.requests[-1]

    return make


def saved(evaluation, following, through_a_checkpoint):
    overlap = Overlap()
    overlap.add(evaluation, 1)
    if through_a_checkpoint:
        loaded = Overlap()
        loaded.load(codec.decode(codec.encode(overlap.save())))
        overlap = loaded
    return overlap.bytes_saved(following)


CHECKPOINT = pytest.mark.parametrize("checkpoint", [False, True], ids=["at once", "through a checkpoint"])


@CHECKPOINT
def test_a_value_is_counted_once_for_each_client_that_gets_it_twice(requests, model, checkpoint):
    evaluation = requests(SOME, score, params=model)
    same = tree.map(np.copy, model)  # equal values, not the same object
    assert saved(evaluation, requests(("1", "2", "3"), fit, start=same, local=LOCAL), checkpoint) == 2 * TINY
    assert saved(evaluation, requests(("3",), fit, start=same, local=LOCAL), checkpoint) == 0


@CHECKPOINT
def test_another_model_of_the_same_size_is_counted_again(requests, model, checkpoint):
    other = tiny_task().init(Seed(2))
    evaluation = requests(SOME, score, params=model)
    assert saved(evaluation, requests(SOME, fit, start=other, local=LOCAL), checkpoint) == 0


@CHECKPOINT
def test_a_row_of_a_bank_is_compared_client_by_client(requests, model, bank, checkpoint):
    # Row 0 of the bank is the model. Evaluation: clients 0 and 1 get row 0, client 2 row 1.
    evaluation = requests(SOME, score, params=PerClient(bank, {"0": 0, "1": 0, "2": 1}))
    assert saved(evaluation, requests(SOME, fit, start=model, local=LOCAL), checkpoint) == 2 * TINY
    moved = PerClient(bank, {"0": 1, "1": 0, "2": 1})
    assert saved(evaluation, requests(SOME, fit, start=moved, local=LOCAL), checkpoint) == 2 * TINY


@CHECKPOINT
def test_a_bank_is_one_value(requests, bank, model, checkpoint):
    evaluation = requests(SOME, losses_of, centers=bank)
    assert saved(evaluation, requests(SOME, losses_of, centers=bank), checkpoint) == 3 * 2 * TINY
    assert saved(evaluation, requests(SOME, fit, start=model, local=LOCAL), checkpoint) == 0


@CHECKPOINT
def test_a_cached_value_is_not_part_of_the_comparison(requests, bank, checkpoint):
    # It is counted when it is attached, and otherwise only its hash travels.
    evaluation = requests(SOME, losses_of, centers=Cached(bank))
    assert saved(evaluation, requests(SOME, losses_of, centers=bank), checkpoint) == 0


def test_a_request_of_an_evaluation_waits_for_its_own_number(requests, model):
    evaluation, following = requests(SOME, score, params=model), requests(SOME, fit, start=model, local=LOCAL)
    overlap = Overlap()
    overlap.add(evaluation, 2)
    assert overlap.bytes_saved(following) == 0
    assert overlap.bytes_saved(following) == 3 * TINY
    assert overlap.bytes_saved(following) == 0
    overlap.add(evaluation, 3)  # that one has been sent
    assert overlap.save() == {"sent": 3, "waiting": {}}


def test_two_evaluations_that_travel_with_one_request_are_both_counted_once(requests, model):
    overlap = Overlap()
    for _ in range(2):
        overlap.add(requests(SOME, score, params=model), 1)
    assert overlap.bytes_saved(requests(SOME, fit, start=model, local=LOCAL)) == 2 * 3 * TINY
