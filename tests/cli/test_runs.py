"""coterie runs: the list, its filters, files and deletions."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def recorded(coterie, tiny, tmp_path):
    """Records of three runs in `runs`: oracle, local, and one that cannot be read."""
    for method in ("oracle", "local"):
        assert coterie("run", *tiny, "--method", method).exit_code == 0
    shutil.copytree(tmp_path / "runs" / "blobs-local-0", tmp_path / "runs" / "[red]bad")
    (tmp_path / "runs" / "[red]bad" / "summary.json").write_text("{")
    return tmp_path / "runs"


def names(done):
    return [Path(each["path"]).name for each in json.loads(done.stdout)["runs"]]


def test_runs_are_listed_filtered_written_and_deleted(coterie, recorded):
    shown = coterie("runs")
    assert shown.exit_code == 0
    assert "[red]bad" in shown.stdout  # a name is no markup
    assert "unreadable" in shown.stdout
    assert "runs/[red]bad: runs/[red]bad/summary.json is damaged" in shown.stdout
    assert shown.stdout.endswith("3 runs\n")

    assert names(coterie("runs", "--json")) == ["[red]bad", "blobs-local-0", "blobs-oracle-0"]
    assert names(coterie("runs", "--method", "local,cfl", "--json")) == ["blobs-local-0"]
    assert names(coterie("runs", "--data", "digits", "--json")) == []
    assert names(coterie("runs", "--status", "unreadable", "--json")) == ["[red]bad"]
    assert names(coterie("runs", "--where", "rounds>=3", "--sort", "method", "--json")) == [
        "blobs-local-0",
        "blobs-oracle-0",
    ]
    assert coterie("runs", "--where", "rounds>3").stdout == "No runs in runs match.\n"

    assert coterie("runs", "--to-csv", "all.csv", "--sort", "status").stdout == "3 runs written to all.csv\n"
    with open("all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done", "done", "unreadable"]
    assert float(rows[0]["rounds"]) == 3

    from typer.testing import CliRunner

    from coterie.cli.app import app

    refused = CliRunner().invoke(app, ["runs", "--method", "oracle", "--delete"], input="n\n")
    assert refused.stdout.endswith("0 records deleted.\n")  # after the echo of the answer
    assert "Delete 1 record (runs/blobs-oracle-0)?" in refused.stderr
    assert coterie("runs", "--delete", "--json").exit_code == 2
    assert coterie("runs", "--method", "oracle", "--delete", "--yes").stdout == "1 record deleted.\n"
    assert sorted(path.name for path in recorded.iterdir()) == ["[red]bad", "blobs-local-0"]


def test_both_accuracies_are_shown_and_the_second_is_that_of_a_comparison(coterie, tiny):
    done = coterie("compare", *tiny, "--methods", "local", "--lr", 0.01, "--out", "runs", "--json")
    (row,) = json.loads(done.stdout)["table"]
    assert row["accuracy"] != row["last_ten"]  # otherwise this test shows nothing
    shown = coterie("runs").stdout
    header, values = (next(line for line in shown.splitlines() if word in line) for word in ("method", "local-0"))
    assert header.index("accuracy %") < header.index("last ten %")
    first, second = (values.index(f" {100 * row[column]:.1f} ") for column in ("accuracy", "last_ten"))
    assert first < second
    assert (
        "last ten: mean accuracy over the last ten rounds, or all if there are fewer, as in coterie compare." in shown
    )
