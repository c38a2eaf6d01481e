"""Fashion-MNIST for 500 clients."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load


def wraps_within_classes(data, train):
    """Whether in each class the images are used in turn: numbers of uses differ by one at most, the first most."""
    for index, low, high in ((data.fit, 0, train), (data.test, train, len(data.x))):
        assert index.order.min() >= low
        assert index.order.max() < high
        uses = np.bincount(index.order, minlength=len(data.x))
        for label in range(10):
            own = uses[low:high][data.y[low:high] == label]
            assert own.max() - own.min() <= 1
            assert (np.diff(own) <= 0).all()


def test_images_are_used_in_turn_within_their_class_and_within_their_pool(tiny):
    data = load("fmnist-500", clients=30)
    assert (data.label_counts("fit") > 0).sum(axis=1).tolist() == [5] * 30
    assert ((data.label_counts("fit") > 0) == (data.label_counts("test") > 0)).all()
    wraps_within_classes(data, 400)


def test_pixels_are_standardised_by_the_training_images(tiny):
    data = load("fmnist-500", clients=30)
    np.testing.assert_allclose(data.normalize[0], data.x[:400].astype(np.float64).mean(axis=0), rtol=1e-6)


@pytest.mark.data
def test_the_real_data_have_about_as_many_examples_as_published(real):
    # One more of each of 5 classes for 500 clients, minus a half for rounding: 60,000 + 1,250 and 10,000 + 1,250.
    data = real("fmnist-500")
    assert len(data.clients) == 500
    assert set((data.label_counts("fit") > 0).sum(axis=1)) == {5}
    assert len(data.fit.order) + len(data.test.order) == pytest.approx(72_505, abs=150)
    wraps_within_classes(data, 60_000)
