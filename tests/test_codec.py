"""Encoding and decoding of plain data."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import math
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from coterie import codec
from coterie.client_map import ClientMap
from coterie.errors import RecordError, SpecError
from coterie.seeds import Seed


@codec.state
@dataclasses.dataclass(frozen=True)
class Pair:
    """An example of a method's state."""

    left: Any
    right: Any = None


@codec.state
@dataclasses.dataclass(frozen=True)
class Picky:
    """A state with a validated field."""

    size: int

    def __post_init__(self):
        if self.size > 9:
            raise SpecError("size must be at most 9")


@dataclasses.dataclass(frozen=True)
class Unmarked:
    """A dataclass that is not registered."""

    value: int = 0


def identical(one, other):
    """Whether two values have the same types and the same bytes."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(identical(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict | ClientMap):
        # A dictionary's keys are compared with their types: 1 is not True.
        return {(type(k), k) for k in one} == {(type(k), k) for k in other} and all(
            identical(one[key], other[key]) for key in one
        )
    if dataclasses.is_dataclass(one) and not isinstance(one, Seed):
        return all(identical(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return one == other


BITS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
# Arrays of any bit pattern: NaNs with payloads, negative zeros, denormal numbers.
ARRAYS = st.builds(
    lambda raw, dtype: raw.view(dtype)[..., 0],
    npst.arrays(np.uint8, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3).map(lambda s: (*s, 8))),
    st.sampled_from([np.float64, np.float32, np.float16, np.int8, np.int16, np.int64, np.uint16, np.uint32, np.uint64]),
) | npst.arrays(np.bool_, npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | BITS
    | st.text(max_size=5)
    | ARRAYS
    | st.integers(0, 2**128 - 1).map(Seed)
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(-(2**70), 2**70), inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(ClientMap)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_every_supported_value_is_restored_exactly(value):
    assert identical(codec.decode(codec.encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        math.inf,
        -math.inf,
        5e-324,
        struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0],  # a negative NaN with a payload
        2**64,
        -(2**300),
        (),
        [],
        {},
        ClientMap(),
        ((), [()]),
        {"@": "float", "items": []},  # keys that the format itself uses
        {1: "number", "1": "text"},
        np.zeros((0, 3), bool),
        np.array(7, np.uint64),
        np.arange(6).reshape(2, 3).T,  # not in C order
        np.arange(6)[::-2],
        "\ud800 ä \x00",
        Pair(Pair(1.5), ClientMap({"a": np.float32([1, -0.0])})),
    ],
    ids=lambda value: repr(value)[:30].encode("ascii", "replace").decode(),
)
def test_edge_case_values_are_restored_exactly(value):
    assert identical(codec.decode(codec.encode(value)), value)


def test_numpy_scalars_are_restored_as_zero_dimensional_arrays():
    for scalar in (np.float32(1.5), np.float64(0.1), np.int16(-3), np.bool_(True)):
        assert identical(codec.decode(codec.encode(scalar)), np.asarray(scalar))


def test_big_endian_arrays_are_restored_with_equal_values():
    assert identical(codec.decode(codec.encode(np.array([1, 256], ">i4"))), np.array([1, 256], "<i4"))


@given(st.dictionaries(st.text(max_size=2) | st.integers(0, 9), SIMPLE, max_size=5), st.randoms())
def test_mappings_that_differ_in_key_order_give_equal_bytes(items, random):
    pairs = list(items.items())
    random.shuffle(pairs)
    assert codec.encode(dict(pairs)) == codec.encode(items)


def test_equal_client_maps_give_equal_bytes_regardless_of_their_layers():
    once = ClientMap({"a": np.ones(2), "b": np.zeros(2)})
    twice = ClientMap({"b": np.ones(2)}).set({"a": np.ones(2)}).set({"b": np.zeros(2)})
    assert codec.encode(once) == codec.encode(twice)
    assert codec.encode(once) != codec.encode(dict(once))


def test_another_process_gives_the_same_bytes():
    # The server identifies a cached value by the hash of these bytes, so a resumed run must produce the same ones.
    program = "from coterie import codec; print(codec.encode({'a': 1, 'b': (0.5, 'x')}).hex())"
    theirs = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
        for _ in range(4)
    }
    assert theirs == {codec.encode({"b": (0.5, "x"), "a": 1}).hex() + "\n"}


def test_values_that_differ_in_one_bit_give_different_bytes():
    pairs = [
        (0.0, -0.0),
        (1, 1.0),
        (True, 1),
        ((1,), [1]),
        ("1", 1),
        (np.float32(1), np.float64(1)),
        ({1: 0}, {"1": 0}),
    ]
    for one, other in pairs:
        assert codec.encode(one) != codec.encode(other)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "value is a object, which cannot be encoded; turn it into arrays or numbers"),
        ({"a": {"b": {1, 2}}}, "value.a.b is a set, which cannot be encoded; turn it into arrays or numbers"),
        (b"bytes", "value is a bytes, which cannot be encoded"),
        (1j, "value is a complex, which cannot be encoded"),
        (Pair(0, print), "value.right is a builtin_function_or_method, which cannot be encoded"),
        ([Unmarked()], "value is a Unmarked, which cannot be encoded; mark the dataclass with @state"),
        (collections.namedtuple("Point", "x y")(1, 2), "value is a Point, which cannot be encoded"),
        (np.array(["a"]), "value is an array of <U1; only booleans and numbers of up to 64 bits are allowed"),
        (np.array([print]), "value is an array of object; only booleans and numbers"),
        (np.array([1j]), "value is an array of complex128; only booleans and numbers"),
        (np.ones(2, np.longdouble), "only booleans and numbers of up to 64 bits are allowed"),
        ({(1, 2): 3}, r"Keys in plain data must be strings or integers, got \(1, 2\) in value"),
        ({True: 3}, "Keys in plain data must be strings or integers, got True in value"),
        ({"a": {1.0: 3}}, "Keys in plain data must be strings or integers, got 1.0 in value.a"),
    ],
)
def test_an_unsupported_value_raises_an_error_that_names_its_path(value, text):
    with pytest.raises(TypeError, match=text):
        codec.encode(value)


def test_only_frozen_dataclasses_can_be_registered():
    @dataclasses.dataclass
    class Loose:
        value: int

    for kind in (Loose, int):
        with pytest.raises(TypeError, match="must be a frozen dataclass: states are never changed in place"):
            codec.state(kind)


MESSAGE = codec.encode(
    {
        "seed": Seed(5),
        "rate": 1.5,
        "kept": ClientMap({"a": (1, None)}),
        "pair": Pair([True], Picky(3)),
        "bank": np.arange(3, dtype=np.float32),
    }
)


def test_truncated_data_raise_a_record_error():
    for length in range(len(MESSAGE)):
        with pytest.raises(RecordError, match="damaged or not in Coterie's format"):
            codec.decode(MESSAGE[:length])


def test_a_changed_byte_raises_a_record_error_or_changes_the_value():
    refused = 0
    for place in range(len(MESSAGE)):
        for flip in (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF):
            damaged = bytearray(MESSAGE)
            damaged[place] ^= flip
            try:
                codec.decode(bytes(damaged))
            except RecordError:
                refused += 1
    # There is no checksum: changes within a number, a string or a name are not detected.
    assert refused > len(MESSAGE)


@given(st.binary(max_size=200))
def test_bytes_of_another_format_raise_a_record_error(data):
    with pytest.raises(RecordError, match="damaged or not in Coterie's format"):
        codec.decode(data)


def test_safetensors_of_another_program_raise_a_record_error():
    from safetensors.numpy import save

    with pytest.raises(RecordError, match="damaged or not in Coterie's format"):
        codec.decode(save({"weights": np.ones(3)}))
    with pytest.raises(RecordError, match=r"The data have format \['coterie-99'\]; this version reads coterie-1"):
        codec.decode(save({}, metadata={"coterie-99": "null"}))


@pytest.mark.parametrize(
    "header",
    [
        '{"@":"array","name":"a7"}',
        '{"@":"float","bits":"3ff0"}',
        '{"@":"float"}',
        '{"@":"seed","value":"-1"}',
        '{"@":"dict","items":[[[1],2]]}',
        '{"@":"list","items":7}',
        '{"name":"a0"}',
        '{"@":["list"]}',
        "[" * 100_000,
    ],
    ids=lambda header: header[:30],
)
def test_an_invalid_header_raises_a_record_error(header):
    from safetensors.numpy import save

    with pytest.raises(RecordError):
        codec.decode(save({}, metadata={"coterie-1": header}))


def test_an_unregistered_state_is_named_in_the_error():
    data = codec.encode(Pair(1, 2)).replace(b":Pair", b":Pear")
    with pytest.raises(
        RecordError, match=r"Unknown type '.*:Pear' in the data; import the module that defines it first"
    ):
        codec.decode(data)


def test_a_state_with_an_invalid_value_raises_a_record_error_with_the_reason():
    beyond = object.__new__(Picky)  # bypasses the check, as damaged data would
    object.__setattr__(beyond, "size", 10)
    with pytest.raises(RecordError, match="damaged or not in Coterie's format: size must be at most 9"):
        codec.decode(codec.encode(beyond))


def test_arrays_are_listed_in_key_order():
    value = {"b": [np.array([1]), 2.0], "a": Pair(np.array([3]), ClientMap({"x": np.array([4])}))}
    assert [array.tolist() for array in codec.arrays(value)] == [[3], [4], [1], 2.0]


def test_finite_checks_every_array_and_ignores_infinite_floats():
    assert codec.finite({"a": [np.ones(2)], "bound": math.inf, "count": np.array([3])})
    assert not codec.finite(Pair(1, ClientMap({"x": np.array([1, np.nan])})))


def test_finite_looks_at_everything_that_is_not_the_same_object_as_in_a_known_value():
    one, broken = np.ones(2), np.array([1, np.nan])
    known = {"w0": broken, "bank": [one], "pair": Pair(1, ClientMap({"x": one}))}
    assert codec.finite({"w0": broken, "bank": [one.copy()]}, known)  # the caller has vouched for w0
    assert not codec.finite({"w0": broken.copy(), "bank": [one]}, known)
    assert not codec.finite({"w0": one, "bank": [broken]}, known)  # at another place
    assert not codec.finite({"w0": one, "pair": Pair(1, ClientMap({"x": broken}))}, known)
    assert not codec.finite(Pair(1, broken), Pair(1, one))
    assert codec.finite(Pair(1, broken), Pair(1, broken))


STORED = {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "name": "c0", "rate": 0.1, "empty": np.zeros(0)}


def test_data_with_a_checksum_are_restored_exactly():
    data = codec.encode(STORED, checksum=True)
    assert identical(codec.decode(data), codec.decode(codec.encode(STORED)))
    assert data == codec.encode(dict(reversed(STORED.items())), checksum=True)


def test_the_checksum_is_the_hash_of_the_file_with_zeros_in_its_place():
    data = codec.encode(STORED, checksum=True)
    length = int.from_bytes(data[:8], "little")
    digits = json.loads(data[8 : 8 + length])["__metadata__"]["checksum"]
    zeroed = data.replace(digits.encode(), b"0" * 64)
    assert hashlib.blake2b(zeroed, digest_size=32).hexdigest() == digits


def test_other_programs_read_arrays_that_have_a_checksum():
    arrays = safetensors.numpy.load(codec.encode(STORED, checksum=True))
    assert sorted(array.shape for array in arrays.values()) == [(0,), (2, 3)]


def test_every_flipped_bit_is_detected_in_data_with_a_checksum():
    data = codec.encode({"a": np.arange(3, dtype=np.int8), "b": "x"}, checksum=True)
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(RecordError, match="damaged"):
                codec.decode(bytes(damaged))


def test_data_without_a_checksum_are_read():
    assert codec.decode(codec.encode({"a": 1})) == {"a": 1}


def test_a_lazy_value_is_computed_when_it_is_encoded():
    calls = []
    lazy = codec.Lazy(lambda: calls.append(1) or {"a": 1})
    assert not calls
    assert codec.encode({"value": lazy}) == codec.encode({"value": {"a": 1}})
    assert codec.plain(lazy) == {"a": 1}
    assert codec.plain(7) == 7
