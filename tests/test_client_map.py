"""`ClientMap`: an immutable mapping that shares unchanged entries."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.client_map import ClientMap

CHANGES = st.lists(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 9), max_size=6), max_size=12)


@given(CHANGES)
def test_it_behaves_like_a_dict_and_old_versions_do_not_change(changes):
    clients, expected = ClientMap(), {}
    versions = [(clients, dict(expected))]
    for items in changes:
        clients = clients.set(items)
        expected = {**expected, **items}
        versions.append((clients, expected))
    for version, items in versions:
        assert version == items
        assert dict(version) == items
        assert len(version) == len(items)
        assert sorted(version) == sorted(items)  # each key once
        assert all((key in version) == (key in items) for key in "abcdefghij")


@given(CHANGES)
def test_each_layer_is_at_least_twice_as_large_as_the_one_before(changes):
    clients = ClientMap()
    for items in changes:
        clients = clients.set(items)
        sizes = [len(layer) for layer in clients._layers]
        assert all(2 * newer <= older for newer, older in itertools.pairwise(sizes))


def test_the_cost_of_set_is_proportional_to_the_changed_entries():
    # Each copy of an entry puts it into a layer at least 1.5 times as large as its last one: a layer is merged only
    # into one that holds it and more than half of its size again. From 20 entries to 200·20 that can happen
    # log(200)/log(1.5) < 14 times, and it is written once at first. All entries are never touched.
    many, few, rounds = 100_000, 20, 200
    clients = ClientMap({str(i): 0 for i in range(many)})
    everything = clients._layers[-1]
    copied = 0
    for t in range(rounds):
        before = {id(layer) for layer in clients._layers}
        clients = clients.set({str(few * t + i): 1 for i in range(few)})
        copied += sum(len(layer) for layer in clients._layers if id(layer) not in before)
    assert clients._layers[-1] is everything
    assert copied <= rounds * few * (1 + math.log(rounds) / math.log(1.5))
    assert len(clients._layers) <= 1 + math.log2(many / few)  # layers that a lookup passes through
    assert len(clients) == many
    assert sum(clients.values()) == rounds * few


def test_setting_the_same_clients_repeatedly_does_not_add_layers():
    clients = ClientMap({str(i): 0 for i in range(1000)})
    for t in range(100):
        clients = clients.set({"1": t, "2": t})
    assert [len(layer) for layer in clients._layers] == [2, 1000]
    assert (clients["1"], clients["3"], len(clients)) == (99, 0, 1000)


def test_later_changes_of_the_source_dicts_have_no_effect():
    first, second = {"a": 1}, {"b": 2}
    clients = ClientMap(first).set(second)
    first["a"] = second["b"] = 9
    assert dict(clients) == {"a": 1, "b": 2}


def test_setting_no_items_returns_the_same_mapping():
    clients = ClientMap({"a": 1})
    assert clients.set({}) is clients


def test_an_unknown_client_raises_a_key_error():
    with pytest.raises(KeyError, match="b"):
        ClientMap({"a": 1})["b"]


def test_it_supports_equality_and_repr_but_not_assignment_or_hashing():
    clients = ClientMap({"a": 1})
    assert clients == {"a": 1}
    assert clients != ClientMap({"a": 2})
    assert clients != 1
    assert repr(clients) == "ClientMap({'a': 1})"
    with pytest.raises(TypeError, match="does not support item assignment"):
        clients["a"] = 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(clients)


def test_entries_keys_and_values_have_the_same_order_and_later_values_win():
    clients = ClientMap({"a": 1, "b": 2, "c": 3, "d": 4}).set({"b": 9}).set({"e": 5})
    assert len(clients._layers) > 1
    assert list(clients.items()) == [(client, clients[client]) for client in clients]
    assert list(clients.values()) == [clients[client] for client in clients]
    assert clients.to_dict() == {"a": 1, "b": 9, "c": 3, "d": 4, "e": 5}


def test_among_gives_the_values_of_the_clients_that_have_one():
    clients = ClientMap({letter: number for number, letter in enumerate("abcdefghi")}).set({"b": 9})
    assert len(clients._layers) == 2
    assert list(clients.among(iter("xb")).items()) == [("b", 9)]  # few of the clients: the layers are searched
    assert list(clients.among(iter("dxbz")).items()) == [("d", 3), ("b", 9)]  # many
    assert ClientMap({"a": 1}).among("xa") == {"a": 1}
    assert "x" not in clients
    assert "b" in clients
