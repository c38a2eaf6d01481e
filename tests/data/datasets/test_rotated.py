"""Rotated and inverted images."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load


def distinct(order):
    return len(np.unique(order)) == len(order)


def test_rotated_mnist_is_split_once_and_rotated_by_cluster(tiny):
    data = load("mnist-rotated", clients=20)
    assert data.sizes("fit").tolist() == [20] * 20
    assert data.sizes("test").tolist() == [5] * 20
    assert sorted([*data.fit.order, *data.test.order]) == list(range(500))
    assert data.truth.tolist() == [i % 4 for i in range(20)]
    for i, client in enumerate(data.clients[:5]):
        raw = data.x[data.rows(i, "test")]
        np.testing.assert_array_equal(data.examples(client, "test")[0], np.rot90(raw, i % 4, axes=(1, 2)))
    assert data.normalize == (0, 255)


def test_inverted_mnist_inverts_every_other_client_and_does_not_scale_pixels(tiny):
    data = load("mnist-inverted", clients=20)
    np.testing.assert_array_equal(data.examples("01")[0], 255 - data.x[data.rows(1)])
    np.testing.assert_array_equal(data.examples("00")[0], data.x[data.rows(0)])
    assert data.truth.tolist() == [0, 1] * 10
    assert data.normalize == (0, 1)


def test_in_ifcas_mnist_each_rotation_has_all_images_once(tiny):
    data = load("mnist-rotated-ifca", clients=40)
    assert data.sizes("fit").tolist() == [40] * 40  # 4·400/40
    for cluster in range(4):
        members = np.flatnonzero(data.truth == cluster)
        for part, low, high in (("fit", 0, 400), ("test", 400, 500)):
            assert sorted(row for i in members for row in data.rows(i, part)) == list(range(low, high))


def test_rotated_cifar_uses_8_of_16_parts_in_each_cluster(tiny):
    data = load("cifar10-rotated")
    assert data.truth.tolist() == [0, 1] * 8
    assert data.sizes("fit").tolist() == [25] * 16  # 400/16
    assert set(data.sizes("test")) <= {6, 7}  # 100/16
    for cluster in (0, 1):
        members = np.flatnonzero(data.truth == cluster)
        for part in ("fit", "test"):
            assert distinct(np.concatenate([data.rows(i, part) for i in members]))
    np.testing.assert_array_equal(data.examples("01")[0], data.x[data.rows(1)][:, ::-1, ::-1])


def test_cifar_by_classes_has_clusters_that_share_two_classes(tiny):
    data = load("cifar10-classes")
    assert data.truth.tolist() == [0, 1] * 8
    # 40 training and 10 test images a class: a cluster has 240 and 60, a part 15, and 3 or 4.
    assert data.sizes("fit").tolist() == [15] * 16
    assert set(data.sizes("test")) <= {3, 4}
    for cluster, classes in enumerate(({0, 1, 2, 3, 4, 5}, {4, 5, 6, 7, 8, 9})):
        members = np.flatnonzero(data.truth == cluster)
        for part in ("fit", "test"):
            rows = np.concatenate([data.rows(i, part) for i in members])
            assert distinct(rows)
            assert set(data.y[rows]) == classes


def test_with_one_part_per_client_a_cluster_uses_all_images_of_its_classes(tiny):
    data = load("cifar10-classes", clients=8, chunks=4)
    for cluster, classes in enumerate((range(6), range(4, 10))):
        rows = np.concatenate([data.rows(i) for i in np.flatnonzero(data.truth == cluster)])
        assert sorted(rows) == np.flatnonzero(np.isin(data.y[:400], classes)).tolist()


@pytest.mark.data
@pytest.mark.parametrize(("name", "clusters"), [("mnist-rotated", 4), ("mnist-inverted", 2)])
def test_real_mnist_has_600_and_100_images_per_client(real, name, clusters):
    data = real(name)
    assert data.sizes("fit").tolist() == [600] * 100
    assert data.sizes("test").tolist() == [100] * 100
    assert np.bincount(data.truth).tolist() == [100 // clusters] * clusters
    assert distinct(np.concatenate([data.fit.order, data.test.order]))


@pytest.mark.data
@pytest.mark.parametrize(("clients", "n"), [(1200, 200), (2400, 100), (4800, 50)])
def test_real_mnist_of_ifca_has_the_published_sizes(real, clients, n):
    data = real("mnist-rotated-ifca", clients=clients)
    assert data.sizes("fit").tolist() == [n] * clients
    assert np.bincount(data.truth).tolist() == [clients // 4] * 4
    assert np.unique(data.fit.order, return_counts=True)[1].tolist() == [4] * 60_000


@pytest.mark.data
def test_real_cifar_is_cut_into_sixteenths(real):
    data = real("cifar10-rotated")
    train = 50_000 if "a subset" not in data.source else 15_000
    assert len(data.clients) == 16
    assert set(data.sizes("fit")) <= {train // 16, -(-train // 16)}
    assert set(data.sizes("test")) <= {train // 80, -(-train // 80)}
