"""coterie place: find the cluster of a newcomer with a recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.output import document, facts, number, percent, plural, result, size

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.placing import NewcomerPlacement


def place(
    run: flags.Run,
    data: flags.Examples,
    client: Annotated[
        str | None,
        typer.Option(metavar="ID", show_default=False, help="The newcomer, if the file has several clients."),
    ] = None,
    test_share: Annotated[
        float,
        typer.Option(metavar="FRACTION", help="Fraction of the examples that only the newcomer's own score uses."),
    ] = 0.2,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of that split and of the repeated decisions.")] = 0,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Place a newcomer by the rule of the method: its cluster, how sure that is, the expected score and the cost.

    The record does not change. The decision is repeated on 100 resamples of the newcomer's examples or, if it has to
    train, with 20 seeds.
    """
    from coterie.runs.file_prediction import newcomer_examples
    from coterie.runs.record import RunRecord

    record = RunRecord.read(run)
    name, x, y = newcomer_examples(data, record.served.get("spec", {}).get("data", {}), client)
    placed = record.place(x, y, client=name, test_share=test_share, seed=seed)
    if as_json:
        document(placed.to_dict())
        return
    result(f"{name}: {_where(placed)}", "", _figures(placed), *(f"\n{note}" for note in placed.notes))


def _where(placed: NewcomerPlacement) -> str:
    if placed.cluster is None:
        return "no cluster; it is served the fallback model"
    return f"cluster {placed.cluster} of {plural(placed.clusters, 'model')}"


def _figures(placed: NewcomerPlacement) -> Table:
    shown = facts()
    reason, cluster = placed.reason, placed.cluster
    if reason is not None:
        values = [f"{each}: {number(reason.values[each], '4g')}" for each in reason.ranked()[:5]]
        shown.add_row(f"{reason.what} by cluster", ", ".join(values))
    if placed.margin is not None and reason is not None:
        second = reason.nearest_other(str(cluster))
        shown.add_row("margin", f"{number(placed.margin, '4g')} to cluster {second}")
    if placed.agreement is not None:
        how = "resamples of its examples" if placed.repeated_by == "examples" else "other seeds"
        shown.add_row("same decision", f"{percent(placed.agreement)} % of {placed.repetitions} {how}")
    shown.add_row("score of the cluster", _score(placed.cluster_score, "test examples of its clients"))
    shown.add_row("score of its own", _score(placed.own_score, "examples that the decision did not use"))
    shown.add_row("cost", f"{size(placed.bytes['down'])} down, {size(placed.bytes['up'])} up")
    return shown


def _score(score: Mapping[str, Any] | None, what: str) -> str:
    if score is None:
        return "–"
    accuracy = "" if score["accuracy"] is None else f"accuracy {percent(score['accuracy'])} %, "
    return f"{accuracy}loss {number(score['loss'], '4g')} ({score['examples']} {what})"
