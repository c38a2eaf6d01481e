"""`report`: a page about one run, or about several runs side by side."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from coterie.errors import RecordError
from coterie.reports.comparison_view import ComparisonView
from coterie.reports.page.build import build_page
from coterie.reports.page.page_data import page_data
from coterie.reports.view import RunView
from coterie.runs.record import JsonObject
from coterie.runs.record_files import SPEC, write_whole
from coterie.runs.record_list import list_records

log = logging.getLogger(__name__)

#: Called with the number of runs that were read, the number of all, and the folder of the next one.
OnRun = Callable[[int, int, Path], None]

#: A path, or several.
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


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


def find_runs(runs: Paths) -> list[Path]:
    """The folders of records that are meant, each once.

    Raises:
        RecordError: If there is no such folder, or no record in it.
    """
    given: Sequence[str | os.PathLike[str]] = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    found: dict[Path, Path] = {}
    for each in given:
        for folder in _records_of(os.fspath(each)):
            found.setdefault(folder.resolve(), folder)
    if not found:
        raise RecordError("Give at least one run: the folder of a record, such as runs/digits-ifca-0")
    return list(found.values())


def _records_of(text: str) -> list[Path]:
    path = Path(text)
    if path.exists():
        return _records_in(path)
    matches = [Path(each) for each in sorted(glob.glob(text))] if glob.has_magic(text) else []
    folders = [each for each in matches if each.is_dir()]
    if not folders:
        raise RecordError(f"There is no run {text}; `coterie runs DIR` lists the records in a folder")
    return [record for folder in folders for record in _records_in(folder)]


def _records_in(folder: Path) -> list[Path]:
    """The folder itself if it is a record, otherwise the records in it; those that cannot be read are skipped."""
    if folder.is_file():
        raise RecordError(f"{folder} is a file; give the folder of a record")
    if (folder / SPEC).is_file():
        return [folder]
    entries = list_records(folder)
    for entry in entries:
        if entry.status == "unreadable":
            log.warning("%s is left out: %s", entry.path, entry.reason)
    readable = [entry.path for entry in entries if entry.status != "unreadable"]
    if not readable:
        raise RecordError(f"{folder} has no record of a run; `coterie run --out DIR` writes one")
    return readable
