"""The numbers of a record: lines of `rounds.jsonl` and the keys of `summary.json`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie import drift, metrics, tree
from coterie.data.federated import FederatedData
from coterie.federation import Traffic
from coterie.runs.early_stopping import best_rounds, primary_value
from coterie.runs.record import JsonObject
from coterie.runs.scoring import Scores
from coterie.runs.session import Newcomers, Step
from coterie.types import ClientId

#: Keys of a line for newcomers: those that joined before the step, and those that joined when the method had finished.
_NEWCOMERS = ("newcomers", "last_newcomers")


def step_row(step: Step[Any], truth: Mapping[ClientId, int]) -> JsonObject:
    """The line of a step in `rounds.jsonl`, without the results of an evaluation.

    Args:
        step: The step.
        truth: Client → true cluster after the step; empty if true clusters are not known.
    """
    result = step.round
    row: JsonObject = {"t": step.t, "stage": step.stage, "cohort_size": len(step.cohort), "skipped": step.skipped}
    row["seconds"] = round(step.seconds, 6)
    if result is not None:
        distances = list(result.distances.values())
        row |= {
            "loss": result.loss,
            "discrepancy": float(np.mean(distances)) if distances else None,
            "assignment": dict(result.assignment),
            "counts": dict(result.counts),
        }
        if result.flagged is not None:
            row["flagged"] = list(result.flagged)
        if result.label:
            row |= {"phase": result.label, "phase_end": result.closes}
    if step.shifted:
        row["shifted"] = list(step.shifted)
        if truth:
            row["true_clusters"] = {client: truth[client] for client in step.shifted}
    row["traffic"] = dict(step.traffic or {})
    return row


def other_row(scores: Scores, truth: Mapping[ClientId, int], classes: int | None) -> JsonObject:
    """The entry `other_assignment` of a line: results with the other rule of `run.score_with`."""
    return {"score_with": scores.score_with, **results_row(scores, truth, classes)}


def results_row(scores: Scores, truth: Mapping[ClientId, int], classes: int | None) -> JsonObject:
    """The results of further clients, or of the same with other models, in a line; `current_models` has only these."""
    row = score_row(scores, truth, classes)
    return {key: row[key] for key in ("accuracy", "test_loss", "coverage", "truth")}


def newcomers_row(newcomers: Newcomers, truth: Mapping[ClientId, int], classes: int | None) -> JsonObject:
    """The entry `newcomers` of a line in `rounds.jsonl`."""
    cost = {"bytes": dict(newcomers.bytes), "seconds": round(newcomers.seconds, 6)}
    return {"clients": len(newcomers.scores.clients), **results_row(newcomers.scores, truth, classes), **cost}


def score_row(
    scores: Scores,
    truth: Mapping[ClientId, int],
    classes: int | None,
    assignment: Mapping[ClientId, int] | None = None,
) -> JsonObject:
    """The entries that an evaluation adds to a line in `rounds.jsonl`.

    Args:
        scores: Test results.
        truth: Client → true cluster; empty if true clusters are not known.
        classes: Number of classes; None for regression.
        assignment: Client → cluster, for the clients that took part in the step. It shows how well a method clusters
            even if it serves one model to all clients.
    """
    row: JsonObject = {"accuracy": accuracy(scores) if classes is not None else None}
    examples = float(scores.total.sum())
    row["test_loss"] = float(scores.loss.sum() / examples) if examples else None
    if scores.metrics:
        row["metrics"] = {name: values.to_row() for name, values in scores.metrics.items()}
    row["coverage"] = scores.coverage
    row["clusters"] = clusters(scores)
    known = {client: truth[client] for client in scores.requested} if truth else {}
    found = {client: row for client, row in zip(scores.clients, scores.rows.tolist(), strict=True) if row >= 0}
    row["truth"] = cluster_agreement(found, known)
    if row["truth"] is not None and assignment:
        cohort_truth = {client: truth[client] for client in assignment}
        row["truth"]["cohort_adjusted_rand"] = metrics.adjusted_rand(assignment, cohort_truth)
    return row


def validation_row(scores: Scores, classes: int | None) -> JsonObject:
    """The entry `validation` of a line: scores on validation examples.

    Args:
        scores: The scores.
        classes: Number of classes; None for regression.
    """
    examples = float(scores.total.sum())
    return {
        "accuracy": accuracy(scores) if classes is not None else None,
        "loss": float(scores.loss.sum() / examples) if examples else None,
        "metrics": {name: values.to_row() for name, values in scores.metrics.items()},
    }


def accuracy(scores: Scores) -> JsonObject | None:
    """Accuracies: over all examples, mean over clients, mean over the worst tenth of clients, and per cluster.

    Clients without a model of their own count with the fallback model, but are in no cluster. None if there are no test
    examples.
    """
    correct, total = np.asarray(scores.correct, np.float64), scores.total
    if not total.sum():
        return None
    by_cluster = {
        str(row): float(correct[scores.rows == row].sum() / total[scores.rows == row].sum())
        for row in np.unique(scores.rows[scores.rows >= 0])
        if total[scores.rows == row].sum()
    }
    return {
        "weighted": metrics.weighted_accuracy(correct, total),
        "mean": metrics.mean_accuracy(correct, total),
        "worst_tenth": metrics.worst_share_accuracy(correct, total, 0.1),
        "per_cluster": by_cluster,
    }


def clusters(scores: Scores) -> JsonObject:
    """Sizes of the clusters, and number of clusters that have clients."""
    models = tree.rows(scores.placement.bank)
    sizes = np.bincount(scores.rows[scores.rows >= 0], minlength=models)
    used = int((sizes > 0).sum())
    return {
        "count": used,
        "sizes": sizes.tolist(),
        "empty": models - used,
        "unassigned": int((scores.rows < 0).sum()),
        "collapsed": models > 1 and used <= 1,
        "adapted": scores.placement.adapt is not None,
    }


def cluster_agreement(found: Mapping[ClientId, int], truth: Mapping[ClientId, int]) -> JsonObject | None:
    """Agreement of found and true clusters; None if either is not known.

    Args:
        found: Client → found cluster.
        truth: Client → true cluster, for all requested clients; those without a found cluster count as misclustered.
    """
    if not truth or not found:
        return None
    return {
        "adjusted_rand": metrics.adjusted_rand(found, truth),
        "misclustering": metrics.misclustering(found, truth),
        "clusters": len(set(truth.values())),
    }


def curve(rows: Sequence[JsonObject], *path: str) -> list[float]:
    """The numbers at a path of keys, for all lines that have one there."""
    return [found for row in rows if (found := number_at(row, path)) is not None]


def number_at(entry: object, path: Sequence[str]) -> float | None:
    """The number at a path of keys in a line or a summary, or None."""
    for key in path:
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    return float(entry) if isinstance(entry, int | float) else None


def trained_curve(rows: Sequence[JsonObject]) -> list[float]:
    """The weighted accuracies of a run, one for each evaluated round."""
    return curve([rows[place] for place in evaluated_rounds(rows).values()], "accuracy", "weighted")


def evaluated_rounds(rows: Sequence[JsonObject]) -> dict[int, int]:
    """Round → position of its last evaluation in the lines of a record.

    A preparation step after a round, such as the merging of clusters, belongs to that round: its evaluation is what
    clients are served when the next round begins. Evaluations before the first round are left out. If there is no
    round, the last evaluation counts as round 0.
    """
    return dict(evaluations(rows))  # of several of a round, the last


def evaluations(rows: Sequence[JsonObject]) -> list[tuple[int, int]]:
    """Round and position of each evaluation, as in `evaluated_rounds`; a round may have several."""
    found: list[tuple[int, int]] = []
    t = None
    for place, row in enumerate(rows):
        t = row["t"] if row["stage"] == "train" else t
        if t is not None and row.get("coverage") is not None:
            found.append((t, place))
    evaluated = [place for place, row in enumerate(rows) if row.get("coverage") is not None]
    return found if t is not None or not evaluated else [(0, evaluated[-1])]


def _over_rounds(rows: Sequence[JsonObject]) -> JsonObject:
    """Best round and means of the last ten rounds, each with the coverage of these rounds; for runs with accuracies."""
    places = evaluated_rounds(rows)
    rounds = [t for t, place in places.items() if rows[place].get("accuracy")]
    if not rounds:
        return {}
    scored = [rows[places[t]] for t in rounds]
    weighted, mean, worst = (curve(scored, "accuracy", key) for key in ("weighted", "mean", "worst_tenth"))
    coverage, best = curve(scored, "coverage"), int(np.argmax(weighted))
    return {
        "weighted_best": weighted[best],
        "weighted_best_coverage": coverage[best],
        "weighted_last_ten": metrics.final_score(weighted, "last_ten", rounds=rounds),
        "mean_last_ten": metrics.final_score(mean, "last_ten", rounds=rounds),
        "worst_tenth_last_ten": metrics.final_score(worst, "last_ten", rounds=rounds),
        "last_ten_coverage": metrics.final_score(coverage, "last_ten", rounds=rounds),
    }


def _metrics_over_rounds(rows: Sequence[JsonObject], last: JsonObject) -> JsonObject:
    """The metrics of the last evaluation; with their best value, and means over the last ten rounds."""
    places = evaluated_rounds(rows)
    found: JsonObject = {}
    for name, entry in last["metrics"].items():
        path = ("metrics", name, "value")
        rounds = [t for t, place in places.items() if number_at(rows[place], path) is not None]
        found[name] = {**entry, "best": None, "last_ten": None, "worst_tenth_last_ten": None, "last_ten_coverage": None}
        if rounds:
            scored = [rows[places[t]] for t in rounds]
            values, coverage = curve(scored, *path), curve(scored, "coverage")
            found[name] |= {
                "best": max(values) if entry["greater_is_better"] else min(values),
                "last_ten": metrics.final_score(values, "last_ten", rounds=rounds),
                "last_ten_coverage": metrics.final_score(coverage, "last_ten", rounds=rounds),
            }
            worst = curve(scored, "metrics", name, "worst_tenth")
            if len(worst) == len(rounds):
                found[name]["worst_tenth_last_ten"] = metrics.final_score(worst, "last_ten", rounds=rounds)
    return found


def loss_warning(rows: Sequence[JsonObject]) -> str | None:
    """A warning if the test loss is more than ten times as large after the last evaluation as after the first one."""
    losses = [float(row["test_loss"]) for row in rows if row.get("test_loss") is not None]
    if len(losses) < 2 or not losses[-1] > 10 * losses[0] > 0:
        return None
    return (
        f"The test loss grew from {losses[0]:.4g} to {losses[-1]:.4g}: the training diverges; lower "
        "local.learning_rate (--lr)"
    )


def final(
    rows: Sequence[JsonObject],
    target: float,
    primary: str = "accuracy",
    *,
    higher: bool = True,
    served: int | None = None,
) -> JsonObject:
    """The part of a summary that is computed from the lines of `rounds.jsonl`.

    Args:
        rows: The lines.
        target: Target of the primary metric; 0: none.
        primary: The primary metric.
        higher: Whether a higher value of it is better.
        served: Position of the evaluation whose models are served; None: of the last one.
    """
    if served is None:
        served = max((place for place, row in enumerate(rows) if row.get("coverage") is not None), default=None)
    last: JsonObject = {} if served is None else rows[served]
    shown = {**last["accuracy"], **_over_rounds(rows)} if last.get("accuracy") else None
    spread = curve(rows, "discrepancy")
    result: JsonObject = {
        "accuracy": shown,
        "test_loss": last.get("test_loss"),
        "coverage": last.get("coverage"),
        "clusters": last.get("clusters"),
        "truth": last.get("truth"),
        "other_assignment": last.get("other_assignment"),
        "discrepancy": {"last": spread[-1], "mean": float(np.mean(spread)), "variance": float(np.var(spread))}
        if spread
        else None,
        "phases": [_phase(row) for row in rows if row.get("phase_end")],
        "newcomers": [
            {"joined": row["t"] + (key == "last_newcomers"), **row[key]}
            for row in rows
            for key in _NEWCOMERS
            if row.get(key)
        ],
        "shifts": sum(len(row.get("shifted") or ()) for row in rows),
        "skipped_rounds": sum(1 for row in rows if row.get("skipped")),
        "counts": _total([row.get("counts") or {} for row in rows]),
    }
    if last.get("metrics"):
        result["metrics"] = _metrics_over_rounds(rows, last)
    if last.get("validation"):
        result["validation"] = last["validation"]
        result |= best_rounds(rows, evaluations(rows), primary, higher=higher)
        if result["best_round"] is not None:
            result["best_round"]["served"] = result["best_round"]["step"] == served
    reached = _to_target(rows, target, primary, higher=higher) if target else None
    return result if reached is None else {**result, "target": reached}


def _to_target(rows: Sequence[JsonObject], target: float, primary: str, *, higher: bool) -> JsonObject | None:
    """Rounds and bytes until the target was reached, including the bytes of preparation steps and of newcomers.

    None if no round has a value of the primary metric.
    """
    sent = np.cumsum([sum(_bytes(row)) for row in rows])
    values = {t: primary_value(rows[place], primary) for t, place in evaluated_rounds(rows).items()}
    places = {t: place for t, place in evaluated_rounds(rows).items() if values[t] is not None}
    if not places:
        return None
    rounds, sign = list(places), 1.0 if higher else -1.0
    scores = [sign * value for value in values.values() if value is not None]
    totals = [int(sent[place]) for place in places.values()]
    reached = metrics.rounds_to_target(scores, sign * target)
    return {
        primary: target,
        "rounds": None if reached is None else rounds[reached] + 1,
        "bytes": metrics.bytes_to_target(scores, totals, sign * target),
    }


def drift_of(rows: Sequence[JsonObject], data: FederatedData) -> JsonObject:
    """Drift metrics of a run; `data`: the data at the start of the run."""
    truth = None if data.truth is None else dict(zip(data.clients, data.truth.tolist(), strict=True))
    rounds = [
        drift.ObservedRound(
            shifted=row.get("shifted") or (),
            true_clusters=row.get("true_clusters") or {},
            flagged=row.get("flagged"),
            assignment=row.get("assignment") or {},
        )
        for row in rows
    ]
    return dataclasses.asdict(drift.measure(rounds, truth))


def traffic_of(traffic: Traffic) -> JsonObject:
    """Total bytes and bytes by purpose; the totals do not include evaluation."""
    return {
        "down_bytes": traffic.total("down"),
        "up_bytes": traffic.total("up"),
        "by_purpose": traffic.by_purpose(),
    }


def peak_rss_bytes() -> int | None:
    """Peak memory of this process in bytes; None on Windows, where it is not measured."""
    try:
        import resource
    except ImportError:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results may depend on."""
    import platform
    from importlib import metadata

    names = ("coterie", "jax", "jaxlib", "numpy", "scikit-learn", "scipy")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def _phase(row: JsonObject) -> JsonObject:
    """The results at the end of a phase, for methods that have phases."""
    kept = {key: row.get(key) for key in ("phase", "t", "accuracy", "test_loss", "coverage", "truth")}
    return {**kept, "clusters": (row.get("clusters") or {}).get("count")}


def _bytes(row: JsonObject) -> list[int]:
    traffic = row.get("traffic") or {}
    sent = [count for purpose, ways in traffic.items() if purpose != "evaluate" for count in ways.values()]
    return [*sent, *(count for key in _NEWCOMERS for count in (row.get(key) or {}).get("bytes", {}).values())]


def _total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = sorted({name for each in counts for name in each})
    return {name: sum(each.get(name, 0) for each in counts) for name in names}
