"""Drawn examples in the cache: whole or not there, the same as in memory."""

from __future__ import annotations

import shutil
from collections import namedtuple

import numpy as np
import pytest

from coterie.data import mapped as mapping
from coterie.data.mapped import mapped
from coterie.data.synthetic import synthetic
from coterie.data.watching import watched
from coterie.errors import DataError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "coterie" / "data"


def pieces(count=3):
    for place in range(count):
        yield np.full((2, 4), place, np.float64), np.array([place, place + 1])


def never():
    raise AssertionError("drawn again")
    yield


def test_pieces_are_put_one_after_the_other_and_drawn_once():
    x, y = mapped("many", "a law", 6, 4, pieces())
    assert x.tolist() == [[0] * 4, [0] * 4, [1] * 4, [1] * 4, [2] * 4, [2] * 4]
    assert (x.dtype, y.dtype, y.tolist()) == (np.float32, np.int32, [0, 1, 1, 2, 2, 3])
    assert x.ctypes.data % 64 == 0  # compiled code shares the memory
    again, _ = mapped("many", "a law", 6, 4, never())
    np.testing.assert_array_equal(again, x)


def test_another_law_is_another_copy(cache):
    mapped("many", "a law", 6, 4, pieces())
    mapped("many", "another law", 6, 4, pieces())
    assert len(list(cache.iterdir())) == 2


def test_what_was_interrupted_leaves_nothing_and_is_drawn_again(cache):
    def broken():
        yield from pieces(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mapped("many", "a law", 6, 4, broken())
    assert list(cache.iterdir()) == []
    assert mapped("many", "a law", 6, 4, pieces())[1].tolist() == [0, 1, 1, 2, 2, 3]


def test_a_copy_that_was_cut_short_is_drawn_again(cache):
    mapped("many", "a law", 6, 4, pieces())
    (folder,) = cache.iterdir()
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-8])
    assert mapped("many", "a law", 6, 4, pieces())[0][-1].tolist() == [2] * 4


def test_a_full_disk_is_said_before_anything_is_written(cache, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(100))
    # 6 examples of 4 features and a label, 4 bytes each: 120.
    with pytest.raises(DataError, match="Make room, name another cache in XDG_CACHE_HOME, or take fewer clients"):
        mapped("many", "a law", 6, 4, never())
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file in the way")
    with pytest.raises(DataError, match="cannot be kept in"):
        mapped("many", "a law", 6, 4, pieces())


def test_whoever_watches_is_told_how_far_it_is():
    told = []
    with watched(lambda *now: told.append(now)):
        mapped("many", "a law", 6, 4, pieces())
    assert told == [("drawing many", done, 120) for done in (40, 80, 120)]


def test_many_clients_are_mapped_and_few_are_not_with_the_same_examples(cache, monkeypatch):
    small = synthetic(clients=30, samples=20)
    assert not cache.exists()
    monkeypatch.setattr("coterie.data.synthetic.IN_MEMORY", 0)
    large = synthetic(clients=30, samples=20)
    assert len(list(cache.iterdir())) == 1
    np.testing.assert_array_equal(small.x, large.x)
    np.testing.assert_array_equal(small.y, large.y)
    assert large.sizes("fit").tolist() == [18] * 30  # a tenth of 20 is for testing
    assert large.sizes("test").tolist() == [2] * 30
    assert mapping.IN_MEMORY > 1 << 20
