"""coterie compare."""

from __future__ import annotations

import json

import pytest

from coterie.cli.conclusion import conclusion
from coterie.runs.compare import METHODS, Comparison, demonstration
from coterie.runs.record import RunRecord


def test_without_arguments_compare_runs_the_demonstration(coterie):
    done = coterie("compare", "--rounds", 2, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["method"] for run in found["runs"]] == list(METHODS)
    assert {(run["data"], run["clients"], run["truth"]["clusters"]) for run in found["runs"]} == {("digits", 40, 4)}


def test_the_specs_of_the_demonstration_differ_only_in_the_method():
    specs = demonstration().values()
    assert len({(str(spec.data), spec.local, spec.run) for spec in specs}) == 1


def test_the_output_is_a_table_a_legend_a_conclusion_and_the_folder(coterie, tiny, tmp_path):
    done = coterie("compare", *tiny, "--methods", "fedavg,local,oracle", "--seeds", 2, "--out", "kept")
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    first = next(position for position, line in enumerate(lines) if line.split()[0] == "fedavg")
    assert [line.split()[0] for line in lines[first : first + 3]] == ["fedavg", "local", "oracle"]
    assert all(line.count("±") >= 2 for line in lines[first : first + 3])
    legend = (
        "p: paired one-sided t-test that the mean accuracy of the last ten rounds is higher than that of fedavg, with "
        "Holm's correction for 2 tests."
    )
    assert lines[first + 3 : -2] == [legend]
    assert lines[-2].startswith("The clients form 4 clusters. One model for all clients reaches ")
    assert lines[-1] == "Records: kept"
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept == {f"{name}-{seed}" for name in ("fedavg", "local", "oracle") for seed in (0, 1)}


def test_with_drift_a_second_table_shows_how_the_methods_responded(coterie, tiny):
    args = ["--methods", "fedavg,oracle", "--set", "shift.name=swap_all", "--set", "shift.probability=1"]
    done = coterie("compare", *tiny, *args, "--clients-per-round", 8, "--set", "shift.rounds=[1]")
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    head = next(position for position, line in enumerate(lines) if "detected" in line)
    columns = "method shifts detected delay (rounds) false alarms correct migrations wrong migrations"
    assert " ".join(lines[head].split()) == columns
    fedavg, oracle = (lines[head + position].split() for position in (2, 3))
    assert fedavg == ["fedavg", "8.0", "0.0", "–", "0.0", "0.0", "0.0"]
    assert oracle[:2] + oracle[3:5] + oracle[6:] == ["oracle", "8.0", "0.0", "0.0", "0.0"]
    assert float(oracle[2]) == float(oracle[5]) > 0
    found = json.loads(coterie("compare", *tiny, *args, "--set", "shift.rounds=[1]", "--json").stdout)
    assert found["table"][0]["shifts_detected"] == 0
    assert "noticed" not in coterie("compare", *tiny, "--methods", "fedavg").stdout


def test_a_setting_of_one_method_does_not_reach_the_others(coterie, tiny, tmp_path):
    from coterie.runs.spec import Spec

    args = ["--methods", "fedavg,ifca", "--set", "ifca.clusters=2", "--set", "local.learning_rate=0.5", "--out", "kept"]
    assert coterie("compare", *tiny, *args).exit_code == 0
    specs = {name: Spec.of(tmp_path / "kept" / f"{name}-0" / "spec.toml") for name in ("fedavg", "ifca")}
    assert specs["ifca"].method.options["clusters"] == 2
    assert "clusters" not in specs["fedavg"].method.options
    assert {spec.local.learning_rate for spec in specs.values()} == {0.5}


def test_the_method_settings_of_a_spec_file_apply_to_that_method_only(coterie, tmp_path):
    (tmp_path / "spec.toml").write_text(
        '[data]\nname = "blobs"\nclients = 8\nsamples = 20\n[run]\nrounds = 1\n[method]\nname = "ifca"\nclusters = 3\n'
    )
    done = coterie("compare", "spec.toml", "--methods", "ifca,fedavg", "--json")
    assert done.exit_code == 0, done.stderr
    assert [len(run["clusters"]["sizes"]) for run in json.loads(done.stdout)["runs"]] == [3, 1]


def test_the_default_methods_for_other_data_do_not_include_the_oracle(coterie):
    done = coterie("compare", "--data", "synthetic", "--set", "data.clients=6", "--rounds", 1, "--json")
    assert done.exit_code == 0, done.stderr
    others = [name for name in METHODS if name != "oracle"]
    assert [run["method"] for run in json.loads(done.stdout)["runs"]] == others


def test_regression_is_compared_by_test_loss(coterie):
    small = ["--set", "data.dimension=5", "--set", "data.clients=6", "--rounds", 2, "--clients-per-round", 6]
    done = coterie("compare", "--data", "regression", *small, "--methods", "fedavg,oracle")
    assert done.exit_code == 0, done.stderr
    assert "test loss" in done.stdout
    assert "accuracy" not in done.stdout
    assert " has the lowest test loss, " in done.stdout


def test_the_error_of_a_diverged_run_names_the_method(coterie, tiny):
    done = coterie("compare", *tiny, "--rounds", 20, "--methods", "fedavg", "--set", "local.lr_decay=1e9")
    assert done.exit_code == 4
    assert done.stderr.startswith("Error: fedavg: Round ")


@pytest.mark.slow
def test_the_results_do_not_depend_on_the_number_of_jobs(coterie, tiny):
    one, two = (
        json.loads(coterie("compare", *tiny, "--methods", "fedavg,oracle", "--jobs", jobs, "--json").stdout)
        for jobs in (1, 2)
    )
    assert [run["accuracy"] for run in one["runs"]] == [run["accuracy"] for run in two["runs"]]


def comparison(truth=None, **methods):
    """label=(accuracy, cluster sizes, adjusted Rand index); sizes None: every client has its own model."""
    records, table = {}, []
    for label, (accuracy, sizes, rand) in methods.items():
        known = None if truth is None else {"adjusted_rand": rand, "clusters": truth}
        clusters = {"sizes": sizes or [40], "adapted": sizes is None}
        records[label] = [RunRecord({"method": label, "clusters": clusters, "truth": known}, [])]
        table.append({"method": label, "accuracy": accuracy, "adjusted_rand": rand, "test_loss": 1.0})
    return Comparison(records, table, {}, next(iter(methods)))


ONE, FOUR = [40], [10, 10, 10, 10]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.885, FOUR, 1.0), oracle=(0.89, FOUR, 1.0)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg); one model per true "
            "cluster reaches 89 % (oracle). ifca finds these clusters (adjusted Rand index 1.00) and reaches 88 %.",
        ),
        (
            comparison(4, a=(0.62, ONE, 0.0), b=(0.89, FOUR, 1.0), c=(0.887, FOUR, 1.0), d=(0.89, FOUR, 0.9)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (a). "
            "b and c find these clusters (adjusted Rand index 1.00) and reach 89 %.",
        ),
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.8, FOUR, 0.7), oracle=(0.89, FOUR, 1.0)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg); one model per true "
            "cluster reaches 89 % (oracle). ifca finds them in part (adjusted Rand index 0.70) and reaches 80 %.",
        ),
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.6, FOUR, 0.1)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg). "
            "ifca does not find them (adjusted Rand index 0.10) and reaches 60 %.",
        ),
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), oracle=(0.89, FOUR, 1.0)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg); one model per true "
            "cluster reaches 89 % (oracle).",
        ),
        (
            comparison(None, fedavg=(0.62, ONE, None), ifca=(0.7, FOUR, None)),
            "One model for all clients reaches 62 % accuracy (fedavg); one model per cluster reaches 70 % (ifca): "
            "8 percentage points more.",
        ),
        (
            comparison(None, fedavg=(0.7, ONE, None), ifca=(0.7, FOUR, None)),
            "One model for all clients reaches 70 % accuracy (fedavg); one model per cluster reaches 70 % (ifca): "
            "no difference.",
        ),
        (
            comparison(None, fedavg=(0.7, ONE, None), ifca=(0.6, FOUR, None)),
            "One model for all clients reaches 70 % accuracy (fedavg); one model per cluster reaches 60 % (ifca): "
            "10 percentage points less.",
        ),
        (
            comparison(None, fedavg=(0.5, ONE, None), local=(0.6, None, None)),
            "local has the highest accuracy, 60 %, followed by fedavg with 50 %.",
        ),
        (comparison(None, fedavg=(0.5, ONE, None)), "fedavg reaches 50 % accuracy."),
        (comparison(None, fedavg=(None, ONE, None)), "fedavg has the lowest test loss, 1."),
    ],
)
def test_the_conclusion_states_the_numbers(found, expected):
    assert conclusion(found) == expected
