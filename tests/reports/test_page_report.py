"""`report`: the file that is written."""

from __future__ import annotations

import pytest

import coterie
from coterie.errors import RecordError
from coterie.reports.page_report import report_data

ONE = [{"a": (0, 5), "b": (1, 9)}]


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
