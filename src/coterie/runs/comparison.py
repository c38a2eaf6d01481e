"""`Comparison`: several methods side by side, made from the records of their runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coterie.errors import RecordError
from coterie.notebooks import html_table
from coterie.runs import comparison_tables
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.significance import add_holm, difference_tests, headline, higher_is_better
from coterie.runs.summary import number_at

if TYPE_CHECKING:
    import pandas

#: Column of a comparison → path of keys in a summary.
COLUMNS: dict[str, tuple[str, ...]] = {
    "accuracy": ("accuracy", "weighted"),
    "mean": ("accuracy", "mean"),
    "worst_tenth": ("accuracy", "worst_tenth"),
    "best": ("accuracy", "weighted_best"),
    "last_ten": ("accuracy", "weighted_last_ten"),
    "worst_tenth_last_ten": ("accuracy", "worst_tenth_last_ten"),
    "last_ten_coverage": ("accuracy", "last_ten_coverage"),
    "coverage": ("coverage",),
    "test_loss": ("test_loss",),
    "adjusted_rand": ("truth", "adjusted_rand"),
    "misclustering": ("truth", "misclustering"),
    "clusters": ("clusters", "count"),
    "shifts": ("drift", "shifts"),
    "shifts_detected": ("drift", "detected"),
    "delay": ("drift", "delay"),
    "false_alarms": ("drift", "false_alarms"),
    "migrations_correct": ("drift", "migrations_correct"),
    "migrations_wrong": ("drift", "migrations_wrong"),
    "down_bytes": ("traffic", "down_bytes"),
    "up_bytes": ("traffic", "up_bytes"),
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `compare`, or of the records of earlier runs (`comparison_of`).

    Attributes:
        records: Label of a method → its runs, one per seed.
        table: One row per method: for each column the mean over seeds and, with several seeds, the standard deviation.
        significance: Label → comparison with the reference method. `difference`: mean over seeds of the difference in
            the headline. `t_test`, `wilcoxon`: p-values of paired one-sided tests that the headline is better.
            `t_test_holm`: p-value with Holm's correction for the number of methods. `no_p`: why there are no p-values,
            or None. `improvement`: mean over rounds of the difference in accuracy, with its standard deviation
            `improvement_deviation`.
        reference: Label of the reference method, the first one.
        headline: Column of the table by which methods are compared and tested: `last_ten`, the accuracy as the mean of
            the last ten rounds; `test_loss` if the primary metric is the loss, as for regression; or the name of
            another primary metric, as the mean of the last ten rounds.
    """

    records: dict[str, list[RunRecord]]
    table: list[JsonObject]
    significance: dict[str, JsonObject] = field(default_factory=dict)
    reference: str = ""
    headline: str = "last_ten"

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value of the headline is better."""
        return higher_is_better([record for group in self.records.values() for record in group], self.headline)

    def to_dict(self) -> JsonObject:
        """Return the JSON object that `coterie compare --json` prints."""
        runs = [record.summary for group in self.records.values() for record in group]
        return {
            "runs": runs,
            "table": self.table,
            "headline": self.headline,
            "reference": self.reference,
            "significance": self.significance,
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return the table as a pandas DataFrame, one row per method, with differences and p-values."""
        try:
            import pandas
        except ImportError as fault:
            raise RecordError("to_frame needs pandas: pip install 'coterie[table]'") from fault
        return pandas.DataFrame(comparison_tables.rows_with_tests(self)).set_index("method")

    def to_csv(self) -> str:
        """Return all columns of the table as CSV, with differences and p-values."""
        return comparison_tables.comma_separated(comparison_tables.rows_with_tests(self))

    def to_markdown(self) -> str:
        """Return the main columns as a Markdown table, mean ± standard deviation over seeds."""
        return comparison_tables.markdown(comparison_tables.cells(self))

    def to_latex(self) -> str:
        """Return the main columns as a LaTeX table for the package booktabs, mean ± deviation, the best in bold."""
        return comparison_tables.latex(comparison_tables.cells(self), comparison_tables.best_cells(self))

    def __repr__(self) -> str:
        """Short: the methods, the number of seeds, and what is compared."""
        seeds = max((len(group) for group in self.records.values()), default=0)
        return f"Comparison({', '.join(self.records)}; seeds: {seeds}, headline: {self.headline})"

    def _repr_html_(self) -> str:
        """The main columns, for notebooks."""
        return html_table(*comparison_tables.cells(self))


def comparison_of(groups: Mapping[str, Sequence[RunRecord]], reference: str | None = None) -> Comparison:
    """Compare methods by the records of their runs.

    Args:
        groups: Label of a method → its runs, one per seed, in the same order of seeds for every method.
        reference: Label of the method that the others are tested against; None: the first.
    """
    runs = {label: list(group) for label, group in groups.items()}
    first = next(iter(runs)) if reference is None else reference
    records = [record for group in runs.values() for record in group]
    quantity = headline(records)
    tests = {label: difference_tests(group, runs[first], quantity) for label, group in runs.items() if label != first}
    add_holm(tests)
    names = list(dict.fromkeys(name for record in records for name in record.summary.get("metrics") or {}))
    return Comparison(runs, [_row(label, group, names) for label, group in runs.items()], tests, first, quantity)


def _row(label: str, group: list[RunRecord], metrics: Sequence[str]) -> JsonObject:
    row: JsonObject = {"method": label, "seeds": len(group)}
    keys = {"": "last_ten", "_worst_tenth": "worst_tenth_last_ten", "_coverage": "last_ten_coverage"}
    own = {f"{name}{end}": ("metrics", name, key) for name in metrics for end, key in keys.items()}
    # A metric named like a column, such as the accuracy, is in the table already.
    found = {
        column: [number_at(record.summary, path) for record in group] for column, path in {**own, **COLUMNS}.items()
    }
    found["seconds"] = [_duration(record.summary) for record in group]
    for column, numbers in found.items():
        values = [value for value in numbers if value is not None and math.isfinite(value)]
        row[column] = statistics.fmean(values) if values else None
        row[f"{column}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
    return row


def _duration(summary: JsonObject) -> float | None:
    """Seconds of a run without loading its data: the first run of a comparison loads them for the others."""
    total, setup = (number_at(summary, ("seconds", part)) for part in ("total", "setup"))
    return total if total is None or setup is None else total - setup
