"""Views of runs as one JSON document: the contract between Python and the script of the page.

    {format: 1, created, version, title, kind: "run" | "comparison", runs: [RUN, …], comparison: COMPARISON | null,
     live: null}

A value that the record does not have is null. Rounds count from 1; 0 is the time before the first round. Scores are
fractions, which the page shows in percent if `metric.percent` is set. Clusters are numbers, and texts as keys; -1 is
the fallback model. Every text is plain: the page never reads it as HTML.

RUN
    id, name, path, method, data, model, seed, status, reason, started, seconds
    headline: sentences; notes: sentences; figures: [{label, value, format, note}]
    metric: {name, label, greater_is_better, percent}
    curves: {round, primary, mean, worst_tenth, band: {p10, p25, p50, p75, p90}, loss, coverage, validation,
             per_cluster, adjusted_rand, target, train: {round, loss, discrepancy},
             other: {metric: {label, percent, values}}, events: [{round, kind, label}]}
    sizes: {round, clusters, unassigned, note}
    movements: {steps: [{label, round}], nodes: [{step, cluster, clients}], links: [{step, from, to, clients, drifted,
                flagged}], migrations: [{round, client, from, to, shifted, flagged, correct}], total_migrations, note}
    map: {x, y, client, cluster, truth, count, method, x_label, y_label, explained, aggregated, note}
    matrix: {n, order, cluster, values, min, max, what, dendrogram: {segments, height}, aggregated, note}
    labels: {classes, per_cluster, note}
    clients: one list per column: {name, cluster, truth, truth_matches, samples, test_samples, score, loss, nearest,
             margin, joined, moved, attacker, labels}
    traffic: {by_purpose: {purpose: {down, up, in_total}}, cumulative: {round, down, up}, per_megabyte: {megabytes,
              score}, note}
    faults: {rejected: {reason: count}, lost, skipped: [{round, reason}], attackers, notes}
    privacy: {epsilon, delta, over_rounds: {round, epsilon}, …, words}; sees: sentences; drift: {figures, …}
    settings: [{section, key, value, default, changed, help}]; versions; command
A comparison of runs with many clients in all has RUNs without map, matrix, labels, movements and clients. COMPARISON is
described in `comparison_data`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from coterie import __version__
from coterie.reports.comparison_view import ComparisonView
from coterie.reports.headline import figures, headline, notes
from coterie.reports.page.comparison_data import comparison_data
from coterie.reports.page.plain import by_cluster, numbers
from coterie.reports.page.run_parts import clients_part, labels_part, map_part, matrix_part, movements_part
from coterie.reports.score_curves import Curves
from coterie.reports.view import RunView
from coterie.runs.method_card import shipped_card
from coterie.runs.record import JsonObject
from coterie.runs.record_files import SPEC
from coterie.runs.settings_help import command, recorded_settings

#: Number of the contract.
FORMAT = 1

#: Clusters that are drawn; with more, the smallest are left out, and the page says so.
MAX_CLUSTERS = 30

#: If the runs of a comparison have more clients in all, their pages show nothing per client.
MAX_COMPARED = 5000

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


def page_data(
    views: Sequence[RunView], comparison: ComparisonView | None = None, title: str | None = None
) -> JsonObject:
    """The document of a page.

    Args:
        views: The runs; several if they are compared.
        comparison: Their comparison; None for one run.
        title: Title of the page; None: made from the runs.
    """
    compared = comparison is not None
    slim = compared and sum(view.n_clients for view in views) > MAX_COMPARED
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    runs = [run_data(view, slim=slim, helps=not compared) for view in views]
    return {
        "format": FORMAT,
        "created": now,
        "version": __version__,
        "title": title or (comparison.title if comparison is not None else _title(views[0])),
        "kind": "comparison" if compared else "run",
        "runs": runs,
        "comparison": None if comparison is None else comparison_data(comparison),
        "live": None,
    }


def run_data(view: RunView, *, slim: bool = False, helps: bool = True) -> JsonObject:
    """One run.

    Args:
        view: The run.
        slim: Whether what has one value or more for each client is left out.
        helps: Whether settings have their descriptions.
    """
    spec, summary = view.spec, view.summary
    names = {section: str(spec[section]["name"]) for section in ("method", "data", "model")}
    trainable = _trainable(view)
    regression = view.metric.name == "loss" and not any(row.get("accuracy") for row in view.rounds)
    return {
        "id": str(view.path),
        "name": view.path.resolve().name,
        "path": str(view.path),
        **names,
        "seed": spec["run"]["seed"],
        "status": view.status,
        "reason": view.reason,
        "started": _started(view),
        "seconds": summary.get("seconds"),
        "headline": headline(view),
        "notes": notes(view),
        "figures": [vars(each) for each in figures(view)],
        "metric": vars(view.metric),
        "curves": curves_part(view),
        "sizes": sizes_part(view),
        "movements": None if slim else movements_part(view),
        "map": None if slim else map_part(view),
        "matrix": None if slim else matrix_part(view),
        "labels": None if slim else labels_part(view),
        "clients": None if slim else clients_part(view),
        "traffic": traffic_part(view),
        "faults": faults_part(view),
        "privacy": privacy_part(view),
        "sees": _sees(view),
        "drift": drift_part(view),
        "settings": [
            {**vars(each), "help": each.help if helps else ""}
            for each in recorded_settings(spec, trainable, regression=regression)
        ],
        "versions": summary.get("versions"),
        "command": _command(view, trainable, regression=regression),
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
    """Bytes by purpose and over rounds, and the score that they bought."""
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
        "note": "Totals do not include evaluation, which is part of the experiment, not of the method.",
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


def _trainable(view: RunView) -> int | None:
    clients, idle = view.summary.get("clients"), view.summary.get("clients_without_examples") or 0
    return None if clients is None else int(clients) - int(idle)


def _served(view: RunView) -> bool:
    return bool(view.rounds) and "network" in view.rounds[0]


def _command(view: RunView, clients: int | None, *, regression: bool) -> str | None:
    if _served(view):
        return f"coterie serve {view.path / SPEC}"
    return command(view.spec, clients, regression=regression)


def _sees(view: RunView) -> list[str] | None:
    """What the server sees of a client: the card of the method with default settings."""
    card = None if "class" in view.spec["method"] else shipped_card(view.method)
    return None if card is None else card.sentences()


def _started(view: RunView) -> str:
    """When the spec was written, which is when the run began; a copy of the record may have lost it."""
    seconds = (view.path / SPEC).stat().st_mtime
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _title(view: RunView) -> str:
    return f"{view.method} on {view.spec['data']['name']}, seed {view.spec['run']['seed']}"
