"""`compare` runs several methods with the same cohorts, stragglers and seeds, and tests the differences.

`demonstration` returns the specs that `coterie compare` runs without arguments.
"""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from coterie import data as datasets
from coterie import metrics
from coterie.errors import FederationError, SpecError
from coterie.runs.loop import OnRound, run
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec, SpecLike
from coterie.runs.summary import number_at, trained_curve

#: Called after each step of each run: (label of the run, line of the record).
OnStep = Callable[[str, JsonObject], None]

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
) -> Comparison:
    """Run several specs on the same cohorts and seeds.

    Args:
        specs: Specs to compare, or label → spec; without labels, the names of the methods are used.
        seeds: Number of seeds, counted up from the seed of each spec, or a list of seeds.
        jobs: Number of runs at a time, each in its own process.
        out: Folder for the records of all runs.
        on_step: Called after each step; with several jobs, called for all steps of a run when the run has finished.
    """
    labeled = _labeled(specs)
    plan: list[tuple[str, Spec, str | None]] = []
    for label, spec in labeled.items():
        fill_defaults(spec)  # an error in any spec is reported before the first run
        first = spec.run.seed
        for seed in range(first, first + seeds) if isinstance(seeds, int) else seeds:
            folder = None if out is None else str(Path(out) / f"{_folder_name(label)}-{seed}")
            plan.append((label, spec.with_values({"run.seed": seed}), folder))
    if not plan:
        raise SpecError("There is nothing to compare: give at least one method and one seed")
    if jobs > 1:
        records = _in_processes(plan, jobs, on_step)
    else:
        records = [_run(label, spec, folder, _on_round(on_step, label)) for label, spec, folder in plan]
    groups: dict[str, list[RunRecord]] = {label: [] for label in labeled}
    for (label, _, _), record in zip(plan, records, strict=True):
        groups[label].append(record)
    reference = next(iter(groups))
    tests = {label: _tests(group, groups[reference]) for label, group in groups.items() if label != reference}
    _add_holm(tests)
    return Comparison(groups, [_row(label, group) for label, group in groups.items()], tests, reference)


def _in_processes(plan: list[tuple[str, Spec, str | None]], jobs: int, on_step: OnStep | None) -> list[RunRecord]:
    """Run all specs of the plan, each in its own process."""
    # Load the data here first, so that downloads and generated data are done once and show their progress.
    for data in {repr(spec.data): spec.data for _, spec, _ in plan}.values():
        datasets.load(data.name, **data.options)
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        futures = {pool.submit(_run, label, spec.to_dict(), folder): label for label, spec, folder in plan}
        for future in as_completed(futures):
            rows, on_round = future.result().rounds, _on_round(on_step, futures[future])
            if on_round is not None:
                for row in rows:
                    on_round(row)
        return [future.result() for future in futures]
    finally:  # after an error or Ctrl-C, pending runs are canceled and running ones are not awaited
        pool.shutdown(wait=False, cancel_futures=True)


def _run(label: str, spec: SpecLike, folder: str | None, on_round: OnRound | None = None) -> RunRecord:
    try:
        return run(spec, out=folder, on_round=on_round)
    except FederationError as fault:
        raise type(fault)(f"{label}: {fault}") from fault


def _on_round(on_step: OnStep | None, label: str) -> OnRound | None:
    return None if on_step is None else lambda row: on_step(label, row)


def _folder_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", label)


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
