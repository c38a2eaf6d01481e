"""Progress of downloads on the command line, and the errors without a network."""

from __future__ import annotations

import io
import sys

import pytest

from coterie.cli.progress import ProgressDisplay
from coterie.data.cache_writing import report_progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


def lines(display):
    return [(task.description, task.completed, task.total, task.fields["note"]) for task in display._progress.tasks]


def test_a_line_shows_the_progress_of_a_download_and_disappears_when_it_is_complete(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    waiting = ("loading data, compiling", 0, None, "")
    with ProgressDisplay(silent=False) as display:
        assert lines(display) == [waiting]
        report_progress("downloading a.gz", 1_500_000, 4_000_000)
        assert lines(display) == [waiting, ("downloading a.gz", 1_500_000, 4_000_000, "1.5 MB of 4.0 MB")]
        report_progress("downloading a.gz", 4_000_000, 4_000_000)
        assert lines(display) == [waiting]
        report_progress("downloading b.gz", 2000, None)  # a server that does not send the length
        assert lines(display)[1] == ("downloading b.gz", 2000, None, "2.0 kB")
    report_progress("downloading c.gz", 1, 2)  # after the display was closed: no effect


def test_a_silent_display_shows_no_download():
    with ProgressDisplay(silent=True) as display:
        report_progress("downloading a.gz", 1, 2)
        assert display._progress is None


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def test_without_a_network_the_error_names_address_file_and_folder(coterie, offline):
    done = coterie("run", "--data", "svhn")
    assert done.exit_code == 3
    for part in ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "no connection", "Put train_32x32.mat ("):
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_of_a_data_set_says_how_to_get_missing_files(coterie, offline):
    text = coterie("data", "cifar100").stdout
    assert "not on disk: downloaded on first use from https://www.cs.toronto.edu/~kriz/" in text
    assert "put cifar-100-python.tar.gz into $COTERIE_DATA/cifar100" in text
    assert "preprocess.sh" in coterie("data", "femnist").stdout
