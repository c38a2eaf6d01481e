"""The tree of errors, and the message for unknown names."""

from __future__ import annotations

import inspect
import pickle

import pytest

from coterie import errors
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]


def test_every_error_is_in_the_tree():
    assert all(issubclass(kind, errors.Error) for kind in CLASSES)
    assert {kind.__name__ for kind in CLASSES} == {
        "Error",
        "SpecError",
        "MethodError",
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
        (errors.MethodError, 2),
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


def test_the_docstring_shows_each_error_with_its_exit_code():
    lines = (errors.__doc__ or "").splitlines()
    for kind in CLASSES:
        name = kind.__name__
        drawn = next(line.split() for line in lines if name in line.split())
        if issubclass(kind, errors.FederationError) and kind is not errors.FederationError:
            continue  # the leaves of that branch have its code
        assert drawn[drawn.index(name) + 1] == str(kind.exit_code)


def test_an_unknown_name_gets_a_suggestion_and_all_known_names():
    text = errors.unknown("method", "ifac", ["local", "ifca", "fedavg"])
    assert text == "No method 'ifac'. Did you mean 'ifca'? Known: fedavg, ifca, local"


def test_a_name_that_is_similar_to_none_gets_no_suggestion():
    assert errors.unknown("method", "zzz", ["ifca", "cfl"]) == "No method 'zzz'. Known: cfl, ifca"


def test_without_known_names_the_message_says_so():
    assert errors.unknown("work", "fit", []) == "No work 'fit'. Known: none"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("FedAvg", ["fedavg", "fedprox"], "fedavg"),  # case
        ("fed-avg", ["fedavg", "fedprox"], "fedavg"),  # hyphens and underscores
        ("sign_flip", ["none", "scale", "sign-flip"], "sign-flip"),
        ("rate", ["epochs", "learning_rate", "lr_decay"], "learning_rate"),  # contained
        ("sampler_kind", ["rounds", "sampler"], "sampler"),
        ("lr", ["epochs", "learning_rate", "lr_decay"], "learning_rate"),  # a synonym comes before similar names
        ("k", ["rounds", "clients_per_round"], "clients_per_round"),
        ("k", ["clusters", "restarts"], "clusters"),
    ],
)
def test_the_suggestion_is_the_name_that_is_probably_meant(name, known, meant):
    assert f" Did you mean {meant!r}? " in errors.unknown("setting", name, known)


@pytest.mark.parametrize("name", ["s", "ro", "xyz", ""])
def test_short_names_are_not_suggested_for_being_contained(name):
    assert "Did you mean" not in errors.unknown("setting", name, ["rounds", "clients_per_round"])


#: The spec with a name that Coterie used before → the name in the suggestion.
RENAMED = [
    ({"local": {"rate": 0.1}}, "learning_rate"),
    ({"local": {"lr": 0.1}}, "learning_rate"),
    ({"local": {"rate_decay": 0.9}}, "lr_decay"),
    ({"local": {"decay": 0.1}}, "weight_decay"),
    ({"local": {"batch": 10}}, "batch_size"),
    ({"local": {"optimiser": "adam"}}, "optimizer"),
    ({"local": {"layers": ["dense0"]}}, "trainable_layers"),
    ({"model": {"name": "mclr", "normalise": "unit"}}, "normalize"),
    ({"run": {"cohort": 10}}, "clients_per_round"),
    ({"run": {"sample_size": 10}}, "clients_per_round"),
    ({"run": {"federation": "sequential"}}, "backend"),
    ({"robust": {"rule": "median"}}, "aggregation"),
    ({"aggregation": {"share": 0.2}}, "byzantine_fraction"),
    ({"aggregation": {"norm": 1.0}}, "max_norm"),
    ({"aggregation": {"rule": "trimmed"}}, "trimmed-mean"),
    ({"aggregation": {"rule": "geometric"}}, "geometric-median"),
    ({"aggregation": {"rule": "clip"}}, "norm-clip"),
    ({"attack": {"name": "sign"}}, "sign-flip"),
    ({"attack": {"name": "labels"}}, "label-flip"),
    ({"attack": {"share": 0.2}}, "fraction"),
    *(
        ({"method": {"name": name, "groups": 4}}, "clusters")
        for name in ("fedgroup", "fedgrouprox", "flexcfl", "fesem", "fesem-mig", "fedsim", "ifca", "ifca-mig")
    ),
    ({"method": {"name": "fedgroup", "most": 4}}, "max_clusters"),
    ({"method": {"name": "fesem", "members": "all"}}, "average_over"),
    ({"method": {"name": "fesem-mig", "members": "all"}}, "average_over"),
]


@pytest.mark.parametrize(("spec", "name"), RENAMED, ids=lambda each: str(each))
def test_a_setting_under_its_old_name_gets_a_suggestion(spec, name):
    with pytest.raises(errors.SpecError, match=rf"Did you mean '{name}'\?"):
        fill_defaults(Spec.from_dict(spec))


# ------------------------------------------------------------------------------------------------- hostile input


def test_control_characters_in_a_message_are_escaped_and_line_breaks_kept():
    assert str(errors.Error("a\x1b[31m\x00\u202e\ud800é\nb")) == "a\\x1b[31m\\x00\\u202e\\ud800é\nb"


def test_the_middle_of_a_long_message_is_left_out():
    text = str(errors.SpecError("begin " + 99_990 * "x" + " end"))
    assert len(text) == 2000
    assert text.startswith("begin xxx")
    assert text.endswith("xxx end")
    assert "x … (100,000 characters) … x" in text


def test_a_message_of_control_characters_is_not_longer_when_they_are_escaped():
    assert len(str(errors.Error("\0" * 2000))) == 2000


def test_a_message_is_the_same_after_pickling():
    fault = errors.DataError("\x1b" * 3000)
    assert str(pickle.loads(pickle.dumps(fault))) == str(fault)


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no")


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        (10**400, "1" + 118 * "0"),
        (10**5000, "a value of type int that is too large to show"),
        (deep(100_000), "a value of type list that is too large to show"),
        (Unshowable(), "a value of type Unshowable that is too large to show"),
    ],
    ids=["text", "400 digits", "5000 digits", "deep list", "object"],
)
def test_any_value_can_be_shown(value, text):
    shown = errors.shown(value)
    assert shown.startswith(text)
    assert len(shown) <= 200


def test_an_unknown_name_may_be_anything():
    assert errors.unknown("setting", 3, ["a"]) == "No setting 3. Known: a"
    assert len(errors.unknown("setting", "x" * 10**6, ["a"])) < 250
