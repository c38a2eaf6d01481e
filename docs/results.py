"""Write the summary in docs/results/README.md: how many published values are reached.

python docs/results.py        count the values in the tables of docs/results, and write the summary
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent / "results" / "README.md"
BEGIN, END = "<!-- summary: begin -->\n", "<!-- summary: end -->\n"
#: Differences up to this count as close, in percentage points.
CLOSE = 2.0
#: Words in the names of columns that are not in percent, and pages that are not: shares of clients.
OTHER_UNITS = ("discrepancy", "rounds to")
OTHER_PAGES = ("srfca-table2",)
#: Endings of pages that repeat rows of a table with something changed.
REPEATED = ("-differences", "-sizes")
#: Ending of rows that compare the runs of another row, scored in another way, with the same published values.
CURRENT_MODELS = ", scored with current models"
VARIANTS = ("as printed", "as coded", "current models")


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        row: Name of the row.
        column: Name of the column.
        differences: Variant → measured minus published, in percentage points.
    """

    row: str
    column: str
    differences: dict[str, float]


def published_values(text: str) -> list[dict[str, float]]:
    """For each published value in percent: variant → measured minus published, in percentage points.

    The variants are "as printed", "as coded" and, for tables with rows scored with current models, "current models":
    as coded and scored so.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    rescored = {cell.row.removesuffix(CURRENT_MODELS) for cell in cells(text) if cell.row.endswith(CURRENT_MODELS)}
    for row, column, differences in cells(text):
        of = found.setdefault((row.removesuffix(CURRENT_MODELS), column), {})
        coded = differences.get("as coded")
        if not row.endswith(CURRENT_MODELS):
            of |= {"as printed" if name == "measured" else name: each for name, each in differences.items()}
        if row in rescored or row.endswith(CURRENT_MODELS):  # methods that do not group clients have only the first row
            of |= {} if coded is None else {"current models": coded}
    return list(found.values())


def cells(text: str) -> Iterator[Cell]:
    """The cells of a page that have a published value in percent."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    header = _entries(lines[0])
    for line in lines[2:]:
        entries = _entries(line)
        if len(entries) != len(header) or entries == header:
            return  # the next table
        if any(word in entries[1] for word in OTHER_UNITS):
            continue
        found = {
            header[at - 1]: float(number[0])
            for at, name in enumerate(header)
            if name == "difference" and (number := re.match(r"[+-][\d.]+", entries[at]))
        }
        if found:
            yield Cell(entries[0], entries[1], found)


def _entries(line: str) -> list[str]:
    return [entry.strip() for entry in line.strip("| \n").split(" | ")]


def summary(folder: Path) -> str:
    """The summary of all pages in a folder."""
    rows = ["| table | as printed | as coded | as coded, current models | any |", "|---|---:|---:|---:|---:|"]
    for page in sorted(folder.glob("*-table*.md")):
        if page.stem in OTHER_PAGES or page.stem.endswith(REPEATED):
            continue
        found = published_values(page.read_text(encoding="utf-8"))
        if found:
            best = [min(map(abs, each.values())) for each in found]
            counts = [
                *(_close([abs(each[name]) for each in found if name in each]) for name in VARIANTS),
                _close(best),
            ]
            rows.append(f"| [{page.stem}]({page.name}) | {' | '.join(counts)} |")
    return "\n".join(rows) + "\n"


def _close(differences: list[float]) -> str:
    return f"{sum(each <= CLOSE for each in differences)} of {len(differences)}" if differences else "–"


def written(text: str, folder: Path) -> str:
    """The page with the current summary."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + summary(folder) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), PAGE.parent), encoding="utf-8")
