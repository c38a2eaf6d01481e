"""Federated data from pools and index lists."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import Index, aligned
from coterie.data.partition import assemble, iid, numbered
from coterie.errors import DataError


def pool(n, first=0):
    return np.arange(first, first + n, dtype=np.float32)[:, None], np.arange(n) % 2


def test_one_pool_is_not_copied_and_split_for_each_client():
    x = aligned(np.arange(40, dtype=np.float32)[:, None])
    data = assemble("one", (x, np.arange(40) % 2), iid(40, 4))
    assert data.x is x
    assert data.clients == ("0", "1", "2", "3")
    assert data.sizes("fit").tolist() == [9] * 4  # floor(0.9·10)
    assert sorted([*data.fit.order, *data.test.order]) == list(range(40))


def test_two_pools_are_joined_and_test_indices_are_shifted():
    fit, tested = Index.from_lists([np.array([0, 1]), np.array([2])]), Index.from_lists([np.array([1]), np.array([0])])
    data = assemble("two", pool(3), fit, test=pool(2, first=100), tested=tested, clients=["a", "b"])
    assert data.examples("a")[0].ravel().tolist() == [0, 1]
    assert data.examples("a", "test")[0].ravel().tolist() == [101]
    assert data.examples("b", "test")[0].ravel().tolist() == [100]
    assert tested.order.tolist() == [1, 0]  # the argument is untouched


def test_one_pool_can_contain_the_test_examples():
    x = aligned(np.arange(5, dtype=np.float32)[:, None])
    data = assemble("one", (x, np.arange(5) % 2), iid(3, 1), tested=Index.from_lists([np.array([4, 3])]))
    assert data.x is x
    assert data.rows(0, "test").tolist() == [4, 3]


def test_many_clients_can_share_test_examples_without_copies_of_them():
    shared = Index.from_lists([np.arange(50)] * 20)
    data = assemble("shared", pool(20), iid(20, 20), test=pool(50), tested=shared)
    assert len(data.x) == 70
    assert data.sizes("test").tolist() == [50] * 20


def test_numbered_ids_sort_as_numbers():
    ids = numbered(101)
    assert (ids[0], ids[100]) == ("000", "100")
    assert list(ids) == sorted(ids)
    assert numbered(1) == ("0",)


def test_mismatched_pools_and_lists_are_rejected():
    with pytest.raises(DataError, match="give tested as well, or leave test out"):
        assemble("bad", pool(4), iid(4, 2), test=pool(2))
    with pytest.raises(DataError, match="There are 3 client ids for 2 index lists"):
        assemble("bad", pool(4), iid(4, 2), clients=["a", "b", "c"])
    with pytest.raises(DataError, match=r"must have one shape, got \(1,\) and \(2,\)"):
        assemble("bad", pool(4), iid(4, 2), test=(np.zeros((2, 2)), np.zeros(2, int)), tested=iid(2, 2))
