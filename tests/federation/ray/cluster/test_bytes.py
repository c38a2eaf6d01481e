"""Ray workers: all methods, the same bytes as the vectorized backend for one, two and three workers; lost workers."""

from __future__ import annotations

import dataclasses
import os
import signal

import numpy as np
import pytest

from coterie import codec, methods, tree
from coterie import data as datasets
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation import Mean, Server, Vectorized
from coterie.federation.ray import cluster
from coterie.federation.ray.actor_pool import RayPool
from coterie.federation.ray.settings import RaySettings
from coterie.federation.ray.transport import RayTransport
from coterie.methods import build as build_method
from coterie.models import Normalize, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore::FutureWarning")]

LOCAL = LocalSGD(epochs=1, batch_size=10, learning_rate=0.1)

#: Settings that a run of two rounds needs.
SETTINGS = {"flhc": {"warm_rounds": 1}}


@pytest.fixture(scope="module")
def data():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def task(data):
    from coterie.models.library import build

    return build("mclr", data.shape, data.classes, normalize=Normalize(0.0, 16.0))


@pytest.fixture(scope="module", params=[1, 2, 3])
def pool(request, local_ray):
    """A pool of one, two or three workers, used for all methods."""
    made = RayPool(RaySettings(workers=request.param))
    yield made
    made.close()


def session_of(name, data, transport):
    truth = dict(zip(data.clients, data.truth.tolist(), strict=True))
    given = {"truth": truth, "rounds": 2, "clients_per_round": 36, "clients": 40}
    method = build_method(name, LOCAL, given, **SETTINGS.get(name, {}))
    return Session(method, Server(transport), Seed(0), Sampler(sorted(data.clients), 36, Seed(0)))


@pytest.fixture(scope="module")
def expected(data, task):
    """`expected(name)`: the states, scores and traffic of a method with the vectorized backend."""
    known = {}

    def of(name):
        if name not in known:
            known[name] = outcome(session_of(name, data, Vectorized(data, task)))
        return known[name]

    return of


def outcome(session):
    states = []
    while not session.finished(2):
        session.step()
        states.append(codec.encode(session.state))
    scores = session.evaluate()
    return states, [getattr(scores, name).tobytes() for name in ("correct", "total", "loss")], session.traffic.save()


@pytest.mark.parametrize("name", methods.names())
def test_every_method_gives_the_bytes_of_the_vectorized_backend(pool, data, task, expected, name):
    transport = RayTransport(data, task, pool)
    assert outcome(session_of(name, data, transport)) == expected(name)
    assert transport.work_done.lost == 0


class KillingPool(RayPool):
    """Kills the process of the worker that gets the third share."""

    def __init__(self, settings):
        super().__init__(settings)
        self.submitted = 0

    def submit(self, worker, method, *args):
        future = super().submit(worker, method, *args)
        self.submitted += 1
        if self.submitted == 3:
            import ray

            pid = ray.get(PIDS[worker])["pid"]
            os.kill(pid, signal.SIGKILL)
        return future

    def workers(self, arrays):
        found = super().workers(arrays)
        for worker in found:
            if worker not in PIDS:
                PIDS[worker] = worker.hello.remote()
        return found


PIDS = {}


@pytest.mark.parametrize("name", ["ifca", "local"])
def test_a_worker_that_is_killed_in_a_round_changes_no_byte(local_ray, data, task, expected, name):
    pool = KillingPool(RaySettings(workers=2))
    transport = RayTransport(data, task, pool)
    try:
        assert outcome(session_of(name, data, transport)) == expected(name)
        assert transport.work_done.lost == 1
    finally:
        pool.close()


def test_a_mean_over_many_clients_is_summed_by_the_workers(local_ray):
    many = datasets.load("blobs", clients=300, clusters=2, samples=10, side=4, classes=3, seed=0)
    task = mclr(many.shape, many.classes, normalize=Normalize(0.0, 255.0))  # no recipe: it is pickled
    pool = RayPool(RaySettings(workers=2))
    try:
        got = [
            Server(transport).ask(
                many.clients, fit, Seed(0), start=task.init(Seed(1)), local=LOCAL, reduce=Mean(spread=True)
            )
            for transport in (Vectorized(many, task), RayTransport(many, task, pool))
        ]
    finally:
        pool.close()
    assert tree.same(got[0].mean, got[1].mean)
    assert np.array_equal(got[0].spread, got[1].spread)


def test_workers_with_other_versions_are_refused(local_ray, data, task, monkeypatch):
    monkeypatch.setattr(cluster, "versions", lambda: {**worker_versions(), "JAX": "0.7.0"})
    pool = RayPool(RaySettings(workers=1))
    fed = Server(RayTransport(data, task, pool))
    try:
        with pytest.raises(SpecError, match=r"The Ray worker on .* has JAX .*, this process has 0\.7\.0; install the"):
            fed.ask(data.clients, fit, Seed(0), start=task.init(Seed(1)), local=LOCAL)
    finally:
        pool.close()


def worker_versions():
    from coterie.federation.ray.worker import versions

    return versions()


def test_an_error_in_a_worker_arrives_as_it_was_raised(local_ray, data, task):
    pool = RayPool(RaySettings(workers=1))
    fed = Server(RayTransport(data, task, pool))
    local = dataclasses.replace(LOCAL, optimizer="adam", learning_rate=0.1)
    try:
        with pytest.raises(SpecError, match=r"No layer 'none'\. Known: dense0"):
            fed.ask(
                data.clients,
                fit,
                Seed(0),
                start=task.init(Seed(1)),
                local=dataclasses.replace(local, trainable_layers=("none",)),
            )
    finally:
        pool.close()
