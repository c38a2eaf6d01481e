"""coterie report, and the pages of run and compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The folder of two small runs, one of them finished and one cut off."""
    import coterie

    folder = tmp_path_factory.mktemp("records")
    spec = {"data": {"name": "blobs", "clients": 8, "samples": 20}, "run": {"rounds": 3, "clients_per_round": 4}}
    for method in ("fedavg", "oracle"):
        coterie.run({**spec, "method": {"name": method}}, out=folder / f"{method}-0")
    return folder


def test_a_page_is_written_beside_nothing_else(coterie, records):
    done = coterie("report", records / "oracle-0")
    assert done.exit_code == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith(
        "4 clusters found, adjusted Rand index 1.00; with the model of its cluster a client scores "
    )
    assert last.startswith("oracle-0.html (1 run, ")
    assert [path.name for path in Path().iterdir()] == ["oracle-0.html"]


def test_a_folder_is_compared(coterie, records):
    done = coterie("report", records, "-o", "both")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("both.html (2 runs, ")
    assert "one model for all: " in done.stdout


def test_an_existing_page_is_replaced_only_with_force(coterie, records):
    Path("page.html").write_text("mine")
    done = coterie("report", records, "-o", "page.html")
    assert done.exit_code == 2
    assert "page.html exists; choose another file with -o, or replace it with --force" in done.stderr
    assert Path("page.html").read_text() == "mine"
    assert coterie("report", records, "-o", "page.html", "--force").exit_code == 0
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_prints_the_data_and_writes_no_page(coterie, records):
    done = coterie("report", records / "oracle-0", "--json")
    data = json.loads(done.stdout)
    assert data["runs"][0]["clients"]["name"] == [str(i) for i in range(8)]
    assert not list(Path().iterdir())


def test_an_unfinished_run_is_shown(coterie, records, tmp_path):
    import shutil

    cut = Path(shutil.copytree(records / "oracle-0", tmp_path / "cut"))
    (cut / "summary.json").unlink()
    (cut / "models.safetensors").unlink()
    lines = (cut / "rounds.jsonl").read_text().splitlines(keepends=True)
    (cut / "rounds.jsonl").write_text("".join(lines[:2]) + lines[2][:20])
    done = coterie("report", cut, "-o", "cut.html")
    assert done.stdout.startswith("The run was interrupted after 2 of 3 rounds.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "There is no run nowhere; `coterie runs DIR` lists the records in a folder"),
        (["."], ". has no record of a run; `coterie run --out DIR` writes one"),
        (["RECORDS", "--reference", "ifca"], "No method of this comparison 'ifca'"),
        (["RECORDS", "-o", "RECORDS"], "is a folder; give a file with -o"),
        (["RECORDS", "-o", "page.pdf"], "The page is HTML: -o must end with .html, got page.pdf"),
        (["RECORDS/oracle-0", "-o", "RECORDS/oracle-0/spec.toml"], "is a file of a record; choose another file"),
    ],
)
def test_mistakes_are_explained(coterie, records, arguments, message):
    done = coterie("report", *(each.replace("RECORDS", str(records)) for each in arguments))
    assert done.exit_code in (2, 5), done.stderr
    assert message in done.stderr


def test_open_shows_the_page_in_a_browser(coterie, records, monkeypatch):
    import webbrowser

    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda address: shown.append(address) or False)
    done = coterie("report", records / "oracle-0", "--open")
    assert shown == [Path("oracle-0.html").resolve().as_uri()]
    assert "No browser was found; open oracle-0.html yourself." in done.stderr


def test_run_names_the_command_or_writes_the_page_into_the_record(coterie, tiny):
    done = coterie("run", *tiny, "--out", "here")
    assert done.stdout.splitlines()[-1] == "Page: coterie report here"
    done = coterie("resume", "here", "--report")
    assert Path(done.stdout.splitlines()[-1].removeprefix("Page: ")) == Path("here/report.html")
    assert Path("here/report.html").is_file()
    assert json.loads(coterie("resume", "here", "--report", "--json").stdout)["page"] == str(Path("here/report.html"))
    assert coterie("runs", "here", "--delete", "--yes").exit_code == 0
    assert not Path("here").exists()


def test_compare_names_the_command_or_writes_the_page_beside_the_records(coterie, tiny):
    compare = ["compare", *tiny, "--methods", "fedavg,oracle"]
    assert "Page:" not in coterie(*compare, "--out", "all", "--format", "csv").stdout
    assert coterie(*compare, "--out", "all").stdout.splitlines()[-1] == "Page: coterie report all"
    for _ in range(2):  # again: the page is replaced
        done = coterie(*compare, "--out", "all", "--report")
        assert done.stdout.splitlines()[-1] == f"Page: {Path('all/report.html')}"
    assert Path("all/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_page_of_compare_needs_records(coterie, tiny):
    done = coterie("compare", *tiny, "--methods", "fedavg", "--report")
    assert done.exit_code == 2
    assert "--report needs the records of the runs; give their folder: --out DIR" in done.stderr
