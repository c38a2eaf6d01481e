"""`find_runs`: the records that a path, a folder of records or a pattern stands for."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from coterie.errors import RecordError
from coterie.runs.record_files import SPEC
from coterie.runs.record_list import list_records

log = logging.getLogger(__name__)

#: A path, or several.
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def find_runs(runs: Paths) -> list[Path]:
    """The folders of the records that were given, each once.

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
