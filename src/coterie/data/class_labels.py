"""Labels of a table as class numbers with names, or as regression targets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.data.checks import label_text, warn_if_targets_look_like_labels
from coterie.data.columns import Table, missing_rows, texts
from coterie.errors import DataError, SpecError, did_you_mean, shown
from coterie.types import Array

log = logging.getLogger(__name__)

#: What labels are. auto: numbers with a decimal point are regression targets, all others are classes.
TaskKind = Literal["auto", "classification", "regression"]

_MANY_CLASSES = 50  # with more, labels may be meant as numbers or may be ids


@dataclass(frozen=True, eq=False)
class Labels:
    """Encoded labels.

    Attributes:
        y: (rows,) class numbers, or targets.
        names: Name of each class; None for regression.
    """

    y: Array
    names: tuple[str, ...] | None


def encoded(
    table: Table, column: str, *, task: TaskKind = "auto", classes: int | None = None, names: Sequence[str] = ()
) -> Labels:
    """Encode the labels of a table.

    Args:
        table: The table.
        column: The column with the labels.
        task: Whether labels are classes or targets.
        classes: Number of classes, if labels are 0..classes-1 and not all of them may occur; None: as found.
        names: All classes in their order; empty: those that occur, sorted.
    """
    if task == "regression" and (classes is not None or names):
        raise SpecError("data.task=regression has no classes: leave out data.classes and data.class_names")
    if names and classes not in (None, len(names)):
        raise SpecError(f"data.classes must be {len(names)}, the number of data.class_names, got {classes}")
    values = table.columns[column]
    missing = missing_rows(values)
    if missing.any():
        raise DataError(f"{table.where(int(np.argmax(missing)))}: the label is missing. Remove such rows")
    numbers = _numbers(values)
    if names:
        return _by_name(table, values if numbers is None else numbers, names)
    if task == "regression":
        return Labels(_targets(table, column, values, numbers), None)
    if numbers is None:
        return _text_classes(table, column, values, classes)
    if numbers.dtype.kind == "f":
        if task == "auto" and classes is None:
            targets = _targets(table, column, values, numbers)
            warn_if_targets_look_like_labels(table.what, targets)
            return Labels(targets, None)
        numbers = _whole(table, numbers)
    return _integer_classes(table, column, numbers, classes)


def _numbers(values: Array) -> Array | None:
    """Labels as integers if all are, otherwise as floats if all are; None for text and booleans."""
    if values.dtype.kind in "iuf":
        return values
    if values.dtype.kind != "O":
        return None
    try:
        return np.asarray([int(value) for value in values], np.int64)
    except OverflowError:  # of more than 64 bits: these are codes, which become names
        return None
    except ValueError:
        pass
    try:
        numbers = np.asarray([float(value) for value in values])
    except ValueError:
        return None
    # Text such as "nan" or "inf" is a name.
    return numbers if np.isfinite(numbers).all() else None


def _targets(table: Table, column: str, values: Array, numbers: Array | None) -> Array:
    if numbers is None:
        some = shown(str(next(value for value in values if _numbers(np.asarray([value], values.dtype)) is None)))
        raise DataError(f"{table.what}: regression targets must be numbers, but column {column!r} has {some}")
    bad = ~(np.abs(numbers.astype(np.float64)) <= float(np.finfo(np.float32).max))
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{table.where(row)}, column {column!r}: {numbers[row]} is not a finite 32-bit number")
    return numbers.astype(np.float64)


def _whole(table: Table, numbers: Array) -> Array:
    odd = numbers != np.floor(numbers)
    if odd.any():
        row = int(np.argmax(odd))
        raise DataError(
            f"{table.where(row)}: the label is {numbers[row]}; classes are integers or names. "
            "For numbers set data.task=regression"
        )
    if np.abs(numbers).max(initial=0) >= 2**53:
        raise DataError(f"{table.what}: labels are too large to be classes; write them as integers or names")
    return numbers.astype(np.int64)


def _integer_classes(table: Table, column: str, numbers: Array, classes: int | None) -> Labels:
    found, y = np.unique(numbers, return_inverse=True)
    if classes is not None and len(found) and found[0] >= 0 and found[-1] < classes:
        return Labels(numbers.astype(np.int64), tuple(map(str, range(classes))))
    if classes is not None and len(found) != classes:
        bad = int(np.argmax((numbers < 0) | (numbers >= classes)))
        raise DataError(f"{table.where(bad)}: {label_text(numbers[bad], classes)}")
    _warn_if_many(table, column, len(found), len(y), "; for numbers set data.task=regression")
    return Labels(y.astype(np.int64), tuple(map(str, found.tolist())))


def _text_classes(table: Table, column: str, values: Array, classes: int | None) -> Labels:
    words = texts(values).tolist()
    # Both booleans are classes, even if one does not occur.
    found = sorted({*words, *(("False", "True") if values.dtype.kind == "b" else ())})
    if classes is not None and len(found) != classes:
        some = ", ".join(shown(word) for word in found[:5]) + (", ..." if len(found) > 5 else "")
        raise DataError(
            f"{table.what}: column {column!r} has {len(found)} different labels ({some}), data.classes is {classes}. "
            "Name all classes in data.class_names"
        )
    _warn_if_many(table, column, len(found), len(words), "")
    place = {word: number for number, word in enumerate(found)}
    return Labels(np.asarray([place[word] for word in words], np.int64), tuple(found))


def _by_name(table: Table, values: Array, names: Sequence[str]) -> Labels:
    if len(set(names)) < len(names):
        raise SpecError("data.class_names must be different from each other")
    place = {name: number for number, name in enumerate(names)}
    words = texts(values).tolist()
    unknown = next((row for row, word in enumerate(words) if word not in place), None)
    if unknown is not None:
        raise DataError(
            f"{table.where(unknown)}: the label {shown(words[unknown])} is not one of data.class_names."
            f"{did_you_mean(words[unknown], list(names))} Known: {', '.join(names[:20])}"
        )
    return Labels(np.asarray([place[word] for word in words], np.int64), tuple(names))


def _warn_if_many(table: Table, column: str, distinct: int, rows: int, hint: str) -> None:
    if distinct > _MANY_CLASSES and distinct > rows / 10:
        log.warning("%s: column %r has %d different labels in %d rows%s", table.what, column, distinct, rows, hint)
