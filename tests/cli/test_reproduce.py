"""coterie reproduce: the list, the table, JSON, mistakes, and an interruption."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest


def test_without_a_name_the_entries_are_listed_with_a_hint(coterie):
    done = coterie("reproduce")
    assert done.exit_code == 0
    assert "fedsim-table7" in done.stdout
    assert "Run one: coterie reproduce NAME" in done.stdout


def test_the_list_counts_cells_whose_data_are_at_hand(coterie):
    # No files are at hand in these tests: of FedGroup's table 3, only the two rows of Synthetic(1,1) can be run. They
    # have 9 columns, and a second variant for all but FedAvg and FedProx.
    found = json.loads(coterie("reproduce", "fedgroup-table3", "--list", "--json").stdout)["entries"][0]
    assert found["at_hand"] == 2 * (9 + 7)
    assert found["runs"] == 3 * found["at_hand"]
    assert found["cells"] > found["at_hand"]


def test_a_typing_mistake_gets_a_suggestion(coterie):
    done = coterie("reproduce", "fedgroup-tabel3")
    assert done.exit_code == 2
    assert "Did you mean 'fedgroup-table3'?" in done.stderr


@pytest.mark.parametrize("option", ["--seeds", "--jobs", "--max-rounds"])
def test_counts_are_checked(coterie, option):
    done = coterie("reproduce", "fedsim-fig10", option, 0)
    assert done.exit_code == 2
    assert f"{option} must be between 1 and 10000, got 0" in done.stderr


def test_options_that_would_have_no_effect_or_no_folder_are_refused(coterie, tmp_path):
    done = coterie("reproduce", "fedsim-fig10", "--quick", "--ray-address", "auto")
    assert done.exit_code == 2
    assert "--ray-address needs --jobs-on ray" in done.stderr
    (tmp_path / "file").touch()
    done = coterie("reproduce", "fedsim-fig10", "--quick", "--out", tmp_path / "file")
    assert done.exit_code == 2
    assert "is a file; it must be a folder" in " ".join(done.stderr.split())


def test_cells_without_data_are_named_with_what_to_download(coterie):
    done = coterie("reproduce", "flag-fig1", "--quick")
    assert done.exit_code == 3
    text = " ".join(done.stdout.split())
    assert "Not run, because data are missing" in text
    assert "$COTERIE_DATA/fashion_mnist" in text


@pytest.mark.slow
def test_a_cell_that_failed_decides_the_exit_code(coterie):
    cell = ["--only", "Synthetic(1,1)-MCLR", "--only", "FedAvg", "--seeds", 1, "--max-rounds", 1, "--jobs", 1]
    assert coterie("reproduce", "fedgroup-table3", *cell).exit_code == 0
    (summary,) = Path("runs/reproduce/records").glob("*/summary.json")
    summary.write_text("{")
    done = coterie("reproduce", "fedgroup-table3", *cell)
    assert done.exit_code == 2
    text = " ".join(done.stdout.split())
    assert "Failed (Synthetic(1,1)-MCLR, FedAvg, as printed): " in text
    assert f"Remove {summary.parent} to do this run again" in text


def test_a_row_is_found_among_all_tables(coterie):
    done = coterie("reproduce", "--only", "MNIST-MCLR", "--list", "--json")
    names = {each["name"] for each in json.loads(done.stdout)["entries"]}
    assert {"fedgroup-table3", "flexcfl-table3"} <= names
    assert "fedsim-fig10" not in names


@pytest.mark.slow
def test_a_table_is_printed_and_written(coterie):
    done = coterie("reproduce", "fedsim-fig10", "--quick", "--only", "α = 0.5", "--jobs", 1)
    assert done.exit_code == 0, done.stderr
    assert "Scaled down (--quick)" in done.stdout
    assert "PNI increases with β" in done.stdout
    (folder,) = Path("runs/reproduce").glob("fedsim-fig10-quick-α-0.5-*")  # not that of the whole table
    assert {"table.md", "table.json", "report.html"} == {file.name for file in folder.iterdir()}


@pytest.mark.exhaustive
def test_an_interrupted_command_keeps_its_runs_and_says_how_to_continue(process, coterie):
    command = ["reproduce", "fedsim-table7", "--only", "(0, 0)", "--seeds", "1", "--jobs", "2", "--json"]
    going = process(*command)
    limit = time.monotonic() + 120
    while not any(Path("runs/reproduce/records").glob("*/checkpoint/*")):
        assert going.poll() is None, going.stderr.read()
        assert time.monotonic() < limit
        time.sleep(0.05)
    going.send_signal(signal.SIGINT)
    out, message = going.communicate(timeout=60)
    assert going.returncode == 130
    assert out == ""
    assert "Finished runs and checkpoints are in runs/reproduce. Continue with: coterie reproduce" in message
    done = coterie(*command)
    assert done.exit_code == 0
    cells = json.loads(done.stdout)["entries"][0]["cells"]
    assert all((cell["mean"] is None) == bool(cell["missing"]) for cell in cells)  # the draw of the paper is a file
    assert {cell["row"] for cell in cells if not cell["missing"]} == {"(0, 0)"}
