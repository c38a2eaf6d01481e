"""`ClientMap`: an immutable mapping that shares what did not change."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.client_map import ClientMap

CHANGES = st.lists(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 9), max_size=6), max_size=12)


@given(CHANGES)
def test_it_behaves_like_a_dict_and_old_versions_stay_as_they_were(changes):
    kept, expected = ClientMap(), {}
    versions = [(kept, dict(expected))]
    for items in changes:
        kept = kept.set(items)
        expected = {**expected, **items}
        versions.append((kept, expected))
    for version, items in versions:
        assert version == items
        assert dict(version) == items
        assert len(version) == len(items)
        assert sorted(version) == sorted(items)  # each key once
        assert all((key in version) == (key in items) for key in "abcdefghij")


@given(CHANGES)
def test_each_layer_is_at_least_twice_as_large_as_the_one_before(changes):
    kept = ClientMap()
    for items in changes:
        kept = kept.set(items)
        sizes = [len(layer) for layer in kept._layers]
        assert all(2 * newer <= older for newer, older in itertools.pairwise(sizes))


def test_setting_a_few_of_many_copies_about_as_many_as_are_set():
    # Each copy of an entry puts it into a layer at least 1.5 times as large as its last one: a layer is merged only
    # into one that holds it and more than half of its size again. From 20 entries to 200·20 that can happen
    # log(200)/log(1.5) < 14 times, and it is written once at first. All entries are never touched.
    many, few, rounds = 100_000, 20, 200
    kept = ClientMap({str(i): 0 for i in range(many)})
    everything = kept._layers[-1]
    copied = 0
    for t in range(rounds):
        before = {id(layer) for layer in kept._layers}
        kept = kept.set({str(few * t + i): 1 for i in range(few)})
        copied += sum(len(layer) for layer in kept._layers if id(layer) not in before)
    assert kept._layers[-1] is everything
    assert copied <= rounds * few * (1 + math.log(rounds) / math.log(1.5))
    assert len(kept._layers) <= 1 + math.log2(many / few)  # what a look-up passes through
    assert len(kept) == many
    assert sum(kept.values()) == rounds * few


def test_setting_the_same_few_again_and_again_does_not_pile_up():
    kept = ClientMap({str(i): 0 for i in range(1000)})
    for t in range(100):
        kept = kept.set({"1": t, "2": t})
    assert [len(layer) for layer in kept._layers] == [2, 1000]
    assert (kept["1"], kept["3"], len(kept)) == (99, 0, 1000)


def test_it_does_not_see_later_changes_of_the_dicts_it_was_made_of():
    first, second = {"a": 1}, {"b": 2}
    kept = ClientMap(first).set(second)
    first["a"] = second["b"] = 9
    assert dict(kept) == {"a": 1, "b": 2}


def test_setting_nothing_gives_the_same_mapping():
    kept = ClientMap({"a": 1})
    assert kept.set({}) is kept


def test_a_client_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError, match="b"):
        ClientMap({"a": 1})["b"]


def test_it_can_be_compared_and_shown_but_not_changed_nor_hashed():
    kept = ClientMap({"a": 1})
    assert kept == {"a": 1}
    assert kept != ClientMap({"a": 2})
    assert kept != 1
    assert repr(kept) == "Kept({'a': 1})"
    with pytest.raises(TypeError, match="does not support item assignment"):
        kept["a"] = 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(kept)
