"""coterie recommend."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

#: Three planted clusters of four clients, and runs of a fraction of a second.
BLOBS = ["--data", "blobs", "--set", "data.clients=12", "--set", "data.samples=30", "--set", "data.clusters=3"]
QUICK = ["--rounds", "6", "--clients-per-round", "6", "--epochs", "3", "--lr", "0.1"]


@pytest.fixture(scope="module")
def advice(tmp_path_factory):
    """The output of one recommendation, which writes its folder."""
    from typer.testing import CliRunner

    from coterie.cli.app import app

    folder = tmp_path_factory.mktemp("advice")
    args = ["recommend", *BLOBS, *QUICK, "--methods", "local,fedgroup", "--out", str(folder / "out")]
    return CliRunner().invoke(app, args, prog_name="coterie"), folder / "out"


def test_the_output_names_the_data_the_answer_the_reasons_and_the_next_command(advice):
    done, folder = advice
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    for part in (
        "12 clients; 24 training examples each.",
        "no label skew beyond chance",
        "Clusters found: fedgroup 3.",
        "Train one model per cluster: use fedgroup.",
        "percentage points better, with a standard error of",
        "Needs: no number of clusters: it finds one itself",
        "The server receives from each client:",
        f"Run it: coterie run {folder / 'next.toml'}",
    ):
        assert part in text


def test_the_files_hold_the_result_and_a_spec_that_runs(advice, coterie):
    _, folder = advice
    found = json.loads((folder / "recommendation.json").read_text())
    assert (found["method"], found["answer"]) == ("fedgroup", "clusters")
    done = coterie("run", folder / "next.toml", "--rounds", 1, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["method"] == "fedgroup"


@pytest.mark.exhaustive
def test_the_command_repeats_what_was_given_and_the_json_document_is_alone(coterie, tmp_path):
    draw = np.random.default_rng(0)
    rows = ["client,age,weight,label"]
    for client in range(6):
        for age, weight in draw.normal(size=(20, 2)):
            rows.append(f"ward {client},{age:.3f},{weight:.3f},{int(age > 0)}")
    (tmp_path / "my wards.csv").write_text("\n".join(rows) + "\n")
    done = coterie(
        *("recommend", "--data", "my wards.csv", *QUICK, "--methods", "local", "--json"),
        *("--set", "data.test_share=0.25", "--seed", 3),
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    words = shlex.split(found["command"])
    assert words[:4] == ["coterie", "run", "--data", "my wards.csv"]
    assert words[words.index("--method") + 1] == found["method"]
    for setting in ("data.test_share=0.25", "local.learning_rate=0.1", "run.clients_per_round=6"):
        assert setting in words
    assert found["seeds"] == [3, 4, 5]
    again = coterie(*words[1:], "--rounds", 1, "--json")
    assert again.exit_code == 0, again.stderr


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([f"a,{age},{age % 2}" for age in range(20)], "needs at least 2, but wards has 1 client."),
        ([f"{client},{age},sick" for client in "ab" for age in range(20)], "have the same label, 'sick'"),
        ([f"{client},{age},{age}" for client in "abc" for age in range(2)], "after 3 of 6 examples were set aside"),
    ],
)
def test_data_on_which_methods_cannot_be_compared_are_an_error(rows, message, coterie, tmp_path):
    (tmp_path / "wards.csv").write_text("\n".join(["client,age,label", *rows]) + "\n")
    done = coterie("recommend", "--data", "wards.csv", *QUICK[:2], "--methods", "local")
    assert done.exit_code == 3
    assert message in " ".join(done.stderr.split())


def test_an_interrupted_recommendation_says_that_nothing_was_saved(monkeypatch):
    from coterie.cli.recommend import recommend
    from coterie.runs.recommending import validation_runs

    def interrupted(job, **given):
        raise KeyboardInterrupt

    monkeypatch.setattr(validation_runs, "carry_out", interrupted)
    with pytest.raises(KeyboardInterrupt, match="Nothing was saved; --budget SECONDS limits the time"):
        recommend(data="blobs", methods="local")


def test_a_data_set_in_place_of_a_spec_file_gets_a_hint(coterie):
    done = coterie("recommend", "digits")
    assert done.exit_code == 2
    assert "Did you mean --data digits?" in done.stderr


@pytest.mark.parametrize("name", ["my.csv", "my-clients"])
def test_a_table_or_a_folder_in_place_of_a_spec_file_gets_a_hint(coterie, tmp_path, name):
    path = tmp_path / name
    path.mkdir() if not path.suffix else path.write_text("client,label,f\na,0,1\n")
    done = coterie("recommend", path)
    assert done.exit_code == 2
    assert f"Did you mean --data {path}?" in done.stderr


def test_a_setting_that_not_all_methods_have_gets_a_hint(coterie):
    done = coterie("recommend", "--methods", "ifca,local", "--set", "method.clusters=3")
    assert done.exit_code == 2
    assert "--set method.clusters: local has no such setting; set it for one method, ifca.clusters" in done.stderr
    assert "or --clusters for all that have it: ifca" in done.stderr
