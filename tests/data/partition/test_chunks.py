"""Equal parts, clusters, and parts by a column."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.partition import by_column, clustered, iid, inversions, rotations
from coterie.errors import DataError, SpecError


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 3))
def test_iid_parts_differ_by_at_most_one_and_use_each_example_once(examples, clients, seed):
    index = iid(examples, clients, seed=seed)
    assert sorted(index.order) == list(range(examples))
    assert index.sizes().max() - index.sizes().min() <= 1


def test_unequal_parts_use_each_example_once_and_have_at_least_five():
    found = iid(1000, 20, size_spread=1.0, seed=3)
    assert sorted(found.order.tolist()) == list(range(1000))
    sizes = found.sizes()
    assert sizes.sum() == 1000
    assert sizes.min() >= 5
    assert sizes.max() > 3 * np.median(sizes)
    assert iid(40, 20, size_spread=1.0).sizes().tolist() == [2] * 20, "too few examples for five each"


def test_iid_depends_on_the_seed_only():
    assert iid(50, 5, seed=3).order.tolist() == iid(50, 5, seed=3).order.tolist()
    assert iid(50, 5, seed=3).order.tolist() != iid(50, 5, seed=4).order.tolist()


def test_examples_are_split_among_all_clusters_as_in_sr_fca():
    # 60,000 images in 100 parts: 600 each.
    index = clustered(60_000, 100, 4)
    assert set(index.sizes()) == {600}
    assert len(np.unique(index.order)) == 60_000


def test_each_cluster_has_all_examples_as_in_ifca():
    # 240 images, 4 clusters of 3 clients: 80 each, and all 240 in each cluster.
    index = clustered(240, 12, 4, whole=True)
    assert set(index.sizes()) == {80}
    for cluster in range(4):
        rows = np.concatenate([index.of(i) for i in range(cluster, 12, 4)])
        assert sorted(rows) == list(range(240))
    assert index.of(0).tolist() != index.of(1).tolist()


def test_a_cluster_can_use_half_of_its_parts_as_in_rotated_cifar():
    # 2 clusters cut 160 images into 16 parts of 10 each, and 8 clients of each cluster use one.
    index = clustered(160, 16, 2, whole=True, chunks=16)
    assert set(index.sizes()) == {10}
    for cluster in range(2):
        rows = np.concatenate([index.of(i) for i in range(cluster, 16, 2)])
        assert len(np.unique(rows)) == 80


def test_rotations_follow_the_step():
    assert rotations(4) == ("identity", "rot90", "rot180", "rot270")
    assert rotations(2, step=180) == ("identity", "rot180")
    assert rotations(3, step=270) == ("identity", "rot270", "rot180")  # 540° is 180°
    assert inversions() == ("identity", "invert")
    assert inversions(levels=17) == ("identity", "invert16")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: iid(5, 0), "clients must be at least 1, got 0"),
        (lambda: iid(5, 1, size_spread=-1), "size_spread must be at least 0, got -1"),
        (lambda: clustered(9, 3, 4), "clients must be at least 4, the number of clusters, got 3"),
        (lambda: clustered(9, 4, 2, chunks=3), "chunks can be used only with whole=True"),
        (lambda: clustered(9, 4, 2, whole=True, chunks=1), "chunks must be at least 2, got 1"),
        (lambda: rotations(5), "clusters must be at most 4, since steps of 90° then repeat, got 5"),
        (lambda: rotations(3, step=180), "clusters must be at most 2"),
        (lambda: rotations(2, step=45), "step must be 90, 180 or 270 degrees, got 45"),
        (lambda: inversions(4), "Inversion gives 2 clusters, got clusters=4. Set clusters=2"),
        (lambda: inversions(levels=3), "levels must be 17 or 256, got 3"),
    ],
)
def test_invalid_settings_are_rejected(call, text):
    with pytest.raises(SpecError) as caught:
        call()
    assert text in str(caught.value)


def test_each_value_of_a_column_has_its_rows_in_order():
    index, writers = by_column(np.array(["w2", "w1", "w2", "w3", "w1"]))
    assert writers == ["w1", "w2", "w3"]
    assert [index.of(i).tolist() for i in range(3)] == [[1, 4], [0, 2], [3]]
    with pytest.raises(DataError, match="A column must be a list of at least one value"):
        by_column(np.zeros((2, 2)))
