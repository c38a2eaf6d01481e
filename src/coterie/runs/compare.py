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
from typing import Literal

from coterie import data as datasets
from coterie import metrics
from coterie.runs.jobs import Job, carry_out, plan, recorded
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.spec import Spec, SpecLike
from coterie.runs.summary import number_at, trained_curve
from coterie.runs.worker_pool import run_in_processes

#: Called after each step of each run: (the run, line of the record).
OnStep = Callable[[Job, JsonObject], None]
#: Called when a run starts and when it has finished.
OnJob = Callable[[Job, Literal["started", "finished"]], None]

#: Column of a comparison → path of keys in a summary.
COLUMNS: dict[str, tuple[str, ...]] = {
    "accuracy": ("accuracy", "weighted"),
    "mean": ("accuracy", "mean"),
    "worst_tenth": ("accuracy", "worst_tenth"),
    "best": ("accuracy", "weighted_best"),
    "last_ten": ("accuracy", "weighted_last_ten"),
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
    "fedgroup": {"clusters": 4},
    "flexcfl": {"clusters": 4},
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


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        records: Label of a method → its runs, one per seed.
        table: One row per method: for each column the mean over seeds and, with several seeds, the standard deviation.
        significance: Label → comparison with the reference method. `difference`: mean over seeds of the difference in
            mean accuracy of the last ten rounds. `t_test`, `wilcoxon`: p-values of paired one-sided tests of this
            difference.
            `t_test_holm`: p-value with Holm's correction for the number of methods. `improvement`: mean over rounds of
            the difference in accuracy, with its standard deviation `improvement_deviation`.
        reference: Label of the reference method, the first one.
    """

    records: dict[str, list[RunRecord]]
    table: list[JsonObject]
    significance: dict[str, dict[str, float | None]] = field(default_factory=dict)
    reference: str = ""

    def to_dict(self) -> JsonObject:
        """Return the JSON object that `coterie compare --json` prints."""
        runs = [record.summary for group in self.records.values() for record in group]
        return {"runs": runs, "table": self.table, "reference": self.reference, "significance": self.significance}


def compare(
    specs: Iterable[SpecLike] | Mapping[str, SpecLike],
    *,
    seeds: int | Sequence[int] = 1,
    jobs: int = 1,
    out: str | os.PathLike[str] | None = None,
    on_step: OnStep | None = None,
    on_job: OnJob | None = None,
) -> Comparison:
    """Run several specs on the same cohorts and seeds.

    Args:
        specs: Specs to compare, or label → spec; without labels, the names of the methods are used.
        seeds: Number of seeds, counted up from the seed of each spec, or a list of seeds.
        jobs: Number of runs at a time, each in its own process.
        out: Folder for the records of all runs. If it has records of an earlier call with the same specs, finished
            runs are read, unfinished ones are continued, and the others are run.
        on_step: Called after each step of each run, while it runs, with the run and its line of the record.
        on_job: Called when a run starts and when it has finished; a run that was read has only finished.
    """
    labeled = _labeled(specs)
    planned = plan(labeled, seeds, out)
    report = _Report(on_step or (lambda job, row: None), on_job or (lambda job, what: None))
    records: dict[Job, RunRecord] = {}
    for job in planned:
        if (record := recorded(job)) is not None:
            records[job] = record
            report.job(job, "finished")
    missing = [job for job in planned if job not in records]
    records |= _in_processes(missing, jobs, report) if jobs > 1 and missing else _here(missing, report)
    groups: dict[str, list[RunRecord]] = {label: [] for label in labeled}
    for job in planned:
        groups[job.label].append(records[job])
    reference = next(iter(groups))
    tests = {label: _tests(group, groups[reference]) for label, group in groups.items() if label != reference}
    _add_holm(tests)
    return Comparison(groups, [_row(label, group) for label, group in groups.items()], tests, reference)


@dataclass(frozen=True)
class _Report:
    step: OnStep
    job: OnJob


def _here(missing: Sequence[Job], report: _Report) -> dict[Job, RunRecord]:
    """Do the runs in this process, one after another."""
    records: dict[Job, RunRecord] = {}
    for job in missing:
        report.job(job, "started")
        records[job] = carry_out(job, on_round=partial(report.step, job))
        report.job(job, "finished")
    return records


def _in_processes(missing: Sequence[Job], workers: int, report: _Report) -> dict[Job, RunRecord]:
    """Do the runs in worker processes, several at a time."""
    # Load the data here first, so that downloads and generated data are done once and show their progress.
    for data in {repr(job.spec.data): job.spec.data for job in missing}.values():
        datasets.load(data.name, **data.options)
    records: dict[Job, RunRecord] = {}
    with closing(run_in_processes(missing, workers)) as events:
        for job, what, content in events:
            if what == "step":
                report.step(job, content)
            elif what == "started":
                report.job(job, "started")
            else:
                records[job] = content
                report.job(job, "finished")
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


def _row(label: str, group: list[RunRecord]) -> JsonObject:
    row: JsonObject = {"method": label, "seeds": len(group)}
    for column, path in COLUMNS.items():
        values = [found for record in group if (found := number_at(record.summary, path)) is not None]
        row[column] = statistics.fmean(values) if values else None
        row[f"{column}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
    return row


def _tests(group: list[RunRecord], reference: list[RunRecord]) -> dict[str, float | None]:
    """Paired one-sided tests over seeds (t-test, Wilcoxon signed-rank), and the difference over rounds."""
    pairs = [
        (number_at(a.summary, COLUMNS["last_ten"]), number_at(b.summary, COLUMNS["last_ten"]))
        for a, b in zip(group, reference, strict=True)
    ]
    differences = [a - b for a, b in pairs if a is not None and b is not None]
    found: dict[str, float | None] = dict.fromkeys(("difference", "t_test", "t_test_holm", "wilcoxon"))
    found |= _improvement(group, reference)
    if differences:
        found["difference"] = statistics.fmean(differences)
    if len(differences) > 1 and statistics.stdev(differences) > 0:  # equal differences cannot be tested
        from scipy import stats

        t_test = float(stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue)
        ranks = float(stats.wilcoxon(differences, alternative="greater").pvalue)
        found["t_test"] = None if math.isnan(t_test) else t_test
        found["wilcoxon"] = None if math.isnan(ranks) else ranks
    return found


def _improvement(group: list[RunRecord], reference: list[RunRecord]) -> dict[str, float | None]:
    """Mean improvement over rounds as in FedSim; None if the runs have different numbers of evaluations."""
    both = [[trained_curve(record.rounds) for record in records] for records in (group, reference)]
    lengths = {len(each) for curves in both for each in curves}
    if len(lengths) != 1 or lengths == {0}:
        return {"improvement": None, "improvement_deviation": None}
    found = metrics.mean_improvement(*both)
    return {"improvement": found.mean, "improvement_deviation": found.deviation}


def _add_holm(tests: dict[str, dict[str, float | None]]) -> None:
    """Add Holm's correction to the p-values of the t-tests."""
    tested = {label: p for label, test in tests.items() if (p := test["t_test"]) is not None}
    for label, p in zip(tested, metrics.holm(list(tested.values())) if tested else [], strict=True):
        tests[label]["t_test_holm"] = p
