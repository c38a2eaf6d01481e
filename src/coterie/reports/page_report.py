"""`report`: a page about one run, or about several runs side by side."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from coterie.errors import RecordError
from coterie.reports.comparison_view import ComparisonView
from coterie.reports.page.build import build_page
from coterie.reports.page.page_data import page_data
from coterie.reports.record_paths import Paths, find_runs
from coterie.reports.view import RunView
from coterie.runs.record import JsonObject
from coterie.runs.record_files import write_whole

#: Called with the number of runs that were read, the number of all, and the folder of the next one.
OnRun = Callable[[int, int, Path], None]


def report(
    runs: Paths, out: str | os.PathLike[str], *, reference: str | None = None, on_run: OnRun | None = None
) -> Path:
    """Write a page about runs: one HTML file that needs nothing else. An existing file is replaced.

    Args:
        runs: Folder of a record, folder of several records, a pattern such as `runs/*`, or several of these.
        out: The HTML file.
        reference: Method that the others are tested against; None: one with one model for all clients, or the first.
        on_run: Called before each run is read.

    Returns:
        The path of the page.
    """
    return write_page(report_data(runs, reference=reference, on_run=on_run), out)


def report_data(runs: Paths, *, reference: str | None = None, on_run: OnRun | None = None) -> JsonObject:
    """The data of a page, as `coterie report --json` prints them; arguments as in `report`."""
    folders = find_runs(runs)
    views = []
    for place, folder in enumerate(folders):
        if on_run is not None:
            on_run(place, len(folders), folder)
        views.append(RunView.read(folder))
    if len(views) == 1:
        return page_data(views)
    return page_data(views, ComparisonView.of(views, reference))


def write_page(data: JsonObject, out: str | os.PathLike[str]) -> Path:
    """Write the page with these data; an existing file is replaced as a whole."""
    file = Path(out)
    try:
        write_whole(file, build_page(data).encode())
    except OSError as fault:
        raise RecordError(f"{file} cannot be written: {fault.strerror or fault}") from fault
    return file
