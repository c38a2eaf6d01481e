"""Lines of a file that grows, is cut back or is replaced."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from coterie.reports.live.tail import Tail


@pytest.fixture
def file(tmp_path):
    return tmp_path / "rounds.jsonl"


def number(row):
    return row["n"]


def lines(*numbers):
    return b"".join(json.dumps({"n": n}).encode() + b"\n" for n in numbers)


def test_each_reading_adds_the_new_lines(file):
    tail = Tail(file, number)
    assert not tail.read()  # there is no file
    assert tail.stamp is None
    file.write_bytes(lines(1, 2))
    assert tail.read()
    assert tail.rows == [1, 2]
    assert not tail.read()
    with file.open("ab") as opened:
        opened.write(lines(3))
    assert tail.read()
    assert tail.rows == [1, 2, 3]


@settings(deadline=None)  # files may be slow
@given(st.lists(st.integers(0, 10**6), max_size=8), st.lists(st.integers(0, 200), max_size=6))
def test_however_the_bytes_arrive_the_rows_are_the_same(tmp_path_factory, numbers, cuts):
    file, whole = tmp_path_factory.mktemp("tail") / "rounds.jsonl", lines(*numbers)
    tail = Tail(file, number)
    for cut in [*sorted(cuts), len(whole)]:
        file.write_bytes(whole[:cut])
        tail.read()
        # A line counts as soon as its end has arrived.
        assert tail.rows == numbers[: whole[:cut].count(b"\n")]
    assert not tail.damaged


def test_a_file_that_was_cut_back_is_read_again(file):
    tail = Tail(file, number)
    file.write_bytes(lines(1, 2, 3))
    tail.read()
    with file.open("r+b") as opened:
        opened.truncate(len(lines(1)))
    tail.read()
    assert tail.rows == [1]


def test_a_file_that_was_cut_back_and_grew_between_two_readings_is_read_again(file):
    tail = Tail(file, number)
    file.write_bytes(lines(1, 2, 3))
    tail.read()
    with file.open("r+b") as opened:  # the same file, longer than before, with other lines in the middle
        opened.truncate(len(lines(1)))
        opened.seek(0, 2)
        opened.write(lines(7, 8, 9, 10))
    tail.read()
    assert tail.rows == [1, 7, 8, 9, 10]


def test_a_file_that_was_removed_or_replaced_is_read_anew(file, tmp_path):
    tail = Tail(file, number)
    file.write_bytes(lines(1, 2))
    tail.read()
    file.unlink()
    assert tail.read()
    assert tail.rows == []
    file.write_bytes(lines(5))
    tail.read()
    other = tmp_path / "other"
    other.write_bytes(lines(5, 6))
    other.replace(file)
    tail.read()
    assert tail.rows == [5, 6]


@pytest.mark.parametrize("bad", [b"{\n", b"[1]\n", b'{"m": 1}\n', b"\xff\n"])
def test_a_line_that_is_no_row_is_named(file, bad):
    tail = Tail(file, number)
    file.write_bytes(lines(1) + bad + lines(3))
    tail.read()
    assert tail.rows == [1, 3]
    assert tail.damaged == 2
