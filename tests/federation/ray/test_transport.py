"""`RayTransport` with workers in one process: the bytes of the vectorized transport, also if workers are lost."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from coterie import codec, methods, tree
from coterie import data as datasets
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD, fit, gradient
from coterie.errors import FederationError
from coterie.federation import Averaging, Cached, Compression, Faults, FaultTransport, Mean, Privacy, Server, Vectorized
from coterie.federation import reduce as reducing
from coterie.methods import build as build_method
from coterie.models import Normalize, mclr, mlp
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)

#: Settings that a run of three rounds needs.
SETTINGS = {"flhc": {"warm_rounds": 1}}


@pytest.fixture(scope="session")
def data():
    """Eighty clients in two true clusters, with ten small images each."""
    return datasets.load("blobs", clients=80, clusters=2, samples=10, side=4, classes=3, seed=0)


@pytest.fixture(scope="session")
def task(data):
    return mclr(data.shape, data.classes, normalize=Normalize(0.0, 255.0))


def session_of(name, data, transport, seed=0):
    """A session of one method with 70 of the 80 clients per round."""
    truth = dict(zip(data.clients, data.truth.tolist(), strict=True))
    given = {"truth": truth, "rounds": 3, "clients_per_round": 70, "clients": 80}
    method = build_method(name, LOCAL, given, **SETTINGS.get(name, {}))
    return Session(method, Server(transport), Seed(seed), Sampler(sorted(data.clients), 70, Seed(seed)))


def same_session(one, other, rounds=2):
    """Run two sessions and assert that states, scores and traffic have the same bytes."""
    while not one.finished(rounds):
        assert one.step().skipped == other.step().skipped
        assert codec.encode(one.state) == codec.encode(other.state)
    for name in ("rows", "correct", "total", "loss"):
        assert np.array_equal(getattr(one.evaluate(), name), getattr(other.evaluate(), name)), name
    assert one.traffic.save() == other.traffic.save()
    assert other.finished(rounds)


#: Methods that `make test` runs; `make test-all` runs the others too.
EACH_TIME = ("fedgroup", "local")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.exhaustive) for name in methods.names()]
)
def test_every_method_gives_the_bytes_of_the_vectorized_transport_on_three_workers(data, task, spread, name):
    transport, pool = spread(data, task, 3, slow=(1,))
    same_session(session_of(name, data, Vectorized(data, task)), session_of(name, data, transport))
    assert {worker for worker, _, _ in pool.calls} == {0, 1, 2}


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("by", [None, "groups"])
def test_a_mean_with_distances_has_the_bytes_of_the_vectorized_transport(data, task, spread, workers, by):
    groups = {client: place % 3 for place, client in enumerate(data.clients)} if by else None
    how = Mean(
        groups=4, by=groups, spread=True, reference=lambda means, weights: tree.map(lambda leaf: 2 * leaf, means)
    )
    start = task.init(Seed(3))
    asked = [
        Server(transport).ask(data.clients, fit, Seed(0), start=start, local=LOCAL, reduce=how)
        for transport in (Vectorized(data, task), spread(data, task, workers)[0])
    ]
    for one, other in zip(*(got.reduced[0] for got in asked), strict=True):
        assert tree.same(one, other)
    assert asked[0].clients == asked[1].clients
    assert tree.same(asked[0]["loss"], asked[1]["loss"])


def test_models_of_whole_blocks_stay_on_the_workers(data, task, spread):
    # One worker: 80 clients are two blocks of 32 and one of 16. Three sums in float64 travel instead of 80 models.
    task = mlp(data.shape, data.classes, widths=(200,))
    start = task.init(Seed(3))
    sizes = {}
    for how in (Mean(), None):
        transport, pool = spread(data, task, 1)
        Server(transport).ask(data.clients, fit, Seed(0), start=start, local=LOCAL, reduce=how)
        sizes[how] = pool.bytes
    model = tree.nbytes(start)
    assert 3 * 2 * model < sizes[Mean()] < 7 * model
    assert sizes[None] > 80 * model


@pytest.mark.parametrize("lost", ["run", "distances"])
def test_the_share_of_a_lost_worker_is_computed_again_with_the_same_bytes(data, task, spread, lost):
    # Worker 0 is lost in its first call of the method; a new worker takes its place.
    transport, pool = spread(data, task, 2, lose=lambda worker, method: worker == 0 and method == lost)
    start, how = task.init(Seed(3)), Mean(spread=True)
    whole = Server(Vectorized(data, task)).ask(data.clients, fit, Seed(0), start=start, local=LOCAL, reduce=how)
    got = Server(transport).ask(data.clients, fit, Seed(0), start=start, local=LOCAL, reduce=how)
    assert tree.same(whole.mean, got.mean)
    assert tree.same(whole.spread, got.spread)
    assert 0 not in pool.alive
    assert transport.work_done.lost == (lost == "run")


def test_client_memories_survive_the_loss_of_every_worker(data, task, spread):
    # Local keeps its models in the memories of clients. After the first round all workers are replaced.
    lost = set()
    transport, pool = spread(data, task, 2, lose=lambda worker, method: worker in lost)
    one, other = session_of("local", data, Vectorized(data, task)), session_of("local", data, transport)
    one.step(), other.step()
    lost |= {0, 1}
    same_session(one, other)
    assert set(pool.alive) == {2, 3}


def test_a_share_that_ends_three_workers_stops_the_run(data, task, spread):
    transport, pool = spread(data, task, 1, lose=lambda worker, method: True)
    with pytest.raises(FederationError, match=r"same clients have ended 3 Ray workers.*planned by the test"):
        Server(transport).ask(data.clients, fit, Seed(0), start=task.init(Seed(0)), local=LOCAL)
    assert pool.started == 3


def test_robust_rules_and_faults_get_the_models(data, task, spread):
    start = task.init(Seed(3))
    for wrap, aggregation in (
        (lambda transport: transport, Aggregation("median")),
        (lambda transport: FaultTransport(transport, Faults(drop=0.2, nan=0.1), Seed(5)), Aggregation()),
    ):
        asked = [
            Server(wrap(transport), aggregation=aggregation).ask(
                data.clients, fit, Seed(0), start=start, local=LOCAL, reduce=Mean(spread=True)
            )
            for transport in (Vectorized(data, task), spread(data, task, 3)[0])
        ]
        assert tree.same(asked[0].mean, asked[1].mean)
        assert tree.same(asked[0].spread, asked[1].spread)
        assert asked[0].lost == asked[1].lost


def test_replies_that_are_not_finite_are_rejected_where_they_are_summed(data, task, spread):
    # The examples of client 5 are NaN: it is left out of the mean, and named with the reason.
    x = data.x.astype(np.float32)
    x[data.fit.of(5)] = np.nan
    broken = data.rearranged()
    broken.__dict__["x"] = x
    client, start = data.clients[5], task.init(Seed(3))
    asked = [
        Server(transport).ask(data.clients, fit, Seed(0), start=start, local=LOCAL, reduce=Mean(spread=True))
        for transport in (Vectorized(broken, task), spread(broken, task, 1)[0])
    ]
    assert asked[1].lost == {client: "not finite"}
    assert len(asked[1].clients) == 79
    assert tree.same(asked[0].mean, asked[1].mean)
    assert tree.same(asked[0].spread, asked[1].spread)


def test_distances_are_left_out_when_the_models_need_too_much_memory(data, task, spread, monkeypatch):
    monkeypatch.setattr(reducing, "KEPT_BYTES", 79 * tree.nbytes(task.init(Seed(0))))
    for workers in (1, 3):
        fed = Server(spread(data, task, workers)[0])
        got = fed.ask(data.clients, gradient, Seed(0), params=task.init(Seed(0)), reduce=Mean("gradient", spread=True))
        assert got.spread is None
        some = fed.ask(
            data.clients[:79], gradient, Seed(0), params=task.init(Seed(0)), reduce=Mean("gradient", spread=True)
        )
        assert len(some.spread) == 79


def test_cached_values_travel_to_a_worker_once_and_missing_ones_again(data, task, spread):
    transport, pool = spread(data, task, 2)
    fed, plain = Server(transport), Server(Vectorized(data, task))
    start = task.init(Seed(3))
    for _ in range(2):
        got = [
            each.ask(data.clients, fit, Seed(0), start=Cached(start), local=LOCAL, reduce=Mean())
            for each in (fed, plain)
        ]
    values = {key for _, method, args in pool.calls if method == "run" for key in [args[0].ref.cached["start"].key]}
    assert len(values) == 1
    transport._store.forget(data.clients[3])
    plain._transport._store.forget(data.clients[3])
    got = [
        each.ask(data.clients, fit, Seed(0), start=Cached(start), local=LOCAL, reduce=Mean()) for each in (fed, plain)
    ]
    assert tree.same(got[0].mean, got[1].mean)
    assert fed.traffic.save() == plain.traffic.save()


def test_drift_replaces_the_lists_of_examples_and_not_the_examples(data, task, spread):
    moved = data.rearranged(fit=dataclasses.replace(data.fit, order=data.fit.order[::-1].copy()))
    transport, pool = spread(data, task, 2)
    fed, plain = Server(transport), Server(Vectorized(data, task))
    for each in (fed, plain):
        each.ask(data.clients, fit, Seed(0), start=task.init(Seed(3)), local=LOCAL)
        each.set_data(moved)
    got = [each.ask(data.clients, fit, Seed(0), start=task.init(Seed(3)), local=LOCAL) for each in (fed, plain)]
    assert tree.same(got[0]["params"], got[1]["params"])
    layouts = {args[1].key: args[1].ref for _, method, args in pool.calls if method == "run"}
    assert len(layouts) == 2
    assert all(each.x is None and each.y is None for each in layouts.values())


def test_a_transport_with_another_task_uses_the_same_workers(data, task, spread):
    transport, pool = spread(data, task, 2)
    other = mclr(data.shape, data.classes, normalize=Normalize(1.0, 99.0))
    got = [
        Server(each.on(other)).ask(data.clients, fit, Seed(0), start=task.init(Seed(3)), local=LOCAL)
        for each in (transport, Vectorized(data, task))
    ]
    assert tree.same(got[0]["params"], got[1]["params"])
    assert pool.started == 2


@pytest.mark.parametrize(
    "options",
    [
        {"averaging": Averaging(privacy=Privacy(max_update_norm=0.05))},
        {"averaging": Averaging(privacy=Privacy(max_update_norm=0.05, noise_multiplier=0.5, delta=1e-5))},
        {"compression": Compression("int8")},
        {"compression": Compression("top-k", fraction=0.2)},
    ],
    ids=["clipped", "noisy", "int8", "top-k"],
)
def test_clipped_noisy_and_compressed_updates_have_the_same_bytes(data, task, spread, options):
    # Two requests: what compression has lost in the first one is part of the second.
    got = []
    for transport in (Vectorized(data, task), spread(data, task, 3)[0]):
        fed = Server(transport, **copy.deepcopy(options))
        how = Mean(weights="uniform", spread=True)
        for number in range(2):
            last = fed.ask(data.clients, fit, Seed(number), start=task.init(Seed(3)), local=LOCAL, reduce=how)
        got.append((last.mean, last.spread, fed.traffic.save()))
    assert tree.same(got[0][0], got[1][0])
    assert tree.same(got[0][1], got[1][1])
    assert got[0][2] == got[1][2]


def test_a_mean_of_first_clients_and_one_of_many_groups_are_summed_by_the_server(data, task, spread):
    own = {client: place for place, client in enumerate(data.clients)}
    groups = {client: place % 3 for place, client in enumerate(data.clients)}
    for how in (Mean(groups=3, by=groups, weights="first"), Mean(groups=80, by=own)):
        transport, pool = spread(data, task, 2)
        asked = [
            Server(each).ask(data.clients, fit, Seed(0), start=task.init(Seed(3)), local=LOCAL, reduce=how)
            for each in (Vectorized(data, task), transport)
        ]
        assert tree.same(asked[0].mean, asked[1].mean)
        assert all(not args[0].ref.means for _, method, args in pool.calls if method == "run")
