"""Several runs side by side: the same cohorts, stragglers and seeds for every method, and what the differences mean."""

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
from typing import Any

from coterie import data as datasets
from coterie import metrics
from coterie.errors import FederationError, SpecError
from coterie.runs.loop import OnRound, run
from coterie.runs.record import RunRecord
from coterie.runs.spec import Spec
from coterie.runs.summary import trained_curve

#: Called after each step of each run: (label of the run, line).
OnStep = Callable[[str, dict[str, Any]], None]

#: What is compared: column → where a summary has it.
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
    "migrations_right": ("drift", "right"),
    "migrations_wrong": ("drift", "wrong"),
    "down_bytes": ("traffic", "down_bytes"),
    "up_bytes": ("traffic", "up_bytes"),
    "seconds": ("seconds", "total"),
}


@dataclass(frozen=True)
class Comparison:
    """What several runs gave.

    Attributes:
        records: Label of a method → its runs, one a seed.
        table: One row a method: for each column the mean over seeds and, with several seeds, the deviation.
        significance: Method → what speaks for its being better than the reference: the mean `difference` over seeds of
            the mean accuracy of the last ten rounds; p-values of paired one-sided tests of it, `t_test`, `wilcoxon` and
            `t_test_holm`, corrected for as many methods as are tested; and `improvement`, the mean difference over
            rounds, with its `improvement_deviation` over rounds.
        reference: The method that the others are tested against: the first.
    """

    records: dict[str, list[RunRecord]]
    table: list[dict[str, Any]]
    significance: dict[str, dict[str, float | None]] = field(default_factory=dict)
    reference: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        runs = [record.summary for group in self.records.values() for record in group]
        return {"runs": runs, "table": self.table, "reference": self.reference, "significance": self.significance}


def compare(
    specs: Iterable[Spec | Mapping[str, Any]] | Mapping[str, Spec | Mapping[str, Any]],
    *,
    seeds: int | Sequence[int] = 1,
    jobs: int = 1,
    out: str | os.PathLike[str] | None = None,
    on_step: OnStep | None = None,
) -> Comparison:
    """Run several specs on the same cohorts and seeds.

    Args:
        specs: What to compare, or label → what to compare; the label is the method's name otherwise.
        seeds: How many, counted up from each spec's own, or which.
        jobs: Runs at a time, each in a process of its own.
        out: A folder that gets a record of every run.
        on_step: Called after each step; with several jobs, for all steps of a run when it is done.
    """
    named = _labelled(specs)
    plan: list[tuple[str, Spec, str | None]] = []
    for label, spec in named.items():
        first = spec.run.seed
        for seed in range(first, first + seeds) if isinstance(seeds, int) else seeds:
            folder = None if out is None else str(Path(out) / f"{_safe(label)}-{seed}")
            plan.append((label, spec.with_values({"run.seed": seed}), folder))
    if not plan:
        raise SpecError("There is nothing to compare: give at least one method and one seed")
    if jobs > 1:
        records = _side_by_side(plan, jobs, on_step)
    else:
        records = [_one(label, spec, folder, _told(on_step, label)) for label, spec, folder in plan]
    groups: dict[str, list[RunRecord]] = {label: [] for label in named}
    for (label, _, _), record in zip(plan, records, strict=True):
        groups[label].append(record)
    reference = next(iter(groups))
    tests = {label: _tests(group, groups[reference]) for label, group in groups.items() if label != reference}
    _correct(tests)
    return Comparison(groups, [_row(label, group) for label, group in groups.items()], tests, reference)


def _side_by_side(plan: list[tuple[str, Spec, str | None]], jobs: int, on_step: OnStep | None) -> list[RunRecord]:
    """The records of runs in processes of their own."""
    # Once here, so that what has to be downloaded or drawn is, with progress, before several processes want it.
    for data in {repr(spec.data): spec.data for _, spec, _ in plan}.values():
        datasets.load(data.name, **dict(data.options))
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        futures = {pool.submit(_one, label, spec.to_dict(), folder): label for label, spec, folder in plan}
        for future in as_completed(futures):
            rows, told = future.result().rounds, _told(on_step, futures[future])
            if told is not None:
                for row in rows:
                    told(row)
        return [future.result() for future in futures]
    finally:  # after an error or Ctrl-C the others are not begun, and nobody waits for those that are
        pool.shutdown(wait=False, cancel_futures=True)


def _one(label: str, spec: Spec | dict[str, Any], folder: str | None, on_round: OnRound | None = None) -> RunRecord:
    try:
        return run(spec, out=folder, on_round=on_round)
    except FederationError as fault:
        raise type(fault)(f"{label}: {fault}") from fault


def _told(on_step: OnStep | None, label: str) -> OnRound | None:
    return None if on_step is None else lambda row: on_step(label, row)


def _safe(label: str) -> str:
    """A label as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", label)


def _labelled(specs: Any) -> dict[str, Spec]:
    if isinstance(specs, Mapping):
        return {str(label): Spec.of(spec) for label, spec in specs.items()}
    named: dict[str, Spec] = {}
    for given in specs:
        spec = Spec.of(given)
        label, number = spec.method.name, 2
        while label in named:
            label, number = f"{spec.method.name}-{number}", number + 1
        named[label] = spec
    return named


def value(summary: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    """The number at a path of a summary, or None."""
    here: Any = summary
    for key in path:
        here = here.get(key) if isinstance(here, Mapping) else None
    return None if here is None else float(here)


def _row(label: str, group: list[RunRecord]) -> dict[str, Any]:
    row: dict[str, Any] = {"method": label, "seeds": len(group)}
    for column, path in COLUMNS.items():
        values = [found for record in group if (found := value(record.summary, path)) is not None]
        row[column] = statistics.fmean(values) if values else None
        row[f"{column}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
    return row


def _tests(group: list[RunRecord], reference: list[RunRecord]) -> dict[str, float | None]:
    """Paired over seeds, one-sided: t-test, and Wilcoxon's signed ranks as a check; and the difference over rounds."""
    pairs = [
        (value(a.summary, COLUMNS["last_ten"]), value(b.summary, COLUMNS["last_ten"]))
        for a, b in zip(group, reference, strict=True)
    ]
    differences = [a - b for a, b in pairs if a is not None and b is not None]
    found: dict[str, float | None] = dict.fromkeys(("difference", "t_test", "t_test_holm", "wilcoxon"))
    found |= _improvement(group, reference)
    if differences:
        found["difference"] = statistics.fmean(differences)
    if len(differences) > 1 and statistics.stdev(differences) > 0:  # equal differences leave nothing to test
        from scipy import stats

        t_test = float(stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue)
        ranks = float(stats.wilcoxon(differences, alternative="greater").pvalue)
        found["t_test"] = None if math.isnan(t_test) else t_test
        found["wilcoxon"] = None if math.isnan(ranks) else ranks
    return found


def _improvement(group: list[RunRecord], reference: list[RunRecord]) -> dict[str, float | None]:
    """FedSim's mean improvement; None where the runs were not scored in as many rounds."""
    both = [[trained_curve(record.rounds) for record in records] for records in (group, reference)]
    lengths = {len(each) for curves in both for each in curves}
    if len(lengths) != 1 or lengths == {0}:
        return {"improvement": None, "improvement_deviation": None}
    found = metrics.mean_improvement(*both)
    return {"improvement": found.mean, "improvement_deviation": found.deviation}


def _correct(tests: dict[str, dict[str, float | None]]) -> None:
    """Put Holm's correction beside the p-values of the t-tests."""
    tested = {label: p for label, test in tests.items() if (p := test["t_test"]) is not None}
    for label, p in zip(tested, metrics.holm(list(tested.values())) if tested else [], strict=True):
        tests[label]["t_test_holm"] = p
