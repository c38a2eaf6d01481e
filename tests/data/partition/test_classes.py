"""A few classes for each client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coterie.data.partition import by_classes, by_lognormal, by_shares
from coterie.errors import DataError, SpecError

# Numbers of training and test images of each digit in MNIST; 70,000 in total.
MNIST = [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]


def mnist_labels():
    return np.random.default_rng(0).permutation(np.repeat(np.arange(10), MNIST))


def classes_of(index, labels):
    return [sorted({int(label) for label in labels[index.of(i)]}) for i in range(len(index))]


def test_mnist_by_power_law_has_the_published_shape():
    labels = mnist_labels()
    index = by_classes(labels, 1000)
    assert len(index) == 1000
    assert classes_of(index, labels) == [sorted([u % 10, (u + 1) % 10]) for u in range(1000)]
    assert 68_900 <= len(index.order) <= 70_000
    assert len(np.unique(index.order)) == len(index.order)
    assert index.sizes().min() >= 10  # 5 of each of 2 digits
    # LogNormal(0, 2) has a heavy tail: the deviation exceeds the mean of 69 (106 in the papers' data).
    assert index.sizes().std() > index.sizes().mean()


@pytest.mark.parametrize("seed", range(4))
def test_sizes_are_drawn_until_their_spread_matches(seed):
    sizes = by_classes(mnist_labels(), 1000, spread=106 / 69, seed=seed).sizes()
    # Within 10 %, and a little more, since too few examples may be left for a client.
    assert 0.9 * 106 / 69 - 0.01 < sizes.std() / sizes.mean() < 1.1 * 106 / 69 + 0.01


def test_an_unreachable_spread_gives_the_closest_draw():
    # One client: sizes have no spread, and every draw is equally close.
    assert by_classes(np.zeros(10, int), 1, per_client=1, base=2, spread=5.0).sizes().tolist() == [2]


@pytest.mark.parametrize(("c", "base"), [(1, 10), (3, 3), (5, 2), (10, 1)])
def test_every_client_has_its_classes_and_the_base_of_each(c, base):
    labels = mnist_labels()
    index = by_classes(labels, 1000, per_client=c)
    assert classes_of(index, labels) == [sorted((u + j) % 10 for j in range(c)) for u in range(1000)]
    assert index.sizes().min() >= base * c
    assert len(np.unique(index.order)) == len(index.order)


def test_the_base_is_taken_first_and_in_order():
    # 3 classes in turn (0 1 2 0 1 2 ...), client u owns class u, base 2: class 0 is at 0, 3, 6, ...
    labels = np.arange(30) % 3
    index = by_classes(labels, 3, per_client=1, base=2)
    assert [index.of(u)[:2].tolist() for u in range(3)] == [[0, 3], [1, 4], [2, 5]]


def test_more_examples_than_are_left_are_not_taken():
    # One class, one client: P scales to all 8 that are left after a base of 2, and 2 + 8 ≥ 10 is too many by the rule.
    assert by_classes(np.zeros(10, int), 1, per_client=1, base=2).sizes().tolist() == [2]


def test_with_fewer_reserved_examples_a_class_runs_out():
    # One class of 100, two clients that first take 40 each. P counts all but 10, so that one of the two asks for at
    # least 45 more, but only 20 are left; a client that asks for less than 20 gets them.
    labels = np.zeros(100, int)
    for seed in range(8):
        sizes = by_classes(labels, 2, per_client=1, base=40, reserved=10, seed=seed).sizes()
        assert sizes.min() == 40
        assert sizes.max() < 60
    with pytest.raises(DataError, match="reserved must be at most the number of examples of a class, 100, got 101"):
        by_classes(labels, 2, per_client=1, base=40, reserved=101)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(1, 25), st.integers(1, 4), st.integers(0, 99))
def test_power_law_never_uses_an_example_twice(classes, clients, c, seed):
    assume(c <= classes)
    labels = np.arange(400) % classes
    index = by_classes(labels, clients, per_client=c, base=1, seed=seed)
    assert len(np.unique(index.order)) == len(index.order)
    assert all(len(own) == c for own in classes_of(index, labels))


def test_partitions_depend_on_the_seed_only():
    labels, test_labels = np.arange(2000) % 10, np.arange(300) % 10
    for make in (
        lambda seed: by_classes(labels, 20, seed=seed),
        lambda seed: by_lognormal(labels, 20, seed=seed),
        lambda seed: by_shares(labels, test_labels, 20, seed=seed)[0],
    ):
        assert make(1).order.tolist() == make(1).order.tolist()
        assert make(1).order.tolist() != make(2).order.tolist()


def test_femnist_200_uses_every_example_once_before_any_twice():
    labels = np.arange(40_000) % 10
    index = by_lognormal(labels)
    assert len(index) == 200
    used = np.bincount(index.order, minlength=len(labels))
    for label in range(10):
        of_class = used[labels == label]
        assert of_class.max() - of_class.min() <= 1
    assert classes_of(index, labels) == [sorted((u + j) % 10 for j in range(5)) for u in range(200)]
    assert index.sizes().min() >= 10  # at least 2 of each of 5 classes


def test_the_published_femnist_200_gives_every_client_the_same_first_images():
    labels = np.arange(40_000) % 10
    index = by_lognormal(labels, compat_prefix=True)
    # Clients 0 and 10 own the classes 0..4; the first image of class 0 is example 0.
    assert {0} <= set(index.of(0).tolist()) & set(index.of(10).tolist())
    assert index.sizes().tolist() == by_lognormal(labels).sizes().tolist()


def test_ditto_wraps_around_within_a_class_only():
    labels, test_labels = np.arange(6000) % 10, np.arange(1000) % 10
    fit, test = by_shares(labels, test_labels, 100)
    owned = [sorted((u + j) % 10 for j in range(5)) for u in range(100)]
    for index, of in ((fit, labels), (test, test_labels)):
        assert classes_of(index, of) == owned
        used = np.bincount(index.order, minlength=len(of))
        for label in range(10):
            of_class = used[of == label]
            assert of_class.max() - of_class.min() <= 1


def test_ditto_uses_about_the_number_of_examples():
    # Each of 100·5 amounts is int(p·n_u) + 1, between p·n_u and p·n_u + 1, and the p·n_u add up to 6,000.
    fit, test = by_shares(np.arange(6000) % 10, np.arange(1000) % 10, 100)
    assert 6000 <= len(fit.order) <= 6500
    assert 1000 <= len(test.order) <= 1500


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: by_classes(np.arange(20) % 2, 3, per_client=3), SpecError, "per_client must be at most 2, the number"),
        (lambda: by_classes(np.arange(20) % 2, 0), SpecError, "clients must be at least 1, got 0"),
        (lambda: by_classes(np.arange(20) % 2, 3, base=0), SpecError, "base must be at least 1, got 0"),
        (lambda: by_classes(np.arange(20) % 2, 3), DataError, "Class 0 has 10 examples, but 15 are needed to give 5"),
        (
            lambda: by_classes(np.array([0.5]), 3),
            DataError,
            "Labels must be a non-empty list of integers",
        ),
        (
            lambda: by_classes(np.array([], int), 3),
            DataError,
            "Labels must be a non-empty list of integers",
        ),
        (lambda: by_lognormal(np.array([0, 2]), 3, per_client=1), DataError, "Class 1 has no examples"),
        (
            lambda: by_shares(np.array([0, 1]), np.array([0]), 3, per_client=1),
            DataError,
            "Class 1 has no test examples",
        ),
    ],
)
def test_invalid_settings_are_rejected(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
