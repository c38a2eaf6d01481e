"""Predictions for the examples in a file: a .csv or .parquet table, or an .npz archive."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.columns import Table
from coterie.data.formats.npz import read_arrays
from coterie.errors import DataError, RecordError, SpecError, unknown
from coterie.models import Task
from coterie.runs.model_inputs import labels_of, read_columns
from coterie.runs.record import RunRecord
from coterie.runs.record_files import write_whole
from coterie.types import Array

#: Settings of [data] that name a column which is not a feature.
_ROLES = ("client", "label", "split", "truth", "weight")


@dataclass(frozen=True)
class ExampleFile:
    """The examples in a file.

    Attributes:
        x: An array, or a `Table`, whose errors name the file.
        y: Labels or targets as they are in the file; None if it has none.
        client: The client of each example; None if the file does not say.
    """

    x: Any
    y: Array | None
    client: Array | None

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.x)

    def only(self, rows: Array) -> Any:
        """The inputs in these rows."""
        if not isinstance(self.x, Table):
            return self.x[rows]
        lines = None if self.x.lines is None else np.asarray(self.x.lines)[rows]
        return Table(self.x.what, {name: values[rows] for name, values in self.x.columns.items()}, lines, self.x.header)


def read_examples(file: Path, settings: Mapping[str, Any]) -> ExampleFile:
    """Read the examples in a file.

    Args:
        file: A .csv or .parquet table with the columns of the run's data, of which the label and the client may be
            missing; or an .npz archive with the array `x`, and if known `y` and `client`.
        settings: Section [data] of the run, which may name the columns `client` and `label`.

    Raises:
        DataError: If the file cannot be read.
    """
    if file.suffix.lower() == ".npz":
        how = "It must hold the array x, and if known y and client, as numpy.savez writes them"
        names: list[str] = []

        def wanted(found: Collection[str]) -> list[str]:
            names[:] = ["x", *(name for name in ("y", "client") if name in found)]
            return names

        arrays = read_arrays(file, wanted, how)
        given = dict(zip(names, arrays, strict=True))
        return ExampleFile(given["x"], given.get("y"), given.get("client"))
    roles = {role: str(settings.get(role) or role) for role in _ROLES}
    table = read_columns(file, text=set(roles.values()))
    columns = dict(table.columns)
    taken = {role: columns.pop(name) for role, name in roles.items() if name in columns}
    for name in settings.get("ignore") or ():
        columns.pop(str(name), None)
    if not columns:
        raise DataError(f"{file} has no feature columns")
    left = Table(table.what, columns, table.lines, table.header)
    return ExampleFile(left, taken.get("label"), taken.get("client"))


def newcomer_examples(file: Path, settings: Mapping[str, Any], client: str | None) -> tuple[str, Any, Array | None]:
    """The name, the inputs and the labels of a newcomer in a file.

    Args:
        file: The file; see `read_examples`.
        settings: Section [data] of the run.
        client: The client in the file; None: the file has one.

    Raises:
        DataError: If the file has other or several clients.
    """
    examples = read_examples(file, settings)
    if examples.client is None:
        return client or file.stem, examples.x, examples.y
    names = examples.client.astype(str)
    known = [str(name) for name in np.unique(names)]
    if client is None and len(known) > 1:
        ends = f"from {known[0]!r} to {known[-1]!r}"
        raise DataError(f"{file} has the examples of {len(known)} clients, {ends}; choose one with --client")
    if client is not None and client not in known:
        raise DataError(unknown("client", client, known[:1000], f"in {file}"))
    rows = np.flatnonzero(names == (client or known[0]))
    return client or known[0], examples.only(rows), None if examples.y is None else examples.y[rows]


@dataclass(frozen=True)
class Predictions:
    """Predictions for the examples in a file.

    Attributes:
        values: The prediction of each example.
        probabilities: (rows, classes), if they were asked for.
        labels: The labels in the file, as class numbers or targets; None if there are none.
        correct: Whether each prediction is right; None without labels or for regression.
        client: The client of each example; None if one model was used for all.
        class_names: Names of the classes, as columns of probabilities.
    """

    values: Array
    probabilities: Array | None
    labels: Array | None
    correct: Array | None
    client: Array | None
    class_names: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The numbers that are printed: examples, models by client, counts of predictions, accuracy or error."""
        found: dict[str, Any] = {"examples": len(self.values)}
        if self.client is not None:
            found["clients"] = len(np.unique(self.client))
        if self.class_names:
            names, counts = np.unique(self.values, return_counts=True)
            found["predictions"] = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
        elif len(self.values):
            found["mean_prediction"] = float(self.values.mean())
        if self.correct is not None and len(self.correct):
            found["accuracy"] = float(self.correct.mean())
        elif self.labels is not None and len(self.labels):
            found["rmse"] = float(np.sqrt(np.mean(np.square(self.values - self.labels))))
        return found

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        """The header and the lines of a table."""
        header = ["prediction"] if self.client is None else ["client", "prediction"]
        columns: list[list[Any]] = [] if self.client is None else [[str(each) for each in self.client]]
        columns.append(self.values.tolist())
        if self.probabilities is not None:
            header += [f"probability_{name}" for name in self.class_names]
            columns += self.probabilities.T.tolist()
        return header, [list(row) for row in zip(*columns, strict=True)]

    def write_csv(self, file: Path) -> None:
        """Write one line per example, in the order of the file.

        Raises:
            SpecError: If the file cannot be written, or has another ending than .csv.
        """
        if file.suffix.lower() != ".csv":
            raise SpecError(f"Predictions are written as .csv, got {file.name!r}")
        text = io.StringIO()
        header, rows = self.rows()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        try:
            write_whole(file, text.getvalue().encode())
        except OSError as fault:
            raise SpecError(f"{file} cannot be written: {fault.strerror or fault}") from fault


def predict_file(
    record: RunRecord,
    file: Path,
    *,
    client: str | None = None,
    cluster: int | None = None,
    proba: bool = False,
    task: Task | None = None,
) -> Predictions:
    """Predict for the examples in a file.

    Args:
        record: The record.
        file: The file; see `read_examples`.
        client: Use the model of this client for all examples.
        cluster: Use the model of this cluster. Neither: each example is predicted by the model of the client that the
            file names, or by the only model of the run.
        proba: Whether to compute the probabilities of the classes, too.
        task: The task that the run used, if it was given to `run` as an object.
    """
    examples = read_examples(file, record.served.get("spec", {}).get("data", {}))
    who = None if client is not None or cluster is not None else examples.client
    if who is None:
        groups: list[tuple[str | None, Array]] = [(client, np.arange(len(examples)))]
    else:
        who = who.astype(str)
        _check_known(record, who)
        groups = [(str(each), np.flatnonzero(who == each)) for each in np.unique(who)]
    parts, shares = [], []
    for each, rows in groups:
        model = record.model(each, cluster=cluster, task=task)
        x = examples.only(rows)
        parts.append(model.predict(x))
        shares.append(model.predict_proba(x) if proba else None)
    order = np.argsort(np.concatenate([rows for _, rows in groups]), kind="stable")
    values = np.concatenate(parts)[order]
    labels = labels_of(examples.y, record.served)
    return Predictions(
        values,
        np.concatenate([share for share in shares if share is not None])[order] if proba else None,
        labels,
        None if labels is None or model.classes is None else _right(values, labels, model.class_names),
        who,
        () if model.classes is None else tuple(map(str, model.class_names or range(model.classes))),
    )


def _check_known(record: RunRecord, clients: Array) -> None:
    known = {*record.served.get("row", ()), *record.served.get("unassigned", ())}
    for client in np.unique(clients):
        if str(client) not in known:
            hint = "A newcomer is placed with coterie place; its examples are predicted with --cluster"
            raise RecordError(f"{unknown('client', str(client), sorted(known)[:1000])}. {hint}")


def _right(values: Array, labels: Array, names: list[Any] | None) -> Array:
    right: Array = values == (labels if names is None else np.asarray(names)[labels])
    return right
