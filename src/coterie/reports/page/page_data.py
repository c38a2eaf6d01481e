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
    settings: [{section, key, value, default, changed, help}]; versions; command; resume: the command that continues a
    run that ended early, or empty
A comparison of runs with many clients in all has RUNs without map, matrix, labels, movements and clients. COMPARISON is
described in `comparison_data`.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from coterie import __version__
from coterie.reports.comparison_view import ComparisonView
from coterie.reports.headline import figures, headline, notes
from coterie.reports.page.comparison_data import comparison_data
from coterie.reports.page.run_parts import clients_part, labels_part, map_part, matrix_part, movements_part
from coterie.reports.page.summary_parts import (
    curves_part,
    drift_part,
    faults_part,
    privacy_part,
    sizes_part,
    traffic_part,
)
from coterie.reports.status import resume_command
from coterie.reports.view import RunView
from coterie.runs.method_card import shipped_card
from coterie.runs.record import JsonObject
from coterie.runs.record_files import SPEC
from coterie.runs.settings_help import command, recorded_settings

#: Number of the contract.
FORMAT = 1

#: If the runs of a comparison have more clients in all, their pages show nothing per client.
MAX_COMPARED = 5000


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
        "resume": resume_command(view.path, view.status, served=view.served),
    }


def _trainable(view: RunView) -> int | None:
    clients, idle = view.summary.get("clients"), view.summary.get("clients_without_examples") or 0
    return None if clients is None else int(clients) - int(idle)


def _command(view: RunView, clients: int | None, *, regression: bool) -> str | None:
    if view.served:
        return f"coterie serve {view.path / SPEC}"
    return command(view.spec, clients, regression=regression)


def _sees(view: RunView) -> list[str] | None:
    """What the server sees of a client: the card of the method with default settings."""
    card = None if "class" in view.spec["method"] else shipped_card(view.method)
    return None if card is None else [*card.sentences(), "These figures are for the default settings of the method."]


def _started(view: RunView) -> str:
    """When the spec was written, which is when the run began; a copy of the record may have lost it."""
    seconds = (view.path / SPEC).stat().st_mtime
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _title(view: RunView) -> str:
    return f"{view.method} on {view.spec['data']['name']}, seed {view.spec['run']['seed']}"
