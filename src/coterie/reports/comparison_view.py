"""`ComparisonView`: runs grouped by everything but their seed, and what a page shows of them side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from coterie.errors import RecordError, unknown
from coterie.metrics import bytes_to_target, rounds_to_target
from coterie.reports.score_curves import PrimaryMetric, client_scores
from coterie.reports.view import RunView
from coterie.runs.comparison import Comparison, comparison_of
from coterie.runs.conclusion import ONE_MODEL, conclusion
from coterie.runs.record import JsonObject
from coterie.runs.significance import paths
from coterie.runs.summary import number_at
from coterie.types import Array


@dataclass(frozen=True)
class SeedCurve:
    """A curve of one method, mean over seeds.

    Attributes:
        round: Rounds that all seeds have, from 1.
        mean: Mean over seeds.
        deviation: Standard deviation over seeds; NaN with one seed.
        megabytes: Mean number of megabytes, down and up, until the end of each round.
        seconds: Mean number of seconds of all steps until the end of each round.
    """

    round: Array
    mean: Array
    deviation: Array
    megabytes: Array
    seconds: Array


@dataclass(frozen=True)
class TargetRow:
    """When the runs of a method reached a score; None for a run that did not.

    Attributes:
        method: Label.
        rounds: Number of rounds of each seed.
        bytes: Bytes, down and up, of each seed.
    """

    method: str
    rounds: list[int | None]
    bytes: list[int | None]


@dataclass(frozen=True)
class ClientPairs:
    """Scores of the same clients with different methods.

    Attributes:
        clients: Client ids; with several seeds, a client occurs once for each seed, whose data may differ.
        seeds: Seed of each entry.
        scores: Label → score of each entry in the last evaluation.
    """

    clients: tuple[str, ...]
    seeds: tuple[int, ...]
    scores: Mapping[str, Array]

    def wins(self, one: str, other: str, metric: PrimaryMetric) -> tuple[int, int, int]:
        """Number of entries for which a method is better, worse, and equal to another."""
        difference = self.scores[one] - self.scores[other]
        difference = difference[~np.isnan(difference)] * (1 if metric.greater_is_better else -1)
        better, worse = int((difference > 1e-9).sum()), int((difference < -1e-9).sum())
        return better, worse, len(difference) - better - worse


@dataclass(frozen=True)
class ComparisonView:
    """Several runs side by side.

    Attributes:
        groups: Label → its finished runs, one per seed, in the order of seeds.
        excluded: Runs without a result: failed, interrupted, going on.
        reference: Label of the method that the others are tested against.
        metric: The primary metric.
    """

    groups: Mapping[str, Sequence[RunView]]
    excluded: Sequence[RunView]
    reference: str
    metric: PrimaryMetric

    @classmethod
    def of(cls, views: Sequence[RunView], reference: str | None = None) -> ComparisonView:
        """Group runs by everything but their seed.

        Args:
            views: The runs.
            reference: Label of the method that the others are tested against; None: a method with one model for all
                clients, if there is one, otherwise the first.
        """
        done = [view for view in views if view.status == "done"]
        if not done:
            raise RecordError("None of these runs has finished; make a page of one of them: coterie report RUN")
        if len(names := sorted({view.metric.name for view in done})) > 1:
            raise RecordError(
                f"Runs are compared by one metric, and run.primary_metric of these is {' and '.join(names)}"
            )
        if len(data := sorted({str(view.spec["data"]["name"]) for view in done})) > 1:
            raise RecordError(
                f"Runs are compared on the same data, and these have {' and '.join(data)}; choose some of them, for "
                "example with a pattern: coterie report 'runs/digits-*'"
            )
        groups = grouped(done)
        first = reference if reference is not None else _reference(groups)
        if first not in groups:
            raise RecordError(unknown("method of this comparison", first, groups))
        groups = {first: groups[first], **{label: group for label, group in groups.items() if label != first}}
        return cls(groups, [view for view in views if view.status != "done"], first, done[0].metric)

    @property
    def title(self) -> str:
        """What is compared."""
        data = sorted({str(view.spec["data"]["name"]) for view in self.views})
        what = ", ".join(self.groups) if len(self.groups) <= 4 else f"{len(self.groups)} methods"
        return f"{what} on {', '.join(data)}"

    @property
    def views(self) -> list[RunView]:
        """All finished runs."""
        return [view for group in self.groups.values() for view in group]

    @property
    def seeds(self) -> list[int]:
        """Seeds that every method has."""
        found = [{seed_of(view) for view in group} for group in self.groups.values()]
        return sorted(set.intersection(*found)) if found else []

    @cached_property
    def comparison(self) -> Comparison:
        """Means, deviations and paired tests, for the seeds that all methods have; without any, one run of each."""
        common = self.seeds
        records = {
            label: [view.record for view in group if seed_of(view) in common] or [group[0].record]
            for label, group in self.groups.items()
        }
        return comparison_of(records, self.reference)

    @cached_property
    def table(self) -> list[JsonObject]:
        """One row per method over all of its seeds, as in `Comparison.table`."""
        rows = []
        for label, group in self.groups.items():
            alone = comparison_of({label: [view.record for view in group]})
            rows += alone.table
        return rows

    @cached_property
    def conclusion(self) -> str:
        """The result in words."""
        common = self.seeds
        found = conclusion(self.comparison)
        if common and any({seed_of(view) for view in group} != set(common) for group in self.groups.values()):
            seeds = f"seed{'s' if len(common) > 1 else ''} {', '.join(map(str, common))}"
            found += f" (For {seeds}, which all methods have.)"
        return found

    @cached_property
    def curves(self) -> dict[str, SeedCurve]:
        """Label → primary metric over rounds."""
        return {label: seed_curve(group, lambda view: view.curves.primary) for label, group in self.groups.items()}

    @cached_property
    def loss_curves(self) -> dict[str, SeedCurve]:
        """Label → test loss over rounds."""
        return {label: seed_curve(group, lambda view: view.curves.loss) for label, group in self.groups.items()}

    @cached_property
    def target(self) -> float | None:
        """The target of the runs; without one, what the reference reaches. None if it has no score."""
        given = [float(view.spec["run"].get("target") or 0.0) for view in self.views]
        if any(given):
            return max(given)
        return self.headline_of(self.reference)

    def headline_of(self, label: str) -> float | None:
        """The headline of a method, mean over its seeds."""
        path, _ = paths(self.comparison.headline)
        values = [number_at(view.summary, path) for view in self.groups[label]]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    @cached_property
    def to_target(self) -> list[TargetRow]:
        """When each run reached the target."""
        if self.target is None:
            return []
        return [_target_row(label, group, self.metric, self.target) for label, group in self.groups.items()]

    @cached_property
    def client_pairs(self) -> ClientPairs | None:
        """Scores of the clients that all methods evaluated, for the seeds that all methods have; None without any."""
        clients: list[str] = []
        seeds: list[int] = []
        scores: dict[str, list[Array]] = {label: [] for label in self.groups}
        for seed in self.seeds:
            runs = {label: _with_seed(group, seed) for label, group in self.groups.items()}
            tables = {label: _scores_by_client(view) for label, view in runs.items()}
            both = [client for client in next(iter(tables.values())) if all(client in each for each in tables.values())]
            clients += both
            seeds += [seed] * len(both)
            for label, table in tables.items():
                scores[label].append(np.array([table[client] for client in both], np.float64))
        if not clients:
            return None
        return ClientPairs(
            tuple(clients), tuple(seeds), {label: np.concatenate(each) for label, each in scores.items()}
        )


def grouped(views: Sequence[RunView]) -> dict[str, list[RunView]]:
    """Label → runs that differ only in their seed, in the order of seeds.

    The label is the name of the method; if several groups have the same, with the settings in which they differ.
    """
    groups: dict[str, list[RunView]] = {}
    for view in views:
        groups.setdefault(repr(_without_seed(view.spec)), []).append(view)
    parts = [sorted(group, key=seed_of) for group in groups.values()]
    methods = [group[0].method for group in parts]
    labeled: dict[str, list[RunView]] = {}
    for group, method in zip(parts, methods, strict=True):
        same = [other[0].spec for other, name in zip(parts, methods, strict=True) if name == method]
        label = _label(method, group[0].spec, same) if len(same) > 1 else method
        number, unique = 2, label
        while unique in labeled:
            unique, number = f"{label} ({number})", number + 1
        labeled[unique] = _one_per_seed(group)
    return labeled


def seed_of(view: RunView) -> int:
    """Random seed of a run."""
    return int(view.spec["run"]["seed"])


def seed_curve(group: Sequence[RunView], values: Callable[[RunView], Array]) -> SeedCurve:
    """The curve of a method, mean over its seeds, at the rounds that all of them have."""
    rounds = sorted(set.intersection(*(set(view.curves.round.tolist()) for view in group)))
    lines, sent, spent = [], [], []
    for view in group:
        places = np.searchsorted(view.curves.round, rounds)
        lines.append(values(view)[places])
        sent.append(view.traffic.until(np.array(rounds)) / 1e6)
        spent.append(_seconds_until(view, rounds))
    table = np.array(lines).reshape(len(group), len(rounds))
    spread = table.std(axis=0, ddof=1) if len(group) > 1 else np.full(len(rounds), np.nan)
    return SeedCurve(
        np.array(rounds, np.int64), table.mean(axis=0), spread, np.mean(sent, axis=0), np.mean(spent, axis=0)
    )


def _seconds_until(view: RunView, rounds: Sequence[int]) -> Array:
    ends = np.cumsum([float(row.get("seconds") or 0.0) for row in view.rounds])
    last: dict[int, float] = {}
    t = 0
    for row, end in zip(view.rounds, ends.tolist(), strict=True):
        t = row["t"] + 1 if row["stage"] == "train" else t
        last[t] = end
    return np.array([last.get(each, np.nan) for each in rounds])


def _target_row(label: str, group: Sequence[RunView], metric: PrimaryMetric, target: float) -> TargetRow:
    sign = 1.0 if metric.greater_is_better else -1.0
    rounds: list[int | None] = []
    sent: list[int | None] = []
    for view in group:
        known = ~np.isnan(view.curves.primary)
        at, scores = view.curves.round[known], sign * view.curves.primary[known]
        reached = rounds_to_target(scores, sign * target) if len(scores) else None
        rounds.append(None if reached is None else int(at[reached]))
        totals = view.traffic.until(at).astype(np.int64)
        sent.append(None if reached is None else bytes_to_target(scores, totals, sign * target))
    return TargetRow(label, rounds, sent)


def _scores_by_client(view: RunView) -> dict[str, float]:
    results = view.last_evaluation
    if results is None:
        return {}
    return dict(zip(results.clients, client_scores(results, view.metric).tolist(), strict=True))


def _with_seed(group: Sequence[RunView], seed: int) -> RunView:
    return next(view for view in group if seed_of(view) == seed)


def _one_per_seed(group: Sequence[RunView]) -> list[RunView]:
    """The runs, without repetitions of the same seed."""
    return list({seed_of(view): view for view in reversed(group)}.values())[::-1]


def _without_seed(spec: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    plain = {section: dict(copy.deepcopy(settings)) for section, settings in sorted(spec.items())}
    seed = plain["run"].pop("seed", None)
    if plain["data"].get("seed") == seed:  # the partition follows the seed of the run, unless it is set
        plain["data"].pop("seed", None)
    return {section: dict(sorted(settings.items())) for section, settings in plain.items()}


def _label(
    method: str, spec: Mapping[str, Mapping[str, Any]], others: Sequence[Mapping[str, Mapping[str, Any]]]
) -> str:
    """The method with the settings in which runs of it differ, such as `ifca (clusters=2)`."""
    own, all_of = _without_seed(spec), [_without_seed(other) for other in others]
    differing = [
        f"{key}={settings[key]}"
        for section, settings in own.items()
        for key in settings
        if len({repr(other.get(section, {}).get(key)) for other in all_of}) > 1
    ]
    return f"{method} ({', '.join(differing)})" if differing else method


def _reference(groups: Mapping[str, Sequence[RunView]]) -> str:
    one = [label for label, group in groups.items() if group[0].method in ONE_MODEL]
    preferred = [label for label in one if groups[label][0].method == "fedavg"]
    return next(iter([*preferred, *one, *groups]))
