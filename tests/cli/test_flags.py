"""Shared flags: which settings they change, and --clusters in particular."""

from __future__ import annotations

import json

import pytest

from coterie.cli import flags
from coterie.errors import SpecError
from coterie.methods import METHODS, method_class
from coterie.runs.resolve import DEFAULT_CLIENTS_PER_ROUND
from coterie.runs.spec import Spec, method_types


@pytest.mark.exhaustive
def test_every_common_setting_has_a_flag(coterie, tmp_path):
    args = ["--data", "blobs", "--set", "data.clients=8", "--method", "ifca", "--model", "mlp", "--clusters", 2]
    args += ["--rounds", 1, "--clients-per-round", 3, "--epochs", 2, "--batch-size", 5, "--lr", 0.25, "--seed", 4]
    done = coterie("run", *args, "--out", "record")
    assert done.exit_code == 0, done.stderr
    spec = Spec.of(tmp_path / "record" / "spec.toml")
    assert (spec.data.name, spec.method.name, spec.model.name) == ("blobs", "ifca", "mlp")
    assert spec.method.options["clusters"] == 2
    assert (spec.run.rounds, spec.run.clients_per_round, spec.run.seed) == (1, 3, 4)
    assert (spec.local.epochs, spec.local.batch_size, spec.local.learning_rate) == (2, 5, 0.25)


@pytest.mark.parametrize("flag", ["--learning-rate", "--lr"])
def test_the_learning_rate_has_two_flags(flag, coterie, tiny):
    found = json.loads(coterie("estimate", *tiny, flag, 0.125, "--json").stdout)
    assert found["spec"]["local"]["learning_rate"] == 0.125


def test_epochs_replace_the_steps_of_a_spec_file(tmp_path):
    (tmp_path / "spec.toml").write_text("[local]\nsteps = 7\n")
    local = flags.make_spec(tmp_path / "spec.toml", flags.values(epochs=3), None).local
    assert (local.epochs, local.steps) == (3, 0)


def test_set_overrides_flags():
    given = flags.values(method="ifca", learning_rate=0.5)
    spec = flags.make_spec(None, given, ["local.learning_rate=0.1", "method.clusters=3"], clusters="8")
    assert spec.local.learning_rate == 0.1
    assert spec.method.options["clusters"] == 3


def test_clusters_applies_to_the_method_given_by_set():
    spec = flags.make_spec(None, flags.values(method="fedavg"), ["method.name=ifca"], clusters="6")
    assert (spec.method.name, spec.method.options["clusters"]) == ("ifca", 6)


@pytest.mark.exhaustive
def test_clusters_applies_to_every_method_of_a_comparison_that_has_the_setting(coterie, tiny, tmp_path):
    args = ["--methods", "ifca,fesem,srfca,fedavg,oracle", "--clusters", 2, "--set", "fesem.clusters=3"]
    done = coterie("compare", *tiny, *args, "--out", "kept")
    assert done.exit_code == 0, done.stderr
    options = {
        name: Spec.of(tmp_path / "kept" / f"{name}-0" / "spec.toml").method.options for name in ("ifca", "fesem")
    }
    assert {name: each["clusters"] for name, each in options.items()} == {"ifca": 2, "fesem": 3}
    note = (
        "Note: --clusters does not apply to srfca, which finds the number of clusters itself; nor to fedavg, oracle, "
        "which have no number of clusters to set.\n"
    )
    assert done.stderr.splitlines(keepends=True)[0] == note


def test_a_run_of_a_method_without_clusters_notes_it_once(coterie, tiny):
    done = coterie("run", *tiny, "--clusters", 4)
    assert done.exit_code == 0
    assert done.stderr == "Note: --clusters does not apply to fedavg, which has no number of clusters to set.\n"
    assert coterie("run", *tiny, "--clusters", 4, "--quiet").stderr == ""


def test_auto_is_passed_to_methods_that_choose_the_number(caplog):
    chosen = flags.clusters_of(["fedgroup", "flexcfl", "cfl", "pacfl"], "auto")
    assert chosen == {"fedgroup": "auto", "flexcfl": "auto"}
    assert flags.clusters_of(["flhc"], "auto") == {"flhc": "auto"}
    message = "--clusters does not apply to cfl, pacfl, which find the number of clusters themselves."
    assert [record.getMessage() for record in caplog.records] == [message]


@pytest.mark.parametrize("value", ["banana", "0", "-1", "2.5", "", "Auto"])
def test_other_values_of_clusters_are_errors(value):
    with pytest.raises(SpecError, match=r"--clusters must be a whole number of at least 1, or auto, got "):
        flags.clusters_of(["ifca"], value)


def test_methods_that_find_their_number_of_clusters_have_no_such_setting():
    without = {name for name in METHODS if "clusters" not in method_types(name)}
    finding = {name for name in METHODS if getattr(method_class(name), "finds_clusters", False)}
    assert without == {*finding, "fedavg", "fedprox", "global", "local", "oracle", "perfedavg"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lr", "fast"], "must be a number, got 'fast'"),
        (["--rounds", "ten"], "must be a whole number, got 'ten'"),
        (["--cohort", "3"], "--clients-per-round"),
        (["--cluster", "3"], "--clusters"),
        (["--groups", "3"], "--clusters"),
        (["--optimiser", "adam"], "No such option: --optimiser"),
    ],
)
def test_a_wrong_flag_or_value_is_an_error_that_helps(coterie, arguments, message):
    done = coterie("run", *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_defaults_in_help_texts_are_those_of_the_settings(coterie):
    shown = " ".join(coterie("run", "--help").stdout.replace("│", " ").split())
    spec = Spec()
    for text in (
        f"table; default: {spec.data.name}.",
        f"lists them; default: {spec.method.name}.",
        f"Number of rounds; default: {spec.run.rounds},",
        f"in each round; default: {DEFAULT_CLIENTS_PER_ROUND},",
        f"client and round; default: {spec.local.epochs}.",
        f"full batches; default: {spec.local.batch_size}.",
        f"learning rate; default: {spec.local.learning_rate}.",
        f"Random seed; default: {spec.run.seed}.",
    ):
        assert text in shown


@pytest.mark.parametrize(
    "args", [["\x1b[31m" * 50], ["run", "--x\x1b" + "x" * 10_000], ["run", "--rounds", "\0" * 9_000]]
)
def test_errors_about_arguments_are_short_and_printable(args, coterie):
    result = coterie(*args)
    assert result.exit_code == 2
    assert len(result.stderr) <= 4000
    assert all(each.isprintable() or each == "\n" for each in result.stderr)
