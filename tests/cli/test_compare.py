"""coterie compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.methods import METHODS as METHODS_TABLE
from coterie.methods import method_class
from coterie.runs.compare import METHODS, demonstration
from coterie.runs.comparison import Comparison
from coterie.runs.comparison_legend import legend
from coterie.runs.conclusion import ONE_MODEL, conclusion
from coterie.runs.record import RunRecord
from coterie.runs.spec import method_options


@pytest.mark.exhaustive
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
    assert lines[first + 3 : -3] == [
        "accuracy: mean of all 3 rounds; mean ± standard deviation over 2 seeds.",
        "p: paired one-sided t-test that this accuracy is higher than that of fedavg, with Holm's correction for "
        "2 tests.",
        "With 2 seeds, p means little; use at least 5 (--seeds 5).",
    ]
    assert lines[-3].startswith("The clients form 4 clusters. One model for all clients reaches ")
    assert lines[-2:] == ["Records: kept", "Page: coterie report kept"]
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


@pytest.mark.exhaustive
def test_the_method_settings_of_a_spec_file_apply_to_that_method_only(coterie, tmp_path):
    (tmp_path / "spec.toml").write_text(
        '[data]\nname = "blobs"\nclients = 8\nsamples = 20\n[run]\nrounds = 1\n[method]\nname = "ifca"\nclusters = 3\n'
    )
    done = coterie("compare", "spec.toml", "--methods", "ifca,fedavg", "--json")
    assert done.exit_code == 0, done.stderr
    assert [len(run["clusters"]["sizes"]) for run in json.loads(done.stdout)["runs"]] == [3, 1]


@pytest.mark.exhaustive
def test_the_default_methods_for_other_data_do_not_include_the_oracle(coterie):
    done = coterie("compare", "--data", "synthetic", "--set", "data.clients=6", "--rounds", 1, "--json")
    assert done.exit_code == 0, done.stderr
    others = [name for name in METHODS if name != "oracle"]
    assert [run["method"] for run in json.loads(done.stdout)["runs"]] == others


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_the_results_do_not_depend_on_the_number_of_jobs(coterie, tiny):
    one, two = (
        json.loads(coterie("compare", *tiny, "--methods", "fedavg,oracle", "--jobs", jobs, "--json").stdout)
        for jobs in (1, 2)
    )
    assert [run["accuracy"] for run in one["runs"]] == [run["accuracy"] for run in two["runs"]]


def comparison(truth=None, coverage=1.0, **methods):
    """label=(accuracy, cluster sizes, adjusted Rand index); sizes None: every client has its own model.

    A label is the name of a method, optionally with an underscore and a number. `coverage`: of the last method.
    """
    records, table = {}, []
    for label, (accuracy, sizes, rand) in methods.items():
        known = None if truth is None else {"adjusted_rand": rand, "clusters": truth}
        clusters = {"sizes": sizes or [40], "adapted": sizes is None}
        records[label] = [RunRecord({"method": label.split("_")[0], "clusters": clusters, "truth": known}, [])]
        table.append({"method": label, "last_ten": accuracy, "adjusted_rand": rand, "test_loss": 1.0})
        table[-1]["last_ten_coverage"] = 1.0
    table[-1]["last_ten_coverage"] = coverage
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
            comparison(
                4, fedavg=(0.62, ONE, 0.0), ifca_2=(0.89, FOUR, 1.0), ifca_3=(0.887, FOUR, 1.0), cfl=(0.89, FOUR, 0.9)
            ),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg). "
            "ifca_2 and ifca_3 find these clusters (adjusted Rand index 1.00) and reach 89 %.",
        ),
        (  # a method that found all clusters is named even if its accuracy is lower than that of another one
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.89, FOUR, 1.0), fedgroup=(0.85, FOUR, 1.0)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg). "
            "ifca and fedgroup find these clusters (adjusted Rand index 1.00) and reach 89 % and 85 %.",
        ),
        (
            comparison(4, fedavg=(0.62, ONE, 0.0), ifca=(0.89, FOUR, 0.7), fedgroup=(0.85, FOUR, 1.0)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg). "
            "ifca finds them in part (adjusted Rand index 0.70) and reaches 89 %. "
            "fedgroup finds these clusters (adjusted Rand index 1.00) and reaches 85 %.",
        ),
        (  # a clustered method that ends with one cluster is not "one model for all clients"
            comparison(4, cfl=(0.7, ONE, 0.0), fedavg=(0.62, ONE, 0.0), oracle=(0.89, FOUR, 1.0)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg); one model per true "
            "cluster reaches 89 % (oracle). cfl does not find them (adjusted Rand index 0.00) and reaches 70 %.",
        ),
        (
            comparison(None, ifca=(0.7, FOUR, None), cfl=(0.6, ONE, None)),
            "ifca has the highest accuracy, 70 %, followed by cfl with 60 %.",
        ),
        (  # a method of another package: whether it has one model by design is not known
            comparison(None, fedavg=(0.5, ONE, None), mine=(0.6, ONE, None)),
            "mine has the highest accuracy, 60 %, followed by fedavg with 50 %.",
        ),
        (
            comparison(4, 0.2, fedavg=(0.62, ONE, 0.0), flexcfl=(0.7, FOUR, 0.7)),
            "The clients form 4 clusters. One model for all clients reaches 62 % accuracy (fedavg). "
            "flexcfl finds them in part (adjusted Rand index 0.70) and reaches 70 % at a coverage of 20 %.",
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


@pytest.mark.parametrize("name", sorted(METHODS_TABLE))
def test_every_method_is_either_a_one_model_method_or_not(name):
    """A new method with one model for all clients must be added to ONE_MODEL; one with clusters must not."""
    clustered = "clusters" in method_options(name) or getattr(method_class(name), "finds_clusters", False)
    assert (name in ONE_MODEL) == (name == "fedsim" or not (clustered or name in ("local", "perfedavg", "oracle")))


def with_legend(rounds=(60,), seeds=5, tests=None, headline="last_ten", coverage=1.0):
    groups = {"fedavg": [RunRecord({"rounds": count}, []) for count in rounds]}
    table = [{"method": "fedavg", "seeds": seeds, "last_ten_coverage": 1.0, "coverage": coverage}]
    table.append({"method": "ifca", "seeds": seeds, "last_ten_coverage": coverage, "coverage": 1.0})
    return legend(Comparison(groups, table, tests or {}, "fedavg", headline))


TESTED = {"t_test": 0.1, "no_p": None}


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ((60,), "accuracy: mean of the last ten rounds."),
        ((10,), "accuracy: mean of the last ten rounds."),
        ((4, 4), "accuracy: mean of all 4 rounds."),
        ((1,), "accuracy: after the only round."),
        ((4, 60), "accuracy: mean of the last ten rounds, or of all rounds of shorter runs."),
    ],
)
def test_the_legend_says_over_which_rounds_the_accuracy_is_a_mean(rounds, expected):
    assert with_legend(rounds, seeds=1) == [expected]


def test_below_five_seeds_the_legend_says_that_p_means_little():
    for seeds in (2, 4):
        line = f"With {seeds} seeds, p means little; use at least 5 (--seeds 5)."
        assert with_legend(seeds=seeds, tests={"ifca": TESTED})[2:] == [line]
    assert len(with_legend(seeds=5, tests={"ifca": TESTED})) == 2


def test_the_legend_says_why_p_is_missing_and_what_coverage_means():
    missing = {"t_test": None, "no_p": "only 20.0 % of the clients have been assigned a model"}
    assert with_legend(tests={"ifca": TESTED, "flexcfl": missing, "fesem": missing}, coverage=0.2) == [
        "accuracy: mean of the last ten rounds; mean ± standard deviation over 5 seeds.",
        "coverage: clients to which the method has assigned a model; the others are scored with the fallback model.",
        "p: paired one-sided t-test that this accuracy is higher than that of fedavg.",
        "No p for flexcfl, fesem: only 20.0 % of the clients have been assigned a model.",
    ]


def test_for_regression_the_legend_is_about_the_test_loss():
    assert with_legend(tests={"ifca": TESTED}, headline="test_loss") == [
        "test loss: after the last round; mean ± standard deviation over 5 seeds.",
        "p: paired one-sided t-test that this test loss is lower than that of fedavg.",
    ]


def test_another_primary_metric_has_its_own_columns_legend_and_conclusion(coterie, tiny):
    args = ["--methods", "fedavg,oracle", "--seeds", 2, "--set", "run.primary_metric=ece"]
    done = coterie("compare", *tiny, *args)
    assert done.exit_code == 0, done.stderr
    head = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["method"])
    assert head.split()[1] == "ece"
    assert "accuracy" not in done.stdout
    assert "p: paired one-sided t-test that this ece is lower than that of fedavg." in done.stdout
    assert " has the lowest ece, " in done.stdout


@pytest.mark.exhaustive
def test_partial_coverage_has_a_column_and_no_p(coterie, tiny):
    # alpha=1: one initial client per cluster. The other clients are assigned when they first take part.
    args = ["--methods", "fedavg,flexcfl", "--clusters", 2, "--set", "flexcfl.alpha=1", "--seeds", 2]
    done = coterie("compare", *tiny, *args, "--clients-per-round", 1)
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    head = next(line.split() for line in lines if line.split()[0] == "method")
    assert "coverage" in head
    assert "p" not in head
    assert any(line.startswith("No p for flexcfl: only ") for line in lines)
    found = json.loads(coterie("compare", *tiny, *args, "--clients-per-round", 1, "--json").stdout)
    assert found["headline"] == "last_ten"
    assert found["table"][1]["last_ten_coverage"] < 1
    assert found["significance"]["flexcfl"]["t_test"] is None
    assert "coverage %" not in coterie("compare", *tiny, "--methods", "fedavg", "--rounds", 1).stdout


def test_the_table_has_other_forms(coterie, tiny):
    command = ["compare", *tiny, "--methods", "fedavg,oracle", "--out", "kept"]
    assert coterie(*command).exit_code == 0  # the records are read again below
    forms = {form: coterie(*command, "--format", form).stdout for form in ("markdown", "latex", "csv", "json")}
    assert forms["markdown"].startswith("| method | accuracy % |")
    assert [line.split(" & ")[0] for line in forms["latex"].splitlines()[4:6]] == ["fedavg", "oracle"]
    assert [line.split(",")[0] for line in forms["csv"].splitlines()] == ["method", "fedavg", "oracle"]
    assert json.loads(forms["json"]) == json.loads(coterie(*command, "--json").stdout)


def test_a_tracker_follows_each_run(coterie, tiny):
    pytest.importorskip("tensorboardX", reason="the tracker is an extra: pip install 'coterie[tensorboard]'")
    done = coterie("compare", *tiny, "--methods", "fedavg,local", "--out", "kept", "--track", "tensorboard")
    assert done.exit_code == 0, done.stderr
    assert all(len(list(Path("kept", f"{name}-0", "tensorboard").iterdir())) == 1 for name in ("fedavg", "local"))


def test_the_legend_says_if_the_test_loss_is_that_of_an_earlier_round():
    best = RunRecord({"rounds": 9, "best_round": {"t": 3, "step": 3, "served": True}}, [])
    found = Comparison({"fedavg": [best]}, [{"method": "fedavg", "seeds": 1}], {}, "fedavg", "test_loss")
    assert legend(found) == ["test loss: of the models that are served."]
