"""Measures: the number that an entry compares, computed from the record of a run.

Accuracies are in percent, their differences in percentage points. A measure that compares gets the record of a second
run, the baseline, with the same seed. `pni` is not about a run: see `runs.pni`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie import metrics
from coterie.errors import RecordError, SpecError, shown, unknown
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.summary import curve, evaluated_rounds, number_at
from coterie.types import Array


@dataclass(frozen=True)
class Sample:
    """A measured number of one seed.

    Attributes:
        value: The number; None if the run has none, such as a target that was not reached.
        coverage: Fraction of clients that had a model of their own in the rounds that it is about.
    """

    value: float | None
    coverage: float = 1.0


@dataclass(frozen=True)
class Measure:
    """A measure.

    Attributes:
        text: What it is.
        of: Function of the record, or of the record and that of the baseline; and of the options.
        compares: Whether it needs a baseline.
        probes: Whether it is computed from data and model, without a run.
        digits: Smallest number of decimals in tables.
    """

    text: str
    of: Callable[..., Sample]
    compares: bool = False
    probes: bool = False
    digits: int = 0

    @property
    def options(self) -> list[str]:
        """Names of its options."""
        return list(inspect.signature(self.of).parameters)[2 if self.compares else 1 :]


def _scored(record: RunRecord) -> list[JsonObject]:
    """The line of the last evaluation of each round."""
    return [record.rounds[place] for place in evaluated_rounds(record.rounds).values()]


def _curve(record: RunRecord, key: str = "weighted") -> Array:
    """Accuracies over rounds in percent."""
    return 100 * np.asarray(curve(_scored(record), "accuracy", key))


def _at(record: RunRecord, *path: str, factor: float = 1.0) -> Sample:
    value = number_at(record.summary, path)
    coverage = record.summary.get("coverage")
    return Sample(None if value is None else factor * value, 1.0 if coverage is None else float(coverage))


def _best_weighted(record: RunRecord) -> Sample:
    """Over the rounds in which every client has a model; if there are none, over all, with their coverage."""
    return _best(_scored(record))


def _best_of_current_models(record: RunRecord) -> Sample:
    """The same for the current models, which a run with `eval_model="last_received"` scores besides."""
    return _best([line.get("current_models", line) for line in _scored(record)])


def _best(lines: Sequence[JsonObject]) -> Sample:
    scores, coverage = 100 * np.asarray(curve(lines, "accuracy", "weighted")), np.asarray(curve(lines, "coverage"))
    whole = coverage >= 1 - 1e-9
    best = int(np.argmax(np.where(whole, scores, -1.0) if whole.any() else scores))
    return Sample(float(scores[best]), float(coverage[best]))


def _median_weighted(record: RunRecord) -> Sample:
    return Sample(float(np.median(_curve(record))))


def _rounds_to(record: RunRecord, target: float) -> Sample:
    reached = metrics.rounds_to_target(_curve(record), target)
    rounds = list(evaluated_rounds(record.rounds))
    return Sample(None if reached is None else float(rounds[reached] + 1))


def _phase(record: RunRecord, phase: str) -> Sample:
    found = next((each for each in record.summary["phases"] if each["phase"] == phase), None)
    if found is None:
        return Sample(None)
    return Sample(100 * found["accuracy"]["mean"], found["coverage"])


def _misclustering(record: RunRecord) -> Sample:
    return _at(record, "truth", "misclustering")


def _converged(record: RunRecord, share: float) -> Sample:
    """The first round from which the mean client accuracy stays at this share of its final value."""
    scores = _curve(record, "mean")
    target = share * metrics.final_score(scores)
    below = np.flatnonzero(scores < target)
    first = int(below[-1]) + 1 if below.size else 0
    rounds = list(evaluated_rounds(record.rounds))
    return Sample(float(rounds[first] + 1) if first < len(rounds) else None)


def _deviation(record: RunRecord, last: int) -> Sample:
    """Over the last rounds, or over all if there are fewer."""
    return Sample(float(np.std(_curve(record)[-last:])))


def _components(record: RunRecord) -> Sample:
    """Mean over rounds of the number of principal components by which the cohort was clustered."""
    found = [evidence["scores"].shape[1] for evidence in _evidence(record, "scores")]
    return Sample(float(np.mean(found)) if found else None)


def _elbow(record: RunRecord) -> Sample:
    found = [each for each in _evidence(record, "threshold") if "labels" in each]
    return Sample(float(found[-1]["threshold"]) if found else None)


def _evidence(record: RunRecord, key: str) -> list[dict[str, Any]]:
    """The evidence of all steps that have this key."""
    found = []
    for step in range(len(record.rounds)):
        try:
            evidence = record.evidence(step)
        except RecordError:
            continue
        if key in evidence:
            found.append(evidence)
    return found


def _improvement(record: RunRecord, baseline: RunRecord) -> Sample:
    return Sample(float(np.mean(_curve(record) - _curve(baseline))))


def _gain_of_best(record: RunRecord, baseline: RunRecord) -> Sample:
    one, other = _best_weighted(record), _best_weighted(baseline)
    assert one.value is not None
    assert other.value is not None
    return Sample(one.value - other.value, min(one.coverage, other.coverage))


def _traffic_ratio(record: RunRecord, baseline: RunRecord) -> Sample:
    one, other = (sum(each.summary["traffic"][f"{way}_bytes"] for way in ("down", "up")) for each in (record, baseline))
    return Sample(one / other)


def _correlation(record: RunRecord, baseline: RunRecord) -> Sample:
    """Pearson correlation of the distances of all pairs of clients, by which the two runs clustered them."""
    (one, names), (other, others) = _distances(record), _distances(baseline)
    if names != others:
        raise RecordError(f"{record.path} and {baseline.path} clustered different clients; use the same data and seed")
    pairs = np.triu_indices(len(names), 1)
    return Sample(float(np.corrcoef(one[pairs], other[pairs])[0, 1]))


def _distances(record: RunRecord) -> tuple[Array, list[str]]:
    found = [each for key in ("embedding", "distances") for each in _evidence(record, key)]
    if not found:
        raise RecordError(f"{record.path} has no distances of pairs of clients; only fedgroup and flexcfl record them")
    evidence = found[0]
    if "distances" in evidence:
        return np.asarray(evidence["distances"]), list(evidence["clients"])
    points = np.asarray(evidence["embedding"])
    apart = np.linalg.norm(points[:, None] - points[None], axis=2) / points.shape[1]
    return apart, list(evidence["clients"])


def _pni(found: Mapping[str, Any]) -> Sample:
    return Sample(float(found["pni"]["mean"]))


#: Name → measure.
MEASURES: dict[str, Measure] = {
    "best_weighted": Measure("best weighted accuracy of a round, %", _best_weighted),
    "best_weighted_of_current_models": Measure(
        "best weighted accuracy of a round with the current models of the clusters, %", _best_of_current_models
    ),
    "median_weighted": Measure("median over rounds of the weighted accuracy, %", _median_weighted),
    "last_weighted": Measure(
        "weighted accuracy after the last round, %", lambda record: _at(record, "accuracy", "weighted", factor=100)
    ),
    "mean_accuracy": Measure(
        "mean accuracy over clients at the end, %", lambda record: _at(record, "accuracy", "mean", factor=100)
    ),
    "phase": Measure("mean accuracy over clients after a stage, %", _phase),
    "misclustering": Measure("fraction of misclustered clients at the end", _misclustering, digits=2),
    "clusters": Measure("number of clusters at the end", lambda record: _at(record, "clusters", "count")),
    "discrepancy_mean": Measure("mean discrepancy over rounds", lambda record: _at(record, "discrepancy", "mean")),
    "discrepancy_variance": Measure(
        "variance of the discrepancy over rounds", lambda record: _at(record, "discrepancy", "variance")
    ),
    "rounds_to": Measure("first round whose weighted accuracy reaches a target", _rounds_to),
    "converged": Measure("first round from which the accuracy stays near its final value", _converged),
    "deviation": Measure("deviation of the weighted accuracy over the last rounds, points", _deviation),
    "components": Measure("principal components of the gradients, mean over rounds", _components),
    "elbow": Measure("clustering threshold at the elbow", _elbow),
    "improvement": Measure("improvement over a baseline, mean over rounds, points", _improvement, compares=True),
    "gain_of_best": Measure("gain of the best weighted accuracy over a baseline, points", _gain_of_best, compares=True),
    "traffic_ratio": Measure("bytes relative to a baseline", _traffic_ratio, compares=True),
    "correlation": Measure("Pearson correlation of pairwise distances in two runs", _correlation, compares=True),
    "pni": Measure("non-IID index PNI, mean over random models", _pni, probes=True),
}


def checked_measure(given: object) -> dict[str, Any]:
    """A measure as a table with its name and options; raises SpecError if there is no such measure or option."""
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise SpecError(f"measure must be a name, or a table with a name and options, got {shown(given)}")
    name = table["name"]
    if name not in MEASURES:
        raise SpecError(unknown("measure", name, MEASURES))
    known = ["draws"] if MEASURES[name].probes else MEASURES[name].options
    for key in table:
        if key not in ("name", *known):
            raise SpecError(unknown("option", key, known, f"of the measure {name}"))
    if missing := [key for key in known if key not in table]:
        raise SpecError(f"The measure {name} needs {' and '.join(missing)}")
    return dict(table)


def over_rounds(records: Sequence[RunRecord], baselines: Sequence[RunRecord]) -> float:
    """Standard deviation over rounds of the improvement, from curves averaged over seeds, as FedSim prints it."""
    curves, others = (np.stack([_curve(each) for each in runs]) for runs in (records, baselines))
    return metrics.mean_improvement(curves, others).deviation
