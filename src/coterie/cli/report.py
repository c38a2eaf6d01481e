"""coterie report: a page about one run, or about several side by side."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags
from coterie.cli.output import document, plural, result, size
from coterie.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from coterie.runs.record import JsonObject


def report(
    runs: flags.Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            show_default=False,
            help="File of the page; default: the name of RUN, or `report` for several, with the ending .html.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="Method that the others are tested against; default: fedavg, or a method with one model for all.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Write a page about a run, or about several side by side, as one HTML file that works offline.

    It is made from records alone; nothing is run again. Running, failed and
    interrupted runs are shown up to their last recorded round. With --json, the
    data of the page are printed, and a page is written only with -o.
    """
    from coterie.errors import SpecError
    from coterie.reports.page_report import write_page

    file = None if as_json and out is None else _file(runs, out)
    if file is not None and os.path.lexists(file) and not force:
        raise SpecError(f"{file} exists; choose another file with -o, or replace it with --force")
    data = page_of(runs, reference=reference, quiet=quiet or as_json)
    if file is not None:
        write_page(data, file)
        if show:
            _open(file)
    if as_json:
        document(data)
    elif file is not None:
        shown = plural(len(data["runs"]), "run")
        result(*data_headline(data), "", f"{file} ({shown}, {size(file.stat().st_size)})")


def page_of(runs: Sequence[str | Path], *, reference: str | None = None, quiet: bool = False) -> JsonObject:
    """The data of a page, with progress while records are read."""
    with ProgressDisplay(silent=quiet, waiting="reading records") as progress:
        from coterie.reports.page_report import report_data

        def reading(place: int, total: int, folder: Path) -> None:
            progress.expect(total)
            progress.describe("reading records" if total > 1 else "reading the record")
            progress.done(place, folder.name)

        return report_data(runs, reference=reference, on_run=reading)


def write_report(folder: Path) -> Path:
    """Write the page of a run or a comparison into its folder; a page that is there is replaced."""
    from coterie.reports.page_report import write_page
    from coterie.runs.record_files import REPORT

    return write_page(page_of([folder], quiet=True), folder / REPORT)


def next_step(folder: Path) -> str:
    """The line that names the command for a page of these records."""
    return f"Page: {shlex.join(['coterie', 'report', str(folder)])}"


def data_headline(data: JsonObject) -> list[str]:
    """The headline of a page, for the terminal."""
    comparison = data["comparison"]
    if comparison is None:
        return list(data["runs"][0]["headline"])
    return [*comparison["headline"], *comparison["conclusion"]]


def _file(runs: Sequence[str], out: Path | None) -> Path:
    """The file of the page."""
    from coterie.errors import SpecError
    from coterie.runs.record_files import RECORD_FILES, SPEC

    if out is not None and out.is_dir():
        raise SpecError(f"{out} is a folder; give a file with -o, such as {out / 'report.html'}")
    one = Path(runs[0])
    name = one.resolve().name if len(runs) == 1 and one.is_dir() else "report"
    file = Path(f"{name or 'report'}.html") if out is None else out if out.suffix else Path(f"{out}.html")
    if (file.resolve().parent / SPEC).is_file() and file.name in RECORD_FILES:
        raise SpecError(f"{file} is a file of a record; choose another file with -o")
    if file.suffix not in (".html", ".htm"):
        raise SpecError(f"The page is HTML: -o must end with .html, got {file.name}; for figures: coterie figure")
    return file


def _open(file: Path) -> None:
    import webbrowser

    from coterie.cli.output import note

    if not webbrowser.open(file.resolve().as_uri()):
        note(f"No browser was found; open {file} yourself.")
