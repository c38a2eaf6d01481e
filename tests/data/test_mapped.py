"""Drawn examples in the cache: whole or not there, the same as in memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple

import numpy as np
import pytest

from coterie.data import copies
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


def cut_short(folder):
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-8])


def one_bit(folder):
    content = bytearray((folder / "x.npy").read_bytes())
    content[-1] ^= 1
    (folder / "x.npy").write_bytes(content)


def other_type(folder):
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes().replace(b"<f4", b"<i4"))


def other_shape(folder):
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes().replace(b"(6, 4)", b"(4, 6)"))


def no_header(folder):
    (folder / "y.npy").write_bytes(b"?" * (folder / "y.npy").stat().st_size)


def other_version(folder):
    note = json.loads((folder / "copy.json").read_text())
    (folder / "copy.json").write_text(json.dumps(note | {"format": 1}))


@pytest.mark.parametrize("harm", [cut_short, one_bit, other_type, other_shape, no_header, other_version])
def test_a_copy_that_is_not_what_was_written_is_drawn_again(cache, harm):
    mapped("many", "a law", 6, 4, pieces())
    (folder,) = cache.iterdir()
    harm(folder)
    x, y = mapped("many", "a law", 6, 4, pieces())
    assert (x.dtype, x[-1].tolist(), y.tolist()) == (np.float32, [2] * 4, [0, 1, 1, 2, 2, 3])
    assert list(cache.iterdir()) == [folder]
    mapped("many", "a law", 6, 4, never())


def test_what_killed_processes_left_behind_goes(cache):
    mapped("many", "a law", 6, 4, pieces())
    (folder,) = cache.iterdir()
    (folder / "copy.json").unlink()
    mine, old, young = (cache / f".{name}.part" for name in (folder.name, "many-0123", "many-4567"))
    for left, hours in ((mine, 1), (old, 25), (young, 1)):  # `mine` is of the same examples: nobody makes them now
        left.mkdir()
        (left / "x.npy").write_bytes(b"half of it")
        for path in (left / "x.npy", left):
            os.utime(path, (time.time() - 3600 * hours,) * 2)
    mapped("many", "a law", 6, 4, pieces())
    assert sorted(cache.iterdir()) == [young, folder]


def test_what_another_process_still_writes_to_is_left_alone(cache):
    (cache / ".many-0123.part").mkdir(parents=True)
    (cache / ".many-0123.part" / "x.npy").write_bytes(b"growing")
    os.utime(cache / ".many-0123.part", (time.time() - 3600 * 25,) * 2)  # a folder is as old as its first file
    mapped("many", "a law", 6, 4, pieces())
    assert (cache / ".many-0123.part" / "x.npy").exists()


SCRIPT = """
import sys, time
from pathlib import Path
import numpy as np
from coterie.data.mapped import mapped

me, meeting = sys.argv[1], Path(sys.argv[2])

def pieces():
    (meeting / ("draws" + me)).touch()
    time.sleep(0.5)
    yield np.ones((2, 4)), np.arange(2)

(meeting / ("here" + me)).touch()
deadline = time.monotonic() + 30
while len(list(meeting.glob("here*"))) < 2 and time.monotonic() < deadline:
    time.sleep(0.001)
print(mapped("many", "a law", 2, 4, pieces())[1].tolist())
"""


def test_of_two_processes_one_draws_and_the_other_waits(cache, tmp_path):
    pytest.importorskip("fcntl", reason="there are locks on POSIX only")
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    both = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, name, str(meeting)], stdout=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    assert [process.communicate(timeout=60)[0] for process in both] == ["[0, 1]\n"] * 2
    assert len(list(meeting.glob("draws*"))) == 1
    assert len(list(cache.iterdir())) == 1


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


def test_whoever_watches_is_told_how_far_it_is(monkeypatch):
    told = []
    with watched(lambda *now: told.append(now)):
        mapped("many", "a law", 6, 4, pieces())
        assert told == [("drawing many", done, 120) for done in (40, 80, 120)]
        told.clear()
        monkeypatch.setattr(copies, "_LARGE", 200)  # x takes a header of 128 bytes and 96 more, y 128 and 24
        mapped("many", "a law", 6, 4, never())
    assert told == [("checking many", 224, 224)]


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
