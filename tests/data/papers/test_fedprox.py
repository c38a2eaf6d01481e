"""MNIST by a power law."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load


def both(data):
    """(clients, classes) training and test images."""
    return data.label_counts("fit") + data.label_counts("test")


def test_client_u_owns_the_digits_u_and_u_plus_one(tiny):
    counts = both(load("mnist-powerlaw", clients=20))
    for u in range(20):
        assert np.flatnonzero(counts[u]).tolist() == sorted([u % 10, (u + 1) % 10])
    assert (counts[counts > 0] >= 5).all()  # five of each to begin with


def test_training_and_test_images_of_mnist_are_one_pool_taken_in_order(tiny):
    # Without a split each client has, of a digit, a first piece of 5 and then another: two runs of the digit's images.
    data = load("mnist-powerlaw", clients=20, test_share=0)
    members = np.flatnonzero(data.y == 0)
    owned = [place for u in range(20) for place in np.searchsorted(members, data.rows(u)[data.y[data.rows(u)] == 0])]
    assert sorted(owned) == list(range(len(owned)))  # consecutive from the first on, none left out, none twice
    assert data.x.shape[0] == 500


def test_pixels_are_standardised_over_the_pool(tiny):
    data = load("mnist-powerlaw", clients=20)
    pixels = data.x.astype(np.float64)
    np.testing.assert_allclose(data.normalize[0], pixels.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(data.normalize[1], pixels.std(axis=0) + 0.001, rtol=1e-6)


@pytest.mark.parametrize("c", [1, 3, 5, 10])
def test_clients_have_as_many_digits_as_asked_for(tiny, c):
    data = load("mnist-classes", clients=20, per_client=c)
    assert set((both(data) > 0).sum(axis=1)) == {c}


@pytest.mark.data
def test_the_real_power_law_has_the_published_shape(real):
    data = real("mnist-powerlaw")
    used = np.concatenate([data.fit.order, data.test.order])
    sizes = both(data).sum(axis=1)
    assert len(data.clients) == 1000
    assert set((both(data) > 0).sum(axis=1)) == {2}
    assert 68_900 <= len(used) <= 70_000
    assert len(np.unique(used)) == len(used)
    assert (data.sizes("fit") == np.floor(0.9 * sizes + 1e-9)).all()  # each has ten images or more
    assert 69 * 0.99 < sizes.mean() < 69 * 1.01
    assert 106 * 0.9 < sizes.std() < 106 * 1.1


@pytest.mark.data
def test_the_first_draw_of_the_real_power_law_can_be_had(real):
    sizes = both(real("mnist-powerlaw", published_spread=False)).sum(axis=1)
    assert sizes.std() > 106 * 1.1  # all but two in a thousand draws spread more than the published one


@pytest.mark.data
@pytest.mark.parametrize("c", [1, 3, 5, 10])
def test_real_mnist_by_digits(real, c):
    data = real("mnist-classes", per_client=c)
    used = np.concatenate([data.fit.order, data.test.order])
    assert len(data.clients) == 1000
    assert set((both(data) > 0).sum(axis=1)) == {c}
    assert len(np.unique(used)) == len(used)
    assert len(used) > 60_000
