"""Write the summary in docs/results/README.md: how many measured values are close to the published ones.

python docs/results.py        count the cells in the tables of docs/results, and write the summary
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
    rows = ["| table | cells | as printed | as coded | either |", "|---|---:|---:|---:|---:|"]
    for page in sorted(folder.glob("*-table*.md")):
        if page.stem in OTHER_PAGES or page.stem.endswith(REPEATED):
            continue
        found = list(cells(page.read_text(encoding="utf-8")))
        if found:
            printed = [each.differences.get("as printed", each.differences.get("measured")) for each in found]
            coded = [each.differences.get("as coded") for each in found]
            either = [min(map(abs, each.differences.values())) for each in found]
            counts = " | ".join(map(_close, (printed, coded, either)))
            rows.append(f"| [{page.stem}]({page.name}) | {len(found)} | {counts} |")
    return "\n".join(rows) + "\n"


def _close(differences: list[float | None]) -> str:
    known = [abs(each) for each in differences if each is not None]
    return f"{sum(each <= CLOSE for each in known)} of {len(known)}" if known else "–"


def written(text: str, folder: Path) -> str:
    """The page with the current summary."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + summary(folder) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), PAGE.parent), encoding="utf-8")
