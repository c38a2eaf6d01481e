"""The map of clients."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.reports.evidence_view import Evidence, Features, Pairs
from coterie.reports.projection import classical_scaling, principal_components, project


def test_the_first_component_is_the_direction_of_most_variance():
    # Along (1, 1, 0) by 4, along (0, 0, 1) by 1; squares about the mean: 4 · 8 and 4 · 1.
    step = np.array([[2, 2, 1], [2, 2, -1], [-2, -2, 1], [-2, -2, -1]], float)
    points, explained = principal_components(step + 7)
    assert np.abs(points[:, 0]).tolist() == pytest.approx([8**0.5] * 4)
    assert np.abs(points[:, 1]).tolist() == pytest.approx([1] * 4)
    assert explained == pytest.approx((32 / 36, 4 / 36))
    assert points[np.abs(points).argmax(axis=0), [0, 1]].min() > 0


def test_classical_scaling_keeps_the_distances_of_a_triangle():
    distances = np.array([[0, 3, 4], [3, 0, 5], [4, 5, 0]], float)
    points, explained = classical_scaling(distances)
    found = np.linalg.norm(points[:, None] - points, axis=2)
    assert found == pytest.approx(distances, abs=1e-9)
    assert sum(explained) == pytest.approx(1)


def test_two_numbers_per_client_are_shown_as_they_are():
    rows = Features(
        ("a", "b"), np.array([[1, 2], [3, np.nan]]), "loss", "losses", ("cluster 0", "cluster 1"), np.ones(2)
    )
    found = project(Evidence(rows))
    assert (found.x.tolist(), found.y.tolist()) == ([1, 3], [2, 2])  # without a number: the largest of its column
    assert found.labels == ("cluster 0", "cluster 1")
    assert found.explained is None


def test_distances_of_more_clients_are_preferred_to_rows():
    rows = Features(("a",), np.ones((1, 3)), "loss", "losses", ("x", "y", "z"), np.ones(1))
    pairs = Pairs(("a", "b"), np.array([[0.0, 2.0], [2.0, 0.0]]), "distance", False, 1)
    assert project(Evidence(rows, pairs)).clients == ("a", "b")
    assert project(Evidence()) is None


def test_clients_at_one_place_are_one_point():
    points, explained = principal_components(np.ones((3, 4)))
    assert points == pytest.approx(np.zeros((3, 2)))
    assert explained == (0.0, 0.0)


def test_similar_clients_are_near():
    pairs = Pairs(("a", "b", "c"), np.array([[1, 0.9, -1], [0.9, 1, -1], [-1, -1, 1.0]]), "cosine", True, 1)
    found = project(Evidence(pairs=pairs))
    assert abs(found.x[0] - found.x[1]) < abs(found.x[0] - found.x[2])
