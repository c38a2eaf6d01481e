"""Which records a path, a folder or a pattern means."""

from __future__ import annotations

import pytest

from coterie.errors import RecordError
from coterie.reports.record_paths import find_runs

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
