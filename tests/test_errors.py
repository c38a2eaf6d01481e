"""The tree of errors and the text for unknown names."""

from __future__ import annotations

import inspect

import pytest

from coterie import errors

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]


def test_every_error_of_the_package_is_one_of_its_tree():
    assert all(issubclass(kind, errors.Error) for kind in KINDS)
    assert {kind.__name__ for kind in KINDS} == {
        "Error",
        "SpecError",
        "DataError",
        "FederationError",
        "ClientFailed",
        "TooFewReplies",
        "TimedOut",
        "Diverged",
        "RecordError",
    }


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.Error, 1),
        (errors.SpecError, 2),
        (errors.RecordError, 2),
        (errors.DataError, 3),
        (errors.FederationError, 4),
        (errors.ClientFailed, 4),
        (errors.TooFewReplies, 4),
        (errors.TimedOut, 4),
        (errors.Diverged, 4),
    ],
)
def test_each_error_has_the_exit_code_of_its_branch(kind, code):
    assert kind.exit_code == code


def test_each_error_stands_with_its_code_in_the_tree_that_is_drawn():
    lines = (errors.__doc__ or "").splitlines()
    for kind in KINDS:
        name = kind.__name__
        drawn = next(line.split() for line in lines if name in line.split())
        if issubclass(kind, errors.FederationError) and kind is not errors.FederationError:
            continue  # the leaves of that branch share its code
        assert drawn[drawn.index(name) + 1] == str(kind.exit_code)


def test_an_unknown_name_brings_the_nearest_known_one_and_all_of_them():
    text = errors.unknown("method", "ifac", ["local", "ifca", "fedavg"])
    assert text == "No method 'ifac'. Did you mean 'ifca'? Known: fedavg, ifca, local"


def test_an_unknown_name_that_is_near_to_nothing_brings_no_guess():
    assert errors.unknown("method", "zzz", ["ifca", "cfl"]) == "No method 'zzz'. Known: cfl, ifca"


def test_an_unknown_name_among_none_says_so():
    assert errors.unknown("work", "fit", []) == "No work 'fit'. Known: none"
