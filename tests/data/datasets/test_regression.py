"""Linear regression with planted clusters."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data.datasets.regression import planted_weights, regression
from coterie.errors import SpecError


def test_targets_follow_from_the_planted_weights_of_the_clients_cluster():
    data = regression(clients=6, clusters=3, dimension=20, samples=30, test_samples=10, radius=2.0)
    theta = planted_weights(3, 20, radius=2.0)
    assert set(np.unique(theta)) == {0.0, 2.0}
    assert data.truth.tolist() == [0, 1, 2, 0, 1, 2]
    for position, client in enumerate(data.clients):
        for part in ("fit", "test"):  # the test targets have their full signal
            x, y = data.examples(client, part)
            assert np.abs(x @ theta[position % 3] - y).max() < 0.001 * 6  # σ = 0.001; all 240 are within 6 σ


def test_sizes_follow_the_settings_and_every_example_is_used_once():
    data = regression(clients=4, dimension=3, samples=5, test_samples=2)
    assert data.classes is None
    assert data.y.dtype == np.float32
    assert data.sizes("fit").tolist() == [5] * 4
    assert data.sizes("test").tolist() == [2] * 4
    assert sorted([*data.fit.order, *data.test.order]) == list(range(28))


def test_a_clients_examples_do_not_depend_on_the_number_of_clients():
    few, more = (regression(clients=clients, dimension=3, samples=5, seed=1) for clients in (2, 6))
    np.testing.assert_array_equal(few.examples("1")[0], more.examples("1")[0])


def test_invalid_settings_are_rejected():
    with pytest.raises(SpecError, match=r"data\.clients must be at least data\.clusters \(2\), got 1"):
        regression(clients=1)
    with pytest.raises(SpecError, match="radius must be more than 0, got 0"):
        regression(radius=0)
