"""Printing results to stdout, notes and errors to stderr; and formats of numbers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie.errors import message_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

#: Number of clusters whose sizes are listed.
_SIZES_SHOWN = 20


def result(*parts: RenderableType) -> None:
    """Print a result as text and tables."""
    console = _console(stderr=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), markup=False, highlight=False)


def document(value: object) -> None:
    """Print a result as one JSON document."""
    from coterie.runs.record import finite

    sys.stdout.write(json.dumps(finite(value), indent=2, ensure_ascii=False) + "\n")


def text(value: str) -> None:
    """Print a text as it is."""
    sys.stdout.write(value)


def note(text: str) -> None:
    """Print a note to stderr."""
    _console(stderr=True).print(f"Note: {message_text(text)}", soft_wrap=True, markup=False, highlight=False)


def line(text: str) -> None:
    """Print a line of a log to stderr."""
    _console(stderr=True).print(message_text(text), soft_wrap=True, markup=False, highlight=False)


def error(text: str, prefix: str = "Error: ") -> None:
    """Print an error message to stderr."""
    from rich.text import Text

    line = Text.assemble((prefix, "bold red"), message_text(text))
    _console(stderr=True).print(line, soft_wrap=True, highlight=False)


def table(*columns: str, left: int = 1) -> Table:
    """An empty table with a header; the first `left` columns are left-aligned text, the others numbers."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        made.add_column(column, justify="left" if position < left else "right")
    return made


def facts() -> Table:
    """An empty table without a header, for pairs of name and text."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    return made


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 round", "2 rounds"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def cluster_sizes(sizes: Sequence[int]) -> str:
    """The number of clusters and their sizes, such as "3 (10, 10, 20 clients)"; empty clusters are only counted."""
    members = [size for size in sizes if size]
    listed = ", ".join(map(str, members[:_SIZES_SHOWN])) + (", …" if len(members) > _SIZES_SHOWN else "")
    empty = len(sizes) - len(members)
    if not members:
        return f"0 ({empty} empty)"
    return f"{len(members)} ({listed} clients{f'; {empty} empty' if empty else ''})"


def percent(fraction: float | None, deviation: float | None = None) -> str:
    """A fraction in percent, with its standard deviation over seeds."""
    if fraction is None:
        return "–"
    return f"{100 * fraction:.1f}" + ("" if deviation is None else f" ± {100 * deviation:.1f}")


def number(value: float | None, digits: str, deviation: float | None = None) -> str:
    """A number in the format `digits`, such as "2f" or "4g", with its standard deviation over seeds."""
    if value is None:
        return "–"
    return f"{value:.{digits}}" + ("" if deviation is None else f" ± {deviation:.{digits}}")


def size(count: float | None) -> str:
    """A number of bytes with its unit."""
    if count is None:
        return "–"
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def duration(seconds: float) -> str:
    """A duration with its unit."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no width; rich would assume 80 columns.
    width = None if stream.isatty() or "COLUMNS" in os.environ else 120
    # Rich would print the bytes :AB: and :CD: of a fingerprint as pictures.
    return Console(stderr=stderr, width=width, emoji=False)
