"""`compare` runs several methods with the same cohorts, stragglers and seeds, and tests the differences.

`demonstration` returns the specs that `coterie compare` runs without arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from coterie import data as datasets
from coterie.errors import SpecError
from coterie.models import Task
from coterie.runs.comparison import Comparison, comparison_of
from coterie.runs.jobs import Job, carry_out, plan, recorded
from coterie.runs.metric_plan import MetricLike
from coterie.runs.objects import Objects
from coterie.runs.observers import Observation, Observer, ending
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec, SpecLike
from coterie.runs.spread import JobsOn, checked_jobs_on, run_spread

#: Called after each step of each run: (the run, line of the record).
OnStep = Callable[[Job, JsonObject], None]
#: Called when a run starts and when it has finished.
OnJob = Callable[[Job, Literal["started", "finished"]], None]
#: Returns the observers of a run.
ObserversOf = Callable[[Job], Iterable[Observer]]

#: Methods of the demonstration; the others are tested against the first.
METHODS = ("fedavg", "fedprox", "local", "ifca", "fedgroup", "flexcfl", "oracle")

#: Settings of the demonstration: 40 clients with digits, rotated by 0°, 90°, 180° or 270°.
_SHARED: JsonObject = {"data": {"name": "digits"}, "run": {"rounds": 60, "clients_per_round": 10}}
#: Method → settings that differ from the defaults in the demonstration.
DEMONSTRATION_SETTINGS: dict[str, JsonObject] = {
    # From a random start IFCA may collapse to fewer clusters, so the best of several starts is kept (training loss).
    "ifca": {"clusters": 4, "restarts": 5},
}


def demonstration(methods: Sequence[str] = METHODS) -> dict[str, Spec]:
    """Return the specs of the demonstration, label → spec.

    Args:
        methods: Names of methods; the others are tested against the first.
    """
    return {
        name: Spec.from_dict({**_SHARED, "method": {"name": name, **DEMONSTRATION_SETTINGS.get(name, {})}})
        for name in methods
    }


def compare(
    specs: Iterable[SpecLike] | Mapping[str, SpecLike],
    *,
    seeds: int | Sequence[int] = 1,
    jobs: int = 1,
    jobs_on: JobsOn = "processes",
    out: str | os.PathLike[str] | None = None,
    on_step: OnStep | None = None,
    on_job: OnJob | None = None,
    observers: ObserversOf | None = None,
    data: Any = None,
    task: Task | None = None,
    metrics: Mapping[str, MetricLike] | None = None,
) -> Comparison:
    """Run several specs on the same cohorts and seeds.

    Args:
        specs: Specs to compare, or label → spec; without labels, the names of the methods are used.
        seeds: Number of seeds, counted up from the seed of each spec, or a list of seeds.
        jobs: Number of runs at a time, each in its own process.
        jobs_on: Where these processes are: on this machine, or on those of a Ray cluster ([ray] of the first spec).
        out: Folder for the records of all runs. If it has records of an earlier call with the same specs, finished
            runs are read, unfinished ones are continued, and the others are run.
        on_step: Called after each step of each run, while it runs, with the run and its line of the record.
        on_job: Called when a run starts and when it has finished; a run that was read has only finished.
        observers: Called for each run that is done or continued; returns objects that follow it, such as those of
            `coterie.tracking`. They are called in this process, also with several jobs, from the first step on.
        data: Data that replace those of all specs, as in `run`. Data, task and metrics need jobs=1.
        task: A task that replaces the model of all specs.
        metrics: Metrics of your own, as in `run`.
    """
    objects = Objects.of(data, task, metrics, jobs=jobs)
    where = checked_jobs_on(jobs_on)
    labeled = _labeled(specs)
    if len(primary := sorted({spec.run.primary_metric for spec in labeled.values()})) > 1:
        raise SpecError(f"Methods are compared by one metric; run.primary_metric is {' and '.join(primary)}")
    planned = plan(labeled, seeds, out, objects)
    report = _Report(on_step or (lambda job, row: None), on_job or (lambda job, what: None), observers)
    records: dict[Job, RunRecord] = {}
    for job in planned:
        if (record := recorded(job)) is not None:
            records[job] = record
            report.job(job, "finished")
    missing = [job for job in planned if job not in records]
    try:
        elsewhere = (jobs > 1 or where == "ray") and missing
        records |= _in_processes(missing, jobs, where, report) if elsewhere else _here(missing, report)
    except BaseException as fault:
        report.broken_off(fault)
        raise
    groups: dict[str, list[RunRecord]] = {label: [] for label in labeled}
    for job in planned:
        groups[job.label].append(records[job])
    return comparison_of(groups)


@dataclass(frozen=True)
class _Report:
    """Reports what happens to runs: to the functions that `compare` was given, and to the observers of each run."""

    on_step: OnStep
    job: OnJob
    observers: ObserversOf | None = None
    _following: dict[Job, Observation] = field(default_factory=dict)

    def step(self, job: Job, row: JsonObject) -> None:
        self._followed(job).on_round(row)
        self.on_step(job, row)

    def finished(self, job: Job, record: RunRecord) -> None:
        self._followed(job).on_end(record.summary)
        del self._following[job]
        self.job(job, "finished")

    def _followed(self, job: Job) -> Observation:
        # Created with the first step: before it, the folder must be empty.
        if job not in self._following:
            spec = Spec.of(job.folder / "spec.toml") if job.begun and job.folder else _filled(job)
            self._following[job] = Observation(self.observers(job) if self.observers else (), spec, job.folder)
        return self._following[job]

    def broken_off(self, fault: BaseException) -> None:
        """Tell the observers of runs that have not finished that these have ended."""
        for observation in self._following.values():
            observation.on_end(ending(fault))


def _filled(job: Job) -> Spec:
    return fill_defaults(job.spec, given=job.objects.sections)


def _here(missing: Sequence[Job], report: _Report) -> dict[Job, RunRecord]:
    """Do the runs in this process, one after another."""
    records: dict[Job, RunRecord] = {}
    for job in missing:
        report.job(job, "started")
        records[job] = carry_out(job, on_round=partial(report.step, job))
        report.finished(job, records[job])
    return records


def _in_processes(missing: Sequence[Job], workers: int, where: JobsOn, report: _Report) -> dict[Job, RunRecord]:
    """Do the runs in worker processes, several at a time."""
    # Load the data here first, so that downloads and generated data are done once and show their progress.
    for data in {repr(job.spec.data): job.spec.data for job in missing}.values():
        datasets.load(data.name, **data.options)
    records: dict[Job, RunRecord] = {}
    with closing(run_spread(missing, workers, where, missing[0].spec.ray)) as events:
        for job, what, content in events:
            if what == "step":
                report.step(job, content)
            elif what == "started":
                report.job(job, "started")
            else:
                records[job] = content
                report.finished(job, content)
    return records


def _labeled(specs: Iterable[SpecLike] | Mapping[str, SpecLike]) -> dict[str, Spec]:
    if isinstance(specs, Mapping):
        return {str(label): Spec.of(spec) for label, spec in specs.items()}
    labeled: dict[str, Spec] = {}
    for given in specs:
        spec = Spec.of(given)
        label, number = spec.method.name, 2
        while label in labeled:
            label, number = f"{spec.method.name}-{number}", number + 1
        labeled[label] = spec
    return labeled
