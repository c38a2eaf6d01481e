"""The embedded handwritten digits."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load, partition
from coterie.data.datasets.digits import digits
from coterie.errors import SpecError

#: Name of a partition → the same partition of these labels for 40 clients, with seed 1.
PARTITIONS = {
    "rotated": lambda y: partition.clustered(len(y), 40, 4, seed=1),
    "inverted": lambda y: partition.clustered(len(y), 40, 2, seed=1),
    "iid": lambda y: partition.iid(len(y), 40, seed=1),
    "classes": lambda y: partition.by_classes(y, 40, per_client=3, seed=1),
    "dirichlet": lambda y: partition.dirichlet(y, 40, alpha=0.5, seed=1),
    "groups": lambda y: partition.label_groups(y, 40, skew=0.3, alpha=0.5, seed=1).fit,
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_each_option_is_the_partition_of_that_name(name):
    clusters = 2 if name == "inverted" else 4
    data = digits(partition=name, clusters=clusters, per_client=3, alpha=0.5, skew=0.3, test_share=0, seed=1)
    expected = PARTITIONS[name](data.y)
    assert data.fit.offsets.tolist() == expected.offsets.tolist()
    assert [sorted(data.fit.of(i)) for i in range(40)] == [sorted(expected.of(i)) for i in range(40)]


def test_images_are_bytes_with_17_gray_levels():
    data = digits()
    assert (data.x.dtype, data.shape, data.classes) == (np.uint8, (8, 8), 10)
    assert (data.x.min(), data.x.max()) == (0, 16)
    assert "scikit-learn" in data.source


def test_client_i_is_rotated_by_90_degrees_times_i_mod_4():
    data = digits()
    assert data.truth.tolist() == [i % 4 for i in range(40)]
    assert np.bincount(data.truth).tolist() == [10] * 4
    for position, client in enumerate(data.clients[:5]):
        raw = data.x[data.rows(position, "fit")]
        np.testing.assert_array_equal(data.examples(client)[0], np.rot90(raw, position % 4, axes=(1, 2)))


def test_every_other_client_is_inverted_within_17_levels():
    data = digits(partition="inverted", clusters=2)
    np.testing.assert_array_equal(data.examples("01")[0], 16 - data.x[data.rows(1, "fit")])
    np.testing.assert_array_equal(data.examples("00")[0], data.x[data.rows(0, "fit")])


def test_groups_are_the_true_clusters():
    data = digits(partition="groups")
    together = [data.label_counts()[data.truth == g].any(axis=0).sum() for g in range(5)]
    assert together == [2] * 5  # a fifth of ten labels for each group


def test_a_fifth_of_the_images_is_for_testing():
    # 1797 in 40 parts of 44 or 45: floor(0.8·44) = 35, floor(0.8·45) = 36, and 9 for testing either way.
    data = load("digits")
    assert set(data.sizes("fit")) == {35, 36}
    assert set(data.sizes("test")) == {9}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partition": "rotatd"}, "No partition 'rotatd'. Did you mean 'rotated'?"),
        ({"partition": "inverted"}, "Inversion gives 2 clusters, got clusters=4"),
        ({"clusters": 5}, "clusters must be at most 4"),
        ({"clients": 0}, "clients must be at least 4, the number of clusters, got 0"),
        ({"test_share": 1}, "test_share must be at least 0 and less than 1, got 1"),
    ],
)
def test_invalid_settings_are_rejected(options, text):
    with pytest.raises(SpecError) as caught:
        digits(**options)
    assert text in str(caught.value)


def test_permuted_labels_differ_between_clusters_and_images_do_not():
    equal, permuted = digits(partition="iid", clients=8), digits(partition="permuted_labels", clients=8, clusters=4)
    assert permuted.truth.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    for place, client in enumerate(permuted.clients):
        for part in ("fit", "test"):
            (x, y), (same, true) = permuted.examples(client, part), equal.examples(client, part)
            assert np.array_equal(x, same)
            assert np.array_equal(y, (true + place % 4) % 10)


def test_permuted_labels_need_a_permutation_for_each_cluster():
    with pytest.raises(SpecError, match="clusters must be at most 10, the number of classes"):
        digits(partition="permuted_labels", clusters=11)
