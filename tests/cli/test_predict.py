"""coterie predict, place and inspect."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from coterie.seeds import Seed


def write(file, clients, label=True):
    """A table: the label is whether feature a is positive; for clients with an odd number it is flipped."""
    header = ["client", "a", "b", *(["label"] if label else [])]
    rows = [header]
    for i in clients:
        for a, b in 2 * Seed(i).uniform(80).reshape(40, 2) - 1:
            rows.append([f"w{i}", a, b, *([int((a > 0) != bool(i % 2))] if label else [])])
    with open(file, "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(rows)


@pytest.fixture
def run(coterie):
    write("train.csv", range(6))
    args = ["--data", "train.csv", "--method", "ifca", "--clusters", 2, "--rounds", 6, "--lr", 0.3]
    done = coterie("run", *args, "--set", "method.restarts=3", "--out", "here")
    assert done.exit_code == 0, done.stderr


def test_each_row_is_predicted_by_the_model_of_its_client(coterie, run):
    done = coterie("predict", "here", "--data", "train.csv", "-o", "out.csv", "--json")
    assert done.exit_code == 0, done.stderr
    about = json.loads(done.stdout)
    assert (about["examples"], about["clients"], about["path"]) == (240, 6, "out.csv")
    with open("train.csv", encoding="utf-8") as one, open("out.csv", encoding="utf-8") as two:
        pairs = list(zip(csv.DictReader(one), csv.DictReader(two), strict=True))
    assert all(row["client"] == found["client"] for row, found in pairs)
    right = np.mean([row["label"] == found["prediction"] for row, found in pairs])
    assert about["accuracy"] == pytest.approx(right)
    assert right > 0.9  # with one model for all, half of the clients would be wrong


def test_probabilities_are_written_and_sum_to_one(coterie, run):
    done = coterie("predict", "here", "--data", "train.csv", "--cluster", 0, "--proba", "--json")
    about = json.loads(done.stdout)
    assert about["columns"] == ["prediction", "probability_0", "probability_1"]
    for prediction, *shares in about["rows"]:
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert prediction == str(np.argmax(shares))  # classes are named as in the table


def test_probabilities_are_shown_without_a_file(coterie, run):
    listed = json.loads(coterie("predict", "here", "--data", "train.csv", "--proba", "--json").stdout)["rows"]
    shown = coterie("predict", "here", "--data", "train.csv", "--proba").stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["row", "client", "prediction", "P(0)", "P(1)"] in lines
    table = [line for line in lines if line[:1] and line[0].isdecimal()]
    assert [line[0] for line in table] == [str(row) for row in range(1, 21)]
    for line, (client, prediction, *shares) in zip(table, listed, strict=False):
        assert line[1:3] == [client, prediction]
        assert [float(cell) for cell in line[3:]] == pytest.approx(shares, abs=5e-5)
    assert "Not shown: 220 examples; for all of them: -o FILE.csv, or --json" in shown


def test_an_npz_file_without_labels_is_predicted(coterie, run):
    np.savez("new.npz", x=np.array([[0.9, 0.0], [-0.9, 0.0]]))
    done = coterie("predict", "here", "--data", "new.npz", "--client", "w0")
    assert done.exit_code == 0, done.stderr
    assert "0: 1, 1: 1" in done.stdout
    assert "accuracy" not in done.stdout


def test_errors_about_columns_name_the_file_and_all_columns(coterie, run, tmp_path):
    (tmp_path / "other.csv").write_text("aa,c\n1,2\n")
    done = coterie("predict", "here", "--data", "other.csv", "--cluster", 0)
    assert done.exit_code == 3
    first, *lines = done.stderr.splitlines()
    assert first == "Error: other.csv has 3 problems:"
    assert lines[0].startswith("- other.csv has no column 'a', only aa, c.")
    assert lines[1].startswith("- other.csv has no column 'b', only aa, c.")
    (tmp_path / "text.csv").write_text("a,b\n1,2\nx,2\n")
    assert (
        "text.csv, line 3, column 'a': 'x' is not a number"
        in coterie("predict", "here", "--data", "text.csv", "--cluster", 0).stderr
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--data", "new.csv"], "Error: No client 'w8'."),
        (["--data", "none.csv", "--client", "w0"], "Error: There is no file or folder none.csv"),
        (["--data", "new.csv", "--client", "w0", "--cluster", 1], "Error: client and cluster exclude each other"),
        (["--data", "new.csv", "--cluster", 1, "-o", "a.xlsx"], "Error: Predictions are written as .csv, got 'a.xlsx'"),
        (["--data", "new.csv", "--cluster", 1, "-o", "train.csv"], "Error: train.csv exists;"),
        (["--data", "broken.npz", "--cluster", 1], "Error: broken.npz is not an archive of arrays"),
    ],
)
def test_wrong_input_is_an_error(args, message, coterie, run, tmp_path):
    write("new.csv", [8])
    (tmp_path / "broken.npz").write_text("no")
    done = coterie("predict", "here", *args)
    assert done.exit_code in (2, 3)
    assert done.stderr.startswith(message)


def test_a_newcomer_is_placed_with_the_clients_that_are_like_it(coterie, run):
    write("new.csv", [8, 9])
    clusters = {
        each["client"]: each["cluster"] for each in json.loads(coterie("inspect", "here", "--json").stdout)["clients"]
    }
    for name, like in (("w8", "w0"), ("w9", "w1")):
        done = coterie("place", "here", "--data", "new.csv", "--client", name, "--json")
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["cluster"] == clusters[like]
    assert clusters["w0"] != clusters["w1"]
    done = coterie("place", "here", "--data", "new.csv")
    assert done.exit_code == 3
    assert "has the examples of 2 clients, from 'w8' to 'w9'; choose one with --client" in done.stderr


def test_the_text_of_a_placement_has_margin_certainty_scores_and_cost(coterie, run):
    write("new.csv", [8])
    done = coterie("place", "here", "--data", "new.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("w8: cluster ")
    for text in ("loss by cluster", "margin", "% of 100 resamples of its examples", "score of its own", "48 B down"):
        assert text in done.stdout


def test_a_newcomer_without_labels_is_refused_by_a_method_that_needs_them(coterie, run):
    write("new.csv", [8], label=False)
    done = coterie("place", "here", "--data", "new.csv")
    assert done.exit_code == 2
    assert "The method needs labels to place a newcomer" in done.stderr


def test_inspect_counts_rounds_from_one_for_people_and_from_zero_for_machines(coterie, run):
    (row,) = [
        each for each in json.loads(coterie("inspect", "here", "--json").stdout)["clients"] if each["client"] == "w3"
    ]
    shown = coterie("inspect", "here", "--client", "w3").stdout
    assert row["decided_in"] == 5  # six rounds
    assert "the best first, round 6:" in shown
    since = "preparation" if row["since"] < 0 else f"round {row['since'] + 1}"
    assert since in next(line for line in shown.splitlines() if line.lstrip().startswith("w3"))


def test_inspect_prints_a_table_and_csv(coterie, run):
    done = coterie("inspect", "here", "--csv")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["client"] for row in rows] == [f"w{i}" for i in range(6)]
    assert all(float(row["value"]) < float(row["other_value"]) for row in rows)
    assert {row["decided_by"] for row in rows} == {"loss"}
    shown = coterie("inspect", "here", "--client", "w3").stdout
    assert "w3" in shown
    assert "loss by cluster, the best first" in shown
    assert coterie("inspect", "here", "--csv", "--json").exit_code == 2
