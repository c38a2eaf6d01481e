"""Federated data from arrays in memory."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data import from_arrays
from coterie.errors import DataError, SpecError


def client(n, first=0, features=2, label=0):
    """Examples that carry their number as their value."""
    x = np.repeat(np.arange(first, first + n, dtype=np.float32)[:, None], features, axis=1)
    return x, np.full(n, label)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any), st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9]))
def test_a_split_keeps_each_example_once(sizes, share):
    starts = np.cumsum([0, *sizes])
    data = from_arrays({str(i): client(n, starts[i]) for i, n in enumerate(sizes)}, test_share=share)
    for i, n in enumerate(sizes):
        fit, test = (data.examples(str(i), part)[0][:, 0] for part in ("fit", "test"))
        assert sorted([*fit, *test]) == list(range(starts[i], starts[i] + n))
        # floor(f·n) are for training, at least 1; and of two or more at least one is for testing, if any are wanted.
        trained = max(1, math.floor((1 - Fraction(str(share))) * n))
        assert len(fit) == min(trained, n if n < 2 or share == 0 else n - 1)


def test_a_share_of_a_tenth_leaves_9_of_10_examples():
    # floor(0.9·10) = 9 and floor(0.9·29) = floor(26.1) = 26.
    data = from_arrays({"a": client(10), "b": client(29)})
    assert data.sizes("fit").tolist() == [9, 26]
    assert data.sizes("test").tolist() == [1, 3]


def test_a_split_depends_on_the_seed_and_the_name_but_not_on_the_other_clients():
    def tested(seed, **clients):
        return from_arrays(clients, seed=seed).examples("a", "test")[0].tolist()

    same = tested(0, a=client(50))
    assert same == tested(0, a=client(50), b=client(3))
    assert same != tested(1, a=client(50))


def test_given_test_examples_are_not_changed():
    data = from_arrays({"a": (*client(3), *client(2, first=10)), "b": client(4)})
    assert data.examples("a", "test")[0][:, 0].tolist() == [10, 11]
    assert data.examples("a")[0][:, 0].tolist() == [0, 1, 2]
    assert data.sizes("test").tolist() == [2, 1]


def test_if_test_examples_are_given_nothing_is_split():
    data = from_arrays({"a": client(3), "b": client(4)}, {"b": client(5, first=20)})
    assert data.sizes("fit").tolist() == [3, 4]
    assert data.sizes("test").tolist() == [0, 5]


def test_clients_may_have_no_example_one_example_one_class_or_no_test_examples():
    data = from_arrays({"none": ([], []), "one": client(1), "class": client(9, label=3), "fit": (*client(2), [], [])})
    assert data.sizes("fit").tolist() == [0, 1, 8, 2]
    assert data.sizes("test").tolist() == [0, 0, 1, 0]
    assert data.classes == 4


def test_types_are_preserved_except_double_precision():
    for given_type, kept in ((np.uint8, np.uint8), (np.float32, np.float32), (np.float64, np.float32)):
        data = from_arrays({"a": (np.zeros((2, 3), given_type), np.zeros(2, int))})
        assert data.x.dtype == kept


@pytest.mark.parametrize("given_type", [np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("low", [-2, 0])
def test_integers_beyond_32_bits_do_not_overflow(given_type, low):
    low = low if given_type is np.int64 else 0
    fits = np.array([[low], [2**31 - 1]], given_type)
    data = from_arrays({"a": (fits, np.zeros(2, int))}, test_share=0)
    assert (data.x.dtype, sorted(data.x.ravel().tolist())) == (np.int32, [low, 2**31 - 1])
    # A moment in nanoseconds; 2**32 - 1 for 32 bits without a sign. Both are more than int32 holds.
    large = 2**32 - 1 if given_type is np.uint32 else 1_700_000_000_000_000_000
    data = from_arrays({"a": (np.array([[low], [large]], given_type), np.zeros(2, int))}, test_share=0)
    assert data.x.dtype == np.float32
    assert sorted(data.x.ravel().tolist()) == [low, float(np.float32(large))]


def test_arbitrary_codes_are_rejected_as_labels():
    clients = {"a": (np.zeros((3, 1)), np.array([0, 1, 90210123]))}
    with pytest.raises(DataError, match=r"3 distinct labels, the largest 90210123: number them 0\.\.2 or set data\.cl"):
        from_arrays(clients)
    assert from_arrays(clients, classes=90210124).classes == 90210124
    # Above 1,000, but 150 distinct ones are a tenth of the largest: words of a vocabulary, perhaps.
    rare = np.append(np.arange(149), 1490)
    assert from_arrays({"a": (np.zeros((150, 1)), rare)}).classes == 1491
    assert from_arrays({"a": (np.zeros((1, 1)), np.array([1000]))}).classes == 1001


def test_a_client_id_that_is_not_utf_8_is_rejected():
    with pytest.raises(DataError, match=r"The client id 'caf\\udce9' cannot be encoded as UTF-8"):
        from_arrays({"caf\udce9": client(3)})


def test_floats_are_regression_targets_unless_classes_is_given():
    assert from_arrays({"a": (np.zeros((2, 1)), np.array([0.0, 1.0]))}).classes is None
    data = from_arrays({"a": (np.zeros((2, 1)), np.array([0.0, 1.0]))}, classes=2)
    assert (data.classes, data.y.dtype) == (2, np.int32)


def test_truth_can_be_given_by_id_or_in_order():
    clients = {"b": client(2), "a": client(2)}
    assert from_arrays(clients, truth={"a": 1, "b": 0}).truth.tolist() == [0, 1]
    assert from_arrays(clients, truth=[3, 4]).truth.tolist() == [3, 4]
    with pytest.raises(DataError, match="truth has no cluster for client 'b'"):
        from_arrays(clients, truth={"a": 1})
    with pytest.raises(DataError, match="one cluster for each of the 2 clients, got 1"):
        from_arrays(clients, truth=[3])


def bad(x=None, y=None):
    """Client a is right, client b has this x and y."""
    return {"a": client(3), "b": (client(3)[0] if x is None else x, np.zeros(3, int) if y is None else y)}


@pytest.mark.parametrize(
    ("clients", "text"),
    [
        ({}, "There are no clients. Give at least one"),
        ({"a": ([], [])}, "No client has any examples"),
        (bad(x=np.zeros((3, 5))), "Client 'b': an example in x has shape (5,), but client 'a' has (2,)"),
        (bad(x=np.array([[0, 1], [2, np.nan], [0, 0]])), "Client 'b': x is NaN or infinite in row 1. Remove"),
        (bad(x=np.full((3, 2), 1e300)), "Client 'b', example 3: x is NaN or infinite"),
        (bad(x=np.full((3, 2), "a")), "Client 'b': x must hold numbers, got <U1"),
        (bad(x=np.array(1.0)), "Client 'b': y must hold one label for each example, got x of shape ()"),
        (bad(x=np.zeros((2, 2))), "Client 'b': y must hold one label for each example, got x of shape (2, 2)"),
        (bad(y=np.array([0, -1, 0])), "Client 'b', row 1: the label is -1; labels must be integers 0..0"),
        (bad(y=np.array(["x", "y", "z"])), "Client 'b': y must hold numbers, got <U1. Encode"),
        (bad(y=np.array([0.5, 1, 2])), "Client 'b': y is float64, but client 'a' has int64"),
        ({"a": (np.zeros((1, 1)),)}, "Client 'a': give (x, y) or (x, y, x_test, y_test), got 1 values"),
        ({"a": np.zeros((2, 2))}, "Client 'a': give (x, y) or (x, y, x_test, y_test), got ndarray"),
        ({1: client(1), "1": client(1)}, "Client ids must be unique"),
    ],
)
def test_wrong_arrays_are_rejected_by_client_in_at_most_two_lines(clients, text):
    with np.errstate(all="ignore"), pytest.raises(DataError) as caught:
        from_arrays(clients)
    assert text in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


def test_labels_beyond_the_number_of_classes_are_rejected():
    with pytest.raises(DataError, match=r"Client 'a', row 0: the label is 3; labels must be integers 0\.\.1"):
        from_arrays({"a": client(2, label=3)}, classes=2)


def test_test_examples_of_an_unknown_client_are_rejected():
    with pytest.raises(DataError, match="Test examples for 'z', which is not one of the clients"):
        from_arrays({"a": client(2)}, {"z": client(2)})
    with pytest.raises(DataError, match=r"Client 'a': give \(x, y\), got 4 values"):
        from_arrays({"a": (*client(2), *client(2))}, {"a": client(2)})


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_leaves_nothing_for_training_is_rejected(share):
    with pytest.raises(SpecError, match="test_share must be at least 0 and less than 1"):
        from_arrays({"a": client(2)}, test_share=share)
