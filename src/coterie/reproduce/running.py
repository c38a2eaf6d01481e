"""Does planned runs, several at a time, and stores them by content, so that finished ones are read the next time."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coterie import data as datasets
from coterie.errors import Error, RecordError
from coterie.federation.ray.settings import RaySettings
from coterie.reproduce.planning import PlannedRun
from coterie.runs.compare import OnJob, OnStep
from coterie.runs.jobs import Job, carry_out, recorded
from coterie.runs.record import JsonObject
from coterie.runs.record_files import explained, write_whole
from coterie.runs.spread import JobsOn, run_spread
from coterie.runs.summary import versions

#: Memory that one run may need, in bytes; it limits the default number of jobs.
_PER_JOB = 2 * 2**30

#: File of a probe in its folder.
_PROBE = "probe.json"


@dataclass(frozen=True)
class Probe:
    """The result of a measure that needs no run.

    Attributes:
        found: What it found.
        summary: Versions, data, source of the data and seconds, as in the summary of a run.
    """

    found: JsonObject
    summary: JsonObject


#: What a planned run gave: the folder of its record, the result of a probe, or why it failed.
Outcome = Path | Probe | Exception


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

    A run that fails, or whose stored record is damaged, does not stop the others. An interrupted run continues from its
    last checkpoint.

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
            continue
        try:
            finished = recorded(job) is not None
        except RecordError as fault:
            found[run.key] = _with_advice(fault, job)
            report(job, "finished")
            continue
        if finished:
            found[run.key] = where.folder / run.key
            report(job, "finished")
        else:
            missing[job] = run.key
    for job, failure in _done(list(missing), where, step, report):
        found[missing[job]] = where.folder / missing[job] if failure is None else _with_advice(failure, job)
        report(job, "finished")
    return found


def _with_advice(fault: Exception, job: Job) -> Exception:
    """The error; if it is about the record of the run, with what to do."""
    return RecordError(f"{fault}. Remove {job.folder} to do this run again") if type(fault) is RecordError else fault


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
    by_data: dict[str, list[Job]] = {}
    for job in jobs:
        by_data.setdefault(repr(job.spec.data), []).append(job)
    able: list[Job] = []
    for alike in by_data.values():
        data = alike[0].spec.data
        fault = _attempt(partial(datasets.load, data.name, **data.options))
        if fault is None:
            able += alike
        else:
            yield from ((job, fault) for job in alike)
    with closing(run_spread(able, where.jobs, where.on, where.ray, catch=(Error,))) as events:
        for job, what, content in events:
            if what == "step":
                step(job, content)
            elif what == "started":
                report(job, "started")
            else:
                yield job, content if isinstance(content, Exception) else None


def _attempt(run: Callable[[], object]) -> Error | None:
    try:
        run()
    except Error as fault:
        return fault
    return None


def _probed(run: PlannedRun, job: Job, step: OnStep) -> Probe | Error:
    """The result of a probe; it is computed in this process, because it takes about a second."""
    from coterie.runs.pni import pni

    assert job.folder is not None
    file = job.folder / _PROBE
    if (stored := _stored_probe(file)) is not None:
        return stored
    done, started = 0, time.perf_counter()

    def on_draw(count: int) -> None:
        nonlocal done
        for t in range(done, count):
            step(job, {"t": t, "stage": "train"})
        done = count

    try:
        found = pni(run.spec, **(run.probe or {}), on_draw=on_draw)
    except Error as fault:
        return fault
    summary: JsonObject = {
        "versions": versions(),
        "data": run.spec.data.name,
        "source": datasets.load(run.spec.data.name, **run.spec.data.options).source,
        "seconds": {"total": time.perf_counter() - started},
    }
    with explained(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps({"found": found, "summary": summary}).encode())
    return Probe(found, summary)


def _stored_probe(file: Path) -> Probe | None:
    """The stored result of a probe; None if there is none, or if it is damaged."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        probe = Probe(stored["found"], stored["summary"])
        float(probe.found["pni"]["mean"] + probe.summary["seconds"]["total"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return probe


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
