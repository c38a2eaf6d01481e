"""The tables of `coterie compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.cli.output import number, table

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.comparison import Comparison

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
    """One row per method, with the columns of `Comparison.to_markdown`."""
    from coterie.runs.comparison_tables import cells

    header, lines = cells(found)
    shown = table(*header)
    for line in lines:
        shown.add_row(*line)
    return shown


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
