"""The distinct partitions at decreasing thresholds, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.clustering.threshold_sweep import threshold_partitions

# Points at 0, 0.15 and 0.9 on a line.
D = np.array([[0, 0.15, 0.9], [0.15, 0, 0.75], [0.9, 0.75, 0]])


@pytest.mark.parametrize(
    ("linkage", "thresholds"),
    # The first two join at 0.15, the third at the mean (0.9 + 0.75)/2 = 0.825, the smallest 0.75 or the largest 0.9.
    # There is one cluster at threshold 1, two from the first threshold below the last join on, and three from 0.1 on.
    [("average", (1.0, 0.8, 0.1)), ("single", (1.0, 0.7, 0.1)), ("complete", (1.0, 0.8, 0.1))],
)
def test_each_distinct_partition_has_its_largest_threshold(linkage, thresholds):
    found, partitions = threshold_partitions(D, 0.1, linkage)
    assert found == thresholds
    assert partitions.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2]]


def test_singletons_are_tried_at_threshold_0_only_if_asked_for():
    assert threshold_partitions(D, 0.4)[0] == (1.0, 0.6, 0.0)
    thresholds, partitions = threshold_partitions(D, 0.4, singletons=False)
    assert thresholds == (1.0, 0.6)
    assert partitions.tolist() == [[0, 0, 0], [0, 0, 1]]


def test_a_step_of_1_leaves_one_partition():
    thresholds, partitions = threshold_partitions(D, 1.0, singletons=False)
    assert (thresholds, partitions.tolist()) == ((1.0,), [[0, 0, 0]])
