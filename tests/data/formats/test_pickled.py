"""The reader of pickles, which executes nothing."""

from __future__ import annotations

import collections
import datetime
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.formats import pickled
from coterie.data.formats.pickled import read_pickle
from coterie.errors import DataError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.binary(), inner) | st.tuples(inner, inner),
    max_leaves=6,
)
few = settings(max_examples=50, deadline=None)


@few
@given(table=st.dictionaries(st.text() | st.binary() | st.integers(), PLAIN), protocol=st.sampled_from([2, 3, 4]))
def test_plain_dicts_are_read_unchanged(table, protocol):
    assert read_pickle(pickle.dumps(table, protocol), "it") == table


@few
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3), fortran=st.booleans(), protocol=st.sampled_from([2, 4])
)
def test_arrays_of_bytes_are_read_unchanged(shape, fortran, protocol):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
    got = read_pickle(pickle.dumps({"a": array}, protocol), "it")["a"]
    np.testing.assert_array_equal(got, array)
    assert got.dtype == np.uint8


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_bytes_give_a_dict_or_a_data_error(data):
    good = pickle.dumps({"data": np.arange(20, dtype=np.uint8).reshape(4, 5), "labels": [1, 2, 3]}, 2)
    place = data.draw(st.integers(0, len(good) - 1))
    piece = data.draw(st.binary(max_size=6))
    bad = good[:place] + piece + good[place + data.draw(st.integers(0, 6)) :]
    try:
        got = read_pickle(bad, "it")
    except DataError:
        return
    assert isinstance(got, dict)


class Mine:
    """A class of the test."""


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (eval, "eval"),
        (print, "print"),
        (Mine(), "Mine|copyreg|_reconstructor"),
        (datetime.date(2020, 1, 1), "datetime.date"),
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        (np.float64(1), "scalar"),
        ({1, 2}, "EMPTY_SET|set"),
        (bytearray(b"x"), "bytearray|BYTEARRAY8"),
        (complex(1, 2), "complex"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_other_objects_are_rejected_by_name(value, name, protocol):
    with pytest.raises(DataError, match=rf"it is rejected: .*({name}).*Nothing in it was executed"):
        read_pickle(pickle.dumps({"a": value}, protocol), "it")


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros(3, np.int8), np.array([{}, []], object), np.array(["a"])])
def test_arrays_of_anything_but_bytes_are_rejected(array):
    with pytest.raises(DataError, match=r"it is rejected: it calls 'numpy\.dtype'"):
        read_pickle(pickle.dumps({"a": array}, 2), "it")


BLANK = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
BYTES = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (b"cnumpy\nndarray\n)R.", "calls 'numpy.ndarray'"),
        (b"c__builtin__\nbytes\nJ\x00\x00\x00\x7f\x85R.", "calls '__builtin__.bytes'"),
        (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R.", "calls 'numpy.core"),
        (b"c_codecs\nencode\nX\x02\x00\x00\x00ab\x8c\x05utf-7\x86R.", "calls '_codecs.encode'"),
        (b"cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.", "calls 'numpy.dtype'"),
        (BLANK + b"(K\x01K\x03\x85" + BYTES + b"\x89U\x02abtb.", "an array of another type than bytes|has 2 bytes"),
        (BLANK + b"}b.", "sets the state of something that has none"),
        (b"}}b.", "sets the state of something that has none"),
        (b"(i__builtin__\neval\n.", "instruction INST"),
        (b"(c__builtin__\neval\no.", "'__builtin__.eval'"),
        (b"Pname\n.", "instruction PERSID"),
        (b"\x82\x01.", "instruction EXT1"),
        (b"K\x01)R.", "calls something without a name"),
        (b"}(K\x01e.", "appends to something that is not a list"),
        (b"(K\x01e.", "not a complete pickle"),
        (b"}]K\x01s.", "key that is neither a string nor an integer"),
        (b"}", "not a complete pickle"),
        (b"}}.", "ends before its value is complete"),
        (b"].", "does not contain a dict"),
        (b".", "ends before its value is complete"),
        (b"e.", "a mark is missing"),
        (rb"S'\ '" + b"\n.", "not a complete pickle"),
        (b"h\x07.", "not a complete pickle"),
        (b"", "not a complete pickle"),
    ],
)
def test_pickles_that_are_not_plain_dicts_are_rejected(program, text):
    with pytest.raises(DataError, match=text):
        read_pickle(program, "it")


def test_a_name_that_is_not_a_string_is_rejected_without_printing_it():
    # A pair of the same pair, nested twenty times: twenty instructions, and a million characters as text.
    program = b"\x80\x04}" + b")" + b"\x94h\x00\x86" + b"".join(b"\x94h%c\x86" % place for place in range(1, 20))
    with pytest.raises(DataError, match="it asks for a name that is not a string"):
        read_pickle(program + b"\x8c\x04name\x93.", "it")


@pytest.mark.parametrize("fault", [RecursionError, MemoryError])
def test_a_pickle_that_asks_for_too_much_is_rejected(monkeypatch, fault):
    def step(*_):
        raise fault("too much")

    monkeypatch.setattr(pickled._Machine, "step", step)
    with pytest.raises(DataError, match="it is not a complete pickle of plain values: too much"):
        read_pickle(b"}.", "it")


def test_a_dict_that_contains_itself_is_read():
    table = {}
    table["a"] = [table]
    got = read_pickle(pickle.dumps(table, 2), "it")
    assert list(got) == ["a"]
