"""The tree of errors, and the message for unknown names."""

from __future__ import annotations

import inspect

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
