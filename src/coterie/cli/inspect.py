"""coterie inspect: who is in which cluster, since when, with which score, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags
from coterie.cli.output import document, number, percent, result, table

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.inspection import ClientInspection

#: What the columns of the table mean.
_LEGEND = (
    "own, other: the value of the client's cluster and of the nearest other one, by which the method decided. since: "
    "from which round on the client has been in its cluster."
)


def inspect(
    run: flags.Run,
    client: Annotated[
        str | None, typer.Option(metavar="ID", show_default=False, help="Only this client, with all values.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one line per client as CSV.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Show who is in which cluster, since which round, with which test score, and why.

    The reason is what the method decided by, as recorded: the loss, distance, angle or cosine of the client's own
    cluster and of the nearest other one. --csv and --json count rounds from 0, as the record does.
    """
    from coterie.errors import SpecError
    from coterie.runs.record import RunRecord

    if as_csv and as_json:
        raise SpecError("--csv and --json exclude each other; give one of them")
    found = RunRecord.read(run).inspect(client)
    if as_json:
        document({"clients": [each.to_dict() for each in found]})
    elif as_csv:
        _print_csv(found)
    else:
        result(
            _table(found), _LEGEND, *([_values(found[0])] if client is not None and found[0].reason is not None else [])
        )


def _print_csv(found: list[ClientInspection]) -> None:
    import csv

    rows = [each.row() for each in found]
    writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else ["client"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _table(found: list[ClientInspection]) -> Table:
    made = table("client", "cluster", "since", "accuracy", "loss", "decided by", "own", "nearest other", "other")
    for each in found:
        other = each.nearest_other
        made.add_row(
            each.client,
            "fallback" if each.cluster is None else str(each.cluster),
            _round(each.since),
            percent(each.accuracy),
            number(each.loss, "4g"),
            "–" if each.reason is None else each.reason.what,
            number(each.own_value, "4g"),
            "–" if other is None else other,
            number(each.other_value, "4g"),
        )
    return made


def _values(each: ClientInspection) -> str:
    assert each.reason is not None
    values = ", ".join(f"{cluster}: {number(each.reason.values[cluster], '4g')}" for cluster in each.reason.ranked())
    return f"{each.reason.what} by cluster, the best first, {_round(each.decided)}: {values}"


def _round(t: int | None) -> str:
    """A round as people count them, from 1; records count from 0."""
    if t is None:
        return "–"
    return "preparation" if t < 0 else f"round {t + 1}"
