"""Images of Gaussian blobs."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data.datasets.blobs import blobs, prototypes
from coterie.errors import SpecError


def nearest(x, images):
    """The prototype nearest to each image."""
    flat = x.reshape(len(x), -1) / 255
    return np.argmin(((flat[:, None] - images.reshape(len(images), -1)) ** 2).sum(axis=2), axis=1)


@pytest.mark.parametrize("side", [8, 28])
@pytest.mark.parametrize("seed", range(3))
def test_classes_are_separable_by_their_prototypes(side, seed):
    data = blobs(side=side, clusters=1, clients=4, seed=seed)
    x, y = data.examples("0")
    assert (nearest(x, prototypes(4, side, seed=seed)) == y).mean() > 0.95


def test_without_noise_an_image_is_its_prototype():
    data = blobs(noise=0, clusters=1, clients=2)
    x, y = data.examples("1")
    np.testing.assert_allclose(x / 255, prototypes(4, 8)[y], atol=1 / 255)


def test_rotated_and_inverted_clusters_have_transformed_prototypes():
    images = prototypes(4, 8)
    x, y = blobs(noise=0, clients=4).examples("3")
    np.testing.assert_allclose(x / 255, np.rot90(images[y], 3, axes=(1, 2)), atol=1 / 255)
    x, y = blobs(noise=0, clients=4, clusters=2, relation="inverted").examples("1")
    np.testing.assert_allclose(x / 255, 1 - images[y], atol=1 / 255)


def test_permuted_labels_differ_between_clusters_for_the_same_image():
    x, y = blobs(noise=0, clients=8, relation="permuted_labels").examples("7")
    # Client 7 is in cluster 3: class c of cluster 0 has label c + 3 mod 4.
    np.testing.assert_array_equal((nearest(x, prototypes(4, 8)) + 3) % 4, y)


def test_shifted_clusters_have_shifted_prototypes():
    x, y = blobs(noise=0, clients=4, relation="shifted").examples("1")
    # A quarter of 8 columns is 2.
    np.testing.assert_allclose(x / 255, np.roll(prototypes(4, 8)[y], 2, axis=2), atol=1 / 255)


@pytest.mark.parametrize("relation", ["rotated", "permuted_labels", "shifted"])
def test_every_example_is_used_once_and_clusters_are_equal(relation):
    data = blobs(relation=relation)
    assert sorted([*data.fit.order, *data.test.order]) == list(range(40 * 50))
    assert np.bincount(data.truth).tolist() == [10] * 4


def test_a_hundred_thousand_clients_are_built():
    data = blobs(clients=100_000, samples=20, side=2, classes=2)
    assert data.x.shape == (2_000_000, 2, 2)
    assert data.sizes("fit").sum() == 1_600_000  # floor(0.8·20) = 16 of 20
    assert data.position(data.clients[-1]) == 99_999


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"relation": "rotate"}, "No relation 'rotate'. Did you mean 'rotated'?"),
        ({"relation": "inverted"}, "Inversion gives 2 clusters, got clusters=4"),
        ({"relation": "permuted_labels", "classes": 3}, "clusters must be at most 3, the number of classes"),
        ({"relation": "shifted", "side": 3}, "clusters must be at most 3, the side of the images"),
        ({"clients": 3}, "data.clients must be at least data.clusters (4), got 3"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"noise": float("nan")}, "noise must be at least 0, got nan"),
        ({"side": 1}, "side must be at least 2, got 1"),
    ],
)
def test_invalid_settings_are_rejected(options, text):
    with pytest.raises(SpecError) as caught:
        blobs(**options)
    assert text in str(caught.value)
