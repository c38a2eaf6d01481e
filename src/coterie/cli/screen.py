"""What goes where: results to stdout, everything else to stderr; numbers as people read them."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


def result(*shown: RenderableType) -> None:
    """Print a result for people."""
    console = _console(stderr=False)
    for each in shown:
        console.print(each, soft_wrap=isinstance(each, str), markup=False, highlight=False)


def document(value: Any) -> None:
    """Print a result for programs: one JSON document."""
    from coterie.runs.record import finite

    sys.stdout.write(json.dumps(finite(value), indent=2, ensure_ascii=False) + "\n")


def note(text: str) -> None:
    """Say something that is no result."""
    _console(stderr=True).print(f"Note: {text}", soft_wrap=True, markup=False, highlight=False)


def complain(text: str, before: str = "Error: ") -> None:
    """Say what went wrong."""
    from rich.text import Text

    line = Text.assemble((before, "bold red"), text)
    _console(stderr=True).print(line, soft_wrap=True, highlight=False)


def table(*columns: str, left: int = 1) -> Table:
    """An empty table whose columns, but for the first `left`, hold numbers."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(column, justify="left" if place < left else "right")
    return made


def facts() -> Table:
    """An empty table of a name and a text a line."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    return made


def percent(share: float | None, deviation: float | None = None) -> str:
    """A share as per cent, with its deviation over seeds."""
    if share is None:
        return "–"
    return f"{100 * share:.1f}" + ("" if deviation is None else f" ± {100 * deviation:.1f}")


def number(value: float | None, digits: str, deviation: float | None = None) -> str:
    """A number with so many digits, such as "2f" or "4g", with its deviation over seeds."""
    if value is None:
        return "–"
    return f"{value:.{digits}}" + ("" if deviation is None else f" ± {deviation:.{digits}}")


def size(count: float | None) -> str:
    """Bytes in a unit that suits them."""
    if count is None:
        return "–"
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # Nobody looks at a pipe through a window of 80 columns.
    width = None if stream.isatty() or "COLUMNS" in os.environ else 120
    return Console(stderr=stderr, width=width)
