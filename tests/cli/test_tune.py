"""coterie tune: the flags, the table and the JSON document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="Optuna is an extra: pip install 'coterie[optuna]'")

OVER = ["--over", "local.learning_rate=0.01..0.3:log", "local.batch_size=5,10", "--trials", "3"]


def test_a_search_prints_trials_scores_and_where_the_best_settings_are(coterie, tiny):
    done = coterie("tune", *tiny, "--method", "oracle", *OVER)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert "local.learning_rate" in done.stdout
    assert "3 trials: 3 complete, 0 pruned, 0 failed." in done.stdout
    assert "Best accuracy on validation examples: " in done.stdout
    assert "Test accuracy, from one run with seed 100: " in done.stdout
    assert done.stdout.endswith("Best settings: runs/tune-blobs-oracle/best.toml\n")
    assert coterie("run", "runs/tune-blobs-oracle/best.toml", "--rounds", 1).exit_code == 0

    again = coterie("tune", *tiny, "--method", "oracle", *OVER, "--json")  # reads the study and the test
    found = json.loads(again.stdout)
    assert [trial["state"] for trial in found["trials"]] == ["complete"] * 3
    assert found["test"]["seed"] == 100
    assert found["best_file"] == str(Path("runs/tune-blobs-oracle/best.toml"))
    assert set(found["best"]["values"]) == {"local.learning_rate", "local.batch_size"}


def test_a_search_by_another_metric_names_it_and_lists_its_lowest_values_first(coterie, tiny):
    done = coterie("tune", *tiny, "--method", "oracle", *OVER, "--set", "run.primary_metric=log_loss", "--no-test")
    assert done.exit_code == 0, done.stderr
    assert "validation log_loss" in done.stdout
    again = coterie(
        "tune", *tiny, "--method", "oracle", *OVER, "--set", "run.primary_metric=log_loss", "--no-test", "--json"
    )
    found = json.loads(again.stdout)
    assert (found["metric"], found["higher_is_better"]) == ("log_loss", False)
    order = sorted((trial["score"], trial["number"]) for trial in found["trials"])
    assert found["best"]["score"] == order[0][0]
    assert f"Best log_loss on validation examples: {order[0][0]:.4g}\n" in done.stdout
    places = [done.stdout.index(f"{score:.4g}") for score, _ in order]
    assert places == sorted(places)


def test_pruned_trials_are_in_the_table_with_their_state_and_the_reason(coterie, tiny):
    args = ["tune", *tiny, "--method", "oracle", "--over", "local.learning_rate=0.1,3e38", "--trials", 4, "--no-test"]
    shown = coterie(*args)
    assert shown.exit_code == 0, shown.stderr
    rows = json.loads(coterie(*args, "--json").stdout)["trials"]
    states = {row["number"]: row["state"] for row in rows}
    assert set(states.values()) == {"complete", "pruned"}  # a rate of 3e38 diverges
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert {int(line[0]): line[1] for line in lines if line and line[0].isdecimal() and line[1] != "trials:"} == states
    assert "Reason for the last pruned or failed trial: trial" in shown.stdout


def test_a_search_over_nothing_is_an_error(coterie, tiny):
    done = coterie("tune", *tiny)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: There is nothing to search: give at least one setting with its values")
    assert not Path("runs").exists()
