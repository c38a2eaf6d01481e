"""Images with a partition of the user's choice, and the partitions of FedProx and Ditto."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load, partition
from coterie.errors import SpecError

#: Name of a partition → the same partition of these labels for 20 clients, with seed 1.
PARTITIONS = {
    "rotated": lambda y: partition.clustered(len(y), 20, 4, seed=1),
    "inverted": lambda y: partition.clustered(len(y), 20, 2, seed=1),
    "iid": lambda y: partition.iid(len(y), 20, seed=1),
    "classes": lambda y: partition.by_classes(y, 20, per_client=3, seed=1),
    "dirichlet": lambda y: partition.dirichlet(y, 20, alpha=0.5, seed=1),
    "groups": lambda y: partition.label_groups(y, 20, skew=0.3, alpha=0.5, seed=1).fit,
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_each_option_is_the_partition_of_that_name_with_matched_test_images(tiny, name):
    data = load("fmnist", clients=20, partition=name, per_client=3, alpha=0.5, skew=0.3, seed=1)
    labels, test_labels = data.y[:400], data.y[400:]
    fit = PARTITIONS[name](labels)
    assert data.fit.order.tolist() == fit.order.tolist()
    assert data.fit.offsets.tolist() == fit.offsets.tolist()
    tested = partition.matched(fit, labels, test_labels, seed=1)
    assert data.test.order.tolist() == (400 + tested.order).tolist()
    assert data.test.offsets.tolist() == tested.offsets.tolist()


def test_clusters_are_planted_by_rotation_inversion_and_groups(tiny):
    assert load("mnist", clients=6, partition="rotated").truth.tolist() == [0, 1, 2, 3, 0, 1]
    assert load("mnist", clients=6, partition="rotated", clusters=2).transforms == ("identity", "rot90")
    inverted = load("mnist", clients=4, partition="inverted")
    np.testing.assert_array_equal(inverted.examples("1")[0], 255 - inverted.x[inverted.rows(1)])
    assert len(np.unique(load("mnist", clients=10, partition="groups").truth)) == 5


def test_an_unknown_partition_is_rejected(tiny):
    with pytest.raises(SpecError, match=r"No partition 'iit'\. Did you mean 'iid'"):
        load("svhn", partition="iit")


def totals(data):
    """(clients, classes) training and test images."""
    return data.label_counts("fit") + data.label_counts("test")


def test_client_u_owns_the_digits_u_and_u_plus_one(tiny):
    counts = totals(load("mnist-powerlaw", clients=20))
    for u in range(20):
        assert np.flatnonzero(counts[u]).tolist() == sorted([u % 10, (u + 1) % 10])
    assert (counts[counts > 0] >= 5).all()  # each client first takes five of each digit


def test_training_and_test_images_of_mnist_are_one_pool_used_in_order(tiny):
    # Without a split, a client has a first part of 5 images of a digit and then another part.
    data = load("mnist-powerlaw", clients=20, test_share=0)
    members = np.flatnonzero(data.y == 0)
    owned = [place for u in range(20) for place in np.searchsorted(members, data.rows(u)[data.y[data.rows(u)] == 0])]
    assert sorted(owned) == list(range(len(owned)))  # consecutive from the first, each used once
    assert data.x.shape[0] == 500


def test_mnist_powerlaw_standardizes_pixels_over_all_images(tiny):
    data = load("mnist-powerlaw", clients=20)
    pixels = data.x.astype(np.float64)
    np.testing.assert_allclose(data.normalize[0], pixels.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(data.normalize[1], pixels.std(axis=0) + 0.001, rtol=1e-6)


@pytest.mark.parametrize("c", [1, 3, 5, 10])
def test_mnist_classes_gives_each_client_its_digits(tiny, c):
    data = load("mnist-classes", clients=10, per_client=c)
    assert set((totals(data) > 0).sum(axis=1)) == {c}


@pytest.mark.data
def test_the_real_power_law_has_the_published_shape(real):
    data = real("mnist-powerlaw")
    used = np.concatenate([data.fit.order, data.test.order])
    sizes = totals(data).sum(axis=1)
    assert len(data.clients) == 1000
    assert set((totals(data) > 0).sum(axis=1)) == {2}
    assert 68_900 <= len(used) <= 70_000
    assert len(np.unique(used)) == len(used)
    assert (data.sizes("fit") == np.floor(0.9 * sizes + 1e-9)).all()  # each client has at least ten images
    assert 69 * 0.99 < sizes.mean() < 69 * 1.01
    assert 106 * 0.9 < sizes.std() < 106 * 1.1


@pytest.mark.data
def test_the_first_draw_of_the_real_power_law_can_be_used(real):
    sizes = totals(real("mnist-powerlaw", published_spread=False)).sum(axis=1)
    assert sizes.std() > 106 * 1.1  # so have all but two in a thousand draws


@pytest.mark.data
@pytest.mark.parametrize("c", [1, 3, 5, 10])
def test_real_mnist_by_digits_is_the_script_with_another_number_of_digits(real, c):
    data = real("mnist-classes", per_client=c)
    sizes = totals(data).sum(axis=1)
    assert set((totals(data) > 0).sum(axis=1)) == {c}
    assert sizes.min() == 5 * c  # some clients have only their first images
    if c == 1:  # P counts all but 1,000 images of a digit, of which clients have taken 500 first: 500 are left over
        assert sizes.sum() <= 70_000 - 10 * 500
    if c == 10:  # all but the last image of each digit are used, although P counts 4,000 too many
        assert sizes.sum() == 70_000 - 10
        assert 0.3 < (sizes == 50).mean() < 0.7


def check_use_in_turn(data, train):
    """Check that images of a class are used in turn: numbers of uses differ by at most one and decrease."""
    for index, low, high in ((data.fit, 0, train), (data.test, train, len(data.x))):
        assert index.order.min() >= low
        assert index.order.max() < high
        uses = np.bincount(index.order, minlength=len(data.x))
        for label in range(10):
            own = uses[low:high][data.y[low:high] == label]
            assert own.max() - own.min() <= 1
            assert (np.diff(own) <= 0).all()


def test_fmnist_500_uses_images_of_a_class_in_turn(tiny):
    data = load("fmnist-500", clients=30)
    assert (data.label_counts("fit") > 0).sum(axis=1).tolist() == [5] * 30
    assert ((data.label_counts("fit") > 0) == (data.label_counts("test") > 0)).all()
    check_use_in_turn(data, 400)


def test_fmnist_500_standardizes_pixels_by_the_training_images(tiny):
    data = load("fmnist-500", clients=30)
    np.testing.assert_allclose(data.normalize[0], data.x[:400].astype(np.float64).mean(axis=0), rtol=1e-6)


@pytest.mark.data
def test_real_fmnist_500_has_about_the_published_number_of_examples(real):
    # One more of each of 5 classes for 500 clients, minus a half for rounding: 60,000 + 1,250 and 10,000 + 1,250.
    data = real("fmnist-500")
    assert len(data.clients) == 500
    assert set((data.label_counts("fit") > 0).sum(axis=1)) == {5}
    assert len(data.fit.order) + len(data.test.order) == pytest.approx(72_505, abs=150)
    check_use_in_turn(data, 60_000)
