"""A comparison as text for papers and spreadsheets: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from coterie.runs.record import JsonObject

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison

#: A header and rows of cells.
Cells = tuple[list[str], list[list[str]]]

#: Key of the table, factor, format, and whether the standard deviation over seeds is shown.
_Column = tuple[str, float, str, bool]

#: Columns after the scores, for every headline.
_COSTS: dict[str, _Column] = {
    "adjusted Rand index": ("adjusted_rand", 1, "2f", True),
    "MB down": ("down_bytes", 1e-6, "2f", False),
    "MB up": ("up_bytes", 1e-6, "2f", False),
    "seconds": ("seconds", 1, "1f", True),
}

#: Columns in which no cell is the best.
_NOT_SCORES = ("coverage %", "MB down", "MB up", "seconds")

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
    """The main columns as text, mean ± standard deviation over seeds; `coterie compare` prints the same.

    Columns without values are left out, and the coverage if it is 1 for all methods.
    """
    rows = rows_with_tests(found)
    shown = {
        name: column
        for name, column in _columns(found).items()
        if column[0] == found.headline or any(row.get(column[0]) is not None for row in rows)
    }
    tested = any(row["t_test_holm"] is not None for row in rows)
    header = ["method", *shown, *(["p"] if tested else [])]
    lines = []
    for row in rows:
        if _own_models(found, row["method"]):
            row["adjusted_rand"] = None  # a client with its own model is in no cluster
        line = [str(row["method"]), *(_cell(row, *column) for column in shown.values())]
        lines.append(line + ([_p_value(row["t_test_holm"])] if tested else []))
    return header, lines


def partly_covered(found: Comparison) -> bool:
    """Whether some method has not assigned a model to all clients."""
    values = [row.get(coverage_key(found.headline)) for row in found.table]
    return any(value is not None and value < 1 for value in values)


def _columns(found: Comparison) -> dict[str, _Column]:
    """Column → what it shows: the headline and its worst tenth of clients, then the rest."""
    headline, worst = found.headline, "worst 10 % of clients"
    scores: dict[str, _Column]
    if headline == "last_ten":
        scores = {"accuracy %": (headline, 100, "1f", True), worst: ("worst_tenth_last_ten", 100, "1f", True)}
    elif headline == "test_loss":
        scores = {"test loss": (headline, 1, "4g", True)}
    else:
        scores = {headline: (headline, 1, "4g", True), worst: (f"{headline}_worst_tenth", 1, "4g", True)}
    if partly_covered(found):
        scores["coverage %"] = (coverage_key(headline), 100, "1f", False)
    return scores | _COSTS


def coverage_key(headline: str) -> str:
    """The key of the table with the coverage over the rounds of the headline."""
    return {"last_ten": "last_ten_coverage", "test_loss": "coverage"}.get(headline, f"{headline}_coverage")


def _own_models(found: Comparison, method: str) -> bool:
    """Whether a method serves each client a model of its own."""
    clusters = found.records[method][0].summary.get("clusters") or {}
    return bool(clusters.get("adapted"))


def markdown(table: Cells) -> str:
    """A table in Markdown."""
    header, rows = table
    rule = _joined(["---", *["---:"] * (len(header) - 1)])
    first, *others = (_joined([_markdown_text(cell) for cell in line]) for line in (header, *rows))
    return "\n".join([first, rule, *others]) + "\n"


def best_cells(found: Comparison) -> set[tuple[int, int]]:
    """(row, column) in `cells` of the best scores: the headline, its worst tenth, the adjusted Rand index.

    Cells that read the same are all the best. With a single method there are none.
    """
    header, lines = cells(found)
    columns = {name: column[0] for name, column in _columns(found).items() if name not in _NOT_SCORES}
    best: set[tuple[int, int]] = set()
    for place, name in enumerate(header):
        values = [row.get(columns[name]) for row in found.table] if name in columns and len(lines) > 1 else []
        known = [
            (value, line[place])
            for value, line in zip(values, lines, strict=False)
            if isinstance(value, int | float) and line[place] != "–"
        ]
        if known:
            higher = found.higher_is_better or name == "adjusted Rand index"
            top = _mean_text((max if higher else min)(known)[1])
            best |= {(number, place) for number, line in enumerate(lines) if _mean_text(line[place]) == top}
    return best


def _mean_text(cell: str) -> str:
    """The mean in a cell, without its deviation: what a reader compares."""
    return cell.partition(" ±")[0]


def latex(table: Cells, bold: Collection[tuple[int, int]] = ()) -> str:
    """A `tabular` environment in the style of the package booktabs; `bold`: (row, column) of cells in bold."""
    header, rows = table
    cells = [[_latex_text(cell) for cell in line] for line in (header, *rows)]
    for number, place in bold:
        cells[number + 1][place] = rf"\textbf{{{cells[number + 1][place]}}}"
    lines = [" & ".join(line) + r" \\" for line in cells]
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


def _cell(row: Mapping[str, object], key: str, factor: float, digits: str, spread_shown: bool) -> str:
    value, deviation = row.get(key), row.get(f"{key}_deviation") if spread_shown else None
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
