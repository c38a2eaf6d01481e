"""Plain images with a partition of one's choice."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import SpecError

PARTITIONS = ["iid", "classes", "dirichlet", "groups", "rotated", "inverted"]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_partition_uses_test_images_once_in_the_proportions_of_training(tiny, partition):
    data = load("fmnist", clients=20, partition=partition)
    used = np.concatenate([data.fit.order, data.test.order])
    assert len(np.unique(used)) == len(used)
    if partition != "classes":  # whose power law leaves some over
        assert len(data.fit.order) == 400
    assert len(data.test.order) == 100
    assert not (data.label_counts("test")[data.label_counts("fit") == 0]).any()


def test_iid_pieces_are_equal(tiny):
    data = load("cifar10", clients=20)
    assert data.sizes("fit").tolist() == [20] * 20
    assert data.truth is None


def test_clusters_are_planted_by_rotation_inversion_and_groups(tiny):
    assert load("mnist", clients=6, partition="rotated").truth.tolist() == [0, 1, 2, 3, 0, 1]
    assert load("mnist", clients=6, partition="rotated", clusters=2).transforms == ("identity", "rot90")
    inverted = load("mnist", clients=4, partition="inverted")
    np.testing.assert_array_equal(inverted.examples("1")[0], 255 - inverted.x[inverted.rows(1)])
    assert len(np.unique(load("mnist", clients=10, partition="groups").truth)) == 5


def test_an_unknown_partition_is_refused(tiny):
    with pytest.raises(SpecError, match=r"No partition 'iit'\. Did you mean 'iid'"):
        load("svhn", partition="iit")
