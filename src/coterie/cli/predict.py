"""coterie predict: predictions of the models of a run for the examples in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags
from coterie.cli.output import document, facts, number, percent, plural, result, table

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.file_prediction import Predictions

#: Number of examples and of classes whose probabilities are shown in the terminal; a file has all.
_ROWS_SHOWN, _CLASSES_SHOWN = 20, 8


def predict(
    run: flags.Run,
    data: flags.Examples,
    client: Annotated[
        str | None, typer.Option(metavar="ID", show_default=False, help="Use the model of this client.")
    ] = None,
    cluster: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Use the model of this cluster.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.csv", show_default=False, help="Write one line per example."),
    ] = None,
    proba: Annotated[
        bool,
        typer.Option(
            "--proba", help="Also give the probability of each class; without -o, only for the first examples."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Predict with the models of a run, and compare the predictions with the labels, if the file has them.

    A column `client` (in an .npz file: an array) chooses the model of each example, unless --client or --cluster does.
    """
    import os

    from coterie.errors import SpecError
    from coterie.runs.file_prediction import predict_file
    from coterie.runs.record import RunRecord

    if out is not None and out.suffix.lower() != ".csv":
        raise SpecError(f"Predictions are written as .csv, got {out.name!r}")
    if out is not None and os.path.lexists(out) and not force:
        raise SpecError(f"{out} exists; choose another file with -o, or replace it with --force")
    found = predict_file(RunRecord.read(run), data, client=client, cluster=cluster, proba=proba)
    summary = found.summary()
    if out is not None:
        found.write_csv(out)
    if as_json:
        header, rows = found.rows()
        listed = {} if out is not None else {"columns": header, "rows": rows}
        document({**summary, "path": None if out is None else str(out), **listed})
        return
    shown = facts()
    by = (
        ""
        if "clients" not in summary
        else f" of {plural(summary['clients'], 'client')}, each with the model that it is served"
    )
    shown.add_row("examples", f"{plural(summary['examples'], 'example')}{by}")
    if "predictions" in summary:
        shown.add_row("predictions", ", ".join(f"{name}: {count}" for name, count in summary["predictions"].items()))
    if "mean_prediction" in summary:
        shown.add_row("mean prediction", number(summary["mean_prediction"], "4g"))
    if "accuracy" in summary:
        shown.add_row("accuracy", f"{percent(summary['accuracy'])} %")
    if "rmse" in summary:
        shown.add_row("root mean squared error", number(summary["rmse"], "4g"))
    examples = _probabilities(found) if proba and out is None else []
    result(shown, *examples, *([] if out is None else ["", str(out)]))


def _probabilities(found: Predictions) -> list[str | Table]:
    """The probabilities of the first examples, and what is left out."""
    assert found.probabilities is not None
    _, rows = found.rows()
    texts = 1 if found.client is None else 2
    names = [f"P({name})" for name in found.class_names[:_CLASSES_SHOWN]]
    made = table("row", *(["client"] if texts == 2 else []), "prediction", *names, left=texts + 1)
    for place, row in enumerate(rows[:_ROWS_SHOWN], start=1):
        shares = [number(share, "4f") for share in row[texts : texts + _CLASSES_SHOWN]]
        made.add_row(str(place), *map(str, row[:texts]), *shares)
    more = [plural(len(rows) - _ROWS_SHOWN, "example")] if len(rows) > _ROWS_SHOWN else []
    classes = len(found.class_names) - _CLASSES_SHOWN
    more += [f"{classes} class{'es' if classes > 1 else ''}"] if classes > 0 else []
    return [made, *([f"Not shown: {' and '.join(more)}; for all of them: -o FILE.csv, or --json"] if more else [])]
