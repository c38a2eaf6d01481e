"""Whole runs in processes of a Ray cluster, with objects in this process instead of Ray."""

from __future__ import annotations

import logging

import pytest

import coterie
from coterie.errors import Diverged, FederationError, SpecError
from coterie.federation.ray.pool import WorkerLost
from coterie.federation.ray.settings import RaySettings
from coterie.runs.jobs import plan
from coterie.runs.ray_jobs import run_on_ray
from coterie.runs.spec import Spec
from coterie.runs.spread import checked_jobs_on

TINY = {
    "data": {"name": "blobs", "clients": 6, "clusters": 2, "samples": 12, "side": 4},
    "local": {"epochs": 1},
    "run": {"rounds": 3, "clients_per_round": 4, "checkpoint_every": 1},
}


class Processes:
    """Objects in this process; `lose(number of the actor, method, number of the call)` says which calls are lost."""

    def __init__(self, lose=lambda actor, method, call: False):
        self.lose, self.actors, self.ended, self.calls = lose, [], [], {}

    def __call__(self, settings):
        return self

    def start(self, kind, *args, cores):
        self.actors.append(kind(*args))
        return len(self.actors) - 1

    def submit(self, actor, method, *args):
        future = object()
        count = sum(1 for each in self.calls.values() if each[:2] == (actor, method))
        self.calls[future] = (actor, method, args, count)
        if method != "events":
            getattr(self.actors[actor], method)(*args)
        return future

    def wait(self, futures):
        return futures[:1]

    def result(self, future):
        actor, method, args, count = self.calls[future]
        if self.lose(actor, method, count):
            raise WorkerLost("planned by the test")
        return getattr(self.actors[actor], method)(*args)

    def end(self, actor):
        self.ended.append(actor)


@pytest.fixture(autouse=True)
def _handlers():
    """Runners in this process add handlers to the library's log."""
    log = logging.getLogger("coterie")
    before, propagate = list(log.handlers), log.propagate
    yield
    log.handlers[:], log.propagate = before, propagate


def jobs_of(folder=None, seeds=1, **changes):
    specs = {name: Spec.from_dict({**TINY, "method": name, **changes}) for name in ("fedavg", "ifca")}
    return plan(specs, seeds, folder)


def done(events):
    return {(job.label, job.seed): content for job, what, content in events if what == "done"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", ["memory", "shared folder"])
def test_runs_elsewhere_give_the_same_models_as_here(tmp_path, where):
    processes = Processes()
    folder = tmp_path / "records" if where == "shared folder" else None
    found = done(run_on_ray(jobs_of(folder, seeds=2), 2, RaySettings(), connect=processes))
    assert len(found) == 4
    here = coterie.run({**TINY, "method": "ifca", "run": {**TINY["run"], "seed": 1}})
    assert found["ifca", 1].summary["accuracy"] == here.summary["accuracy"]
    assert len(processes.actors) == 2
    assert processes.ended == [0, 1]
    if folder is not None:
        assert sorted(path.name for path in folder.iterdir()) == ["fedavg-0", "fedavg-1", "ifca-0", "ifca-1"]


def test_a_record_on_a_machine_without_the_folder_is_brought_back(tmp_path, monkeypatch):
    processes = Processes()
    submit = processes.submit

    def elsewhere(actor, method, *args):
        if method == "start":
            job, shared, files = args
            args = (job, shared + "-not-here", files)
        return submit(actor, method, *args)

    monkeypatch.setattr(processes, "submit", elsewhere)
    found = done(run_on_ray(jobs_of(tmp_path), 1, RaySettings(), connect=processes))
    assert found["fedavg", 0].summary["status"] == "done"
    assert found["fedavg", 0].path == tmp_path / "fedavg-0"
    assert len(coterie.RunRecord.read(tmp_path / "ifca-0").rounds) == 3


def test_a_run_whose_process_is_lost_is_done_by_another_and_reported_once(tmp_path):
    processes = Processes(lose=lambda actor, method, call: (actor, method, call) == (0, "events", 2))
    events = list(run_on_ray(jobs_of()[:1], 1, RaySettings(), connect=processes))
    assert [content["t"] for _, what, content in events if what == "step"] == [0, 1, 2]
    assert events[-1][1] == "done"


def test_a_run_that_ends_three_processes_is_given_up():
    processes = Processes(lose=lambda actor, method, call: method == "events")
    with pytest.raises(FederationError, match=r"fedavg, seed 0: 3 processes of this run ended: planned by the test"):
        list(run_on_ray(jobs_of()[:1], 1, RaySettings(), connect=processes))
    assert len(processes.actors) == 3


def test_a_stopped_run_ends_and_a_failed_one_is_caught():
    jobs = jobs_of(run={**TINY["run"], "rounds": 1000})[:1]
    stop = set()
    events = []
    for event in run_on_ray(jobs, 1, RaySettings(), stop=stop, connect=Processes()):
        events.append(event)
        stop.add(event[0])
    assert events[-1][1] == "stopped"
    diverging = jobs_of(local={"lr_decay": 1e9}, run={**TINY["run"], "rounds": 20})[:1]
    last = list(run_on_ray(diverging, 1, RaySettings(), catch=(FederationError,), connect=Processes()))[-1]
    assert last[1] == "failed"
    assert isinstance(last[2], Diverged)


def test_clients_and_runs_are_not_both_spread():
    jobs = jobs_of(run={**TINY["run"], "backend": "ray"})
    with pytest.raises(SpecError, match="use one of them"):
        list(run_on_ray(jobs, 1, RaySettings(), connect=Processes()))


def test_an_unknown_place_is_refused():
    with pytest.raises(SpecError, match=r"No place for jobs 'rays'\. Did you mean 'ray'\? Known: processes, ray"):
        checked_jobs_on("rays")
