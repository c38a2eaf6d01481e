"""Downloads as the command line shows them, and what it says when there is no network."""

from __future__ import annotations

import io
import sys

import pytest

from coterie.cli.progress import Ticker
from coterie.data import watching


class Screen(io.StringIO):
    """A terminal at which somebody looks."""

    def isatty(self):
        return True


def lines(ticker):
    return [(task.description, task.completed, task.total, task.fields["note"]) for task in ticker._progress.tasks]


def test_a_line_says_how_far_a_download_is_and_goes_when_it_is_whole(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())
    waiting = ("loading data, compiling", 0, None, "")
    with Ticker(silent=False) as ticker:
        assert lines(ticker) == [waiting]
        watching.tell("downloading a.gz", 1_500_000, 4_000_000)
        assert lines(ticker) == [waiting, ("downloading a.gz", 1_500_000, 4_000_000, "1.5 MB of 4.0 MB")]
        watching.tell("downloading a.gz", 4_000_000, 4_000_000)
        assert lines(ticker) == [waiting]
        watching.tell("downloading b.gz", 2000, None)  # a server that does not say how long it is
        assert lines(ticker)[1] == ("downloading b.gz", 2000, None, "2.0 kB")
    watching.tell("downloading c.gz", 1, 2)  # nobody is told any more


def test_nobody_is_told_where_nobody_looks():
    with Ticker(silent=True) as ticker:
        watching.tell("downloading a.gz", 1, 2)
        assert ticker._progress is None


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def test_offline_a_run_ends_with_the_address_the_file_and_the_place(coterie, offline):
    done = coterie("run", "--data", "svhn")
    assert done.exit_code == 3
    for part in ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "no connection", "Put train_32x32.mat ("):
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_a_page_about_data_that_are_not_at_hand_says_how_to_get_them(coterie, offline):
    text = coterie("data", "cifar100").stdout
    assert "not at hand: downloaded when it is first used, from https://www.cs.toronto.edu/~kriz/" in text
    assert "put cifar-100-python.tar.gz into $COTERIE_DATA/cifar100" in text
    assert "preprocess.sh" in coterie("data", "femnist").stdout
