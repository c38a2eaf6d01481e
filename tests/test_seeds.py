"""Seeds by name, and draws from raw words."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import SpecError
from coterie.seeds import Seed

VALUES = st.integers(0, 2**128 - 1)
NAMES = st.lists(st.text(max_size=3) | st.integers(-99, 99), max_size=3)


def chi_square(counts, expected):
    """Pearson's statistic, and a bound that a correct sampler exceeds with probability below e^-20.

    Laurent and Massart: P(X > k + 2·sqrt(k·t) + 2t) ≤ e^-t for a chi-square variable of k degrees of freedom; t = 20.
    """
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    k = len(counts) - 1
    return np.sum((counts - expected) ** 2 / expected), k + 2 * math.sqrt(k * 20) + 40


@given(VALUES, NAMES, NAMES)
def test_equal_names_give_equal_seeds_and_different_names_different_seeds(value, one, other):
    tagged = [[(type(name), name) for name in names] for names in (one, other)]
    assert (Seed(value).fold(*one) == Seed(value).fold(*other)) == (tagged[0] == tagged[1])


def test_folding_distinguishes_lengths_types_and_orders():
    root = Seed(0)
    seeds = [
        root,
        root.fold("a", "b"),
        root.fold("b", "a"),
        root.fold("ab"),
        root.fold("a").fold("b"),
        root.fold("b").fold("a"),
        root.fold("a", ""),
        root.fold("a"),
        root.fold(1),
        root.fold("1"),
        root.fold(-1),
        root.fold("s1:a"),  # how the name "a" is encoded
        Seed(1).fold("a"),
    ]
    assert len(set(seeds)) == len(seeds)


def test_numpy_integers_fold_like_python_integers():
    assert Seed(0).fold("round", np.int64(3)) == Seed(0).fold("round", 3)
    assert Seed(np.uint8(7)).fold("a") == Seed(7).fold("a")


@given(VALUES)
def test_words_are_the_raw_philox_stream_with_the_seed_as_key(value):
    assert Seed(value).words(9).tolist() == np.random.Philox(key=value).random_raw(9).tolist()


def test_more_words_begin_with_the_same_words():
    assert Seed(5).words(100)[:7].tolist() == Seed(5).words(7).tolist()
    assert Seed(5).words(0).shape == (0,)


@given(VALUES)
def test_uniform_numbers_are_the_upper_53_bits_as_a_fraction(value):
    numbers = Seed(value).uniform(20)
    assert [int(u * 2**53) for u in numbers] == [int(word) >> 11 for word in Seed(value).words(20)]
    assert (numbers >= 0).all()
    assert (numbers < 1).all()


@given(VALUES, st.integers(1, 2**70))
def test_an_integer_is_the_first_word_scaled_to_the_range(value, n):
    assert Seed(value).integer(n) == int(Seed(value).words(1)[0]) * n // 2**64
    assert 0 <= Seed(value).integer(n) < n


def test_integers_are_uniform():
    counts = np.bincount([Seed(2).fold(i).integer(7) for i in range(3500)], minlength=7)
    statistic, bound = chi_square(counts, [500] * 7)
    assert statistic < bound


@pytest.mark.parametrize("n", [0, -1])
def test_an_integer_from_an_empty_range_is_refused(n):
    with pytest.raises(ValueError, match=f"Cannot draw an integer below {n}; the limit must be at least 1"):
        Seed(0).integer(n)


@given(VALUES, st.integers(0, 60))
def test_a_permutation_is_the_stable_argsort_of_the_words(value, n):
    order = Seed(value).permutation(n)
    words = Seed(value).words(n).tolist()
    assert order.tolist() == sorted(range(n), key=lambda i: words[i])  # Python's sort is stable
    assert sorted(order.tolist()) == list(range(n))


@given(VALUES, st.integers(0, 5), st.integers(0, 20))
def test_each_permutation_sorts_the_next_words_of_the_stream(value, times, n):
    orders = Seed(value).permutations(times, n)
    assert orders.shape == (times, n)
    words = Seed(value).words(times * n)
    for i, order in enumerate(orders):
        assert order.tolist() == np.argsort(words[i * n : (i + 1) * n], kind="stable").tolist()


@given(VALUES, st.integers(0, 40), st.data())
def test_a_sample_has_distinct_numbers_and_a_smaller_sample_is_its_prefix(value, n, data):
    size = data.draw(st.integers(0, n))
    drawn = Seed(value).sample(n, n)
    assert sorted(drawn) == list(range(n))
    assert Seed(value).sample(n, size) == drawn[:size]


def test_the_cost_of_a_sample_does_not_depend_on_the_range():
    drawn = Seed(3).sample(10**12, 50)  # a list of 10¹² numbers would not fit
    assert len(set(drawn)) == 50
    assert all(0 <= number < 10**12 for number in drawn)
    # The probability that all 50 draws are below 10¹¹ is 10^-50.
    assert max(drawn) > 10**11


def test_all_ordered_samples_are_equally_likely():
    pairs = list(itertools.permutations(range(5), 2))  # 5·4 = 20
    counts = dict.fromkeys(pairs, 0)
    for i in range(4000):
        counts[tuple(Seed(0).fold("draw", i).sample(5, 2))] += 1
    statistic, bound = chi_square(list(counts.values()), [4000 / 20] * 20)
    assert statistic < bound


def test_a_weighted_sample_draws_in_proportion_to_the_remaining_weights():
    # P(i, j) = w_i/W · w_j/(W - w_i) with W = 1 + 2 + 5 = 8.
    weights = [1, 0, 2, 5]
    chance = {(i, j): weights[i] / 8 * weights[j] / (8 - weights[i]) for i, j in itertools.permutations((0, 2, 3), 2)}
    assert sum(chance.values()) == pytest.approx(1)
    counts = dict.fromkeys(chance, 0)
    for i in range(6000):
        counts[tuple(Seed(1).fold(i).weighted_sample(weights, 2))] += 1
    statistic, bound = chi_square(list(counts.values()), [6000 * p for p in chance.values()])
    assert statistic < bound


@given(VALUES, st.lists(st.sampled_from([0.0, 5e-324, 1e-310, 1e-3, 1.0, 1e300]), max_size=12), st.integers(0, 15))
def test_a_weighted_sample_never_draws_weight_zero_and_is_limited_by_the_positive_weights(value, weights, size):
    drawn = Seed(value).weighted_sample(weights, size)
    eligible = {i for i, weight in enumerate(weights) if weight > 0}
    assert len(drawn) == len(set(drawn)) == min(size, len(eligible))
    assert set(drawn) <= eligible


@given(VALUES, st.lists(st.floats(0.1, 10), min_size=1, max_size=8))
def test_a_smaller_weighted_sample_is_a_prefix_of_a_larger_one(value, weights):
    everything = Seed(value).weighted_sample(weights, len(weights))
    assert Seed(value).weighted_sample(weights, 1) == everything[:1]


@pytest.mark.parametrize("weights", [[1, -1], [1, math.nan], [math.inf, 1]])
def test_weights_that_are_negative_or_not_finite_are_refused(weights):
    with pytest.raises(ValueError, match="Weights of a draw must be finite and at least 0"):
        Seed(0).weighted_sample(weights, 1)


@pytest.mark.parametrize(("n", "size"), [(3, 4), (3, -1), (0, 1)])
def test_a_sample_that_cannot_be_drawn_is_refused(n, size):
    with pytest.raises(ValueError, match=f"Cannot draw {size} of {n} without replacement"):
        Seed(0).sample(n, size)


def test_a_weighted_sample_of_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="Cannot draw -1 of 2 without replacement"):
        Seed(0).weighted_sample([1, 1], -1)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_a_seed_must_be_a_whole_number(value):
    with pytest.raises(TypeError, match="A seed must be a whole number, got"):
        Seed(value)


@pytest.mark.parametrize("value", [-1, 2**128])
def test_a_seed_of_more_than_128_bits_is_refused(value):
    with pytest.raises(SpecError, match=r"A seed must be between 0 and 2\*\*128 - 1"):
        Seed(value)


def test_a_generator_always_starts_anew_and_a_key_is_two_words():
    assert Seed(4).generator().normal() == Seed(4).generator().normal()
    low, high = (int(word) for word in Seed(4).key())
    assert low + (high << 32) == int(Seed(4).words(1)[0])
    assert Seed(4).key().dtype == np.uint32


@given(VALUES, st.integers(0, 40))
def test_words_equal_those_of_a_new_generator(value, count):
    assert Seed(value).words(count).tolist() == np.random.Philox(key=value).random_raw(count).tolist()


def test_concurrent_draws_in_threads_are_independent():
    seeds = [Seed(value) for value in range(64)]
    alone = [seed.words(500).tolist() for seed in seeds]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda seed: [seed.words(500).tolist() for _ in range(20)], seeds))
    assert all(each == [words] * 20 for each, words in zip(together, alone, strict=True))
