"""The memories of clients: what is kept of earlier versions, and how banks are joined, by hand-written cases."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.federation.client_memory import ClientMemory


def numbers(*values):
    """A bank with one number per client."""
    return {"n": np.array(values, np.float32)}


def plain(memory):
    """Client → version → number, of all that is stored."""
    return {
        client: {version: float(own["n"]) for version, own in memory.versions_of(client).items()}
        for client in ("a", "b", "c", "d")
        if memory.versions_of(client)
    }


def test_a_new_version_replaces_the_earlier_one_of_the_same_clients_only():
    memory = ClientMemory()
    memory.write(1, ["a", "b", "c"], numbers(1, 2, 3))
    memory.write(2, ["a", "c"], numbers(10, 30))
    assert plain(memory) == {"a": {2: 10}, "b": {1: 2}, "c": {2: 30}}


def test_earlier_versions_that_are_wanted_are_kept():
    memory = ClientMemory()
    memory.write(1, ["a", "b"], numbers(1, 2))
    memory.write(2, ["a", "b"], numbers(10, 20), wanted=[{"a": 1, "b": 1}])
    memory.write(3, ["a", "b"], numbers(100, 200), wanted=[{"a": 1}, {"b": 2}])
    assert plain(memory) == {"a": {1: 1, 3: 100}, "b": {2: 20, 3: 200}}


def test_the_same_version_written_again_replaces_itself():
    memory = ClientMemory()
    memory.write(1, ["a", "b"], numbers(1, 2))
    memory.write(1, ["b"], numbers(5), wanted=[{"b": 1}])
    assert plain(memory) == {"a": {1: 1}, "b": {1: 5}}


def test_a_bank_has_the_rows_in_the_order_of_the_clients_with_a_blank_memory_where_there_is_none():
    memory = ClientMemory()
    memory.write(1, ["a", "b", "c"], numbers(1, 2, 3))
    memory.write(2, ["b"], numbers(20), wanted=[{"b": 1}])
    bank = memory.bank(["c", "d", "b", "a"], {"a": 1, "b": 2, "c": 1}, {"n": np.float32(-1)})
    assert bank["n"].tolist() == [3, -1, 20, 1]
    earlier = memory.bank(["b", "a"], {"a": 1, "b": 1}, {"n": np.float32(-1)})
    assert earlier["n"].tolist() == [2, 1]
    assert [own and float(own["n"]) for own in memory.named(["d", "c"], {"c": 1, "d": 7})] == [None, 3]


def test_memories_of_different_shapes_are_stored_side_by_side():
    memory = ClientMemory()
    memory.write(1, ["a", "b", "c"], [{"n": np.zeros(2)}, {"n": np.ones(3)}, {"n": np.full(2, 4.0)}])
    found = memory.named(["c", "b", "a"], {"a": 1, "b": 1, "c": 1})
    assert [own["n"].tolist() for own in found] == [[4, 4], [1, 1, 1], [0, 0]]


def test_a_removed_client_leaves_nothing():
    memory = ClientMemory()
    memory.write(1, ["a", "b"], numbers(1, 2))
    memory.write(2, ["b"], numbers(20), wanted=[{"b": 1}])
    memory.remove("b")
    assert plain(memory) == {"a": {1: 1}}
    memory.remove("a")
    assert memory.save() == []


def test_a_few_remaining_clients_do_not_keep_the_memories_of_all_others():
    memory = ClientMemory()
    clients = [str(i) for i in range(10)]
    memory.write(1, clients, {"n": np.arange(10.0)})
    memory.write(2, clients[:5], {"n": np.arange(5.0)})
    (table,) = memory._tables[1]
    assert tree.rows(table.bank) == 5, "half of the rows were not used"
    assert [float(memory.versions_of(client)[1]["n"]) for client in clients[5:]] == [5, 6, 7, 8, 9]


def test_a_part_of_a_larger_array_is_copied_and_does_not_change_with_it():
    larger, memory = np.arange(6.0), ClientMemory()
    memory.write(1, ["a", "b"], {"n": larger[:2]})
    larger[:] = -1
    assert plain(memory) == {"a": {1: 0}, "b": {1: 1}}


def test_a_copy_does_not_change_with_later_writes():
    memory = ClientMemory()
    memory.write(1, ["a"], numbers(1))
    copy = memory.copy()
    memory.write(2, ["a"], numbers(2))
    assert plain(copy) == {"a": {1: 1}}
    copy.write(3, ["a"], numbers(3))
    assert plain(memory) == {"a": {2: 2}}


@pytest.mark.parametrize("together", [True, False])
def test_saved_memories_are_sorted_and_do_not_depend_on_how_they_were_written(together):
    memory = ClientMemory()
    if together:
        memory.write(1, ["b", "a"], numbers(2, 1))
    else:
        memory.write(1, ["b"], numbers(2))
        memory.write(1, ["a"], numbers(1))
    memory.write(2, ["b"], numbers(20), wanted=[{"b": 1}])
    (entry,) = memory.save()
    assert entry["clients"] == ["a", "b", "b"]
    assert entry["versions"].tolist() == [1, 1, 2]
    assert entry["memories"]["n"].tolist() == [1, 2, 20]
    again = ClientMemory.load([entry])
    assert plain(again) == plain(memory) == {"a": {1: 1}, "b": {1: 2, 2: 20}}
