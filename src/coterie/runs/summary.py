"""From what a step or a run gave to the numbers that a record keeps."""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie import metrics
from coterie.data.federated import FederatedData
from coterie.drift import Look, measure
from coterie.federation import Traffic
from coterie.runs.session import Scores, Step, Welcome
from coterie.types import ClientId

#: Purpose → bytes down and up.
Purposes = Mapping[str, Mapping[str, int]]


def step_row(
    step: Step[Any], traffic: Traffic, earlier: Purposes, seconds: float, truth: Mapping[ClientId, int]
) -> dict[str, Any]:
    """The line of one step, before it is scored.

    Args:
        step: What it was.
        traffic: Every byte so far.
        earlier: Those that earlier steps of preparing sent, which share a round, -1, in the account.
        seconds: What it took.
        truth: As the world is now.
    """
    result = step.round
    row: dict[str, Any] = {"t": step.t, "stage": step.stage, "asked": len(step.cohort), "skipped": step.skipped}
    row["seconds"] = round(seconds, 6)
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
            row |= {"label": result.label, "closes": result.closes}
    if step.shifted:
        row["shifted"] = list(step.shifted)
        if truth:
            row["kinds"] = {client: truth[client] for client in step.shifted}
    row["traffic"] = _since(earlier, traffic.by_purpose(step.t))
    return row


def welcome_row(welcome: Welcome, truth: Mapping[ClientId, int], classes: int | None) -> dict[str, Any]:
    """How newcomers were taken in."""
    scores = score_row(welcome.scores, truth, classes)
    shown = {key: scores[key] for key in ("accuracy", "test_loss", "coverage", "truth")}
    spent = {"bytes": dict(welcome.bytes), "seconds": round(welcome.seconds, 6)}
    return {"clients": len(welcome.scores.clients), **shown, **spent}


def score_row(
    scores: Scores,
    truth: Mapping[ClientId, int],
    classes: int | None,
    assignment: Mapping[ClientId, int] | None = None,
) -> dict[str, Any]:
    """What a scoring adds to a line.

    Args:
        scores: How clients fare.
        truth: Client → true cluster; empty where nobody knows.
        classes: How many, or None for regression.
        assignment: The clusters of those who took part in the step: all that a method has which clusters its cohorts
            and serves one model.
    """
    row: dict[str, Any] = {"accuracy": accuracy(scores) if classes is not None else None}
    tested = float(scores.total.sum())
    row["test_loss"] = float(scores.loss.sum() / tested) if tested else None
    row["coverage"] = scores.coverage
    row["clusters"] = clusters(scores)
    known = {client: truth[client] for client in scores.everyone} if truth else {}
    row["truth"] = against(dict(zip(scores.clients, scores.rows.tolist(), strict=True)), known)
    if row["truth"] is not None and assignment:
        mine = {client: truth[client] for client in assignment}
        row["truth"]["cohort_adjusted_rand"] = metrics.adjusted_rand(assignment, mine)
    return row


def accuracy(scores: Scores) -> dict[str, Any] | None:
    """Weighted, mean over clients, of the worst tenth of them, and of each cluster; None without test examples."""
    correct, total = np.asarray(scores.correct, np.float64), scores.total
    if not total.sum():
        return None
    by_cluster = {
        str(row): float(correct[scores.rows == row].sum() / total[scores.rows == row].sum())
        for row in np.unique(scores.rows)
        if total[scores.rows == row].sum()
    }
    return {
        "weighted": metrics.weighted_accuracy(correct, total),
        "mean": metrics.mean_accuracy(correct, total),
        "worst_tenth": metrics.worst_share_accuracy(correct, total, 0.1),
        "per_cluster": by_cluster,
    }


def clusters(scores: Scores) -> dict[str, Any]:
    """How many clusters serve somebody, and how many clients each."""
    held = len(next(iter(_leaves(scores.placement.bank))))
    sizes = np.bincount(scores.rows, minlength=held) if len(scores.rows) else np.zeros(held, int)
    used = int((sizes > 0).sum())
    return {
        "count": used,
        "sizes": sizes.tolist(),
        "empty": held - used,
        "collapsed": held > 1 and used <= 1,
        "adapted": scores.placement.adapt is not None,
    }


def against(found: Mapping[ClientId, int], truth: Mapping[ClientId, int]) -> dict[str, Any] | None:
    """How well the clusters match the true ones of all clients that count; None where nobody knows those."""
    if not truth or not found:
        return None
    return {
        "adjusted_rand": metrics.adjusted_rand(found, truth),
        "misclustering": metrics.misclustering(found, truth),
        "clusters": len(set(truth.values())),
    }


def curve(rows: Sequence[Mapping[str, Any]], *path: str) -> list[float]:
    """The values at this path of all lines that have one."""
    values = []
    for row in rows:
        here: Any = row
        for key in path:
            here = here.get(key) if isinstance(here, Mapping) else None
        if here is not None:
            values.append(float(here))
    return values


def trained_curve(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """The weighted accuracies of a run, from its first round on."""
    return curve(rows[_begun(rows) :], "accuracy", "weighted")


def _begun(rows: Sequence[Mapping[str, Any]]) -> int:
    """Where the first round stands: what a method scores before it is no round of it."""
    return next((place for place, row in enumerate(rows) if row["stage"] == "train"), 0)


def final(rows: Sequence[Mapping[str, Any]], target: float) -> dict[str, Any]:
    """The keys of a summary that come from the lines of a run."""
    scored = [row for row in rows if row.get("coverage") is not None]
    last: Mapping[str, Any] = scored[-1] if scored else {}
    begun = _begun(rows)
    weighted = trained_curve(rows)
    shown = dict(last["accuracy"]) if last.get("accuracy") else None
    if shown is not None:
        shown["weighted_best"] = max(_covered(rows[begun:]) or weighted)
        shown["weighted_last_ten"] = metrics.final_score(weighted, "last_ten")
        shown["mean_last_ten"] = metrics.final_score(curve(rows[begun:], "accuracy", "mean"), "last_ten")
    spread = curve(rows, "discrepancy")
    result: dict[str, Any] = {
        "accuracy": shown,
        "test_loss": last.get("test_loss"),
        "coverage": last.get("coverage"),
        "clusters": last.get("clusters"),
        "truth": last.get("truth"),
        "discrepancy": {"last": spread[-1], "mean": float(np.mean(spread)), "variance": float(np.var(spread))}
        if spread
        else None,
        "parts": [_part(row) for row in rows if row.get("closes")],
        "newcomers": [{"joined": row["t"], **row["newcomers"]} for row in rows if row.get("newcomers")],
        "shifts": sum(len(row.get("shifted") or ()) for row in rows),
        "skipped_rounds": sum(1 for row in rows if row.get("skipped")),
        "counts": _total([row.get("counts") or {} for row in rows]),
    }
    if target and weighted:
        result["target"] = _to_target(rows, target)
    return result


def _to_target(rows: Sequence[Mapping[str, Any]], target: float) -> dict[str, Any]:
    """Rounds and bytes until a round reached an accuracy; what preparing sent before it counts."""
    sent = np.cumsum([sum(_bytes(row)) for row in rows])
    scored = [
        (row["t"], row["accuracy"]["weighted"], int(total))
        for row, total in zip(rows, sent, strict=True)
        if row["stage"] == "train" and row.get("accuracy")
    ]
    rounds, accuracies, totals = zip(*scored, strict=True)
    reached = metrics.rounds_to_target(accuracies, target)
    return {
        "accuracy": target,
        "rounds": None if reached is None else rounds[reached] + 1,
        "bytes": metrics.bytes_to_target(accuracies, totals, target),
    }


def _covered(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """The accuracies of the rounds in which every client had a model."""
    return curve([row for row in rows if row.get("coverage") == 1.0], "accuracy", "weighted")


def drift_of(rows: Sequence[Mapping[str, Any]], data: FederatedData) -> dict[str, Any]:
    """What the method made of the shifts of a run; `data` are those of its beginning."""
    truth = None if data.truth is None else dict(zip(data.clients, data.truth.tolist(), strict=True))
    looks = [
        Look(
            shifted=row.get("shifted") or (),
            kinds=row.get("kinds") or {},
            flagged=row.get("flagged"),
            assignment=row.get("assignment") or {},
        )
        for row in rows
    ]
    return dataclasses.asdict(measure(looks, truth))


def traffic_of(traffic: Traffic) -> dict[str, Any]:
    """Bytes in all and by purpose; evaluation stands apart, outside the totals."""
    return {
        "down_bytes": traffic.total("down"),
        "up_bytes": traffic.total("up"),
        "by_purpose": traffic.by_purpose(),
    }


def peak_rss_bytes() -> int:
    """The most memory that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def versions() -> dict[str, str]:
    """What results may depend on."""
    import platform
    from importlib import metadata

    names = ("coterie", "jax", "jaxlib", "numpy", "scikit-learn", "scipy")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def _part(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a part of a method that has parts ended with."""
    kept = {key: row.get(key) for key in ("label", "t", "accuracy", "test_loss", "coverage", "truth")}
    return {**kept, "clusters": (row.get("clusters") or {}).get("count")}


def _since(earlier: Purposes, now: Purposes) -> dict[str, dict[str, int]]:
    """What was sent since, by purpose; purposes for which nothing was are left out."""
    sent = {
        what: {way: count - earlier.get(what, {}).get(way, 0) for way, count in ways.items()}
        for what, ways in now.items()
    }
    return {what: ways for what, ways in sent.items() if any(ways.values())}


def _bytes(row: Mapping[str, Any]) -> list[int]:
    return [n for what, way in (row.get("traffic") or {}).items() if what != "evaluate" for n in way.values()]


def _total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = sorted({name for each in counts for name in each})
    return {name: sum(each.get(name, 0) for each in counts) for name in names}


def _leaves(bank: Any) -> list[Any]:
    from coterie import tree

    return tree.leaves(bank)
