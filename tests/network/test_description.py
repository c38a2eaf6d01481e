"""Statements of clients about their data: `coterie.data.description` with what a hostile client may send."""

import numpy as np
import pytest

from coterie.data import from_arrays
from coterie.data.description import MAX_CLASSES, MAX_TOKENS, ClientFacts, Moments, combined
from coterie.errors import DataError

X = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0], [0.0, 1.0]])


def facts(**changes):
    """Plain facts about three training examples with two features."""
    plain = {
        "shape": (2,),
        "classes": 3,
        "integers": False,
        "magnitude": 5.0,
        "ids": None,
        "fit": 3,
        "test": 1,
        "moments": {"count": 3, "total": np.array([8.0, 11.0]), "squares": np.array([26.0, 45.0])},
    }
    return {**plain, **changes}


def sums(**changes):
    return {**facts()["moments"], **changes}


def test_the_facts_about_data_survive_the_way_to_the_server():
    data = from_arrays({"a": (X[:3], [0, 1, 2], X[3:], [1])})
    sent = ClientFacts.of(data, moments=True)
    got = ClientFacts.from_dict(sent.to_dict())
    assert (got.shape, got.classes, got.fit, got.test, got.magnitude) == ((2,), 3, 3, 1, 5.0)
    # 1 + 3 + 4 and 2 + 5 + 4; 1 + 9 + 16 and 4 + 25 + 16
    assert got.moments.total.tolist() == [8.0, 11.0]
    assert got.moments.squares.tolist() == [26.0, 45.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (0,)},
        {"shape": (-2,)},
        {"shape": (2.0,)},
        {"shape": "22"},
        {"shape": (1,) * 9},
        {"shape": (1 << 20, 1 << 20)},
        {"shape": None},
        {"classes": 0},
        {"classes": 10**9},
        {"classes": MAX_CLASSES + 1},
        {"classes": True},
        {"classes": "3"},
        {"ids": MAX_TOKENS + 1},
        {"magnitude": float("nan")},
        {"magnitude": float("inf")},
        {"magnitude": -1.0},
        {"magnitude": 10**400},
        {"magnitude": None},
        {"fit": -1},
        {"fit": 10**30},
        {"test": 0.5},
        {"moments": []},
        {"moments": sums(count=4)},  # not over its training examples
        {"moments": sums(count=0)},
        {"moments": sums(total=np.zeros(3))},
        {"moments": sums(total=np.array([np.nan, 0.0]))},
        {"moments": sums(squares=np.array([np.nan, 0.0]))},
        {"moments": sums(squares=np.array([np.inf, 0.0]))},
        {"moments": sums(squares=np.array([-1.0, 0.0]))},
        {"moments": sums(total=[10**400, 0])},
        {"moments": {"count": 3}},
    ],
    ids=str,
)
def test_absurd_facts_are_refused(changes):
    with pytest.raises(DataError, match="cannot be read"):
        ClientFacts.from_dict(facts(**changes))


@pytest.mark.parametrize("missing", sorted(facts()))
def test_facts_that_lack_an_entry_are_refused(missing):
    plain = facts()
    del plain[missing]
    with pytest.raises(DataError, match="cannot be read"):
        ClientFacts.from_dict(plain)


def test_a_client_without_training_examples_adds_nothing_to_the_sums():
    idle = facts(fit=0, moments=None)
    about = combined("ours", {name: ClientFacts.from_dict(plain) for name, plain in {"a": facts(), "b": idle}.items()})
    assert about.trainable == ("a",)
    assert about.idle == ("b",)
    mean, deviation = about.moments().mean_and_deviation()
    # Mean 8/3 and 11/3; variance 26/3 - 64/9 = 14/9 and 45/3 - 121/9 = 14/9.
    np.testing.assert_allclose(mean, [8 / 3, 11 / 3], rtol=1e-6)
    np.testing.assert_allclose(deviation, [np.sqrt(14) / 3] * 2, rtol=1e-6)


def test_sums_of_two_clients_are_those_of_their_examples_together():
    both = Moments.of(X[:1]) + Moments.of(X[1:])
    expected = Moments.of(X)
    assert both.count == 4
    np.testing.assert_array_equal(both.total, expected.total)
    np.testing.assert_array_equal(both.squares, expected.squares)


def test_clients_whose_data_differ_are_named():
    one, other = ClientFacts.from_dict(facts()), ClientFacts.from_dict(facts(shape=(3,), moments=None))
    with pytest.raises(DataError, match=r"client 'b' do not fit: inputs have shape \(3,\)"):
        combined("ours", {"a": one, "b": other})
    with pytest.raises(DataError, match="No client"):
        combined("ours", {})
