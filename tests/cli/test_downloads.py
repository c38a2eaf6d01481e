"""Progress of downloads on the command line, and errors without a network."""

from __future__ import annotations

import io
import sys

import pytest

from coterie.cli.progress import Ticker
from coterie.data import progress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


def lines(ticker):
    return [(task.description, task.completed, task.total, task.fields["note"]) for task in ticker._progress.tasks]


def test_a_line_shows_the_progress_of_a_download_until_it_is_complete(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())
    waiting = ("loading data, compiling", 0, None, "")
    with Ticker(silent=False) as ticker:
        assert lines(ticker) == [waiting]
        progress.report("downloading a.gz", 1_500_000, 4_000_000)
        assert lines(ticker) == [waiting, ("downloading a.gz", 1_500_000, 4_000_000, "1.5 MB of 4.0 MB")]
        progress.report("downloading a.gz", 4_000_000, 4_000_000)
        assert lines(ticker) == [waiting]
        progress.report("downloading b.gz", 2000, None)  # the server does not give the size
        assert lines(ticker)[1] == ("downloading b.gz", 2000, None, "2.0 kB")
    progress.report("downloading c.gz", 1, 2)  # not shown any more


def test_a_silent_ticker_shows_no_progress():
    with Ticker(silent=True) as ticker:
        progress.report("downloading a.gz", 1, 2)
        assert ticker._progress is None


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
