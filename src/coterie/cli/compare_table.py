"""The tables of `coterie compare`, and the lines below them that say what the columns mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.cli.output import number, percent, table

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.compare import Comparison

#: Column header → key, for the table about drift.
_DRIFT = {
    "shifts": "shifts",
    "detected": "shifts_detected",
    "delay (rounds)": "delay",
    "false alarms": "false_alarms",
    "correct migrations": "migrations_correct",
    "wrong migrations": "migrations_wrong",
}


def main_table(found: Comparison) -> Table:
    """One row per method. Columns without values are left out, and the coverage if it is 1 for all methods."""
    rows, headline = found.table, found.headline
    coverage, partial = _coverage_column(found), _partly_covered(found)
    known = any(row["adjusted_rand"] is not None for row in rows)
    tested = any(test["t_test"] is not None for test in found.significance.values())
    columns = _score_columns(headline)
    columns += ["coverage %"] if partial else []
    columns += ["adjusted Rand index"] if known else []
    columns += ["MB down", "MB up", "seconds", *(["p"] if tested else [])]
    shown = table("method", *columns)
    for row in rows:
        deviation = {name: row[f"{name}_deviation"] for name in row if f"{name}_deviation" in row}
        cells = [row["method"]]
        if headline == "last_ten":
            cells += [percent(row[name], deviation[name]) for name in ("last_ten", "worst_tenth_last_ten")]
        else:
            shown_too = [] if headline == "test_loss" else [f"{headline}_worst_tenth"]
            cells += [number(row[name], "4g", deviation[name]) for name in (headline, *shown_too)]
        if partial:
            cells += [percent(row[coverage])]
        if known:
            own_models = found.records[row["method"]][0].summary["clusters"]["adapted"]
            cells += ["–" if own_models else number(row["adjusted_rand"], "2f", deviation["adjusted_rand"])]
        cells += [number(row[name] / 1e6, "2f") for name in ("down_bytes", "up_bytes")]
        cells += [number(row["seconds"], "1f", deviation["seconds"])]
        if tested:
            cells += [_p_value(found.significance.get(row["method"], {}).get("t_test_holm"))]
        shown.add_row(*cells)
    return shown


def legend(found: Comparison) -> list[str]:
    """What the columns mean: over which rounds, over how many seeds, which test, and why a p-value is missing."""
    from coterie.runs.significance import ENOUGH_SEEDS

    seeds = max(row["seeds"] for row in found.table)
    over = f"; mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    rounds = "after the last round" if found.headline == "test_loss" else _rounds(found)
    lines = [f"{_name(found.headline)}: {rounds}{over}."]
    if _partly_covered(found):
        lines.append("coverage: clients with a model of their own; the others are scored with the fallback model.")
    if seeds < 2 or not found.significance:
        return lines
    tests = [test for test in found.significance.values() if test["t_test"] is not None]
    if tests:
        corrected = f", with Holm's correction for {len(tests)} tests" if len(tests) > 1 else ""
        better = f"{_name(found.headline)} is {'higher' if found.higher_is_better else 'lower'}"
        lines.append(f"p: paired one-sided t-test that this {better} than that of {found.reference}{corrected}.")
        if seeds < ENOUGH_SEEDS:
            lines.append(f"With {seeds} seeds, p means little; use at least {ENOUGH_SEEDS} (--seeds {ENOUGH_SEEDS}).")
    reasons: dict[str, list[str]] = {}
    for label, test in found.significance.items():
        if test["no_p"] is not None:
            reasons.setdefault(test["no_p"], []).append(label)
    return lines + [f"No p for {', '.join(labels)}: {reason}." for reason, labels in reasons.items()]


def _score_columns(headline: str) -> list[str]:
    if headline == "last_ten":
        return ["accuracy %", "worst 10 % of clients"]
    return ["test loss"] if headline == "test_loss" else [headline, "worst 10 % of clients"]


def _name(headline: str) -> str:
    """The headline in words."""
    return {"last_ten": "accuracy", "test_loss": "test loss"}.get(headline, headline)


def _coverage_column(found: Comparison) -> str:
    columns = {"last_ten": "last_ten_coverage", "test_loss": "coverage"}
    return columns.get(found.headline, f"{found.headline}_coverage")


def _partly_covered(found: Comparison) -> bool:
    values = [row[_coverage_column(found)] for row in found.table]
    return any(value is not None and value < 1 for value in values)


def _rounds(found: Comparison) -> str:
    """Over which rounds the headline is a mean."""
    counts = {record.summary["rounds"] for group in found.records.values() for record in group}
    if min(counts) >= 10:
        return "mean of the last ten rounds"
    if len(counts) > 1:
        return "mean of the last ten rounds, or of all rounds of shorter runs"
    (count,) = counts
    return "after the only round" if count <= 1 else f"mean of all {count} rounds"


def _p_value(p: float | None) -> str:
    return "<0.001" if p is not None and p < 0.001 else number(p, "3f")


def drift_table(found: Comparison) -> list[Table]:
    """Drift metrics of each method; empty if the data do not drift."""
    columns = {name: key for name, key in _DRIFT.items() if any(row[key] is not None for row in found.table)}
    if not columns:
        return []
    shown = table("method", *columns)
    for row in found.table:
        cells = [number(row[key], "1f", row[f"{key}_deviation"]) for key in columns.values()]
        shown.add_row(row["method"], *cells)
    return [shown]
