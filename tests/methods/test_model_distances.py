"""Distances between models of clients and clusters, by l2 and by cross loss; by hand."""

from __future__ import annotations

import tracemalloc

import numpy as np

from coterie.methods.model_distances import between_clusters, clients_to_clusters, l2_to


def test_distances_to_and_between_clusters_by_l2_and_by_cross_loss(bank):
    none = np.zeros((0, 0))
    apart = clients_to_clusters("l2", bank(0, 4), bank(1, 3, 9), none, np.zeros(0, int), none)
    assert apart.tolist() == [[1, 3], [3, 1], [9, 5]]
    assert between_clusters("l2", bank(0, 4), np.zeros(3, int), none).tolist() == [[0, 4], [4, 0]]
    # One client in each cluster: f_c(w_0) = 2 and 6, f_0(ω_c) = 4 and 0: (4 + 2)/2 and (0 + 6)/2.
    losses, labels = np.array([[2.0], [6.0]]), np.array([0, 1])
    assert clients_to_clusters("cross", bank(0, 4), {}, losses, labels, np.array([[4.0, 0.0]])).tolist() == [[3, 3]]
    # f_0(ω_1) = 8, f_1(ω_0) = 2.
    assert between_clusters("cross", bank(0, 4), labels, np.array([[1.0, 8.0], [2.0, 1.0]]))[0, 1] == 5


def test_a_client_not_scored_by_all_clusters_is_compared_by_its_own_losses_alone(bank):
    # f_j(ω) = 0.5 and 1; f_c(w_j) = 2 and 2.5: (0.5 + 2)/2 and (1 + 2.5)/2. Without f_1(w_0), client 0 would be at 1.25
    # and 1, halves of different size: it is compared by 0.5 and 1. The other client does not change.
    own, labels = np.array([[0.5, 1.0], [0.5, 1.0]]), np.array([0, 1])
    losses = np.array([[2.0, 2.0], [2.5, 2.5]])
    assert clients_to_clusters("cross", bank(0, 4), {}, losses, labels, own).tolist() == [[1.25, 1.75], [1.25, 1.75]]
    losses[1, 0] = np.nan
    assert clients_to_clusters("cross", bank(0, 4), {}, losses, labels, own).tolist() == [[0.5, 1.0], [1.25, 1.75]]
    # Without its own losses either, it is compared by the known losses of members; unknown pairs count as the farthest.
    own[0] = np.nan
    assert clients_to_clusters("cross", bank(0, 4), {}, losses, labels, own).tolist() == [[2, 2], [1.25, 1.75]]
    losses[0, 0] = 1.5
    assert clients_to_clusters("cross", bank(0, 4), {}, losses, labels, own).tolist() == [[1.5, 1.75], [1.25, 1.75]]


def test_distances_to_many_centers_are_computed_one_center_at_a_time():
    # 100 models, 100 centers, 1000 parameters: 80 MB of differences at once, 0.8 MB per center, and some copies.
    models, centers = {"w": np.ones((100, 1000), np.float32)}, {"w": np.zeros((100, 1000), np.float32)}
    tracemalloc.start()
    try:
        apart = l2_to(models, centers)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6
    np.testing.assert_allclose(apart, np.full((100, 100), np.sqrt(1000)))
