"""coterie figure: figures and tables of recorded runs."""

from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie import RunRecord


@pytest.fixture
def records(coterie, tiny):
    assert coterie("compare", *tiny, "--methods", "fedavg,oracle", "--out", "records").exit_code == 0


def test_a_folder_of_records_is_drawn_and_described(coterie, records, tmp_path):
    done = coterie("figure", "records")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("curves.pdf (3.5 × ")
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")

    done = coterie("figure", "records", "--width", "two", "--height", 2, "-o", "wide.svg", "--json")
    about = json.loads(done.stdout)
    assert (about["path"], about["kind"], about["width"], about["height"]) == ("wide.svg", "curves", 7.16, 2)
    assert sorted(about["runs"]) == ["records/fedavg-0", "records/oracle-0"]
    (panel,) = about["panels"]
    assert (panel["xlabel"], panel["ylabel"]) == ("round", "test accuracy (%)")
    record = RunRecord.read("records/oracle-0")
    drawn = {line["label"]: line for line in panel["lines"]}["oracle"]
    assert drawn["y"] == pytest.approx([100 * row["accuracy"]["weighted"] for row in record.rounds])
    assert drawn["x"] == [row["t"] + 1 for row in record.rounds]


def test_labels_metrics_and_other_kinds_are_chosen_by_flags(coterie, records):
    flags = ["--metric", "primary, train_loss", "--label", "oracle=True clusters", "--font", "serif"]
    done = coterie("figure", "records", *flags, "-o", "a.png", "--dpi", 60, "--json")
    assert done.exit_code == 0, done.stderr
    panels = json.loads(done.stdout)["panels"]
    assert [panel["ylabel"] for panel in panels] == ["test accuracy (%)", "training loss"]
    assert [line["label"] for line in panels[0]["lines"]] == ["fedavg", "True clusters"]
    done = coterie("figure", "records", "--kind", "communication", "-o", "b.pdf", "--json")
    assert [bars["label"] for bars in json.loads(done.stdout)["panels"][0]["bars"]] == [
        "server to clients",
        "clients to server",
    ]


@pytest.mark.exhaustive
def test_runs_without_a_map_are_left_out_with_a_note(coterie, tiny):
    # FedAvg clusters nothing; IFCA records the losses of each client.
    assert coterie("compare", *tiny, "--methods", "fedavg,ifca", "--out", "records").exit_code == 0
    for kind in ("map", "matrix"):
        done = coterie("figure", "records", "--kind", kind, "--json")
        assert done.exit_code == 0, done.stderr
        assert "Note: records/fedavg-0 is left out: fedavg recorded nothing to draw" in done.stderr
        about = json.loads(done.stdout)
        assert (about["runs"], about["left_out"]) == (["records/ifca-0"], ["records/fedavg-0"])


def test_a_table_is_written_from_records(coterie, records, tmp_path):
    done = coterie("figure", "records", "--kind", "table")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "table.tex").read_text().startswith("\\begin{tabular}")
    done = coterie("figure", "records", "--kind", "table", "-o", "table.md", "--label", "fedavg=FedAvg", "--json")
    assert "| FedAvg |" in json.loads(done.stdout)["text"]


#: Arguments → beginning of the error message.
ERRORS = {
    "--kind curve": "No kind 'curve'. Did you mean 'curves'? Known: communication, curves, ",
    "-o figure.jpg": "Files that end in '.jpg' are not known; use one of .pdf, .svg, .png\n",
    "--kind table -o t.pdf": "Files that end in '.pdf' are not known; use one of .tex, .md, .csv\n",
    "--label fedavg": "--label is METHOD=LABEL, such as fedavg=FedAvg, got 'fedavg'\n",
    "--kind drift": "The data of no client changed in records/fedavg-0; run it with drift, such as --set shift.name",
    "--kind map": "records/fedavg-0 has no evidence of clustering to draw: fedavg recorded none. Draw a run of a",
    "--width 3": "No width '3'. Known: one, two\n",
    "--metric f1": "No metric 'f1' in records/fedavg-0. Known: accuracy, ",
}


def test_errors_say_what_to_do(coterie, records, tmp_path):
    for args, message in ERRORS.items():
        done = coterie("figure", "records", *args.split())
        assert (done.exit_code, done.stderr[: len(message) + 7]) == (2, f"Error: {message}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records"]


def test_a_run_that_does_not_exist_is_an_error(coterie):
    done = coterie("figure", "nothing")
    assert (done.exit_code, done.stderr.partition(";")[0]) == (2, "Error: There is no run nothing")


def test_an_existing_file_is_replaced_only_with_force(coterie, records, tmp_path):
    (tmp_path / "curves.pdf").write_text("precious")
    done = coterie("figure", "records")
    assert done.exit_code == 2
    assert done.stderr == "Error: curves.pdf exists; choose another file with -o, or replace it with --force\n"
    assert (tmp_path / "curves.pdf").read_text() == "precious"
    assert coterie("figure", "records", "--force").exit_code == 0


def test_a_missing_extra_is_named(coterie, records, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = coterie("figure", "records")
    assert done.exit_code == 2
    assert done.stderr == "Error: Figures need matplotlib: pip install 'coterie[figures]'\n"


def test_a_note_names_what_is_left_out(coterie, tiny, records):
    coterie("run", *tiny, "--method", "local", "--out", "records/local-0")
    done = coterie("figure", "records", "--metric", "discrepancy")
    assert done.exit_code == 0
    assert "Note: records/local-0 has no discrepancy: its method does not measure it; it is left out" in done.stderr
