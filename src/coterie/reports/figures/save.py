"""Writing figures: the same figure is the same file, byte for byte, on every machine with the same matplotlib."""

from __future__ import annotations

import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import SpecError, shown
from coterie.reports.figures.style import FILES, load_matplotlib
from coterie.runs.record_files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Ending of a file → metadata without a date.
_METADATA: dict[str, dict[str, Any]] = {
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
    ".png": {},
}

#: Endings of files that can be written.
ENDINGS = tuple(_METADATA)


def check_ending(path: str | os.PathLike[str], known: Collection[str] = ENDINGS) -> str:
    """Return the ending of a file; an error names those that are known."""
    ending = Path(path).suffix.lower()
    if ending not in known:
        text = f"Files that end in {shown(ending)} are not known" if ending else f"{path} has no ending"
        raise SpecError(f"{text}; use one of {', '.join(known)}")
    return ending


def write_file(file: Path, content: bytes) -> None:
    """Write a file as a whole; an error says why it cannot be written."""
    try:
        write_whole(file, content)
    except OSError as fault:
        raise SpecError(f"{file} cannot be written: {fault.strerror or fault}") from fault


def save(figure: Figure | Axes, path: str | os.PathLike[str], *, svg_text: bool = False, dpi: int = 300) -> Path:
    """Write a figure to a file: PDF with embedded TrueType fonts, SVG or PNG, by the ending; without a date.

    Args:
        figure: A figure, or axes of one.
        path: The file; one that exists is replaced.
        svg_text: Whether an SVG file has its text as text, in the fonts of the reader, instead of as outlines.
        dpi: Resolution of a PNG file.

    Returns:
        The file.
    """
    ending = check_ending(path)
    whole: Any = figure
    while getattr(whole, "figure", whole) is not whole:  # axes, parts of a figure
        whole = whole.figure
    content = io.BytesIO()
    with load_matplotlib().rc_context({**FILES, "svg.fonttype": "none" if svg_text else "path"}):
        whole.savefig(content, format=ending[1:], dpi=dpi, metadata=_METADATA[ending])
    file = Path(path)
    write_file(file, content.getvalue())
    return file
