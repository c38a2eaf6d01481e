"""CFL's bipartition: its statistics by hand, and the theorem behind its certificate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.clustering.split_statistics import split_statistics


def test_the_certificate_by_hand():
    # Cosines: 0.6 between the first two, -1 and -0.6 to the third: α_cross = -0.6, the bound √(1.6/2).
    # The mean of the first part is (0.8, 0.4), of length √0.8; both are √0.2 from it: γ = √(0.2/0.8) = ½.
    # B = 2·1/3 ‖(1.8, 0.4)‖² = 2/3·3.4, W = (0.2 + 0.2)/(3 - 2): B/W = 17/3.
    found = split_statistics(np.array([[1, 0], [0.6, 0.8], [-1, 0]]))
    assert found.labels.tolist() == [0, 0, 1]
    assert found.alpha_cross == pytest.approx(-0.6)
    assert found.bound == pytest.approx(np.sqrt(0.8))
    assert found.gamma == pytest.approx(0.5)
    assert found.separation == pytest.approx(17 / 3)
    np.testing.assert_allclose(found.similarities, [[1, 0.6, -1], [0.6, 1, -0.6], [-1, -0.6, 1]], atol=1e-12)


@given(st.integers(0, 10_000), st.integers(2, 4), st.floats(0.01, 0.9))
def test_no_two_clients_of_one_distribution_are_separated_if_the_bound_holds(seed, clusters, noise):
    # The theorem: if every γ_i is below the bound of the bipartition, each true cluster stays together.
    draw = np.random.default_rng(seed)
    centers = draw.normal(size=(clusters, 5))
    truth = np.repeat(np.arange(clusters), 4)
    offset = draw.normal(size=(len(truth), 5))
    offset *= noise * draw.uniform(size=(len(truth), 1)) / np.linalg.norm(offset, axis=1, keepdims=True)
    updates = centers[truth] + offset * np.linalg.norm(centers[truth], axis=1, keepdims=True)
    gamma = (np.linalg.norm(updates - centers[truth], axis=1) / np.linalg.norm(centers[truth], axis=1)).max()
    found = split_statistics(updates)
    if gamma < found.bound:
        assert all(len(set(found.labels[truth == k])) == 1 for k in range(clusters))
