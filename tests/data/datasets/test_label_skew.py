"""Label skew in groups, and label distributions."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import SpecError


def group_labels(data):
    """Labels that the clients of each group have together for training."""
    return [set(np.flatnonzero(data.label_counts()[data.truth == g].any(axis=0))) for g in np.unique(data.truth)]


@pytest.mark.parametrize(("name", "groups", "labels"), [("mnist-skew20", 5, 2), ("svhn-skew30", 4, 3)])
def test_groups_own_their_labels_and_no_image_is_lost(tiny, name, groups, labels):
    data = load(name, clients=20)
    owned = group_labels(data)
    assert [len(own) for own in owned] == [labels] * groups
    assert set().union(*owned) == set(range(10))
    assert sorted(data.fit.order) == list(range(400))


def test_a_client_is_tested_on_all_test_images_of_its_groups_labels(tiny):
    data = load("cifar10-skew20", clients=20)
    owned = group_labels(data)
    for i in range(20):
        wanted = 400 + np.flatnonzero(np.isin(data.y[400:], list(owned[data.truth[i]])))
        assert sorted(data.rows(i, "test")) == wanted.tolist()


def test_matched_tests_use_each_test_image_once(tiny):
    data = load("cifar10-skew20", clients=20, test_protocol="matched")
    assert sorted(data.test.order) == list(range(400, 500))


def test_more_groups_can_be_asked_for(tiny):
    data = load("mnist-skew20", clients=20, groups=8, sets="random")
    assert len(np.unique(data.truth)) == 8


def test_a_small_alpha_makes_the_quantities_less_equal(tiny):
    low, high = (load("fmnist-skew20", clients=20, alpha=alpha).sizes("fit").std() for alpha in (100.0, 0.25))
    assert low < high


def test_dirichlet_gives_everyone_as_much_and_tests_the_labels_that_a_client_has(tiny):
    data = load("svhn-dirichlet", clients=20)
    assert data.sizes("fit").tolist() == [20] * 20
    assert sorted(data.fit.order) == list(range(400))
    assert ((data.label_counts("test") > 0) == (data.label_counts("fit") > 0)).all()
    assert set(data.label_counts("test").ravel()) == {0, 10}  # all ten of a class, or none


def test_the_total_reading_leaves_fewer_labels(tiny):
    few, more = (load("mnist-dirichlet", clients=20, reading=reading) for reading in ("total", "per_class"))
    assert (few.label_counts() > 0).sum() < (more.label_counts() > 0).sum()


def test_an_unknown_protocol_is_refused(tiny):
    with pytest.raises(SpecError, match=r"No test_protocol 'match'\. Did you mean 'matched'"):
        load("mnist-skew20", test_protocol="match")


@pytest.mark.data
@pytest.mark.parametrize("images", ["mnist", "fmnist", "cifar10", "svhn"])
@pytest.mark.parametrize(("share", "groups"), [(20, 5), (30, 4)])
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_real_images_in_groups(real, images, share, groups, alpha):
    data = real(f"{images}-skew{share}", alpha=alpha)
    train = len(data.fit.order)
    assert sorted(np.bincount(data.truth)) == [100 // groups] * groups
    assert [len(own) for own in group_labels(data)] == [share // 10] * groups
    np.testing.assert_array_equal(np.sort(data.fit.order), np.arange(train))
    assert (data.label_counts() > 0).sum(axis=1).max() <= share // 10
    assert len(np.unique(data.test.order)) == len(data.x) - train


@pytest.mark.data
@pytest.mark.parametrize("images", ["mnist", "fmnist", "cifar10", "svhn"])
@pytest.mark.parametrize("reading", ["per_class", "total"])
def test_real_images_by_label_distributions(real, images, reading):
    data = real(f"{images}-dirichlet", reading=reading)
    train = len(data.fit.order)
    np.testing.assert_array_equal(np.sort(data.fit.order), np.arange(train))
    assert set(data.sizes("fit")) <= {train // 100, train // 100 + 1}
