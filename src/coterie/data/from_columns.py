"""Federated data from the columns of a table: the rows of each client, the test examples, the encoding."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from coterie.data.checks import at_least, check_ids, check_share
from coterie.data.class_labels import Labels, TaskKind, encoded
from coterie.data.columns import Table, missing_rows, no_column, texts
from coterie.data.federated import FederatedData, Index
from coterie.data.partition import by_column
from coterie.data.partition.assembling import split as split_rows
from coterie.data.preprocessing import MissingValues, Preprocessing, almost_numbers, check_columns
from coterie.data.problems import Problems
from coterie.errors import DataError, SpecError, shown
from coterie.seeds import Seed
from coterie.types import Array, ClientId

log = logging.getLogger(__name__)

#: Reads a table, given the columns that are text and those that are left out.
Read = Callable[[Collection[str], Collection[str]], Table]

_NO_CLIENT = "the client is missing. Give one in every row"
_NO_TRUTH = "the true cluster is missing. Give one in every row"
_FEW_ROWS = 20  # in fewer rows, different integers are no sign of an id


@dataclass(frozen=True)
class TableSettings:
    """What the columns of a table mean, and how they are encoded.

    Attributes:
        client: Column with the client of each row.
        label: Column with the label.
        truth: Column with the true cluster of each client; used if it exists.
        split: Column with the words train and test; used if it exists.
        weight: Column with the weight of each row, at least 0; used if it exists.
        ignore: Columns that are left out.
        missing: Missing values. impute: numbers become the mean of the training examples, missing text a category
            called missing; error: they are refused.
        max_categories: Largest number of categories of a text column.
        task: classification: labels are classes; regression: labels are numbers; auto: regression if labels have a
            decimal point.
        classes: Number of classes, if labels are the integers 0..classes-1 and not all of them may occur. None: the
            number of distinct labels.
        class_names: All classes in their order. Empty: the distinct labels, sorted.
        preprocessing: Columns and their encoding; None: they are found in this table.
        test_share: Fraction of each client's rows used for testing, if there is no column `split`.
        seed: Random seed of that split.
        name: Name of the data.
    """

    client: str = "client"
    label: str = "label"
    truth: str = "truth"
    split: str = "split"
    weight: str = "sample_weight"
    ignore: tuple[str, ...] = ()
    missing: MissingValues = "impute"
    max_categories: int = 50
    task: TaskKind = "auto"
    classes: int | None = None
    class_names: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    test_share: float = 0.1
    seed: int = 0
    name: str = "table"

    def __post_init__(self) -> None:
        """Check the settings that need no table."""
        check_share(self.test_share)
        at_least("data.max_categories", self.max_categories, 2)
        for name, kind in (("missing", MissingValues), ("task", TaskKind)):
            allowed = get_args(kind)
            if getattr(self, name) not in allowed:
                options = ", ".join(map(repr, allowed))
                raise SpecError(f"data.{name} must be one of {options}, got {shown(getattr(self, name))}")
        used = [name for name in (self.client, self.label, self.truth, self.split, self.weight) if name]
        twice = [name for name in used if used.count(name) > 1]
        if twice:
            raise SpecError(f"The column {twice[0]!r} has two meanings; data.client, data.label, ... must differ")
        ignore: object = self.ignore  # a single name, or a list, is common in Python
        object.__setattr__(self, "ignore", (ignore,) if isinstance(ignore, str) else tuple(self.ignore))
        object.__setattr__(self, "class_names", tuple(map(str, self.class_names)))

    def optional(self, role: str) -> str:
        """The column of an optional role."""
        return str(getattr(self, role))


_OPTIONAL = ("truth", "split", "weight")
_DEFAULTS = {role: getattr(TableSettings, role) for role in _OPTIONAL}


def from_columns(read: Read, settings: TableSettings, x: Array | None = None) -> FederatedData:
    """Federated data from the columns of a table.

    Args:
        read: Reads the table.
        settings: What its columns mean.
        x: (rows, *shape) inputs that are not columns, such as images; None: the columns without a meaning are inputs.
    """
    ignored = _listed(settings.ignore)
    table = read(_text_columns(settings), ignored)  # ignored columns may hold anything, so they are not read
    roles = _roles(table, settings)
    if len(table) == 0:
        raise DataError(f"{table.what} has no rows below its header")
    client, labels, weights = _checked(table, roles, settings, features=x is None)
    index, names = by_column(np.asarray(client, str))
    ids = tuple(ClientId(name) for name in names)
    check_ids(ids)
    fit, test = _parts(table, roles, index, ids, settings)
    source, preprocessing = f"{len(table)} examples", None
    if x is None:
        inputs = _inputs(table, roles)
        preprocessing = settings.preprocessing
        if preprocessing is None:
            others = [*roles.values(), *(name for name in ignored if name in table.header)]
            preprocessing = _fitted(inputs, np.sort(fit.order), settings, others)
        x, source = preprocessing.transform(inputs), _source(inputs, preprocessing)
    return FederatedData(
        name=settings.name,
        x=x,
        y=labels.y,
        clients=ids,
        fit=fit,
        test=test,
        classes=None if labels.names is None else len(labels.names),
        truth=_truth(table, roles, index, ids),
        source=source,
        held_seed=Seed(settings.seed),
        weights=weights,
        class_names=labels.names,
        features=None if preprocessing is None else preprocessing.features,
        preprocessing=preprocessing,
    )


def _listed(ignore: tuple[str, ...]) -> list[str]:
    """The names of columns, and the parts of those with commas: on a command line, `a,b` is short for a list."""
    return list(dict.fromkeys([*ignore, *(name for entry in ignore for name in _apart(entry))]))


def _apart(entry: str) -> list[str]:
    return [name.strip() for name in entry.split(",")]


def _check_ignored(table: Table, settings: TableSettings, problems: Problems) -> None:
    """Check that the ignored columns exist and have no other meaning."""
    names = []
    for entry in settings.ignore:
        names += [entry] if entry in table.header else _apart(entry)
    for name in names:
        with problems:
            if name not in table.header:
                raise no_column(table.what, name, table.header, "It is a value of data.ignore")
            if name in (settings.client, settings.label):
                raise SpecError(f"data.ignore has {name!r}, which is the column of the client or of the label")


def _checked(
    table: Table, roles: dict[str, str], settings: TableSettings, *, features: bool
) -> tuple[list[str], Labels, Array | None]:
    """The client, the label and the weight of each row; one error names all problems of the table.

    Args:
        table: The table.
        roles: Role → column.
        settings: What the columns mean.
        features: Whether the other columns are inputs.
    """
    problems = Problems(table.what)
    client: list[str] = []
    labels, weights = Labels(np.zeros(0), None), None
    with problems:
        client = _texts(table, roles["client"], _NO_CLIENT)
    with problems:
        labels = encoded(
            table, roles["label"], task=settings.task, classes=settings.classes, names=settings.class_names
        )
    with problems:
        _split_words(table, roles)
    with problems:
        if "truth" in roles:
            _texts(table, roles["truth"], _NO_TRUTH)
    with problems:
        weights = _weights(table, roles)
    if problems and features and settings.preprocessing is None:  # without one, fitting finds those of features
        with problems:
            check_columns(_inputs(table, roles), settings.missing, settings.max_categories, problems)
    problems.report()
    return client, labels, weights


def _text_columns(settings: TableSettings) -> set[str]:
    """Columns that are text, whatever they look like."""
    known = () if settings.preprocessing is None else settings.preprocessing.columns
    categories = {column.name for column in known if column.kind == "category"}
    return {settings.client, settings.truth, settings.split, *categories}


def _roles(table: Table, settings: TableSettings) -> dict[str, str]:
    """Role → column, for the columns that exist; all columns that are missing are in one error."""
    problems = Problems(table.what)
    _check_ignored(table, settings, problems)
    roles = {"client": settings.client, "label": settings.label}
    for role, name in roles.items():
        ignored = name in table.header  # which is a problem already
        if name not in table.columns and not ignored:
            do = "Name the columns in the first line" if not table.columns else f"Set data.{role} to the column with it"
            with problems:
                raise no_column(table.what, name, table.columns, do)
    for role in _OPTIONAL:
        name = settings.optional(role)
        if name in table.columns:
            roles[role] = name
        elif name and name != _DEFAULTS[role]:
            with problems:
                raise no_column(table.what, name, table.columns, f"It is the value of data.{role}")
    problems.report()
    return roles


def _inputs(table: Table, roles: dict[str, str]) -> Table:
    """The columns that become inputs."""
    columns = {name: values for name, values in table.columns.items() if name not in roles.values()}
    if not columns:
        raise DataError(
            f"{table.what} has no feature columns. Every column that is not the client, the label, the split, the true "
            "cluster or the weight, and not in data.ignore, is a feature"
        )
    return Table(table.what, columns, table.lines)


def _fitted(inputs: Table, rows: Array, settings: TableSettings, others: list[str]) -> Preprocessing:
    """The encoding of the columns, from the training examples."""
    preprocessing = Preprocessing.fit(
        inputs,
        list(inputs.columns),
        rows,
        missing=settings.missing,
        max_categories=settings.max_categories,
        others=others,
    )
    _note_useless(inputs, preprocessing)
    for name in inputs.columns:
        if (note := almost_numbers(inputs, name)) is not None:
            log.warning("%s: %s; now every number is a category", inputs.what, note)
    return preprocessing


def _texts(table: Table, column: str, problem: str) -> list[str]:
    values = texts(table.columns[column])
    missing = np.fromiter((not value for value in values), bool, len(values))
    if missing.any():
        raise DataError(f"{table.where(int(np.argmax(missing)))}: {problem}")
    return [str(value) for value in values]


def _parts(
    table: Table, roles: dict[str, str], index: Index, ids: tuple[ClientId, ...], settings: TableSettings
) -> tuple[Index, Index]:
    """Rows of the training and of the test examples of each client."""
    if "split" not in roles:
        seed = Seed(settings.seed)
        pairs = [
            split_rows(index.of(i), settings.test_share, seed.fold("split", client)) for i, client in enumerate(ids)
        ]
        return Index.from_lists([pair[0] for pair in pairs]), Index.from_lists([pair[1] for pair in pairs])
    test = np.asarray([word == "test" for word in _split_words(table, roles)])
    if test.all():
        raise DataError(f"{table.what} has no training examples: every row has the split test")
    return _only(index, ~test), _only(index, test)


def _split_words(table: Table, roles: dict[str, str]) -> list[str]:
    """The words `train` and `test` of each row; empty without such a column."""
    if "split" not in roles:
        return []
    words = [word.lower() for word in _texts(table, roles["split"], "split must be train or test, got nothing")]
    for row, word in enumerate(words):
        if word not in ("train", "test"):
            raise DataError(f"{table.where(row)}: split must be train or test, got {shown(word)}")
    return words


def _only(index: Index, wanted: Array) -> Index:
    """Each client's wanted rows, in their order."""
    kept = wanted[index.order]
    return Index.from_sizes(index.order[kept], np.bincount(index.owners()[kept], minlength=len(index)))


def _truth(
    table: Table, roles: dict[str, str], index: Index, ids: tuple[ClientId, ...]
) -> npt.NDArray[np.int64] | None:
    """The true cluster of each client: the integers of the column, or numbers for its sorted values."""
    if "truth" not in roles:
        return None
    words = _texts(table, roles["truth"], _NO_TRUTH)
    found = sorted(set(words))
    numbers = {word: int(word) if all(each.isdecimal() for each in found) else i for i, word in enumerate(found)}
    clusters = []
    for position, client in enumerate(ids):
        rows = index.of(position)
        own = {words[row] for row in rows}
        if len(own) > 1:
            raise DataError(
                f"{table.what}: client {client!r} has several true clusters ({', '.join(sorted(own)[:3])}) in column "
                f"{roles['truth']!r}. Give one for each client"
            )
        clusters.append(numbers[own.pop()])
    return np.asarray(clusters, np.int64)


def _weights(table: Table, roles: dict[str, str]) -> Array | None:
    if "weight" not in roles:
        return None
    values = table.columns[roles["weight"]]
    if values.dtype.kind not in "biuf":
        raise DataError(f"{table.what}: column {roles['weight']!r} must hold weights, which are numbers of at least 0")
    bad = ~((values >= 0) & (values <= np.finfo(np.float32).max))  # negated, so that NaN is found as well
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{table.where(row)}: the weight must be finite and at least 0, got {values[row]}")
    return values.astype(np.float32)


def _note_useless(table: Table, preprocessing: Preprocessing) -> None:
    """Log one warning about columns that look like ids or are constant."""
    ids, constant = [], []
    for column in preprocessing.columns:
        values = table.columns[column.name]
        present = values[~missing_rows(values)]
        distinct = len(set(present.tolist())) if values.dtype.kind == "O" else len(np.unique(present))
        if distinct == 1 and len(present) == len(values):
            constant.append(column.name)
        elif distinct == len(values) >= _FEW_ROWS and (values.dtype.kind == "O" or (values == np.floor(values)).all()):
            ids.append(column.name)
    notes = [f"{_columns(ids)} a different value in every row, like an id"] if ids else []
    notes += [f"{_columns(constant)} the same value in every row"] if constant else []
    if notes:
        listed = ", ".join(f'"{name}"' for name in [*ids, *constant])
        log.warning("%s: %s. To leave out such columns, set data.ignore=[%s]", table.what, "; ".join(notes), listed)


def _columns(names: list[str]) -> str:
    listed = ", ".join(repr(name) for name in names)
    return f"column {listed} has" if len(names) == 1 else f"columns {listed} have"


def _source(inputs: Table, preprocessing: Preprocessing) -> str:
    missing = sum(int(missing_rows(values).sum()) for values in inputs.columns.values())
    done = [
        f"a table of {len(inputs)} rows",
        preprocessing.sentence(),
        f"{missing} missing value{'s' if missing > 1 else ''} imputed" if missing else "",
    ]
    return "; ".join(part for part in done if part)
