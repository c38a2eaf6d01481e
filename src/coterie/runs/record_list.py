"""`list_records`: the records below a folder, by their summaries only, so that a thousand of them are read quickly."""

from __future__ import annotations

import operator
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coterie.errors import RecordError, SpecError, shown, unknown
from coterie.runs.record import JsonObject, read_summary
from coterie.runs.record_files import CLIENTS, EVIDENCE, LATEST, RECORD_FILES, REPORT, SPEC, SUMMARY, locked
from coterie.runs.spec import read_toml
from coterie.runs.summary import number_at

#: Column → path of keys in a summary.
COLUMNS: dict[str, tuple[str, ...]] = {
    "accuracy": ("accuracy", "weighted"),
    "last_ten": ("accuracy", "weighted_last_ten"),
    "worst_tenth": ("accuracy", "worst_tenth"),
    "test_loss": ("test_loss",),
    "coverage": ("coverage",),
    "clusters": ("clusters", "count"),
    "adjusted_rand": ("truth", "adjusted_rand"),
    "rounds": ("rounds",),
    "clients": ("clients",),
    "down_bytes": ("traffic", "down_bytes"),
    "up_bytes": ("traffic", "up_bytes"),
    "seconds": ("seconds", "total"),
}

_TEXTS = ("method", "data", "model", "status", "path")
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


@dataclass(frozen=True)
class RecordEntry:
    """One record in a list.

    Attributes:
        path: The folder.
        status: `done`, `diverged`, `failed`, `unfinished`, or `unreadable`.
        method: Name of the method; empty if it is not known. The same for `data` and `model`.
        data: Name of the data set, or its path.
        model: Name of the model.
        seed: Random seed; None if it is not known.
        values: Column of `COLUMNS` → number, or None.
        reason: Why the run failed or the record cannot be read; empty otherwise.
    """

    path: Path
    status: str
    method: str = ""
    data: str = ""
    model: str = ""
    seed: int | None = None
    values: dict[str, float | None] = field(default_factory=dict)
    reason: str = ""

    def to_dict(self) -> JsonObject:
        """Return a flat dict: texts, seed and all columns."""
        texts = {"path": str(self.path), "status": self.status, "method": self.method, "data": self.data}
        numbers = {column: self.values.get(column) for column in COLUMNS}
        return {**texts, "model": self.model, "seed": self.seed, **numbers, "reason": self.reason}


def list_records(folder: str | os.PathLike[str]) -> list[RecordEntry]:
    """The records in a folder and in its subfolders, ordered by path. A record that cannot be read has the reason.

    Only `summary.json` is read, and `spec.toml` of unfinished runs.

    Raises:
        RecordError: If there is no such folder.
    """
    if not Path(folder).is_dir():
        raise RecordError(f"There is no folder {folder}; give the folder that has the records, by default runs")
    return [_entry(each) for each in record_folders(Path(folder))]


def select(entries: Iterable[RecordEntry], conditions: Sequence[str]) -> list[RecordEntry]:
    """The records that fulfill all conditions; those without the number do not.

    Args:
        entries: The records.
        conditions: Such as `accuracy>0.9`, `rounds>=50`, `seed=3`.

    Raises:
        SpecError: If a condition cannot be understood.
    """
    tests = [_parsed(text) for text in conditions]
    return [each for each in entries if all(test(each) for test in tests)]


def order(entries: Iterable[RecordEntry], column: str, *, descending: bool | None = None) -> list[RecordEntry]:
    """The records by a column; those without a value come last.

    Args:
        entries: The records.
        column: A column of `COLUMNS`, or `method`, `data`, `model`, `status`, `path`, `seed`.
        descending: Whether the largest comes first; None: for accuracies, coverage and the adjusted Rand index.
    """
    _check_column(column, (*COLUMNS, *_TEXTS, "seed"))
    if descending is None:
        descending = column in ("accuracy", "last_ten", "worst_tenth", "coverage", "adjusted_rand")
    listed = list(entries)
    known = [each for each in listed if each.to_dict()[column] not in (None, "")]
    known.sort(key=lambda each: each.to_dict()[column], reverse=descending)
    return known + [each for each in listed if each.to_dict()[column] in (None, "")]


def delete_record(path: Path) -> None:
    """Delete the folder of a record.

    Raises:
        RecordError: If it is not a record, has files that are not part of one, or is being written.
    """
    if path.is_symlink() or not (path / SPEC).is_file():
        raise RecordError(f"{path} is not the record of a run; it is not deleted")
    own = {*RECORD_FILES, str(LATEST.parent), EVIDENCE, CLIENTS, REPORT, "tensorboard"}
    if foreign := sorted(each.name for each in path.iterdir() if each.name not in own):
        raise RecordError(f"{path} has files that are not part of a record, such as {foreign[0]}; remove it yourself")
    with locked(path):
        shutil.rmtree(path)


def record_folders(folder: Path) -> Iterator[Path]:
    """The folders of the records in a folder and in its subfolders; subfolders of records are not searched."""
    for path, folders, files in os.walk(folder):
        if SPEC in files or SUMMARY in files:
            folders.clear()
            yield Path(path)
        folders[:] = sorted(each for each in folders if not each.startswith("."))


def _entry(folder: Path) -> RecordEntry:
    try:
        return _finished(folder, read_summary(folder)) if (folder / SUMMARY).is_file() else _unfinished(folder)
    except (RecordError, SpecError, OSError) as fault:
        return RecordEntry(folder, "unreadable", reason=str(fault))
    except (ValueError, TypeError, KeyError) as fault:  # the spec of an unfinished run was changed
        return RecordEntry(folder, "unreadable", reason=f"{SPEC} is damaged: {type(fault).__name__}: {fault}")


def _finished(folder: Path, summary: JsonObject) -> RecordEntry:
    return RecordEntry(
        folder,
        status=str(summary["status"]),
        method=str(summary["method"]),
        data=str(summary["data"]),
        model=str(summary["model"]),
        seed=int(summary["seed"]),
        values={column: number_at(summary, path) for column, path in COLUMNS.items()},
        reason=str(summary.get("reason") or ""),
    )


def _unfinished(folder: Path) -> RecordEntry:
    spec = read_toml(folder / SPEC)
    method, data, model = (str(spec[section]["name"]) for section in ("method", "data", "model"))
    return RecordEntry(folder, "unfinished", method, data, model, int(spec["run"]["seed"]))


def _parsed(text: str) -> Callable[[RecordEntry], bool]:
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|!=|>|<|==?)\s*(\S+)\s*", text)
    if match is None:
        raise SpecError(f"A condition has the form COLUMN>NUMBER, such as 'accuracy>0.9', got {shown(text)}")
    column, sign, given = match.groups()
    _check_column(column, (*COLUMNS, "seed"))
    try:
        limit = float(given)
    except ValueError:
        raise SpecError(f"{column} is compared with a number, got {shown(given)}") from None
    compare = _COMPARISONS[sign.replace("==", "=")]

    def test(entry: RecordEntry) -> bool:
        value = entry.to_dict()[column]
        return value is not None and compare(float(value), limit)

    return test


def _check_column(column: str, known: Sequence[str]) -> None:
    if column not in known:
        raise SpecError(unknown("column", column, known))
