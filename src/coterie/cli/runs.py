"""coterie runs: list, filter, sort and delete recorded runs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags
from coterie.cli.output import document, duration, note, number, percent, plural, result, table

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.record_list import RecordEntry


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with records; subfolders are searched, too.")
    ] = Path("runs"),
    method: Annotated[
        str | None, typer.Option(metavar="A,B,…", show_default=False, help="Only runs of these methods.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="A,B,…", show_default=False, help="Only runs on these data sets.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            show_default=False,
            help="Only runs with this status: done, unfinished, diverged, failed, unreadable.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN>X", show_default=False, help="A condition such as 'accuracy>0.9'; quote it; repeatable."
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMN", show_default=False, help="Sort by a column; best accuracy first.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the listed records, after a question.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --delete: do not ask.")] = False,
    to_csv: Annotated[
        Path | None,
        typer.Option("--to-csv", metavar="FILE", show_default=False, help="Write the list with all columns to a file."),
    ] = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List recorded runs: filter and sort them, write them to a CSV file, delete them."""
    from coterie.runs import record_list

    listed = record_list.select(record_list.list_records(folder), where or ())
    listed = [each for each in listed if _chosen(each, method, data, status)]
    if sort is not None:
        listed = record_list.order(listed, sort)
    if to_csv is not None:
        _write_csv(to_csv, listed)
    deleted = _delete(listed, yes=yes, as_json=as_json) if delete else []
    if as_json:
        document({"runs": [each.to_dict() for each in listed], "deleted": [str(path) for path in deleted]})
    elif delete:
        result(f"{plural(len(deleted), 'record')} deleted.")
    elif to_csv is not None:
        result(f"{plural(len(listed), 'run')} written to {to_csv}")
    elif not listed:
        filtered = any(each is not None for each in (method, data, status, where or None))
        result(f"No runs in {folder} match." if filtered else f"There are no runs in {folder}.")
    else:
        reasons = [_plain(f"{each.path}: {each.reason}") for each in listed if each.reason]
        result(_table(listed, folder), *_legend(listed), *reasons, plural(len(listed), "run"))


def _chosen(entry: RecordEntry, method: str | None, data: str | None, status: str | None) -> bool:
    pairs = ((method, (entry.method,)), (data, (entry.data, Path(entry.data).name)), (status, (entry.status,)))
    return all(wanted is None or any(name.strip() in values for name in wanted.split(",")) for wanted, values in pairs)


def _table(listed: Sequence[RecordEntry], folder: Path) -> Table:
    """The test loss is shown if no run has an accuracy."""
    scored = any(each.values.get("accuracy") is not None for each in listed)
    scores = ["accuracy %", "last ten %"] if scored else ["test loss"]
    shown = table("run", "method", "data", "status", "seed", "rounds", *scores, "clusters", "time", left=4)
    shown.columns[3].no_wrap = True
    for each in listed:
        values, name = each.values, each.path.relative_to(folder).as_posix()
        accuracies = [percent(values.get(column)) for column in ("accuracy", "last_ten")]
        shown.add_row(
            _plain(name if name != "." else str(folder)),
            _plain(each.method),
            _plain(Path(each.data).name),
            each.status,
            "–" if each.seed is None else str(each.seed),
            number(values.get("rounds"), "0f"),
            *(accuracies if scored else [number(values.get("test_loss"), "4g")]),
            number(values.get("clusters"), "0f"),
            "–" if (seconds := values.get("seconds")) is None else duration(seconds),
        )
    return shown


def _legend(listed: Sequence[RecordEntry]) -> list[str]:
    """What the columns of accuracies mean, if there are any."""
    if all(each.values.get("accuracy") is None for each in listed):
        return []
    return [
        "accuracy: of the served models, by default those of the last round; last ten: mean accuracy over the last ten "
        "rounds, or all if there are fewer, as in coterie compare."
    ]


def _plain(text: str) -> str:
    """A text that comes from a file, in one line without control characters."""
    from coterie.errors import message_text

    return message_text(text).replace("\n", " ")


def _delete(listed: Sequence[RecordEntry], *, yes: bool, as_json: bool) -> list[Path]:
    from coterie.errors import RecordError, SpecError
    from coterie.runs.record_list import delete_record

    if not yes and as_json:
        raise SpecError("--delete with --json needs --yes, because the question would be part of the output")
    if not listed:
        return []
    names = ", ".join(str(each.path) for each in listed[:5]) + (", …" if len(listed) > 5 else "")
    if not yes and not typer.confirm(f"Delete {plural(len(listed), 'record')} ({names})?", err=True):
        return []
    deleted = []
    for each in listed:
        try:
            delete_record(each.path)
            deleted.append(each.path)
        except RecordError as fault:
            note(str(fault))
    return deleted


def _write_csv(file: Path, listed: Sequence[RecordEntry]) -> None:
    from coterie.runs.record_list import RecordEntry

    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(RecordEntry(Path(), "").to_dict()))
        writer.writeheader()
        writer.writerows(each.to_dict() for each in listed)
