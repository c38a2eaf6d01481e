"""`run_on_ray` does several runs at a time, each in a process on the machines of a Ray cluster."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from coterie import codec
from coterie.errors import FederationError, SpecError
from coterie.federation.ray.cluster import Actors
from coterie.federation.ray.pool import WorkerLost
from coterie.federation.ray.settings import RaySettings
from coterie.runs.job_runner import JobRunner, files_of, write_files
from coterie.runs.jobs import Job
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.worker_pool import Event, error_of

#: Seconds that a process waits for the next event before it answers.
_PATIENCE = 0.5

#: Number of processes that one run may lose.
_MAX_LOSSES = 3


class Processes(Protocol):
    """What `run_on_ray` needs of `Actors`."""

    def start(self, kind: type, *args: object, cores: int) -> Any:
        """Start a process with an object of a class."""

    def submit(self, actor: Any, method: str, *args: object) -> Any:
        """Call a method of the object; returns a future."""

    def wait(self, futures: list[Any]) -> Any:
        """Wait until a future is done; returns those that are."""

    def result(self, future: Any) -> Any:
        """The result of a future; `WorkerLost` if its process was lost."""

    def end(self, actor: Any) -> None:
        """End a process."""


@dataclass
class _Running:
    """A run and the process that does it.

    Attributes:
        job: The run.
        actor: The process.
        last: Last round that was reported; -1: none.
        again: Whether an earlier process was lost: what it reported is not reported again.
        losses: Number of processes that were lost.
    """

    job: Job
    actor: Any
    last: int = -1
    again: bool = False
    losses: int = 0


def run_on_ray(
    jobs: Iterable[Job],
    workers: int,
    settings: RaySettings,
    *,
    stop: Collection[Job] = (),
    catch: tuple[type[Exception], ...] = (),
    connect: Callable[[RaySettings], Processes] = Actors,
) -> Generator[Event, None, None]:
    """Do all runs, and yield what happens to them as it happens; see `run_in_processes`.

    A run whose process is lost continues elsewhere: from its last checkpoint if the folder of records is shared by the
    machines, otherwise from the beginning.

    Args:
        jobs: The runs; the next one is taken when a process is free.
        workers: Number of runs at a time.
        settings: The cluster. Each run has `threads_per_worker` cores.
        stop: Runs to end after their current step. The caller may add to it whenever it gets a step.
        catch: Errors that end only their run: the event `failed`.
        connect: Connects to the cluster.
    """
    waiting = iter(jobs)
    processes = connect(settings)
    count = min(workers, len(jobs)) if isinstance(jobs, Sized) else workers
    running: dict[Any, _Running] = {}
    actors: list[Any] = []
    try:
        for _ in range(count):
            if (job := next(waiting, None)) is not None:
                actors.append(processes.start(JobRunner, cores=settings.threads_per_worker))
                yield _begin(processes, running, _Running(job, actors[-1]))
        while running:
            for future in processes.wait(list(running)):
                each = running.pop(future)
                try:
                    events = processes.result(future)
                except WorkerLost as fault:
                    actors.remove(each.actor)
                    again = _again(each, fault)
                    actors.append(processes.start(JobRunner, cores=settings.threads_per_worker))
                    _begin(processes, running, dataclasses.replace(again, actor=actors[-1]))
                    continue
                ended = False
                for event in _read(each, events, catch):
                    yield event
                    ended = event[1] != "step"
                if not ended:
                    if each.job in stop:
                        processes.submit(each.actor, "stop")
                    running[processes.submit(each.actor, "events", _PATIENCE)] = each
                elif (job := next(waiting, None)) is not None:
                    yield _begin(processes, running, _Running(job, each.actor))
    finally:
        for actor in actors:
            processes.end(actor)


def _begin(processes: Processes, running: dict[Any, _Running], each: _Running) -> Event:
    job, shared, files = each.job, None, dict[str, bytes]()
    if job.spec.run.backend == "ray":
        raise SpecError(
            "run.backend = 'ray' spreads the clients of one run over machines, and --jobs-on ray whole runs; use one "
            "of them"
        )
    if job.folder is not None:
        # A file that the other machine sees if it has the same folder.
        mark = job.folder.parent / f".coterie-{uuid.uuid4().hex[:12]}"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        shared, files = str(mark.resolve()), files_of(job.folder)
    folder = None if job.folder is None else str(job.folder.resolve())
    message = {"label": job.label, "spec": job.spec.to_dict(), "folder": folder, "validation": job.validation}
    started = processes.submit(each.actor, "start", message, shared, files)
    running[processes.submit(each.actor, "events", _PATIENCE)] = each
    if shared is not None:
        processes.wait([started])
        Path(shared).unlink()
    return job, "started", None


def _again(each: _Running, fault: WorkerLost) -> _Running:
    losses = each.losses + 1
    if losses >= _MAX_LOSSES:
        raise FederationError(f"{each.job.label}, seed {each.job.seed}: {losses} processes of this run ended: {fault}")
    logging.getLogger(__name__).warning(
        "%s, seed %d: its process on the Ray cluster was lost (%s); it runs again on another one",
        each.job.label,
        each.job.seed,
        fault,
    )
    return dataclasses.replace(each, again=True, losses=losses)


def _read(each: _Running, events: list[JsonObject], catch: tuple[type[Exception], ...]) -> Iterable[Event]:
    """The events of a process; messages of its log are logged here, and repeated steps are left out."""
    job = each.job
    for message in events:
        kind = message["kind"]
        if kind == "log":
            logging.getLogger(message["name"]).log(message["level"], "%s", message["text"])
        elif kind == "step":
            row = message["row"]
            if not each.again or (row["stage"] == "train" and row["t"] > each.last):
                each.last = max(each.last, row["t"])
                yield job, "step", row
        elif kind == "error":
            fault = error_of(message)
            if not isinstance(fault, catch):
                raise fault
            yield job, "failed", fault
        elif kind == "stopped":
            yield job, "stopped", None
        elif job.folder is not None:
            write_files(job.folder, message["files"])
            yield job, "done", RunRecord.read(job.folder)
        else:
            record = message["record"]
            yield job, "done", RunRecord(record["summary"], record["rounds"], None, codec.decode(message["models"]))
