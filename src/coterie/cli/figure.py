"""coterie figure: draw records as a figure for a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags
from coterie.cli.output import document, note, result, size
from coterie.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from coterie.reports.view import RunView


def _kinds(incomplete: str) -> list[str]:
    from coterie.reports.figures.layout import KINDS

    return [kind for kind in (*KINDS, "table") if kind.startswith(incomplete)]


def figure(
    runs: flags.Runs,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            autocompletion=_kinds,
            help="curves, discrepancy, drift, fairness, communication: one line or bar per method. map, matrix, "
            "search: one panel per run. relation: two runs. variance: runs of fedsim. table: .tex, .md or .csv.",
        ),
    ] = "curves",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            show_default=False,
            help="Output file: .pdf, .svg or .png; for a table .tex, .md or .csv; default: KIND.pdf or table.tex.",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Metrics of curves, separated by commas, one row of panels each: primary, mean, worst_tenth, "
            "test_loss, train_loss, discrepancy, coverage, adjusted_rand, validation, or a metric of run.metrics.",
        ),
    ] = "primary",
    against: Annotated[
        str, typer.Option(metavar="AXIS", help="Horizontal axis of curves: round, or megabytes (traffic so far).")
    ] = "round",
    width: Annotated[
        str, typer.Option(metavar="one|two", help="Width in columns of a paper: 3.5 or 7.16 inches.")
    ] = "one",
    height: Annotated[
        float | None, typer.Option(metavar="INCHES", show_default=False, help="Height; default: automatic.")
    ] = None,
    columns: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Panels side by side; default: automatic.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD=LABEL",
            show_default=False,
            help="Name of a method in the figure; $...$ is a formula; repeatable.",
        ),
    ] = None,
    font: Annotated[
        str, typer.Option(metavar="sans|serif", help="DejaVu Sans, or STIX, which looks like Times.")
    ] = "sans",
    svg_text: Annotated[
        bool, typer.Option("--svg-text", help="SVG: keep text as text, in the reader's fonts, instead of outlines.")
    ] = False,
    dpi: Annotated[int, typer.Option(metavar="N", min=50, max=1200, help="PNG: dots per inch.")] = 300,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Draw records as a figure for a paper. Nothing is run again.

    Runs that differ only in their seed are drawn as one line: their mean, with a
    band of one standard deviation. Runs with different data, model or drift get
    separate panels. Runs that recorded nothing for a map, matrix or search are
    left out, with a note. PDF files have embedded fonts, and the same records give the
    same file. docs/how-to/figures.md describes every kind.
    """
    import os

    from coterie.errors import SpecError, unknown
    from coterie.reports import figures, tables
    from coterie.reports.figures.drawable import drawable
    from coterie.reports.figures.drawn import drawn
    from coterie.reports.figures.save import ENDINGS, check_ending, write_file

    if kind not in (*figures.KINDS, "table"):
        raise SpecError(unknown("kind", kind, [*figures.KINDS, "table"]))
    file = Path("table.tex" if kind == "table" else f"{kind}.pdf") if out is None else out
    ending = check_ending(file, tables.ENDINGS if kind == "table" else ENDINGS)
    if os.path.lexists(file) and not force:
        raise SpecError(f"{file} exists; choose another file with -o, or replace it with --force")
    views = _read(runs, quiet=quiet or as_json)
    if kind == "table":
        text = tables.table(views, tables.ENDINGS[ending], labels=_labels(label or ()))
        write_file(file, text.encode())
        result(f"{file} ({size(file.stat().st_size)})") if not as_json else document({"path": str(file), "text": text})
        return
    views, left_out = drawable(views, kind)
    for view in left_out:
        note(f"{view.path} is left out: {view.method} recorded nothing to draw in a figure of kind {kind}.")
    made = figures.figure(
        views,
        kind,
        quantities=[each.strip() for each in metric.split(",") if each.strip()] or ["primary"],
        against=against,
        width=width,
        height=height,
        columns=columns,
        font=font,
        labels=_labels(label or ()),
    )
    figures.save(made, file, svg_text=svg_text, dpi=dpi)
    inches = [round(float(each), 2) for each in made.get_size_inches()]
    if as_json:
        about = {"path": str(file), "kind": kind, "width": inches[0], "height": inches[1]}
        paths = {"runs": [str(view.path) for view in views], "left_out": [str(view.path) for view in left_out]}
        document({**about, **paths, "panels": drawn(made)})
        return
    result(f"{file} ({inches[0]:g} × {inches[1]:g} inches, {size(file.stat().st_size)})")


def _read(runs: Sequence[str], *, quiet: bool) -> list[RunView]:
    """The runs, with progress while they are read."""
    with ProgressDisplay(silent=quiet, waiting="reading records") as progress:
        from coterie.reports.record_paths import find_runs
        from coterie.reports.view import RunView

        folders = find_runs(runs)
        progress.expect(len(folders))
        views = []
        for place, folder in enumerate(folders):
            progress.done(place, folder.name)
            views.append(RunView.read(folder))
        return views


def _labels(given: Iterable[str]) -> dict[str, str]:
    from coterie.errors import SpecError, shown

    found = {}
    for text in given:
        method, equals, name = text.partition("=")
        if not equals or not method or not name:
            raise SpecError(f"--label is METHOD=LABEL, such as fedavg=FedAvg, got {shown(text)}")
        found[method] = name
    return found
