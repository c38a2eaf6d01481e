"""The order of a matrix of distances."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.reports.matrix_order import order_matrix

# Four clients: 0 and 2 in cluster 0, at distance 1; 1 and 3 in cluster 1, at distance 2; 6 between the clusters.
DISTANCES = np.array([[0, 6, 1, 6], [6, 0, 6, 2], [1, 6, 0, 6], [6, 2, 6, 0]], float)


def test_clients_are_ordered_by_cluster_and_joined_at_their_distances():
    found = order_matrix(DISTANCES, np.array([0, 1, 0, 1]))
    assert sorted(found.order[:2].tolist()) == [0, 2]
    assert sorted(found.order[2:].tolist()) == [1, 3]
    assert found.height == 6
    # Joins at heights 1, 2 and 6; their middles are at 1, 3 and 2.
    bars = sorted((h1, x1, x2) for x1, h1, x2, h2 in found.segments.tolist() if h1 == h2)
    assert bars == [(1, 0.5, 1.5), (2, 2.5, 3.5), (6, 1, 3)]


def test_a_join_is_never_below_its_parts():
    # The two clusters are nearer to each other (1) than their own clients are (5).
    distances = np.array([[0, 5, 1, 1], [5, 0, 1, 1], [1, 1, 0, 5], [1, 1, 5, 0]], float)
    assert order_matrix(distances, np.array([0, 0, 1, 1])).height == 5


@pytest.mark.parametrize("count", [0, 1])
def test_few_clients_have_no_joins(count):
    found = order_matrix(np.zeros((count, count)), np.zeros(count))
    assert found.order.tolist() == list(range(count))
    assert found.segments.shape == (0, 4)


def test_a_chain_of_many_clients_is_placed_without_recursion():
    places = 2.0 ** np.arange(900) / 2.0**880
    found = order_matrix(np.abs(places[:, None] - places), np.zeros(900))
    assert sorted(found.order.tolist()) == list(range(900))
