"""Labels as classes or as targets."""

from __future__ import annotations

import pytest

from coterie.data.class_labels import encoded
from coterie.data.columns import as_table
from coterie.errors import DataError, SpecError


def labels(values, **options):
    found = encoded(as_table({"y": values}), "y", **options)
    return found.y.tolist(), found.names


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["dog", "cat", "dog"], ([1, 0, 1], ("cat", "dog"))),
        ([True, False], ([1, 0], ("False", "True"))),
        ([True, True], ([1, 1], ("False", "True"))),  # both are classes
        ([1, 2, 3], ([0, 1, 2], ("1", "2", "3"))),  # three classes, not four
        ([-1, 1], ([0, 1], ("-1", "1"))),
        ([10, 9, 90210123], ([1, 0, 2], ("9", "10", "90210123"))),  # sorted as numbers
        (["10", "9"], ([1, 0], ("9", "10"))),  # text that holds integers, as in CSV
        ([2**70, 1], ([1, 0], ("1", str(2**70)))),  # codes of more than 64 bits are names
        (["nan", "ok"], ([0, 1], ("nan", "ok"))),
    ],
)
def test_labels_become_class_numbers_with_names(values, expected):
    assert labels(values) == expected


def test_labels_with_a_decimal_point_are_targets():
    assert labels([0.5, 2]) == ([0.5, 2], None)
    assert labels(["0.5", "2"]) == ([0.5, 2], None)


def test_whole_floats_are_targets_unless_the_task_is_classification(caplog):
    assert labels([1.0, 3.0]) == ([1, 3], None)
    assert "are used as regression targets" in caplog.text
    assert labels([1.0, 3.0], task="classification") == ([0, 1], ("1", "3"))


def test_integers_are_targets_if_the_task_is_regression():
    assert labels([1, 5], task="regression") == ([1, 5], None)


def test_a_number_of_classes_leaves_labels_within_it_as_they_are():
    assert labels([0, 2], classes=4) == ([0, 2], ("0", "1", "2", "3"))
    assert labels([1, 2, 3], classes=3) == ([0, 1, 2], ("1", "2", "3"))  # 3 is not within 0..2, but there are three


def test_given_names_fix_classes_and_their_order():
    assert labels(["b"], names=("c", "b", "a")) == ([1], ("c", "b", "a"))
    assert labels([3], names=("1", "2", "3")) == ([2], ("1", "2", "3"))


@pytest.mark.parametrize(
    ("values", "options", "fault", "message"),
    [
        (["a", None], {}, DataError, "row 1: the label is missing"),
        ([1.0, float("nan")], {}, DataError, "row 1: the label is missing"),
        ([0.5, float("inf")], {}, DataError, "row 1, column 'y': inf is not a finite 32-bit number"),
        ([1.0, 2.5], {"task": "classification"}, DataError, "row 1: the label is 2.5; classes are integers or names"),
        (["a", "1"], {"task": "regression"}, DataError, "targets must be numbers, but column 'y' has 'a'"),
        ([0, 7], {"classes": 3}, DataError, r"row 1: the label is 7; labels must be integers 0\.\.2"),
        (["a", "b"], {"classes": 3}, DataError, r"2 different labels \('a', 'b'\), data\.classes is 3"),
        (["b", "ab"], {"names": ("abc", "b")}, DataError, "row 1: the label 'ab' is not one of .* mean 'abc'"),
        ([1], {"task": "regression", "classes": 2}, SpecError, "has no classes"),
        ([1], {"names": ("1", "2"), "classes": 3}, SpecError, r"data\.classes must be 2"),
        ([1], {"names": ("1", "1")}, SpecError, "different from each other"),
    ],
)
def test_wrong_labels_are_refused(values, options, fault, message):
    with pytest.raises(fault, match=message):
        labels(values, **options)


def test_many_different_labels_cause_a_warning(caplog):
    labels(list(range(60)))
    assert caplog.messages == [
        "The dict: column 'y' has 60 different labels in 60 rows; for numbers set data.task=regression"
    ]
