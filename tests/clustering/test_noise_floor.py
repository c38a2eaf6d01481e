"""Thresholds above a measured noise floor, with distances small enough to follow by hand."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.clustering import components, first_gap_above_noise, l2, noise_limit, widest_gap
from coterie.errors import SpecError

# Two pairs of clusters: points at 0, 1 | 6, 7 | 30, 31 | 36, 37. Components join at 1 (four times), 5 (twice), 23.
FOUR = l2(np.array([0.0, 1, 6, 7, 30, 31, 36, 37])[:, None])


def test_the_limit_is_half_way_from_the_floor_to_the_median_distance_but_above_the_floor():
    # The distances of 0, 2 and 10 are 2, 8 and 10: median 8.
    distances = l2(np.array([[0.0], [2], [10]]))
    assert noise_limit(distances, 2.0) == 5.0
    assert noise_limit(distances, 8.0) == pytest.approx(8.8)  # 1.1 · 8, as (8 + 8)/2 is below it
    assert noise_limit(distances, 0.0) == 4.0


def test_the_first_gap_above_the_floor_is_taken_and_not_the_widest_one():
    # Twelve points in two clusters near each other, two far away. Joins: at 0.1 within, 5 between the first two
    # clusters, 23 to the last: the widest gap is from 5 to 23.
    many = l2(np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 5.5, 5.6, 5.7, 5.8, 5.9, 6.0, 29, 29.1])[:, None])
    # 31 of 91 distances are at most 0.5, the 36 between the first two clusters are 5 to 6, with a mean of 5.5: the
    # median is one of these, and with floor 1 the limit between (1 + 5)/2 = 3 and (1 + 6)/2 = 3.5.
    assert widest_gap(many).high == pytest.approx(23.0)
    gap = first_gap_above_noise(many, 1.0)
    assert (gap.low, gap.high) == pytest.approx((0.1, 5.0))
    assert components(many, gap.threshold, 2).tolist() == [0] * 6 + [1] * 6 + [2] * 2


def test_clusters_are_joined_if_most_clients_differ_much_more():
    # Of the 28 distances the 14th and 15th are 24: the limit is (1.5 + 24)/2 = 12.75. The mean between the clusters at
    # 0, 1 and 6, 7 is 6, below it; between the two pairs of clusters it is 30.
    assert first_gap_above_noise(FOUR, 1.5) == (14.0, 5.0, 23.0)


def test_a_floor_above_all_distances_gives_one_cluster():
    # 1.1 · 40 is above the largest mean between components.
    assert first_gap_above_noise(FOUR, 40.0) == (23.0, 23.0, 23.0)
    assert components(FOUR, 23.0, 2).tolist() == [0] * 8


def test_one_close_pair_does_not_join_two_clusters_that_are_far_apart_on_average():
    # Within each of two clusters of four all distances are 2; between them they are 10, but one is 2.1. The joins are
    # at 2 (six times) and 2.1: no gap to be seen. The mean between the clusters is (15 · 10 + 2.1)/16 = 9.5.
    distances = np.full((8, 8), 10.0)
    distances[:4, :4] = distances[4:, 4:] = 2.0
    distances[0, 4] = distances[4, 0] = 2.1
    np.fill_diagonal(distances, 0.0)
    # Of 28 distances 12 are 2: the median is 10, and the limit (2 + 10)/2 = 6.
    gap = first_gap_above_noise(distances, 2.0)
    assert (gap.low, gap.high) == (2.0, 2.1)
    assert components(distances, gap.threshold, 2).tolist() == [0] * 4 + [1] * 4


def test_joins_of_small_components_are_not_judged_and_half_of_the_clients_are_covered():
    # 0 and 1 join at 1, 50 and 51 at 1, and 100 alone at 49: with min_size 2 its join is not judged, so the first that
    # is judged is that of the pairs, also at 49. With min_size 3 no component is large enough before all are joined.
    distances = l2(np.array([0.0, 1, 50, 51, 100])[:, None])
    assert first_gap_above_noise(distances, 1.0) == (25.0, 1.0, 49.0)
    assert first_gap_above_noise(distances, 1.0, min_size=3) == (49.0, 49.0, 49.0)
    # Six clients, one pair: only 2 of 6 are covered when the pair meets the next client, so all are joined.
    spread = l2(np.array([0.0, 0.1, 10, 30, 60, 100])[:, None])
    assert first_gap_above_noise(spread, 0.1).low == pytest.approx(40.0)


@pytest.mark.parametrize("floor", [-1.0, np.nan, np.inf])
def test_invalid_arguments_are_rejected(floor):
    with pytest.raises(SpecError, match="floor must be a finite number of at least 0"):
        first_gap_above_noise(FOUR, floor)
    with pytest.raises(SpecError, match="at least 2 clients, got 1"):
        first_gap_above_noise([[0.0]], 1.0)
    with pytest.raises(SpecError, match="min_size must be a whole number of at least 1"):
        first_gap_above_noise(FOUR, 1.0, 0)
