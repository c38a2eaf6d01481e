"""All images of a data set in one array."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.data.catalog import CATALOG
from coterie.data.datasets.pool import pool
from coterie.data.files import Source
from coterie.errors import DataError


def test_labels_are_those_of_the_training_and_of_the_test_images(tiny):
    given, got = np.load(tiny / "data" / "mnist.npz"), pool("mnist")
    assert got.labels.tolist() == given["y_train"].tolist()
    assert got.test_labels.tolist() == given["y_test"].tolist()


def test_mean_and_deviation_of_each_pixel_are_over_the_first_images(tiny):
    got = pool("cifar10")
    for count in (1, 256, 257, 500):
        mean, deviation = got.per_pixel(count)
        pixels = got.x[:count].astype(np.float64)
        np.testing.assert_allclose(mean, pixels.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(deviation, pixels.std(axis=0) + 0.001, rtol=1e-6)


def test_published_means_are_in_units_of_stored_pixels(tiny):
    mean, deviation = load("mnist", clients=2).normalize
    assert (mean, deviation) == (255 * 0.1307, 255 * 0.3081)
    mean, deviation = load("svhn", clients=2).normalize
    np.testing.assert_allclose(mean, [255 * 0.4377, 255 * 0.4438, 255 * 0.4728], rtol=1e-6)
    np.testing.assert_allclose(deviation, [255 * 0.198, 255 * 0.201, 255 * 0.197], rtol=1e-6)


def test_the_source_says_how_large_a_subset_is(tiny):
    source = load("cifar10", clients=2).describe()["source"]
    assert "a subset: 400 of 50,000 training and 100 of 10,000 test images, from cifar10.npz" in source


def test_the_source_says_that_digits_were_cropped_again(tiny):
    path = tiny / "data" / "svhn.npz"
    source = Source(CATALOG["svhn"].files[0], (path,))
    assert "cropped again" not in source.describe()
    np.savez(path, **np.load(path), image_train=np.zeros(400, int))
    assert "cropped again from the full pictures" in source.describe()


def test_images_of_another_shape_are_rejected(tiny):
    (tiny / "data" / "cifar10.npz").replace(tiny / "data" / "mnist.npz")
    with pytest.raises(DataError, match=r"have shape \(28, 28\), got \(32, 32, 3\)"):
        pool("mnist")


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fmnist", "cifar10", "svhn", "cifar100", "femnist", "chars74k", "fed-mex"])
def test_real_images_are_complete_or_described_as_a_subset(real, name):
    data, held, files = real(name), pool(name), CATALOG[name].files[0]
    assert ("a subset" in data.source) == ((held.train, len(held.y) - held.train) < files.size)
    assert data.shape == files.images.shape
    assert np.unique(held.y).tolist() == list(range(files.images.classes))
    # Published means of pixels are close to those of the file; Fashion-MNIST is normalized with those of MNIST, and
    # characters and exercises have none.
    if name not in ("fmnist", "chars74k", "femnist", "fed-mex"):
        mean = data.x[:: max(1, len(data.x) // 2000)].mean(axis=(0, 1, 2)[: data.x.ndim if data.x.ndim == 3 else 3])
        np.testing.assert_allclose(mean, data.normalize[0], rtol=0.1)
