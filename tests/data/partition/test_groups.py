"""FLAG's partitions and test protocols."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.partition import dirichlet, label_groups, local_view, matched
from coterie.data.partition.labels import apportion
from coterie.errors import DataError, SpecError

LABELS = np.random.default_rng(0).permutation(np.arange(5000) % 10)


def counts(index, labels, classes=10):
    return np.array([np.bincount(labels[index.of(i)], minlength=classes) for i in range(len(index))])


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([0.2, 0.3, 0.5, 1.0]), st.sampled_from([0.25, 1.0]), st.integers(0, 99))
def test_groups_use_every_example_and_clients_have_labels_of_their_group_only(skew, alpha, seed):
    made = label_groups(LABELS, 30, skew=skew, alpha=alpha, seed=seed)
    assert sorted(made.fit.order) == list(range(len(LABELS)))
    have = counts(made.fit, LABELS) > 0
    assert not (have & ~made.owned).any()
    assert set(made.owned.sum(axis=1)) == {round(skew * 10)}


def test_a_fifth_of_the_labels_makes_five_disjoint_groups():
    made = label_groups(LABELS, 100, skew=0.2)
    assert np.bincount(made.group).tolist() == [20] * 5
    sets = np.array([made.owned[made.group == g][0] for g in range(5)])
    assert sets.sum(axis=0).tolist() == [1] * 10


def test_three_tenths_of_the_labels_make_four_groups_that_cover_all_labels():
    # 3 labels each: three disjoint sets hold 9 labels, the fourth has the last one and 2 labels of other sets.
    made = label_groups(LABELS, 100, skew=0.3)
    sets = np.array([made.owned[made.group == g][0] for g in range(4)])
    assert sets[:3].sum(axis=0).max() == 1
    assert sorted(sets.sum(axis=0)) == [1] * 8 + [2] * 2


def test_random_label_sets_can_have_any_number_of_groups():
    made = label_groups(LABELS, 40, skew=0.2, groups=8, label_sets="random")
    assert np.bincount(made.group).tolist() == [5] * 8
    assert set(made.owned.sum(axis=1)) == {2}


def test_every_client_of_a_large_pool_gets_the_minimum_number_of_examples():
    labels = np.arange(50_000) % 10  # the size of CIFAR-10
    for seed in range(5):
        assert label_groups(labels, 100, alpha=0.25, seed=seed).fit.sizes().min() >= 10


def test_the_minimum_is_given_up_after_a_hundred_draws(caplog):
    # 20 examples cannot give 10 to each of 4 clients; all examples are still used.
    made = label_groups(np.arange(20) % 2, 4, skew=1.0)
    assert sorted(made.fit.order) == list(range(20))
    assert "have fewer than 10 examples" in caplog.text


def test_a_small_alpha_makes_the_quantities_less_equal():
    low, high = (label_groups(LABELS, 50, alpha=alpha, min_samples=0).fit.sizes().std() for alpha in (100.0, 0.25))
    assert high > 3 * low


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.sampled_from([0.025, 0.25, 5.0]), st.sampled_from(["per_class", "total"]))
def test_dirichlet_gives_equal_sizes_and_uses_each_example_once(clients, alpha, concentration):
    index = dirichlet(LABELS, clients, alpha=alpha, concentration=concentration)
    assert sorted(index.order) == list(range(len(LABELS)))
    assert index.sizes().max() - index.sizes().min() <= 1


def test_a_total_concentration_leaves_fewer_classes_than_one_per_class():
    per_class, total = (
        (counts(dirichlet(LABELS, 50, concentration=concentration), LABELS) > 0).sum(axis=1).mean()
        for concentration in ("per_class", "total")
    )
    assert total < per_class


def test_a_large_alpha_gives_every_client_the_prior():
    # Of 500 examples, 50 of each class are expected, with a standard deviation below 7 (multinomial).
    assert np.abs(counts(dirichlet(LABELS, 10, alpha=1e6), LABELS)[:5] - 50).max() < 35


def test_classes_without_examples_are_never_drawn():
    labels = np.array([0, 0, 3, 3, 3, 3])
    assert sorted(dirichlet(labels, 2).order) == list(range(6))


def test_partitions_depend_on_the_seed_only():
    for make in (lambda seed: label_groups(LABELS, 20, seed=seed).fit, lambda seed: dirichlet(LABELS, 20, seed=seed)):
        assert make(1).order.tolist() == make(1).order.tolist()
        assert make(1).order.tolist() != make(2).order.tolist()


def test_local_view_is_all_test_examples_of_the_owned_labels():
    test_labels = np.array([0, 1, 2, 0, 1, 2])
    owned = np.array([[True, False, True], [False, True, False], [False, False, False]])
    index = local_view(owned, test_labels)
    assert [index.of(i).tolist() for i in range(3)] == [[0, 2, 3, 5], [1, 4], []]


def test_matched_test_examples_follow_the_training_proportions_and_use_each_example_once():
    made = label_groups(LABELS, 30)
    test_labels = np.arange(1000) % 10
    index = matched(made.fit, LABELS, test_labels)
    assert sorted(index.order) == list(range(1000))
    # 500 training and 100 test examples of each class: a fifth, rounded up or down.
    assert np.abs(counts(index, test_labels) - counts(made.fit, LABELS) / 5).max() < 1


def test_a_test_pool_with_an_unknown_label_is_rejected():
    with pytest.raises(DataError, match=r"The test pool has label 7, the training pool only 0\.\.2"):
        local_view(np.ones((1, 3), bool), np.array([7]))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 200), st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_apportioned_numbers_add_up_and_stay_within_one_of_their_quota(total, shares):
    shares = np.array(shares)
    counts_of_parts = apportion(total, shares)
    assert counts_of_parts.sum() == total
    if shares.sum() > 1e-9:
        assert np.abs(counts_of_parts - total * shares / shares.sum()).max() < 1 + 1e-6


def test_the_largest_remainder_gets_the_rest():
    # 10 in 3 : 3 : 1 is 4.29, 4.29, 1.43: 4 + 4 + 1 = 9, and the last one goes to the remainder 0.43.
    assert apportion(10, np.array([3.0, 3.0, 1.0])).tolist() == [4, 4, 2]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: label_groups(LABELS, 3), "clients must be at least 5, the number of groups, got 3"),
        (lambda: label_groups(LABELS, 30, skew=0), "skew must be more than 0, got 0"),
        (lambda: label_groups(LABELS, 30, skew=1.5), "skew must be at most 1, all labels, got 1.5"),
        (lambda: label_groups(LABELS, 30, alpha=0), "alpha must be more than 0, got 0"),
        (lambda: label_groups(LABELS, 30, label_sets="covring"), "No label_sets 'covring'. Did you mean 'covering'?"),
        (
            lambda: dirichlet(LABELS, 30, concentration="per class"),
            "No concentration 'per class'. Did you mean 'per_class'?",
        ),
        (lambda: dirichlet(LABELS, 0), "clients must be at least 1, got 0"),
    ],
)
def test_invalid_settings_are_rejected(call, text):
    with pytest.raises(SpecError) as caught:
        call()
    assert text in str(caught.value)
