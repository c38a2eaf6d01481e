"""Synthetic(α, β)."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.data.datasets.synthetic import client_model, synthetic
from coterie.errors import DataError, SpecError


def test_labels_follow_from_the_clients_classifier():
    data = synthetic(0.5, 0.5, clients=5)
    for position, client in enumerate(data.clients):
        model = client_model(position, 0.5, 0.5)
        for part in ("fit", "test"):
            x, y = data.examples(client, part)
            np.testing.assert_array_equal(model.labels(x), y)


def test_features_have_the_clients_mean_and_decreasing_variances():
    # The sum of (x_j - v_j)² / j^-1.2 over n examples has mean n and variance 2n; the largest client has thousands.
    data = synthetic(1, 1)
    position = int(np.argmax(data.sizes("fit")))
    x, _ = data.examples(data.clients[position])
    n = len(x)
    scaled = (x - client_model(position, 1, 1).mean) ** 2 / np.arange(1, 61) ** -1.2
    assert np.abs(scaled.sum(axis=0) - n).max() < 5 * np.sqrt(2 * n)


def test_beta_sets_the_spread_of_the_clients_means():
    # v_k's entries average to B_k ~ N(0, β), with 1/√60 of noise: 0.13 for β = 0, about 3 for β = 3.
    low, high = (np.std([client_model(k, 0, beta).mean.mean() for k in range(200)]) for beta in (0, 3))
    assert low < 0.3
    assert 2 < high < 4


def test_alpha_sets_the_spread_of_the_clients_classifiers():
    low, high = (np.std([client_model(k, alpha, 0).weights.mean() for k in range(200)]) for alpha in (0, 3))
    assert low < 0.3
    assert 2 < high < 4


def test_synthetic_0_0_is_not_iid_but_the_iid_variant_has_one_classifier():
    assert (client_model(0, 0, 0).weights != client_model(1, 0, 0).weights).all()
    one, two = client_model(0, 1, 1, iid=True), client_model(7, 1, 1, iid=True)
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.bias, two.bias)
    assert not one.mean.any()
    data = synthetic(iid=True, clients=3)
    x, y = data.examples("2")
    np.testing.assert_array_equal(one.labels(x), y)


def test_every_client_has_at_least_50_examples_and_a_tenth_is_for_testing():
    data = synthetic(clients=40)
    total = data.sizes("fit") + data.sizes("test")
    assert total.min() >= 50
    # LogNormal(4, 2) has the median e⁴ = 54.6, so sizes have 50 + 54 = 104; 40 draws put it within a factor of 3.
    assert 50 + 18 < np.median(total) < 50 + 164
    assert data.sizes("fit").tolist() == [9 * n // 10 for n in total.tolist()]
    assert data.shape == (60,)


def test_a_negative_alpha_is_rejected():
    with pytest.raises(SpecError, match="alpha must be at least 0, got -1"):
        synthetic(alpha=-1)


def test_a_clients_examples_do_not_depend_on_the_number_of_clients():
    few, more = synthetic(clients=3, samples=20), synthetic(clients=12, samples=20)
    np.testing.assert_array_equal(few.examples("2", "fit")[0], more.examples("02", "fit")[0])


def test_more_than_10000_clients_have_20_examples_each_as_the_source_says():
    data = synthetic(clients=10_001)
    assert set(data.sizes("fit") + data.sizes("test")) == {20}
    assert "20 examples per client" in data.source


@pytest.mark.parametrize(("samples", "share", "fit"), [(4, 0.1, 3), (10, 0.99, 1), (10, 0.0, 10), (1, 0.5, 1)])
def test_equal_numbers_of_examples_are_split_by_the_common_rule(samples, share, fit):
    # max(1, floor((1 - share)·samples)) for training, and at least one for testing where there are two and a share.
    data = synthetic(clients=3, samples=samples, test_share=share)
    assert data.sizes("fit").tolist() == [fit] * 3
    assert data.sizes("test").tolist() == [samples - fit] * 3


# FedSim's draw --------------------------------------------------------------------------------------------------------


def write_draw(folders, **changes):
    """An archive of two clients: 2 and 1 training examples, 1 and 1 test examples."""
    parts = {
        "x_train": np.arange(6, dtype=np.float32).reshape(3, 2),
        "y_train": np.array([0, 9, 3], np.uint8),
        "offsets_train": np.array([0, 2, 3], np.int32),
        "x_test": np.array([[7, 8], [9, 10]], np.float32),
        "y_test": np.array([1, 2], np.uint8),
        "offsets_test": np.array([0, 1, 2], np.int32),
    }
    np.savez(folders / "data" / "synthetic_0_0_fedsim.npz", **{**parts, **changes})


def test_the_authors_draw_has_their_split(folders):
    write_draw(folders)
    data = load("synthetic-0-0-fedsim")
    assert data.classes == 10
    assert [data.examples(client, "fit")[1].tolist() for client in data.clients] == [[0, 9], [3]]
    assert [data.examples(client, "test")[0].tolist() for client in data.clients] == [[[7, 8]], [[9, 10]]]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"offsets_train": np.array([0, 2, 2])}, "offsets_train must go from 0 to 3"),
        ({"offsets_test": np.array([0, 2, 1])}, "offsets_test must be increasing"),
        ({"offsets_test": np.array([0, 2])}, "differ in the number of clients"),
        ({"x_test": np.zeros((2, 3), np.float32)}, "differ in the number of clients or of features"),
        ({"x_train": np.zeros(3, np.float32)}, "x_train must hold a row of numbers"),
        ({"y_train": np.zeros(2, np.uint8)}, "y_train must hold an integer for each example"),
    ],
)
def test_a_malformed_draw_is_refused(folders, changes, text):
    write_draw(folders, **changes)
    with pytest.raises(DataError, match=text):
        load("synthetic-0-0-fedsim")


@pytest.mark.data
def test_the_real_draw_of_the_authors_has_the_published_sizes(real):
    data = real("synthetic-0-0-fedsim")
    assert (len(data.clients), data.sizes("fit").sum(), data.sizes("test").sum()) == (30, 4491, 516)


def test_the_sizes_of_clients_can_be_given():
    data = synthetic(clients=3, sizes=(50, 100, 15))
    assert (data.sizes("fit") + data.sizes("test")).tolist() == [50, 100, 15]
    assert data.sizes("test").tolist() == [5, 10, 2]  # a tenth, rounded up
    # The law of a client does not depend on the sizes.
    x, y = data.examples(data.clients[1])
    np.testing.assert_array_equal(client_model(1, 1, 1).labels(x), y)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sizes": (50, 60)}, "data.sizes has 2 numbers, but data.clients is 3"),
        ({"sizes": (50, 60, 0)}, "data.sizes must be at least 1, got 0"),
        ({"sizes": (50, 60, 70), "samples": 20}, "takes the place of data.samples, which is 20"),
    ],
)
def test_wrong_sizes_are_refused(options, problem):
    with pytest.raises(SpecError, match=problem):
        synthetic(clients=3, **options)
