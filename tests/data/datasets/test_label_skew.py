"""FLAG's label skew in groups, and label distributions."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load, partition
from coterie.errors import SpecError


def group_labels(data):
    """Training labels of the clients of each group."""
    return [set(np.flatnonzero(data.label_counts()[data.truth == g].any(axis=0))) for g in np.unique(data.truth)]


@pytest.mark.parametrize(("name", "groups", "labels"), [("mnist-skew20", 5, 2), ("svhn-skew30", 4, 3)])
def test_groups_own_their_labels(tiny, name, groups, labels):
    data = load(name, clients=20)
    owned = group_labels(data)
    assert [len(own) for own in owned] == [labels] * groups


def test_a_client_is_tested_on_all_test_images_of_its_labels(tiny):
    data = load("cifar10-skew20", clients=20)
    owned = group_labels(data)
    for i in range(20):
        wanted = 400 + np.flatnonzero(np.isin(data.y[400:], list(owned[data.truth[i]])))
        assert sorted(data.rows(i, "test")) == wanted.tolist()


def test_matched_tests_use_each_test_image_once(tiny):
    data = load("cifar10-skew20", clients=20, test_protocol="matched")
    assert sorted(data.test.order) == list(range(400, 500))


def test_the_number_of_groups_can_be_set(tiny):
    data = load("mnist-skew20", clients=20, groups=8, label_sets="random")
    assert len(np.unique(data.truth)) == 8


def test_alpha_and_concentration_are_passed_to_the_partition(tiny):
    data = load("fmnist-skew20", clients=20, alpha=100.0, seed=2)
    expected = partition.label_groups(data.y[:400], 20, skew=0.2, alpha=100.0, seed=2)
    assert data.fit.order.tolist() == expected.fit.order.tolist()
    data = load("mnist-dirichlet", clients=20, alpha=0.5, concentration="total", seed=2)
    expected = partition.dirichlet(data.y[:400], 20, alpha=0.5, concentration="total", seed=2)
    assert data.fit.order.tolist() == expected.order.tolist()


def test_dirichlet_tests_a_client_on_the_labels_that_it_has(tiny):
    data = load("svhn-dirichlet", clients=20)
    assert ((data.label_counts("test") > 0) == (data.label_counts("fit") > 0)).all()
    assert set(data.label_counts("test").ravel()) == {0, 10}  # all ten of a class, or none


def test_an_unknown_protocol_is_rejected(tiny):
    with pytest.raises(SpecError, match=r"No test_protocol 'match'\. Did you mean 'matched'"):
        load("mnist-skew20", test_protocol="match")


@pytest.mark.data
@pytest.mark.parametrize(("percent", "groups"), [pytest.param(20, 5, marks=pytest.mark.exhaustive), (30, 4)])
def test_real_images_in_groups(real, percent, groups):
    data = real(f"cifar10-skew{percent}", alpha=0.25)
    train = len(data.fit.order)
    assert sorted(np.bincount(data.truth)) == [100 // groups] * groups
    assert [len(own) for own in group_labels(data)] == [percent // 10] * groups
    np.testing.assert_array_equal(np.sort(data.fit.order), np.arange(train))
    assert len(np.unique(data.test.order)) == len(data.x) - train


@pytest.mark.data
@pytest.mark.parametrize("concentration", ["per_class", "total"])
def test_real_images_by_label_distributions(real, concentration):
    data = real("svhn-dirichlet", concentration=concentration)
    train = len(data.fit.order)
    np.testing.assert_array_equal(np.sort(data.fit.order), np.arange(train))
    assert set(data.sizes("fit")) <= {train // 100, train // 100 + 1}
