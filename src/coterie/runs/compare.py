"""`compare` runs several methods with the same cohorts, stragglers and seeds, and tests the differences.

`demonstration` returns the specs that `coterie compare` runs without arguments.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from coterie import data as datasets
from coterie.errors import RecordError, SpecError
from coterie.notebooks import html_table
from coterie.runs import comparison_tables
from coterie.runs.jobs import Job, carry_out, plan, recorded
from coterie.runs.observers import Observation, Observer, ending
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.resolve import fill_defaults
from coterie.runs.significance import add_holm, difference_tests, headline, higher_is_better
from coterie.runs.spec import Spec, SpecLike
from coterie.runs.spread import JobsOn, checked_jobs_on, run_spread
from coterie.runs.summary import number_at

if TYPE_CHECKING:
    import pandas

#: Called after each step of each run: (the run, line of the record).
OnStep = Callable[[Job, JsonObject], None]
#: Called when a run starts and when it has finished.
OnJob = Callable[[Job, Literal["started", "finished"]], None]
#: Returns the observers of a run.
ObserversOf = Callable[[Job], Iterable[Observer]]

#: Column of a comparison → path of keys in a summary.
COLUMNS: dict[str, tuple[str, ...]] = {
    "accuracy": ("accuracy", "weighted"),
    "mean": ("accuracy", "mean"),
    "worst_tenth": ("accuracy", "worst_tenth"),
    "best": ("accuracy", "weighted_best"),
    "last_ten": ("accuracy", "weighted_last_ten"),
    "worst_tenth_last_ten": ("accuracy", "worst_tenth_last_ten"),
    "last_ten_coverage": ("accuracy", "last_ten_coverage"),
    "coverage": ("coverage",),
    "test_loss": ("test_loss",),
    "adjusted_rand": ("truth", "adjusted_rand"),
    "misclustering": ("truth", "misclustering"),
    "clusters": ("clusters", "count"),
    "shifts": ("drift", "shifts"),
    "shifts_detected": ("drift", "detected"),
    "delay": ("drift", "delay"),
    "false_alarms": ("drift", "false_alarms"),
    "migrations_correct": ("drift", "migrations_correct"),
    "migrations_wrong": ("drift", "migrations_wrong"),
    "down_bytes": ("traffic", "down_bytes"),
    "up_bytes": ("traffic", "up_bytes"),
    "seconds": ("seconds", "total"),
}

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


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `compare`.

    Attributes:
        records: Label of a method → its runs, one per seed.
        table: One row per method: for each column the mean over seeds and, with several seeds, the standard deviation.
        significance: Label → comparison with the reference method. `difference`: mean over seeds of the difference in
            the headline. `t_test`, `wilcoxon`: p-values of paired one-sided tests that the headline is better.
            `t_test_holm`: p-value with Holm's correction for the number of methods. `no_p`: why there are no p-values,
            or None. `improvement`: mean over rounds of the difference in accuracy, with its standard deviation
            `improvement_deviation`.
        reference: Label of the reference method, the first one.
        headline: Column of the table by which methods are compared and tested: `last_ten`, the accuracy as the mean of
            the last ten rounds; `test_loss` if the primary metric is the loss, as for regression; or the name of
            another primary metric, as the mean of the last ten rounds.
    """

    records: dict[str, list[RunRecord]]
    table: list[JsonObject]
    significance: dict[str, JsonObject] = field(default_factory=dict)
    reference: str = ""
    headline: str = "last_ten"

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value of the headline is better."""
        return higher_is_better([record for group in self.records.values() for record in group], self.headline)

    def to_dict(self) -> JsonObject:
        """Return the JSON object that `coterie compare --json` prints."""
        runs = [record.summary for group in self.records.values() for record in group]
        return {
            "runs": runs,
            "table": self.table,
            "headline": self.headline,
            "reference": self.reference,
            "significance": self.significance,
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return the table as a pandas DataFrame, one row per method, with differences and p-values."""
        try:
            import pandas
        except ImportError as fault:
            raise RecordError("to_frame needs pandas: pip install 'coterie[table]'") from fault
        return pandas.DataFrame(comparison_tables.rows_with_tests(self)).set_index("method")

    def to_csv(self) -> str:
        """Return all columns of the table as CSV, with differences and p-values."""
        return comparison_tables.comma_separated(comparison_tables.rows_with_tests(self))

    def to_markdown(self) -> str:
        """Return the main columns as a Markdown table, mean ± standard deviation over seeds."""
        return comparison_tables.markdown(comparison_tables.cells(self))

    def to_latex(self) -> str:
        """Return the main columns as a LaTeX table for the package booktabs, mean ± standard deviation over seeds."""
        return comparison_tables.latex(comparison_tables.cells(self))

    def __repr__(self) -> str:
        """Short: the methods, the number of seeds, and what is compared."""
        seeds = max((len(group) for group in self.records.values()), default=0)
        return f"Comparison({', '.join(self.records)}; seeds: {seeds}, headline: {self.headline})"

    def _repr_html_(self) -> str:
        """The main columns, for notebooks."""
        return html_table(*comparison_tables.cells(self))


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
    """
    where = checked_jobs_on(jobs_on)
    labeled = _labeled(specs)
    if len(primary := sorted({spec.run.primary_metric for spec in labeled.values()})) > 1:
        raise SpecError(f"Methods are compared by one metric; run.primary_metric is {' and '.join(primary)}")
    planned = plan(labeled, seeds, out)
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
    reference = next(iter(groups))
    quantity = headline(list(records.values()))
    tests = {
        label: difference_tests(group, groups[reference], quantity)
        for label, group in groups.items()
        if label != reference
    }
    add_holm(tests)
    names = list(dict.fromkeys(name for record in records.values() for name in record.summary.get("metrics") or {}))
    table = [_row(label, group, names) for label, group in groups.items()]
    return Comparison(groups, table, tests, reference, quantity)


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
            spec = Spec.of(job.folder / "spec.toml") if job.begun and job.folder else fill_defaults(job.spec)
            self._following[job] = Observation(self.observers(job) if self.observers else (), spec, job.folder)
        return self._following[job]

    def broken_off(self, fault: BaseException) -> None:
        """Tell the observers of runs that have not finished that these have ended."""
        for observation in self._following.values():
            observation.on_end(ending(fault))


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


def _row(label: str, group: list[RunRecord], metrics: Sequence[str]) -> JsonObject:
    row: JsonObject = {"method": label, "seeds": len(group)}
    keys = {"": "last_ten", "_worst_tenth": "worst_tenth_last_ten", "_coverage": "last_ten_coverage"}
    own = {f"{name}{end}": ("metrics", name, key) for name in metrics for end, key in keys.items()}
    # A metric named like a column, such as the accuracy, is in the table already.
    for column, path in {**own, **COLUMNS}.items():
        numbers = [number_at(record.summary, path) for record in group]
        values = [value for value in numbers if value is not None and math.isfinite(value)]
        row[column] = statistics.fmean(values) if values else None
        row[f"{column}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
    return row
