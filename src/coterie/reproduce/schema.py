"""`Entry`: a table or figure of a paper as data. `loading` reads it from TOML, `planning` makes runs of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.errors import SpecError, shown

#: The algorithm as the paper prints it, or what the published program does, where the two differ.
Variant = Literal["as printed", "as coded"]

#: Part of a spec: section → setting → value. For data, model and method a string is short for a table with that name.
SpecPart = Mapping[str, Any]

#: A number as printed, and what is printed after its ±.
_NUMBER = r"[-+]?\d+(?:\.(\d+))?"
_PUBLISHED = re.compile(rf"({_NUMBER})(?: ± (\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Published:
    """A published value.

    Attributes:
        text: As printed, such as "92.03 ± 0.30".
        value: The number.
        deviation: The number after ±; None if there is none.
        digits: Number of decimals.
    """

    text: str
    value: float
    deviation: float | None
    digits: int

    @classmethod
    def parse(cls, text: str) -> Published:
        """Read a value such as "89.8" or "92.03 ± 0.30"."""
        found = _PUBLISHED.fullmatch(text)
        if found is None:
            raise SpecError(f'A published value is a text such as "89.8" or "92.03 ± 0.30", got {shown(text)}')
        deviation = None if found[3] is None else float(found[3])
        return cls(text, float(found[1]), deviation, len(found[2] or ""))


@dataclass(frozen=True)
class Fragment:
    """Settings of an entry, a part, a row, a column or a single cell. Later levels take precedence, in this order.

    So a part may hold the settings of a data set, and a row or column those of a method that changes some of them.

    Attributes:
        spec: Settings of the runs.
        values: Name → value that `"$name"` in a spec stands for.
        coded: What the published program does otherwise; None: nothing. False: the cell has no such variant.
        quick: Settings of the scaled-down version.
        quick_values: Values of the scaled-down version.
        measure: Name of the measure, and its options; None: that of an earlier level.
        baseline: Settings of the run with which a measure compares; None: that of an earlier level.
        trust: Why a published value may not be what it says; empty: no reason is known.
    """

    spec: SpecPart = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    coded: SpecPart | Literal[False] | None = None
    quick: SpecPart = field(default_factory=dict)
    quick_values: Mapping[str, Any] = field(default_factory=dict)
    measure: Mapping[str, Any] | None = None
    baseline: SpecPart | None = None
    trust: str = ""


@dataclass(frozen=True)
class Line:
    """A row or a column of a table.

    Attributes:
        name: As in the paper.
        parts: Names of parts, whose fragments come before its own.
        fragment: Its own settings.
        published: For a row: the published value of each column; None where it is not known. Empty for a column.
        absent: For a row: columns in which the table has no cell, by position.
    """

    name: str
    parts: tuple[str, ...] = ()
    fragment: Fragment = field(default_factory=Fragment)
    published: tuple[Published | None, ...] = ()
    absent: frozenset[int] = frozenset()


#: How a claim is checked; `claims` says what each means.
Rule = Literal["at_least", "at_most", "between", "rising", "falling", "highest", "lowest"]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that is checked on measured values.

    Attributes:
        text: The statement.
        rule: How it is checked.
        rows: Rows that it is about; empty: all.
        columns: Columns that it is about; empty: all.
        low: Lower limit of `at_least` and `between`.
        high: Upper limit of `at_most` and `between`.
        along: Direction of `rising` and `falling`: from row to row, or from column to column.
        best: Row or column of `highest` and `lowest`.
    """

    text: str
    rule: Rule
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    along: Literal["rows", "columns"] = "columns"
    best: str = ""


@dataclass(frozen=True)
class QuickRun:
    """The scaled-down version of an entry.

    Attributes:
        note: What is scaled down.
        rows: Rows that are run; empty: all.
        columns: Columns that are run; empty: all.
        seeds: Number of seeds.
    """

    note: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    seeds: int = 1


@dataclass(frozen=True)
class Entry:
    """A table or figure of a paper.

    Attributes:
        name: Name for `coterie reproduce`.
        title: What it shows.
        paper: Citation.
        source: Table or figure number.
        setting: The experiment in words.
        compares: What is compared with the published values, with its unit.
        rows: Rows.
        columns: Columns.
        fragment: Settings of all cells.
        parts: Name → settings that rows and columns share.
        cells: (row, column) → settings of single cells.
        claims: Statements that are checked.
        quick: The scaled-down version.
        seeds: Number of seeds.
        digits: Decimals of values that are not published.
        notes: What a reader should know.
        errors: Errors in the publication.
    """

    name: str
    title: str
    paper: str
    source: str
    setting: str
    compares: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    fragment: Fragment
    quick: QuickRun
    parts: Mapping[str, Fragment] = field(default_factory=dict)
    cells: Mapping[tuple[str, str], Fragment] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    seeds: int = 3
    digits: int = 1
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def levels(self, row: Line, column: Line) -> list[Fragment]:
        """The fragments of a cell; later ones take precedence."""
        of_row, of_column = ([self.parts[name] for name in line.parts] for line in (row, column))
        own = self.cells.get((row.name, column.name), Fragment())
        return [self.fragment, *of_row, *of_column, row.fragment, column.fragment, own]

    def pairs(self) -> list[tuple[Line, Line]]:
        """Row and column of each cell."""
        return [(row, column) for row in self.rows for at, column in enumerate(self.columns) if at not in row.absent]

    def published(self) -> dict[tuple[str, str], Published]:
        """(row, column) → published value."""
        names: Sequence[str] = [column.name for column in self.columns]
        return {
            (row.name, name): value
            for row in self.rows
            for name, value in zip(names, row.published, strict=False)
            if value is not None
        }
