"""The comparison of a page as JSON values.

COMPARISON
    methods, reference, metric, n_clients, seeds, excluded: [{id, name, status, reason, resume}]
    headline: sentences; conclusion: sentences; rows_notes: sentences
    table: {columns: [{key, label, format, better, help}], rows: [{method, status, runs: [id], cells: {key: {mean,
            deviation, n, best}}}]}
    tests: [{a, b, difference, p, p_adjusted, wilcoxon, significant, n, better, why}]; tests_note
    curves, loss_curves: {method: {round, mean, lower, upper}}
    score_against_bytes: {method: {megabytes, score}}; score_against_seconds: {method: {seconds, score}}
    rounds_to_target: {target, rows: [{method, rounds, bytes}], note}
    client_wins: {clients, seeds, scores: {method: values}, pairs: [{a, b, wins, losses, ties}], note}
    drift_table: as table, or null
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from coterie.reports.comparison_view import ComparisonView, SeedCurve
from coterie.reports.page.plain import number, numbers
from coterie.reports.status import resume_command
from coterie.runs.comparison_legend import COVERAGE, column_legend
from coterie.runs.comparison_tables import coverage_key, partly_covered
from coterie.runs.record import JsonObject

#: Clients whose scores are embedded; wins and losses count all of them.
MAX_PAIRS = 3000

#: Level below which a difference is called significant.
SIGNIFICANT = 0.05

_DRIFT = {
    "shifts": ("shifts", None),
    "shifts_detected": ("noticed", "high"),
    "delay": ("rounds until noticed", "low"),
    "false_alarms": ("false alarms", "low"),
    "migrations_correct": ("correct migrations", "high"),
    "migrations_wrong": ("wrong migrations", "low"),
}


def comparison_data(view: ComparisonView) -> JsonObject:
    """The comparison."""
    target = view.target
    return {
        "methods": list(view.groups),
        "reference": view.reference,
        "metric": vars(view.metric),
        "n_clients": view.views[0].summary.get("clients"),
        "seeds": sorted({int(each.spec["run"]["seed"]) for each in view.views}),
        "excluded": [
            {
                "id": str(each.path),
                "name": each.path.resolve().name,
                "status": each.status,
                "reason": each.reason,
                "resume": resume_command(each.path, each.status, served=each.served),
            }
            for each in view.excluded
        ],
        "headline": comparison_headline(view),
        "conclusion": [view.conclusion],
        "rows_notes": column_legend(view.comparison),
        "table": _table(view, _columns(view)),
        "tests": _tests(view),
        "tests_note": _tests_note(view),
        "curves": {label: _curve(each) for label, each in view.curves.items()},
        "loss_curves": {label: _curve(each) for label, each in view.loss_curves.items()},
        "score_against_bytes": {
            label: {"megabytes": numbers(each.megabytes), "score": numbers(each.mean)}
            for label, each in view.curves.items()
        },
        "score_against_seconds": {
            label: {"seconds": numbers(each.seconds), "score": numbers(each.mean)}
            for label, each in view.curves.items()
        },
        "rounds_to_target": {
            "target": number(target),
            "rows": [vars(each) for each in view.to_target],
            "note": _target_note(view),
        },
        "client_wins": _wins(view),
        "drift_table": _drift_table(view),
    }


def comparison_headline(view: ComparisonView) -> list[str]:
    """The best method against one model for all clients, in a sentence."""
    metric = view.metric
    reached = {label: value for label in view.groups if (value := view.headline_of(label)) is not None}
    ranked = sorted(reached, key=lambda label: reached[label], reverse=metric.greater_is_better)
    if not ranked:
        return ["No run has a score."]
    best = ranked[0]
    what = f"best {metric.label}"
    sentence = f"{best} has the {what}, {metric.text(reached[best])}"
    one = view.reference
    if one in reached and one != best:
        name = "one model for all" if _one_model(view) else one
        sentence += f"; {name}: {metric.text(reached[one])}"
    return [f"{sentence}."]


def _one_model(view: ComparisonView) -> bool:
    """Whether the reference serves one model to all clients."""
    sizes = (view.groups[view.reference][0].summary.get("clusters") or {}).get("sizes") or []
    adapted = (view.groups[view.reference][0].summary.get("clusters") or {}).get("adapted")
    return len(sizes) == 1 and not adapted


def _columns(view: ComparisonView) -> list[JsonObject]:
    """The columns of the table: the headline and its worst tenth, then clusters and costs."""
    quantity, metric = view.comparison.headline, view.metric
    kind = "percent" if metric.percent else "number"
    better = "high" if metric.greater_is_better else "low"
    worst = {"last_ten": "worst_tenth_last_ten", "test_loss": None}.get(quantity, f"{quantity}_worst_tenth")
    covered = f"{COVERAGE[0].upper()}{COVERAGE[1:]}."
    over = "After the last round." if quantity == "test_loss" else "Mean of the last ten rounds, on test examples."
    shown = [
        (quantity, metric.label, kind, better, over),
        *([(worst, "worst tenth of clients", kind, better, over)] if worst else []),
        ("best", "best round", "percent", "high", "Highest accuracy of a round on test examples."),
        *(
            [(coverage_key(quantity), "coverage", "percent", "high", covered)]
            if partly_covered(view.comparison)
            else []
        ),
        ("test_loss", "test loss", "number", "low", "After the last round."),
        ("clusters", "clusters", "count", None, "Number of clusters that have clients."),
        ("adjusted_rand", "adjusted Rand index", "number", "high", "Agreement with the true clusters; 1: the same."),
        ("down_bytes", "down", "bytes", "low", "Bytes from the server to clients, without evaluation."),
        ("up_bytes", "up", "bytes", "low", "Bytes from clients to the server, without evaluation."),
        ("seconds", "time", "seconds", "low", "Duration of the run, without loading the data."),
    ]
    keys = ("key", "label", "format", "better", "help")
    unique = {entry[0]: dict(zip(keys, entry, strict=True)) for entry in reversed(shown)}
    present = {key for row in view.table for key, value in row.items() if value is not None}
    return [unique[key] for key in dict.fromkeys(entry[0] for entry in shown) if key in present]


def _table(view: ComparisonView, columns: Sequence[JsonObject]) -> JsonObject:
    """The rows of a table, with the best value of each column marked."""
    best = {column["key"]: _best(view.table, column) for column in columns}
    rows = []
    for row in view.table:
        group = view.groups[row["method"]]
        adapted = (group[0].summary.get("clusters") or {}).get("adapted")
        cells: JsonObject = {}
        for column in columns:
            key = column["key"]
            value = row.get(key)
            if value is None or (adapted and key in ("adjusted_rand", "clusters")):
                cells[key] = None  # a client with its own model is in no cluster
                continue
            cells[key] = {
                "mean": value,
                "deviation": row.get(f"{key}_deviation"),
                "n": row["seeds"],
                "best": value == best[key],
            }
        runs = [str(each.path) for each in group]
        rows.append({"method": row["method"], "status": "done", "runs": runs, "cells": cells})
    return {"columns": list(columns), "rows": rows}


def _best(table: Sequence[Mapping[str, float | None]], column: JsonObject) -> float | None:
    values = [value for row in table if (value := row.get(column["key"])) is not None]
    if not values or column["better"] is None or len(values) < 2:
        return None
    return max(values) if column["better"] == "high" else min(values)


def _tests(view: ComparisonView) -> list[JsonObject]:
    found = []
    for label, test in view.comparison.significance.items():
        adjusted = test["t_test_holm"]
        significant = adjusted is not None and adjusted < SIGNIFICANT
        found.append(
            {
                "a": label,
                "b": view.reference,
                "difference": number(test["difference"]),
                "p": number(test["t_test"], 3),
                "p_adjusted": number(adjusted, 3),
                "wilcoxon": number(test["wilcoxon"], 3),
                "significant": significant,
                "n": len(view.seeds),
                "better": "a" if significant else None,
                "why": test["no_p"],
            }
        )
    return found


def _tests_note(view: ComparisonView) -> str:
    better = "higher" if view.comparison.higher_is_better else "lower"
    return (
        f"Paired one-sided t-test over seeds that the {view.metric.label} is {better} than that of {view.reference}, "
        "with Holm's correction; Wilcoxon: signed-rank test of the same differences."
    )


def _curve(each: SeedCurve) -> JsonObject:
    spread = None if np.isnan(each.deviation).all() else each.deviation
    return {
        "round": numbers(each.round),
        "mean": numbers(each.mean),
        "lower": None if spread is None else numbers(each.mean - spread),
        "upper": None if spread is None else numbers(each.mean + spread),
    }


def _target_note(view: ComparisonView) -> str:
    if any(float(each.spec["run"].get("target") or 0.0) for each in view.views):
        return "The target of the runs (run.target)."
    return f"No target was set (run.target); this is the score that {view.reference} reaches."


def _wins(view: ComparisonView) -> JsonObject | None:
    pairs = view.client_pairs
    if pairs is None:
        return None
    total = len(pairs.clients)
    shown = np.unique(np.linspace(0, total - 1, min(total, MAX_PAIRS)).astype(np.int64))
    counted = []
    for one, other in itertools.combinations(view.groups, 2):
        wins, losses, ties = pairs.wins(one, other, view.metric)
        counted.append({"a": one, "b": other, "wins": wins, "losses": losses, "ties": ties})
    note = "Scores of the last evaluation."
    if len(set(pairs.seeds)) > 1:
        note += " A client occurs once for each seed: another seed may give it other data."
    if len(shown) < total:
        note += f" The chart shows {len(shown):,} of {total:,} clients; the numbers count all."
    return {
        "clients": [pairs.clients[place] for place in shown.tolist()],
        "seeds": [pairs.seeds[place] for place in shown.tolist()],
        "scores": {label: numbers(each[shown]) for label, each in pairs.scores.items()},
        "pairs": counted,
        "note": note,
    }


def _drift_table(view: ComparisonView) -> JsonObject | None:
    if not any(row.get("shifts") is not None for row in view.table):
        return None
    columns: list[JsonObject] = [
        {"key": key, "label": label, "format": "number", "better": better, "help": ""}
        for key, (label, better) in _DRIFT.items()
        if any(row.get(key) is not None for row in view.table)
    ]
    return _table(view, columns)
