"""A comparison as text for papers and spreadsheets: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from coterie.runs.record import JsonObject

if TYPE_CHECKING:
    from coterie.runs.compare import Comparison

#: A header and rows of cells.
Cells = tuple[list[str], list[list[str]]]

#: Column of the text tables → key of the table, factor, format.
_COLUMNS: dict[str, tuple[str, float, str]] = {
    "accuracy %": ("last_ten", 100, "1f"),
    "worst 10 % of clients": ("worst_tenth_last_ten", 100, "1f"),
    "test loss": ("test_loss", 1, "4g"),
    "coverage %": ("last_ten_coverage", 100, "1f"),
    "adjusted Rand index": ("adjusted_rand", 1, "2f"),
    "MB down": ("down_bytes", 1e-6, "2f"),
    "MB up": ("up_bytes", 1e-6, "2f"),
    "seconds": ("seconds", 1, "1f"),
}

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    **{each: f"\\{each}" for each in "&%$#_"},
}


def rows_with_tests(found: Comparison) -> list[JsonObject]:
    """The rows of the table, each with the difference to the reference and its p-values; None for the reference."""
    names = ("difference", "t_test", "t_test_holm", "wilcoxon")
    return [
        {**row, **{name: found.significance.get(row["method"], {}).get(name) for name in names}} for row in found.table
    ]


def cells(found: Comparison) -> Cells:
    """The columns that have values, as text: mean ± standard deviation over seeds.

    The coverage is left out if it is 1 for all methods, the test loss if there are accuracies.
    """
    rows = rows_with_tests(found)
    shown = {column: entry for column, entry in _COLUMNS.items() if any(row.get(entry[0]) is not None for row in rows)}
    if all(row.get("last_ten_coverage") in (None, 1.0) for row in rows):
        shown.pop("coverage %", None)
    if "accuracy %" in shown:
        shown.pop("test loss", None)
    tested = any(row["t_test_holm"] is not None for row in rows)
    header = ["method", *shown, *(["p"] if tested else [])]
    lines = [
        [str(row["method"]), *(_cell(row, *entry) for entry in shown.values())]
        + ([_p_value(row["t_test_holm"])] if tested else [])
        for row in rows
    ]
    return header, lines


def markdown(table: Cells) -> str:
    """A table in Markdown."""
    header, rows = table
    rule = _joined(["---", *["---:"] * (len(header) - 1)])
    first, *others = (_joined([_markdown_text(cell) for cell in line]) for line in (header, *rows))
    return "\n".join([first, rule, *others]) + "\n"


def latex(table: Cells) -> str:
    """A `tabular` environment in the style of the package booktabs."""
    header, rows = table
    lines = [" & ".join(map(_latex_text, line)) + r" \\" for line in (header, *rows)]
    inner = [r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", *inner, r"\end{tabular}"]) + "\n"


def comma_separated(rows: Sequence[Mapping[str, object]]) -> str:
    """All columns as CSV, numbers in full precision; missing values are empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


#: Format of `coterie compare --format` → function that returns the text.
FORMATS: dict[str, Callable[[Comparison], str]] = {
    "markdown": lambda found: found.to_markdown(),
    "latex": lambda found: found.to_latex(),
    "csv": lambda found: found.to_csv(),
}


def _cell(row: Mapping[str, object], key: str, factor: float, digits: str) -> str:
    value, deviation = row.get(key), row.get(f"{key}_deviation")
    if not isinstance(value, int | float):
        return "–"
    spread = f" ± {factor * deviation:.{digits}}" if isinstance(deviation, int | float) else ""
    return f"{factor * value:.{digits}}{spread}"


def _p_value(p: float | None) -> str:
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _joined(line: Sequence[str]) -> str:
    return f"| {' | '.join(line)} |"


def _markdown_text(text: str) -> str:
    """Escape what would end a cell or be read as HTML."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return plain.replace("&", "&amp;").replace("<", "&lt;")


def _latex_text(text: str) -> str:
    escaped = "".join(_LATEX.get(each, each) for each in " ".join(text.split()))
    return escaped.replace("<", "$<$").replace(">", "$>$")
