"""Does planned runs, several at a time, and stores them by content, so that finished ones are read the next time."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coterie import data as datasets
from coterie.errors import Error
from coterie.federation.ray.settings import RaySettings
from coterie.reproduce.planning import PlannedRun
from coterie.runs.compare import OnJob, OnStep
from coterie.runs.jobs import Job, carry_out, recorded
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.record_files import write_whole
from coterie.runs.spread import JobsOn, run_spread

#: Memory that one run may need, in bytes; it limits the default number of jobs.
_PER_JOB = 2 * 2**30

#: File of a probe in its folder.
_PROBE = "probe.json"

#: What a planned run gave: the folder of its record, the result of a probe, or why it failed.
Outcome = Path | JsonObject | Exception


@dataclass(frozen=True)
class Where:
    """Where runs are done and stored.

    Attributes:
        folder: Folder of the stored runs.
        jobs: Number of runs at a time.
        on: Processes on this machine, or on a Ray cluster.
        ray: The Ray cluster.
    """

    folder: Path
    jobs: int = 1
    on: JobsOn = "processes"
    ray: RaySettings = dataclasses.field(default_factory=RaySettings)


def default_jobs() -> int:
    """Number of runs at a time for which this machine has cores and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else _PER_JOB
    return max(1, min(_cores(), memory // _PER_JOB)) if os.name == "posix" else 1


def carry_out_all(
    runs: Iterable[PlannedRun], where: Where, *, on_step: OnStep | None = None, on_job: OnJob | None = None
) -> dict[str, Outcome]:
    """Do all runs that are not stored yet, and return the outcome of each by its key.

    A run that fails does not stop the others. An interrupted run continues from its last checkpoint.

    Args:
        runs: The runs, with different keys.
        where: Where they are done and stored.
        on_step: Called after each step of each run.
        on_job: Called when a run starts and when it has finished; a stored run has only finished.
    """
    step, report = on_step or (lambda job, row: None), on_job or (lambda job, what: None)
    found: dict[str, Outcome] = {}
    missing: dict[Job, str] = {}
    for run in runs:
        job = _job(run, where)
        if run.probe is not None:
            report(job, "started")
            found[run.key] = _probed(run, job, step)
            report(job, "finished")
        elif recorded(job) is None:
            missing[job] = run.key
        else:
            found[run.key] = where.folder / run.key
            report(job, "finished")
    for job, fault in _done(list(missing), where, step, report):
        found[missing[job]] = where.folder / missing[job] if fault is None else fault
        report(job, "finished")
    return found


def _job(run: PlannedRun, where: Where) -> Job:
    threads = max(1, _cores() // where.jobs) if where.on == "processes" else where.ray.threads_per_worker
    spec = run.spec.with_values({"run.threads": threads})
    return Job(run.label, spec, where.folder / run.key)


def _done(jobs: Sequence[Job], where: Where, step: OnStep, report: OnJob) -> Iterable[tuple[Job, Exception | None]]:
    """Do the runs; yields each when it has ended, with the error if it failed."""
    if not jobs:
        return
    where.folder.mkdir(parents=True, exist_ok=True)
    if where.jobs == 1 and where.on == "processes":
        for job in jobs:
            report(job, "started")
            yield job, _attempt(partial(carry_out, job, on_round=partial(step, job)))
        return
    # Load the data here first, so that copies in the cache are written once and show their progress.
    for data in {repr(job.spec.data): job.spec.data for job in jobs}.values():
        datasets.load(data.name, **data.options)
    with closing(run_spread(jobs, where.jobs, where.on, where.ray, catch=(Error,))) as events:
        for job, what, content in events:
            if what == "step":
                step(job, content)
            elif what == "started":
                report(job, "started")
            else:
                yield job, content if isinstance(content, Exception) else None


def _attempt(run: Callable[[], RunRecord]) -> Error | None:
    try:
        run()
    except Error as fault:
        return fault
    return None


def _probed(run: PlannedRun, job: Job, step: OnStep) -> JsonObject | Error:
    """The result of a probe; it is computed in this process, because it takes about a second."""
    from coterie.runs.pni import pni

    assert job.folder is not None
    file = job.folder / _PROBE
    if file.is_file():
        stored: JsonObject = json.loads(file.read_text(encoding="utf-8"))
        return stored
    done = 0

    def on_draw(count: int) -> None:
        nonlocal done
        for t in range(done, count):
            step(job, {"t": t, "stage": "train"})
        done = count

    try:
        found = pni(run.spec, **(run.probe or {}), on_draw=on_draw)
    except Error as fault:
        return fault
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(found).encode())
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
