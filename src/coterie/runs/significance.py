"""Tests of the differences between methods, paired by seed.

The tested quantity is the headline of a comparison, which follows from the primary metric: the accuracy, or another
metric, as the mean of the last ten rounds; or the test loss after the last round. Methods are tested only on equal
populations: the same clients with the same data, all of them assigned a model (coverage 1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from coterie import metrics
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.summary import number_at, trained_curve

#: With fewer seeds, p-values mean little.
ENOUGH_SEEDS = 5

#: Headline → path of keys in a summary, for its value and for its coverage.
HEADLINES = {
    "last_ten": (("accuracy", "weighted_last_ten"), ("accuracy", "last_ten_coverage")),
    "test_loss": (("test_loss",), ("coverage",)),
}

#: Settings on which the evaluated clients and their data depend; a section, or a key of a section.
_POPULATION = ("data", "shift", "attack", "run.seed", "run.newcomers", "run.newcomers_join", "run.validate")


def headline(records: Sequence[RunRecord]) -> str:
    """The tested quantity: `last_ten` (accuracy), `test_loss`, or the name of another primary metric.

    Without a primary metric: `last_ten`, or `test_loss` if no run has an accuracy.
    """
    for record in records:
        primary = record.served.get("spec", {}).get("run", {}).get("primary_metric")
        if primary == "loss":
            return "test_loss"
        if primary not in (None, "accuracy"):
            return str(primary)
    return "last_ten" if any(record.summary.get("accuracy") for record in records) else "test_loss"


def paths(quantity: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths of keys in a summary to the value of a headline and to its coverage."""
    if quantity in HEADLINES:
        return HEADLINES[quantity]
    return ("metrics", quantity, "last_ten"), ("metrics", quantity, "last_ten_coverage")


def higher_is_better(records: Sequence[RunRecord], quantity: str) -> bool:
    """Whether a higher value of a headline is better."""
    if quantity in HEADLINES:
        return quantity != "test_loss"
    entries = [(record.summary.get("metrics") or {}).get(quantity) for record in records]
    return all(entry["greater_is_better"] for entry in entries if entry)


def difference_tests(group: Sequence[RunRecord], reference: Sequence[RunRecord], quantity: str) -> JsonObject:
    """Paired one-sided tests over seeds that a method is better than the reference; and the difference over rounds.

    Args:
        group: Runs of the method, one per seed.
        reference: Runs of the reference with the same seeds.
        quantity: What is tested: the headline.

    Returns:
        `difference`: mean over seeds, method minus reference. `t_test`, `wilcoxon`: p-values. `no_p`: why there are
        none; None if there are. `improvement`, `improvement_deviation`: mean and standard deviation over rounds of the
        difference in accuracy.
    """
    path, _ = paths(quantity)
    pairs = [(number_at(a.summary, path), number_at(b.summary, path)) for a, b in zip(group, reference, strict=True)]
    differences = [a - b for a, b in pairs if a is not None and b is not None and math.isfinite(a - b)]
    found: JsonObject = dict.fromkeys(("difference", "t_test", "t_test_holm", "wilcoxon"))
    found["no_p"] = _obstacle(group, reference, quantity) or _too_few(differences, len(pairs))
    found |= _improvement(group, reference)
    if differences:
        found["difference"] = statistics.fmean(differences)
    if found["no_p"] is None:
        from scipy import stats

        better = "greater" if higher_is_better([*group, *reference], quantity) else "less"
        found["t_test"] = float(stats.ttest_1samp(differences, 0.0, alternative=better).pvalue)
        found["wilcoxon"] = float(stats.wilcoxon(differences, alternative=better).pvalue)
    return found


def add_holm(tests: dict[str, JsonObject]) -> None:
    """Add Holm's correction to the p-values of the t-tests."""
    tested = {label: p for label, test in tests.items() if (p := test["t_test"]) is not None}
    for label, p in zip(tested, metrics.holm(list(tested.values())) if tested else [], strict=True):
        tests[label]["t_test_holm"] = p


def _obstacle(group: Sequence[RunRecord], reference: Sequence[RunRecord], quantity: str) -> str | None:
    """Why the runs do not score equal populations; None if they do."""
    for a, b in zip(group, reference, strict=True):
        if (setting := _population_difference(a, b)) is not None:
            return f"clients or data are not those of the reference ({setting} differs)"
    _, path = paths(quantity)
    for records, whose in ((group, "the"), (reference, "the reference's")):
        covered = [value for record in records if (value := number_at(record.summary, path)) is not None]
        if covered and min(covered) < 1:
            share = f"{100 * statistics.fmean(covered):.1f} %"
            return f"only {share} of {whose} clients have been assigned a model"
    return None


def _population_difference(one: RunRecord, other: RunRecord) -> str | None:
    if one.summary.get("clients") != other.summary.get("clients"):
        return "the number of clients"
    for setting in _POPULATION:
        section, _, key = setting.partition(".")
        there, here = (record.served.get("spec", {}).get(section, {}) for record in (one, other))
        for name in [key] if key else sorted({*there, *here}):
            if there.get(name) != here.get(name):
                return f"{section}.{name}"
    return None


def _too_few(differences: Sequence[float], seeds: int) -> str | None:
    """Why the differences cannot be tested; None if they can."""
    if seeds < 2:
        return "a test needs at least two seeds"
    if len(differences) < seeds:
        return "not all runs have a result"
    return None if statistics.stdev(differences) > 0 else "the difference is the same for all seeds"


def _improvement(group: Sequence[RunRecord], reference: Sequence[RunRecord]) -> dict[str, float | None]:
    """Mean improvement over rounds as in FedSim; None if the runs have different numbers of evaluations."""
    both = [[trained_curve(record.rounds) for record in records] for records in (group, reference)]
    lengths = {len(each) for curves in both for each in curves}
    if len(lengths) != 1 or lengths == {0}:
        return {"improvement": None, "improvement_deviation": None}
    found = metrics.mean_improvement(*both)
    return {"improvement": found.mean, "improvement_deviation": found.deviation}
