"""`report`: which records are meant, and the file that is written."""

from __future__ import annotations

import pytest

import coterie
from coterie.errors import RecordError
from coterie.reports.report import find_runs, report_data

ONE = [{"a": (0, 5), "b": (1, 9)}]


def test_a_record_a_folder_and_a_pattern(write, tmp_path):
    first, second = write(ONE, name="all/x-0"), write(ONE, name="all/x-1")
    assert find_runs(first) == [first]
    assert find_runs(tmp_path / "all") == [first, second]
    assert find_runs([str(tmp_path / "all" / "x-*"), first]) == [first, second]


def test_missing_runs_are_named(tmp_path):
    with pytest.raises(RecordError, match=r"There is no run .*nowhere; `coterie runs DIR` lists"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"There is no run .*x-"):
        find_runs(str(tmp_path / "x-*"))
    with pytest.raises(RecordError, match="has no record of a run"):
        find_runs(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="is a file; give the folder"):
        find_runs(tmp_path / "file")
    with pytest.raises(RecordError, match="at least one run"):
        find_runs([])


def test_an_unreadable_record_of_a_folder_is_left_out_with_a_warning(write, tmp_path, caplog):
    good, bad = write(ONE, name="all/good"), write(ONE, name="all/bad")
    (bad / "summary.json").write_text("{")
    assert find_runs(tmp_path / "all") == [good]
    assert "bad is left out: " in caplog.text


def test_several_runs_are_a_comparison(write, tmp_path):
    write(ONE, name="all/one", spec={"method": {"name": "fedavg"}})
    write(ONE, name="all/two")
    seen = []
    data = report_data(tmp_path / "all", on_run=lambda place, total, folder: seen.append((place, total, folder.name)))
    assert data["kind"] == "comparison"
    assert seen == [(0, 2, "one"), (1, 2, "two")]
    assert data["comparison"]["methods"] == ["fedavg", "ifca"]


def test_the_page_is_written_and_replaced(write, tmp_path):
    file = coterie.report(write(ONE), tmp_path / "page.html")
    first = file.read_text(encoding="utf-8")
    assert first.startswith("<!doctype html>")
    assert coterie.report([write(ONE, name="other")], file) == file
    assert "other" in file.read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_an_error(write, tmp_path):
    with pytest.raises(RecordError, match=r"page\.html cannot be written: No such file"):
        coterie.report(write(ONE), tmp_path / "missing" / "page.html")
