"""coterie compare."""

from __future__ import annotations

import json

import pytest

from coterie.cli.sentence import sentence
from coterie.runs.compare import METHODS, Comparison, demonstration
from coterie.runs.record import RunRecord


def test_the_demonstration_is_what_comes_without_arguments(coterie):
    done = coterie("compare", "--rounds", 2, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["method"] for run in found["runs"]] == list(METHODS)
    assert {(run["data"], run["clients"], run["truth"]["clusters"]) for run in found["runs"]} == {("digits", 40, 4)}


def test_the_demonstration_differs_in_the_method_only():
    specs = demonstration().values()
    assert len({(str(spec.data), spec.local, spec.run) for spec in specs}) == 1


def test_a_table_and_a_sentence(coterie, tiny, tmp_path):
    done = coterie("compare", *tiny, "--methods", "fedavg,local,oracle", "--seeds", 2, "--out", "kept")
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert lines[0].split()[0] == "method"
    assert [line.split()[0] for line in lines[2:5]] == ["fedavg", "local", "oracle"]
    assert lines[0].split()[-1] == "p"
    assert all(line.count("±") >= 2 for line in lines[2:5])
    said = "p: paired t-test that the last ten rounds are better than those of fedavg, corrected for 2 tests by "
    said += "Holm's rule."
    assert " ".join(lines[5:-2]) == said
    assert lines[-2].startswith("Clients fall into 4 kinds: ")
    assert lines[-1] == "Records: kept"
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept == {f"{name}-{seed}" for name in ("fedavg", "local", "oracle") for seed in (0, 1)}


def test_where_clients_drift_a_second_table_says_what_methods_made_of_it(coterie, tiny):
    args = ["--methods", "fedavg,oracle", "--set", "shift.name=swap_all", "--set", "shift.probability=1"]
    done = coterie("compare", *tiny, *args, "--clients-per-round", 8, "--set", "shift.rounds=[1]")
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    head = next(place for place, line in enumerate(lines) if "noticed" in line)
    assert " ".join(lines[head].split()) == "method shifts noticed rounds later false alarms migrations right wrong"
    fedavg, oracle = (lines[head + place].split() for place in (2, 3))
    assert fedavg == ["fedavg", "8.0", "0.0", "–", "0.0", "0.0", "0.0"]
    assert oracle[:2] + oracle[3:5] + oracle[6:] == ["oracle", "8.0", "0.0", "0.0", "0.0"]
    assert float(oracle[2]) == float(oracle[5]) > 0
    found = json.loads(coterie("compare", *tiny, *args, "--set", "shift.rounds=[1]", "--json").stdout)
    assert found["table"][0]["shifts_detected"] == 0
    assert "noticed" not in coterie("compare", *tiny, "--methods", "fedavg").stdout


def test_a_setting_of_one_method_reaches_only_that_one(coterie, tiny, tmp_path):
    from coterie.runs.spec import Spec

    args = ["--methods", "fedavg,ifca", "--set", "ifca.clusters=2", "--set", "local.learning_rate=0.5", "--out", "kept"]
    assert coterie("compare", *tiny, *args).exit_code == 0
    specs = {name: Spec.of(tmp_path / "kept" / f"{name}-0" / "spec.toml") for name in ("fedavg", "ifca")}
    assert specs["ifca"].method.options["clusters"] == 2
    assert "clusters" not in specs["fedavg"].method.options
    assert {spec.local.learning_rate for spec in specs.values()} == {0.5}


def test_a_spec_keeps_the_settings_of_its_own_method(coterie, tmp_path):
    (tmp_path / "spec.toml").write_text(
        '[data]\nname = "blobs"\nclients = 8\nsamples = 20\n[run]\nrounds = 1\n[method]\nname = "ifca"\nclusters = 3\n'
    )
    done = coterie("compare", "spec.toml", "--methods", "ifca,fedavg", "--json")
    assert done.exit_code == 0, done.stderr
    assert [len(run["clusters"]["sizes"]) for run in json.loads(done.stdout)["runs"]] == [3, 1]


def test_data_without_true_clusters_are_compared_without_the_oracle(coterie):
    done = coterie("compare", "--data", "synthetic", "--set", "data.clients=6", "--rounds", 1, "--json")
    assert done.exit_code == 0, done.stderr
    others = [name for name in METHODS if name != "oracle"]
    assert [run["method"] for run in json.loads(done.stdout)["runs"]] == others


def test_regression_is_compared_by_loss(coterie):
    small = ["--set", "data.dimension=5", "--set", "data.clients=6", "--rounds", 2, "--clients-per-round", 6]
    done = coterie("compare", "--data", "regression", *small, "--methods", "fedavg,oracle")
    assert done.exit_code == 0, done.stderr
    assert "test loss" in done.stdout
    assert "accuracy" not in done.stdout
    assert " has the lowest test loss, " in done.stdout


def test_divergence_names_the_method(coterie, tiny):
    done = coterie("compare", *tiny, "--rounds", 20, "--methods", "fedavg", "--set", "local.lr_decay=1e9")
    assert done.exit_code == 4
    assert done.stderr.startswith("Error: fedavg: Round ")


@pytest.mark.slow
def test_several_jobs_give_what_one_gives(coterie, tiny):
    one, two = (
        json.loads(coterie("compare", *tiny, "--methods", "fedavg,oracle", "--jobs", jobs, "--json").stdout)
        for jobs in (1, 2)
    )
    assert [run["accuracy"] for run in one["runs"]] == [run["accuracy"] for run in two["runs"]]


def comparison(truth=None, **methods):
    """label=(accuracy, sizes of clusters, adjusted Rand); sizes None: every client has a model of its own."""
    records, table = {}, []
    for label, (accuracy, sizes, rand) in methods.items():
        known = None if truth is None else {"adjusted_rand": rand, "clusters": truth}
        clusters = {"sizes": sizes or [40], "adapted": sizes is None}
        records[label] = [RunRecord({"method": label, "clusters": clusters, "truth": known}, [])]
        table.append({"method": label, "accuracy": accuracy, "adjusted_rand": rand, "test_loss": 1.0})
    return Comparison(records, table, {}, next(iter(methods)))


ONE, FOUR = [40], [10, 10, 10, 10]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.885, FOUR, 1.0), oracle=(0.89, FOUR, 1.0)),
            "Clients fall into 4 kinds: one model for all reaches 62 %, the model of its kind 89 %; "
            "ifca found the kinds (adjusted Rand 1.00).",
        ),
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.8, FOUR, 0.7), oracle=(0.89, FOUR, 1.0)),
            "Clients fall into 4 kinds: one model for all reaches 62 %, the model of its kind 89 %; "
            "ifca found most of them (adjusted Rand 0.70) and reaches 80 %.",
        ),
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.6, FOUR, 0.1)),
            "Clients fall into 4 kinds: one model for all reaches 62 %, the model of its cluster 60 %; "
            "ifca did not find them (adjusted Rand 0.10) and reaches 60 %.",
        ),
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), oracle=(0.89, FOUR, 1.0)),
            "Clients fall into 4 kinds: one model for all reaches 62 %, the model of its kind 89 %.",
        ),
        (
            comparison(None, fedavg=(0.62, ONE, None), ifca=(0.7, FOUR, None)),
            "One model for all reaches 62 % (fedavg), a model for each cluster 70 % (ifca): 8 points more.",
        ),
        (
            comparison(None, fedavg=(0.7, ONE, None), ifca=(0.7, FOUR, None)),
            "One model for all reaches 70 % (fedavg), a model for each cluster 70 % (ifca): no more.",
        ),
        (
            comparison(None, fedavg=(0.7, ONE, None), ifca=(0.6, FOUR, None)),
            "One model for all reaches 70 % (fedavg), a model for each cluster 60 % (ifca): 10 points less.",
        ),
        (
            comparison(None, fedavg=(0.5, ONE, None), local=(0.6, None, None)),
            "local reaches 60 %, before fedavg with 50 %.",
        ),
        (comparison(None, fedavg=(0.5, ONE, None)), "fedavg reaches 50 %."),
        (comparison(None, fedavg=(None, ONE, None)), "fedavg has the lowest test loss, 1."),
    ],
)
def test_the_sentence_is_made_of_the_numbers(found, says):
    assert sentence(found) == says
