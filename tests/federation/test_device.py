"""The form for GPUs against the form for CPUs, both on the CPU; and which device a run gets."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import data, models, tree
from coterie.clients import LocalSGD, fit, score
from coterie.errors import SpecError
from coterie.federation import PerClient, Server, Vectorized, device
from coterie.federation.device import CPU, Device, find_device
from coterie.methods import METHODS, build
from coterie.models.layers import Conv, Dense, pool, relu
from coterie.models.networks import layered, network
from coterie.models.recurrent import Recurrent
from coterie.runs.build import server_spec
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.testing import Harness, tiny_data, tiny_task
from coterie.testing.states import AGREEMENT, change_of, distance

FORM_FOR_GPUS = Device("cpu", batched=True)

# One example, less than a batch, and several batches of which the last is not full.
SIZES = {"a": 1, "b": 5, "c": 37}

IMAGES = (6, 6)
TASKS = {
    "logistic regression": models.mclr(IMAGES, 3),
    "outer products": models.mlp(IMAGES, 3, widths=(40,)),  # at least 32 outputs
    "convolutions": network("small", IMAGES, 3, [Conv(2, 3), relu, pool(), Conv(3, 2, stride=2), Dense(3)]),
    "recurrent": layered("small", IMAGES, 3, [Recurrent("lstm", 4), Dense(3)]),
}
SMALL_BATCHES = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)
FULL_BATCH = LocalSGD(steps=3, batch_size=0, learning_rate=0.1, momentum=0.5)
#: Training of these in both forms compiles for seconds; `make test` compares their scores.
LARGE = ("convolutions", "recurrent")
CASES = [
    *(pytest.param(name, SMALL_BATCHES, marks=pytest.mark.exhaustive if name in LARGE else ()) for name in TASKS),
    ("logistic regression", FULL_BATCH),
]


def examples(sizes, draw=0):
    rng = np.random.default_rng(draw)
    return {
        name: (rng.random((n, *IMAGES), np.float32), rng.integers(0, 3, n).astype(np.int32))
        for name, n in sizes.items()
    }


DATA = data.from_arrays(examples(SIZES), examples(SIZES, draw=1), classes=3)


def in_both_forms(task, ask):
    """What `ask` returns on clients that run in the form for CPUs, and in the form for GPUs."""
    return [ask(Server(Vectorized(DATA, task, device=each, threads=2))) for each in (CPU, FORM_FOR_GPUS)]


def assert_agree(one, other, change=1.0):
    """Both agree to 1e-5 of the change."""
    for a, b in zip(tree.leaves(one), tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * change)


@pytest.mark.parametrize(("name", "local"), CASES)
def test_clients_that_train_at_the_same_time_end_with_the_models_of_clients_that_train_in_turn(name, local):
    task = TASKS[name]
    start = task.init(Seed(0))
    one, other = in_both_forms(task, lambda fed: fed.ask(DATA.clients, fit, Seed(1), start=start, local=local))
    change = np.linalg.norm(tree.flatten_rows(one["params"]) - tree.flatten_rows(tree.stack([start])))
    assert change > 0.01  # the clients did train
    assert_agree(one["params"], other["params"], change)
    assert_agree(one["loss"], other["loss"])
    np.testing.assert_array_equal(one["steps"], other["steps"])


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_scores_are_the_same_in_both_forms(task):
    bank = tree.stack([task.init(Seed(seed)) for seed in range(2)])
    sent = PerClient(bank, {"a": 0, "b": 1, "c": 1})
    one, other = in_both_forms(
        task, lambda fed: fed.scoring().ask(DATA.clients, score, Seed(0), part="test", params=sent)
    )
    np.testing.assert_array_equal(one["correct"], other["correct"])
    assert_agree(one["loss"], other["loss"], change=np.abs(one["loss"]).max())


def batched(_):
    return Vectorized(tiny_data(), tiny_task(), device=FORM_FOR_GPUS)


#: Settings of methods that would not cluster within the rounds of the test.
SETTINGS = {"flhc": {"warm_rounds": 1}}
EVERY_METHOD = [pytest.param(name, marks=() if name == "flexcfl" else pytest.mark.exhaustive) for name in METHODS]


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_method_ends_in_the_same_state_in_both_forms(name):
    # Memory, several plans, values per example, rows of banks: whatever methods ask for.
    local = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)
    harness = Harness(lambda given: build(name, local, given, **SETTINGS.get(name, {})))
    one, other = harness.session(), harness.session(wrap=batched)
    initial = one.state
    for step, same in zip(harness.finish(one), harness.finish(other), strict=True):
        assert (step.round is None) == (same.round is None)
        if step.round is not None:
            assert dict(step.round.assignment) == dict(same.round.assignment)
    assert distance(one.state, other.state, "f") <= AGREEMENT * max(change_of(one.state, initial, "f"), 1e-12)


def test_a_missing_gpu_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(device, "_available", lambda platform: platform == "cpu")
    with pytest.raises(SpecError, match=r"JAX finds no GPU here.*run.device = 'cpu', or 'auto'"):
        coterie.run({"data": "blobs", "run": {"rounds": 1, "device": "gpu"}})


def test_auto_is_the_cpu_on_a_machine_without_a_gpu_and_the_record_says_so(monkeypatch):
    monkeypatch.setattr(device, "_available", lambda platform: platform == "cpu")
    assert find_device("auto") == CPU
    record = coterie.run({"data": "blobs", "run": {"rounds": 1, "device": "auto"}})
    assert record.summary["device"] == "cpu"


def test_auto_is_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(device, "_available", lambda platform: True)
    monkeypatch.setattr(Device, "place", lambda self: None)
    assert find_device("auto") == Device("gpu", batched=True)


def test_only_the_vectorized_backend_computes_on_a_gpu():
    for backend in ("sequential", "ray"):
        with pytest.raises(SpecError, match=f"needs run.backend = 'vectorized'; {backend} runs clients on CPUs"):
            coterie.run({"data": "blobs", "run": {"rounds": 1, "backend": backend, "device": "gpu"}})


def test_a_server_without_clients_of_its_own_refuses_a_gpu_and_takes_auto_as_cpu():
    with pytest.raises(SpecError, match=r"run\.device = 'gpu' needs simulated clients"):
        server_spec(Spec.of({"run": {"device": "gpu"}}))
    assert server_spec(Spec.of({"run": {"device": "auto"}})).run.device == "cpu"
