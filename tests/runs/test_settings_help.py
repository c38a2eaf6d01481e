"""Settings of a recorded spec with their defaults, and the command that repeats a run."""

from __future__ import annotations

import shlex
import tomllib

import pytest

from coterie.cli import flags
from coterie.runs.resolve import resolve
from coterie.runs.settings_help import command, recorded_settings
from coterie.runs.spec import Spec

SPECS = {
    "defaults": {},
    "method": {"method": {"name": "fedgroup", "clusters": "auto"}, "run": {"seed": 3, "rounds": 7}},
    "lists": {"run": {"metrics": ["macro_f1", "ece"], "rounds": 9, "newcomers": 0.2, "newcomers_join": [2, 5]}},
    "drift": {"shift": {"name": "swap_all"}, "data": {"name": "blobs", "clients": 6}},
    "few clients": {"data": {"name": "blobs", "clients": 4}},
    "regression": {"data": {"name": "regression"}, "local": {"learning_rate": 0.001}},
    "model": {"model": {"name": "mlp", "widths": [4, 3]}, "local": {"momentum": 0.9}},
    "early stopping": {"run": {"patience": 3}},
    "early stopping with newcomers": {"run": {"patience": 3, "newcomers": 0.2}},
    "data seed": {"data": {"name": "blobs", "seed": 5}, "run": {"seed": 1}},
}


@pytest.mark.parametrize("name", SPECS)
def test_the_command_gives_the_recorded_spec_again(name):
    resolved = resolve(Spec.from_dict(SPECS[name]))
    plain = tomllib.loads(resolved.spec.to_toml())
    words = shlex.split(command(plain, len(resolved.about.trainable), regression=resolved.task.classes is None))
    again = resolve(_parsed(words[2:])).spec
    assert tomllib.loads(again.to_toml()) == plain


def _parsed(words):
    """The spec of `coterie run` with these arguments."""
    named = {"--data": "data", "--method": "method", "--model": "model", "--rounds": "rounds", "--seed": "seed"}
    named |= {"--clients-per-round": "clients_per_round", "--learning-rate": "learning_rate"}
    given, settings, clusters = {}, [], None
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "--set":
            settings.append(value)
        elif flag == "--clusters":
            clusters = value
        else:
            kind = {"--learning-rate": float}.get(flag, int if value.isdecimal() else str)
            given[named[flag]] = kind(value)
    return flags.make_spec(None, flags.values(**given), settings, clusters)


def test_only_settings_that_were_changed_are_marked():
    resolved = resolve(Spec.from_dict({"run": {"rounds": 7}, "local": {"momentum": 0.5}}))
    found = recorded_settings(tomllib.loads(resolved.spec.to_toml()), len(resolved.about.trainable))
    assert {f"{each.section}.{each.key}" for each in found if each.changed} == {"run.rounds", "local.momentum"}
    (momentum,) = (each for each in found if (each.section, each.key) == ("local", "momentum"))
    assert (momentum.value, momentum.default) == (0.5, 0.0)
    assert momentum.help


def test_a_run_with_objects_has_no_command():
    plain = tomllib.loads(resolve(Spec()).spec.to_toml())
    assert command({**plain, "method": {"name": "Mine", "class": "mine.Mine"}}) is None
    assert command({**plain, "data": {"name": "in memory"}}) is None


def test_settings_of_a_method_that_is_not_installed_are_shown_without_defaults():
    plain = tomllib.loads(resolve(Spec()).spec.to_toml())
    found = recorded_settings({**plain, "method": {"name": "gone", "depth": 3}})
    (depth,) = (each for each in found if each.key == "depth")
    assert (depth.value, depth.default, depth.help) == (3, None, "")
