"""The parts of a run that come from its lines and its summary: curves, sizes, traffic, faults, privacy, drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.reports.page.plain import by_cluster, numbers
from coterie.reports.score_curves import Curves
from coterie.reports.view import RunView
from coterie.runs.record import JsonObject

#: Clusters that are drawn; with more, the smallest are left out, and the page says so.
MAX_CLUSTERS = 30

#: Drift figure → label.
_DRIFT = {
    "shifts": "shifts of clients that had a cluster",
    "detected": "noticed",
    "delay": "rounds until noticed, mean",
    "delay_max": "rounds until noticed, largest",
    "missed": "missed",
    "missed_not_in_cohort": "missed: the client took part in no round",
    "false_alarms": "false alarms",
    "migrations": "migrations",
    "migrations_correct": "correct migrations",
    "migrations_wrong": "wrong migrations",
    "true_cluster_changes": "changes of the true cluster",
    "true_cluster_changes_detected": "changes of the true cluster that were noticed",
}


def curves_part(view: RunView) -> JsonObject:
    """Scores over rounds."""
    curves = view.curves
    target = float(view.spec["run"].get("target") or 0.0)
    kept = set(_largest(view))
    return {
        "round": numbers(curves.round),
        **{name: numbers(getattr(curves, name)) for name in ("primary", "mean", "worst_tenth", "loss", "coverage")},
        "band": {name: numbers(values) for name, values in curves.band.items()},
        "validation": numbers(curves.validation),
        "adjusted_rand": numbers(curves.adjusted_rand),
        "per_cluster": by_cluster({each: values for each, values in curves.per_cluster.items() if each in kept}),
        "target": target or None,
        "train": {
            "round": numbers(curves.training_round),
            "loss": numbers(curves.train_loss),
            "discrepancy": numbers(curves.discrepancy),
        },
        "other": _others(view, curves),
        "events": _events(view),
    }


def _others(view: RunView, curves: Curves) -> JsonObject:
    percent = ("accuracy", "balanced_accuracy")
    return {
        name: {"label": name.replace("_", " "), "percent": name in percent, "values": numbers(values)}
        for name, values in curves.other.items()
    }


def _events(view: RunView) -> list[JsonObject]:
    found: list[JsonObject] = []
    for row in view.rounds:
        t = row["t"] + 1
        if shifted := row.get("shifted"):
            found.append({"round": t, "kind": "shift", "label": f"data of {len(shifted)} clients changed"})
        if row.get("skipped"):
            found.append({"round": t, "kind": "skipped", "label": f"round skipped: {row['skipped']}"})
        for key in ("newcomers", "last_newcomers"):
            if entry := row.get(key):
                label = f"{entry['clients']} clients joined"
                found.append({"round": t, "kind": "newcomers", "label": label})
        if row.get("phase_end"):
            found.append({"round": t, "kind": "phase", "label": f"end of phase {row['phase']}"})
    return found


def sizes_part(view: RunView) -> JsonObject:
    """Sizes of clusters over rounds."""
    sizes, kept = view.sizes, set(_largest(view))
    hidden = len(sizes.clusters) - len(kept)
    return {
        "round": numbers(sizes.round),
        "clusters": by_cluster({each: values for each, values in sizes.clusters.items() if each in kept}),
        "unassigned": numbers(sizes.unassigned),
        "note": f"The {MAX_CLUSTERS} largest of {len(sizes.clusters)} clusters are shown." if hidden else None,
    }


def _largest(view: RunView) -> list[int]:
    """The clusters that are drawn: the largest over all rounds, in their order."""
    clusters = view.sizes.clusters
    by_size = sorted(clusters, key=lambda each: (-int(clusters[each].max()), each))
    return sorted(by_size[:MAX_CLUSTERS])


def traffic_part(view: RunView) -> JsonObject:
    """Bytes by purpose and over rounds, and the score against bytes."""
    traffic, curves = view.traffic, view.curves
    return {
        "by_purpose": {
            purpose: {"down": down, "up": up, "in_total": purpose != "evaluate"}
            for purpose, (down, up) in traffic.by_purpose.items()
        },
        "cumulative": {"round": numbers(traffic.round), "down": traffic.down.tolist(), "up": traffic.up.tolist()},
        "per_megabyte": {
            "megabytes": numbers(traffic.until(curves.round) / 1e6),
            "score": numbers(curves.primary),
        },
        "note": "Totals do not include evaluation, which is not part of the method.",
    }


def faults_part(view: RunView) -> JsonObject:
    """What went wrong."""
    faults = view.faults
    said = []
    if faults.lost is None:
        said.append("Lost and rejected replies are counted when the run ends.")
    return {
        "rejected": None if faults.rejected is None else dict(faults.rejected),
        "lost": faults.lost,
        "skipped": [{"round": t, "reason": reason} for t, reason in faults.skipped],
        "attackers": view.summary.get("attackers"),
        "notes": said,
    }


def privacy_part(view: RunView) -> JsonObject | None:
    """The (ε, δ) so far and what it covers; None without [privacy]."""
    entry = view.summary.get("privacy")
    lines = [(row["t"] + 1, row["privacy"]) for row in view.rounds if row.get("privacy")]
    if entry is None and not lines:
        return None
    from coterie.runs.privacy import in_words

    last = lines[-1][1] if lines else {}
    return {
        **{key: last.get(key) for key in ("epsilon", "delta")},
        **(entry or {}),
        "over_rounds": {"round": [t for t, _ in lines], "epsilon": numbers(each["epsilon"] for _, each in lines)},
        "words": None if entry is None else in_words(entry),
    }


def drift_part(view: RunView) -> JsonObject | None:
    """How the method followed changes of the clients' data; None without drift."""
    entry: Mapping[str, Any] | None = view.summary.get("drift")
    moves = view.movements
    if entry is None and not moves.shifts:
        return None
    shown = [
        {"label": label, "value": entry[key], "format": "number", "note": ""}
        for key, label in _DRIFT.items()
        if entry is not None and entry.get(key) is not None
    ]
    per_round = {"shifted": moves.shifts, "flagged": moves.flags}
    counts = {key: {"round": list(each), "clients": list(each.values())} for key, each in per_round.items()}
    return {"figures": shown, **counts}
