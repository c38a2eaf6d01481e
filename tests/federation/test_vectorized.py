"""The vectorized backend against the sequential one on unusual clients; bytes do not depend on threads or cores."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie import codec, data, tree
from coterie.clients import LocalSGD, Ragged, Work, fit, gradient, label_counts, losses_of, score
from coterie.clients.closest import fit_closest
from coterie.federation import Adapt, Cohort, Mean, PerClient, batching, sequential, vectorized
from coterie.federation.messages import Request
from coterie.methods.fedavg import FedAvg
from coterie.methods.ifca import IFCA
from coterie.methods.migration import Detector, watch
from coterie.models import Normalize, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

# `coterie.federation.vectorized` is the function; this is the module.
MODULE = sys.modules["coterie.federation.vectorized"]

# No examples, one, few, exactly one block, and more than the largest block.
SIZES = {"a": 0, "b": 1, "c": 7, "d": 128, "e": 600}
TESTS = {"a": 3, "b": 0, "c": 4, "d": 8, "e": 129}
CLIENTS = tuple(SIZES)
TRANSFORMS = ("identity", "rot90", "rot180", "rot270", "invert")
TRANSFORM = (1, 0, 2, 4, 3)
TASK = mclr((4, 4), 3, normalize=Normalize(100.0, 80.0))
RATE = 0.05

LOCALS = {
    "small batches": LocalSGD(epochs=2, batch_size=8, learning_rate=RATE),
    "steps with momentum": LocalSGD(steps=7, batch_size=8, learning_rate=RATE, momentum=0.5, weight_decay=0.01, mu=0.1),
    "all at once": LocalSGD(epochs=3, batch_size=0, learning_rate=RATE),
    "batches of 550": LocalSGD(epochs=2, batch_size=550, learning_rate=RATE),
}


def examples(sizes, seed, dtype):
    draw = np.random.default_rng(seed)
    made = {}
    for client, n in sizes.items():
        y = draw.integers(0, 3, n).astype(np.int32)
        x = np.clip(draw.normal(100, 40, (n, 4, 4)) + 60 * (np.arange(4) == y[:, None])[:, None], 0, 255)
        made[client] = ((x.astype(dtype) if dtype == np.uint8 else (x / 255).astype(dtype)), y)
    return made


def unusual(dtype=np.uint8, **options):
    whole = data.from_arrays(examples(SIZES, 0, dtype), examples(TESTS, 1, dtype), classes=3, **options)
    return whole.rearranged(transforms=TRANSFORMS, transform=np.array(TRANSFORM, np.uint8))


@pytest.fixture(scope="module")
def both():
    """The two backends with the unusual clients."""
    clients = unusual()
    return sequential(clients, TASK), vectorized(clients, TASK, threads=2)


@pytest.fixture(scope="module")
def five():
    """Five models."""
    return tree.stack(TASK.init(Seed(j)) for j in range(5))


def assert_same(one, other, start=None):
    """Same replies: models to 1e-5 of the norm of their update, numbers to 1e-5."""
    assert one.clients == other.clients
    assert one.samples.tolist() == other.samples.tolist()
    assert set(one.answers) == set(other.answers)
    for name, value in one.answers.items():
        if name == "params":
            a, b = tree.flatten_rows(value), tree.flatten_rows(other[name])
            norm = np.linalg.norm(a - (0 if start is None else start), axis=1)
            assert (np.linalg.norm(a - b, axis=1) <= 1e-5 * norm).all()
        elif isinstance(value, list):
            for a, b in zip(value, other[name], strict=True):
                assert [each.tolist() for each in a] == [each.tolist() for each in b]
        else:
            for a, b in zip(tree.leaves(value), tree.leaves(other[name]), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)


def starts(bank, row, clients):
    return tree.flatten_rows(tree.take(bank, [row[client] for client in clients]))


cohorts = st.builds(
    lambda who, slow: Cohort(0, tuple(who), Seed(0), CLIENTS, {c: u for c, u in slow.items() if c in who}),
    st.sets(st.sampled_from(CLIENTS), min_size=1),
    st.dictionaries(st.sampled_from(CLIENTS), st.floats(0, 0.99), max_size=3),
)
parts = st.sampled_from(["fit", "held", "rest", "test"])
training_parts = st.sampled_from(["fit", "held", "rest"])
rows = st.fixed_dictionaries(dict.fromkeys(CLIENTS, st.integers(0, 4)))
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ALL = Cohort(0, CLIENTS, Seed(0), CLIENTS, {"d": 0.5, "e": 0.0})


def check_training(both, five, cohort, part, row, seed, local):
    sent = {"start": PerClient(five, row), "local": LOCALS[local]}
    one, other = (fed.ask(cohort, fit, Seed(seed), part=part, **sent) for fed in both)
    assert_same(one, other, starts(five, row, one.clients))
    assert np.array_equal(one["steps"], other["steps"])
    empty = [place for place, n in enumerate(one.samples) if n == 0]
    unmoved = tree.take(other["params"], empty), tree.take(five, [row[one.clients[place]] for place in empty])
    assert tree.same(*unmoved)  # to the bit, since they take no step


@pytest.mark.parametrize(
    ("cohort", "local"),
    [
        pytest.param(ALL, "small batches", id="small batches"),
        pytest.param(ALL.of("ce"), "batches of 550", id="batches of 550"),
        pytest.param(ALL.of("a"), "all at once", id="no examples"),
        pytest.param(ALL, "all at once", id="all at once", marks=pytest.mark.exhaustive),
        pytest.param(ALL.of("ce"), "steps with momentum", id="steps with momentum", marks=pytest.mark.exhaustive),
    ],
)
def test_training_agrees_between_the_backends(both, five, cohort, local):
    check_training(both, five, cohort, "fit", dict.fromkeys(CLIENTS, 1), 0, local)


@pytest.mark.exhaustive  # compiles for the sizes of all parts of all clients
@few
@given(
    cohort=cohorts,
    part=training_parts,
    row=rows,
    seed=st.integers(0, 99),
    local=st.sampled_from(["all at once", "small batches"]),
)
def test_training_agrees_for_any_cohort_and_part(both, five, cohort, part, row, seed, local):
    check_training(both, five, cohort, part, row, seed, local)


def check_scores(both, five, probe, cohort, part, row):
    for work, sent in (
        (score, {"params": PerClient(five, row)}),
        (score, {"params": tree.row(five, 2)}),
        (losses_of, {"centers": five}),
        (label_counts, {}),
        (gradient, {"params": PerClient(five, row)}),
        (probe.class_means, {}),
    ):
        one, other = (fed.scoring().ask(cohort, work, Seed(0), part=part, **sent) for fed in both)
        assert_same(one, other)


def test_scores_losses_and_counts_agree_between_the_backends(both, five, probe):
    check_scores(both, five, probe, ALL, "fit", dict(zip(CLIENTS, (0, 1, 2, 3, 4), strict=True)))


@pytest.mark.exhaustive  # compiles for the sizes of all parts of all clients
@few
@given(cohort=cohorts, part=parts, row=rows)
def test_scores_losses_and_counts_agree_for_any_cohort_and_part(both, five, probe, cohort, part, row):
    check_scores(both, five, probe, cohort, part, row)


def test_wider_blocks_give_the_same_losses_for_any_cohort(both, five, monkeypatch):
    slow, fast = both
    expected = slow.ask(CLIENTS, losses_of, Seed(0), centers=five)
    monkeypatch.setattr(MODULE, "LARGE_BYTES", 0)
    wide = fast.ask(CLIENTS, losses_of, Seed(0), centers=five)
    assert_same(expected, wide)
    for place, client in enumerate(CLIENTS):
        alone = fast.ask([client], losses_of, Seed(0), centers=five)["losses"]
        assert alone.tobytes() == wide["losses"][place].tobytes()


def test_counts_are_those_of_the_labels(both):
    for fed in both:
        got = fed.ask(CLIENTS, label_counts, Seed(0))
        assert np.array_equal(got["counts"], unusual().label_counts())


def ask_much(fed, five, cohort=ALL):
    """Asks that reach every branch of the backend."""
    row = dict(zip(CLIENTS, (0, 1, 2, 3, 4), strict=True))
    local = LOCALS["small batches"]
    how = Mean(groups=5, by=row, spread=True)
    return [
        fed.ask(cohort, fit, Seed(1), start=PerClient(five, row), local=local),
        fed.ask(cohort, fit, Seed(1), start=PerClient(five, row), local=local, reduce=how),
        fed.ask(cohort, fit_closest, Seed(1), base={}, heads=five, local=local),
        fed.ask(cohort, gradient, Seed(1), params=PerClient(five, row)),
        fed.scoring().ask(cohort, score, Seed(1), part="test", params=PerClient(five, row)),
        fed.scoring().ask(
            cohort, score, Seed(1), part="test", after=Adapt(fit, {"start": tree.row(five, 0), "local": local})
        ),
    ]


def digest(replies):
    plain = [[dict(got.answers), got.samples, got.mean, got.spread, list(got.clients)] for got in replies]
    return hashlib.sha256(codec.encode(plain)).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"MAX_CLIENTS": 2}, marks=pytest.mark.exhaustive),  # fewer clients in a call than models
        {"MAX_CLIENTS": 1, "BATCH_BYTES": 1},
        pytest.param({"BATCH_BYTES": 5 * 204}, marks=pytest.mark.exhaustive),
        pytest.param({"BLOCKS": 2}, marks=pytest.mark.exhaustive),
        {"BLOCKS": 1, "BLOCK_ROWS": 32},
    ],
    ids=lambda limits: "-".join(f"{key}={value}" for key, value in limits.items()),
)
def test_splitting_a_cohort_into_many_calls_does_not_change_the_result(both, five, monkeypatch, limits):
    expected = ask_much(both[0], five)
    for name, value in limits.items():
        monkeypatch.setattr(MODULE, name, value)
    fed = vectorized(unusual(), TASK, threads=2)
    for one, other in zip(expected, ask_much(fed, five), strict=True):
        assert_same(
            one, other, starts(five, dict.fromkeys(CLIENTS, 0), one.clients) if "params" in one.answers else None
        )
        if one.mean is not None:
            np.testing.assert_allclose(tree.flatten_rows(one.mean), tree.flatten_rows(other.mean), rtol=1e-5, atol=2e-6)
            np.testing.assert_allclose(one.spread, other.spread, rtol=1e-4, atol=1e-6)


def test_only_replies_with_models_come_in_batches(five, monkeypatch):
    monkeypatch.setattr(MODULE, "BATCH_BYTES", 1)  # the models of no more clients than calls that run at a time
    transport, seed = MODULE.Vectorized(unusual(), TASK, threads=1), Seed(0)
    counts = Request(1, watch, "fit", seed, CLIENTS, settings={"detector": Detector()}, per_client={"renew": renewed()})
    models = Request(
        2, fit, "fit", seed, CLIENTS, settings={"local": LOCALS["small batches"]}, shared={"start": tree.row(five, 0)}
    )
    assert [batch.clients for batch in transport.send(counts)] == [tuple("abcde")]
    assert [batch.clients for batch in transport.send(models)] == [("a", "b"), ("c", "d"), ("e",)]


def test_a_smaller_request_does_not_replace_the_remembered_clients():
    clients = unusual()
    transport = MODULE.Vectorized(clients, TASK)
    every, some = (Request(1, label_counts, "fit", Seed(0), chosen) for chosen in (CLIENTS, ("b", "d")))
    first = transport._members(every)
    assert [(member.id, member.place, member.n) for member in transport._members(some)] == [("b", 0, 1), ("d", 1, 128)]
    assert transport._members(every) is first
    transport.set_data(clients.rearranged())
    assert transport._members(every) is not first  # the examples may have moved


def test_remembered_blocks_follow_the_models_and_the_examples_of_the_clients(five, monkeypatch):
    clients = unusual()
    slow, fast = sequential(clients, TASK), vectorized(clients, TASK, threads=2)
    split = []
    monkeypatch.setattr(MODULE, "split_blocks", lambda *a: split.append(1) or batching.split_blocks(*a))

    def agrees(cohort, rows):
        row = dict(zip(CLIENTS, rows, strict=True))
        sent = {"params": PerClient(five, row)}
        assert_same(*(fed.ask(cohort, score, Seed(0), part="held", **sent) for fed in (slow, fast)))
        return len(split)

    assert agrees(CLIENTS, (0, 0, 1, 1, 2)) == 1
    assert agrees(CLIENTS, (0, 0, 1, 1, 2)) == 1, "the same clients with the same rows: the blocks are known"
    assert agrees(("b", "d"), (0, 0, 1, 1, 2)) == 2
    assert agrees(CLIENTS, (0, 0, 1, 1, 2)) == 2, "a smaller request does not replace them"
    assert agrees(CLIENTS, (0, 3, 1, 1, 2)) == 3, "client b gets another model"
    moved = clients.rearranged(transform=np.array(TRANSFORM[::-1], np.uint8))
    for fed in (slow, fast):
        fed.set_data(moved)
    assert agrees(CLIENTS, (0, 3, 1, 1, 2)) == 4, "the examples have changed"


def renewed():
    """One row for all clients: none sets its reference counts again."""
    return np.zeros(1, np.int32), np.zeros(len(CLIENTS), np.int64)


@pytest.mark.exhaustive
def test_inputs_can_be_floats(five):
    task = mclr((4, 4), 3)
    clients = unusual(np.float32)
    one, other = (
        fed.ask("acd", fit, Seed(0), start=tree.row(five, 0), local=LOCALS["small batches"])
        for fed in (sequential(clients, task), vectorized(clients, task))
    )
    assert_same(one, other, starts(five, dict.fromkeys(CLIENTS, 0), "acd"))


@pytest.mark.parametrize("n", [0, 7])
def test_a_federation_can_have_a_single_client_without_training_examples(five, n):
    clients = data.from_arrays(examples({"a": n}, 0, np.uint8), examples({"a": 3}, 1, np.uint8), classes=3)
    one, other = (
        fed.ask(("a",), fit, Seed(0), start=tree.row(five, 0), local=LOCALS["small batches"])
        for fed in (sequential(clients, TASK), vectorized(clients, TASK))
    )
    assert_same(one, other, starts(five, {"a": 0}, ("a",)))


def test_a_plain_work_gets_transformed_examples():
    clients = unusual()
    for fed in (sequential(clients, TASK), vectorized(clients, TASK)):
        got = fed.ask(CLIENTS, SEEN, Seed(0)).by_client("seen")
        for client in CLIENTS:
            x, y = clients.examples(client)
            assert got[client][0].tolist() == x.reshape(len(y), 16).astype(np.float32).tolist()


def _seen(task, x, y, seed):
    return {"seen": [np.ascontiguousarray(x).reshape(len(y), 16).astype(np.float32)]}


SEEN = Work(
    "tests.seen",
    takes={},
    gives={"seen": Ragged("float32", ("rows", "inputs"), max_items=1)},
    plain=_seen,
    trains=False,
)


@pytest.mark.exhaustive
def test_random_layers_agree_between_the_backends(both):
    import jax

    def apply(params, x, key):
        keep = 1.0 if key is None else jax.random.bernoulli(key, 0.5, (x.shape[0], 1)).astype(x.dtype)
        return (x.reshape(x.shape[0], -1) * keep) @ params["w"]

    task = dataclasses.replace(
        TASK, init=lambda seed: {"w": seed.uniform(48).reshape(16, 3).astype(np.float32)}, apply=apply, random=True
    )
    start = task.init(Seed(0))
    one, other, dry = (
        fed.on(task if noisy else dataclasses.replace(task, random=False)).ask(
            "acd", fit, Seed(0), start=start, local=LOCALS["small batches"]
        )
        for fed, noisy in ((both[0], True), (both[1], True), (both[1], False))
    )
    assert_same(one, other, tree.flatten_rows(tree.stack([start] * 3)))
    assert not np.allclose(other["loss"][1:], dry["loss"][1:])


# ---------------------------------------------------------------------------------------------------- threads and cores


def test_bytes_do_not_depend_on_the_number_of_threads(five):
    clients = unusual()
    found = {threads: digest(ask_much(vectorized(clients, TASK, threads=threads), five)) for threads in (1, 2, 3)}
    assert len(set(found.values())) == 1, found


def test_bytes_do_not_depend_on_threads_when_replies_come_in_batches(five, monkeypatch):
    monkeypatch.setattr(MODULE, "BATCH_BYTES", 1)  # then a batch has two clients per thread
    clients = unusual()
    found = {threads: digest(ask_much(vectorized(clients, TASK, threads=threads), five)) for threads in (1, 2, 3)}
    assert len(set(found.values())) == 1, found


def test_states_do_not_depend_on_the_number_of_threads():
    blobs = data.load("blobs", clients=9, clusters=2, samples=40, side=4, classes=3, seed=0)
    for method in (FedAvg(LOCALS["small batches"]), IFCA(LOCALS["small batches"], clusters=2)):
        found = set()
        for threads in (1, 2, 3):
            session = Session(
                method, vectorized(blobs, TASK, threads=threads), Seed(0), Sampler(blobs.clients, 5, Seed(0))
            )
            for _ in range(3):
                session.step()
            found.add(codec.encode(session.state))
        assert len(found) == 1


ON_SOME_CORES = """
    import os, sys
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])  # before JAX counts the cores
    import hashlib
    import numpy as np
    from coterie import codec, data, models
    from coterie.clients import LocalSGD, gradient
    from coterie.federation import vectorized
    from coterie.methods.fedavg import FedAvg
    from coterie.methods.ifca import IFCA
    from coterie.runs.session import Session
    from coterie.runs.sampling import Sampler
    from coterie.seeds import Seed

    draw = np.random.default_rng(0)
    clients = {
        f"c{i}": (draw.integers(0, 256, (n, 24, 24)).astype(np.uint8), draw.integers(0, 10, n))
        for i, n in enumerate((600, 530, 30))
    }
    several = data.from_arrays(clients, test={}, classes=10)
    scale = models.Normalize(0.0, 255.0)
    tasks = {
        "mclr": models.build("mclr", several.shape, 10, normalize=scale),
        "mlp": models.build("mlp", several.shape, 10, widths=(512,), normalize=scale),
    }
    for name, task in tasks.items():
        fed = vectorized(several, task)
        small, whole = (LocalSGD(steps=3, batch_size=batch, learning_rate=0.1) for batch in (64, 0))
        for method in (FedAvg(whole), IFCA(small, clusters=2)):
            session = Session(method, fed, Seed(0), Sampler(fed.clients, 3, Seed(0)))
            session.step()
            session.step()
            print(name, type(method).__name__, hashlib.sha256(codec.encode(session.state)).hexdigest())
        got = fed.ask(fed.clients, gradient, Seed(0), params=task.init(Seed(0)))
        print(name, "gradient", hashlib.sha256(codec.encode(dict(got.answers))).hexdigest())
"""


@pytest.mark.exhaustive
def test_bytes_do_not_depend_on_the_number_of_cores(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    script = tmp_path / "some_cores.py"
    script.write_text(textwrap.dedent(ON_SOME_CORES))
    # Without the compilation cache, which the two processes would share.
    environment = {**os.environ, "COTERIE_NO_CACHE": "1"}
    running = [
        subprocess.Popen([sys.executable, str(script), str(cores)], env=environment, stdout=subprocess.PIPE, text=True)
        for cores in (1, 2)
    ]
    found = [process.communicate(timeout=300)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert len(found[0]) == 2 * 3
    assert found[0] == found[1]
