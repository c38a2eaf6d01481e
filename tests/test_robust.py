"""Robust aggregation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import tree
from coterie.aggregation import Aggregation, clipped_mean, coordinate_median, geometric_median, krum
from coterie.errors import SpecError

ROBUST = ("trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip")


def models(*rows):
    """Models of two arrays: the first two entries of each row, and the others."""
    table = np.asarray(rows, np.float32)
    return {"a": table[:, :2], "b": {"c": table[:, 2:]}}


def test_the_coordinate_median_is_the_median_of_each_coordinate():
    # 1, 2, 90 → 2; 5, 7, 6 → 6; -1, 0, 9 → 0
    middle = coordinate_median(models([1, 5, -1], [2, 7, 0], [90, 6, 9]))
    assert tree.flatten(middle).tolist() == [2, 6, 0]


def test_the_median_of_an_even_number_is_the_mean_of_the_two_middle_values():
    assert coordinate_median(np.array([[1.0], [2.0], [4.0], [90.0]])).tolist() == [3.0]  # (2 + 4) / 2


def test_the_geometric_median_on_a_line_is_the_middle_model():
    # Distances to 0, 1 and 10 have the smallest sum, 10, at 1; the mean would be 11/3.
    assert geometric_median(np.array([[0.0, 0.0], [1.0, 0.0], [10.0, 0.0]])) == pytest.approx([1, 0], abs=1e-3)


def test_the_geometric_median_of_a_square_is_its_center():
    corners = np.array([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 2.0]])
    assert geometric_median(corners) == pytest.approx([1, 1])


def test_krum_selects_the_model_nearest_to_its_neighbors():
    # f = 1 of J = 5: each counts its 5 - 1 - 2 = 2 nearest. On a line at 0, 1, 2, 4, 100:
    # 0: 1 + 4 = 5; 1: 1 + 1 = 2; 2: 1 + 4 = 5; 4: 4 + 9 = 13; 100: 96² + 98².
    line = np.array([[0.0], [1.0], [2.0], [4.0], [100.0]])
    assert krum(line, 1).tolist() == [1.0]
    # The best two are 1 and, of 0 and 2 with 5 each, the first: their mean is 0.5.
    assert krum(line, 1, keep=2).tolist() == [0.5]
    # All but the outlier: 0, 1, 2, 4 have the mean 7/4.
    assert Aggregation("multi-krum", byzantine_fraction=0.2).of(line, np.ones(5)).tolist() == [1.75]


def test_clipping_reduces_distances_to_the_median_distance():
    # The median is 2, distances 1, 0, 98, their median 1: (2 - 1 + 2 + 2 + 1) / 3 = 2.
    assert clipped_mean(np.array([[1.0], [2.0], [100.0]])).tolist() == [2.0]
    # With τ = 10: (1 + 2 + 12) / 3 = 5.
    assert clipped_mean(np.array([[1.0], [2.0], [100.0]]), max_norm=10.0).tolist() == [5.0]


@pytest.mark.parametrize("rule", ROBUST)
def test_three_outliers_among_ten_models_move_the_result_little(rule):
    draw = np.random.default_rng(0)
    good = draw.normal(size=(7, 3)).astype(np.float32)
    outliers = np.full((3, 3), 1e6, np.float32)
    table = np.concatenate([good, outliers])[draw.permutation(10)]
    found = tree.flatten(Aggregation(rule).of(models(*table), np.ones(10)))
    assert np.linalg.norm(found - good.mean(axis=0)) < np.linalg.norm(good - good.mean(axis=0), axis=1).max()


@pytest.mark.parametrize("rule", ROBUST)
def test_the_aggregate_of_equal_models_or_of_one_model_is_that_model(rule):
    for count in (1, 2, 5):
        found = Aggregation(rule).of(models(*[[1.5, -2.0, 3.0]] * count), np.ones(count))
        assert tree.flatten(found).tolist() == [1.5, -2.0, 3.0]
        assert tree.flatten(found).dtype == np.float32


@pytest.mark.parametrize("rule", ROBUST)
@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.integers(-50, 50), min_size=3, max_size=3), min_size=1, max_size=7), st.randoms())
def test_the_order_of_models_does_not_matter_and_coordinates_stay_in_their_range(rule, rows, shuffle):
    rows = [[value + 0.01 * place * (column + 1) for column, value in enumerate(row)] for place, row in enumerate(rows)]
    mixed = list(rows)
    shuffle.shuffle(mixed)
    one, other = (tree.flatten(Aggregation(rule).of(models(*each), np.ones(len(rows)))) for each in (rows, mixed))
    if "krum" not in rule:  # with tied scores Krum takes the first
        np.testing.assert_allclose(one, other, atol=1e-3)
    table = np.asarray(rows, np.float32)
    assert (one >= table.min(axis=0) - 1e-3).all()
    assert (one <= table.max(axis=0) + 1e-3).all()


@pytest.mark.parametrize("rule", ["mean", *ROBUST])
def test_models_of_weight_zero_are_ignored(rule):
    found = Aggregation(rule).of(models([1, 1, 1], [np.nan, 0, 0], [1, 1, 1]), np.array([1.0, 0.0, 1.0]))
    assert tree.flatten(found).tolist() == [1, 1, 1]


def test_only_the_plain_mean_uses_the_weights():
    bank, weights = np.array([[0.0], [4.0]]), np.array([3.0, 1.0])
    assert Aggregation("mean").of(bank, weights).tolist() == [1.0]  # (0·3 + 4·1) / 4
    assert Aggregation("median").of(bank, weights).tolist() == [2.0]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"rule": "trimed"}, "aggregation.rule must be one of 'mean', 'trimmed-mean'"),
        ({"byzantine_fraction": 0.5}, "aggregation.byzantine_fraction must be at least 0 and below 0.5, got 0.5"),
        ({"max_norm": float("inf")}, "aggregation.max_norm must be a finite number of at least 0"),
    ],
)
def test_invalid_settings_are_rejected(given, text):
    with pytest.raises(SpecError, match=text):
        Aggregation(**given)


def test_krum_rejects_more_malicious_models_than_there_are():
    with pytest.raises(SpecError, match="n_byzantine must be at least 0 and below"):
        krum(np.zeros((2, 1)), 2)
