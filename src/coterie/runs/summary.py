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
from coterie.runs.play import Scores, Step, Welcome
from coterie.types import ClientId


def step_row(step: Step[Any], traffic: Traffic, seconds: float, truth: Mapping[ClientId, int]) -> dict[str, Any]:
    """The line of one step, before it is scored; `truth` is as the world is now."""
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
    if step.stage == "train":
        row["traffic"] = traffic.by_purpose(step.t)
    return row


def welcome_row(welcome: Welcome, truth: Mapping[ClientId, int], classes: int | None) -> dict[str, Any]:
    """How newcomers were taken in."""
    scores = score_row(welcome.scores, truth, classes)
    shown = {key: scores[key] for key in ("accuracy", "test_loss", "coverage", "truth")}
    spent = {"bytes": dict(welcome.bytes), "seconds": round(welcome.seconds, 6)}
    return {"clients": len(welcome.scores.clients), **shown, **spent}


def score_row(scores: Scores, truth: Mapping[ClientId, int], classes: int | None) -> dict[str, Any]:
    """What a scoring adds to a line."""
    row: dict[str, Any] = {"accuracy": accuracy(scores) if classes is not None else None}
    tested = float(scores.total.sum())
    row["test_loss"] = float(scores.loss.sum() / tested) if tested else None
    row["coverage"] = scores.coverage
    row["clusters"] = clusters(scores)
    row["truth"] = against(dict(zip(scores.clients, scores.rows.tolist(), strict=True)), truth)
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
    own = scores.placement.adapt is not None
    return {
        "count": int((sizes > 0).sum()),
        "sizes": sizes.tolist(),
        "collapsed": bool((sizes == 0).any()) and held > 1,
        "adapted": own,
    }


def against(found: Mapping[ClientId, int], truth: Mapping[ClientId, int]) -> dict[str, Any] | None:
    """How well the clusters match the true ones; None where nobody knows those."""
    if not truth or not found:
        return None
    known = {client: truth[client] for client in found}
    return {
        "adjusted_rand": metrics.adjusted_rand(found, known),
        "misclustering": metrics.misclustering(found, known),
        "clusters": len(set(known.values())),
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


def final(rows: Sequence[Mapping[str, Any]], target: float) -> dict[str, Any]:
    """The keys of a summary that come from the lines of a run."""
    scored = [row for row in rows if row.get("coverage") is not None]
    last: Mapping[str, Any] = scored[-1] if scored else {}
    # What a method scores before its first round is no round of it.
    begun = next((place for place, row in enumerate(rows) if row["stage"] == "train"), 0)
    weighted = curve(rows[begun:], "accuracy", "weighted")
    shown = dict(last["accuracy"]) if last.get("accuracy") else None
    if shown is not None:
        shown["weighted_best"] = max(weighted)
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
        trained = [row for row in rows if row["stage"] == "train"]
        reached = next((r for r in trained if (r.get("accuracy") or {}).get("weighted", 0.0) >= target), None)
        sent = [sum(_bytes(r)) for r in trained if reached is None or r["t"] <= reached["t"]]
        result["target"] = {
            "accuracy": target,
            "rounds": None if reached is None else reached["t"] + 1,
            "bytes": None if reached is None else int(sum(sent)),
        }
    return result


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


def _bytes(row: Mapping[str, Any]) -> list[int]:
    return [n for what, way in (row.get("traffic") or {}).items() if what != "evaluate" for n in way.values()]


def _total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = sorted({name for each in counts for name in each})
    return {name: sum(each.get(name, 0) for each in counts) for name in names}


def _leaves(bank: Any) -> list[Any]:
    from coterie import tree

    return tree.leaves(bank)
