"""Thresholds, pivots, nearest clusters and merging, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.clustering import components, l2, merge, nearest, pairwise_quantile, pivots, widest_gap
from coterie.errors import SpecError
from coterie.seeds import Seed

#: Two clusters on a line, {0, 1, 2} and {10, 11.5, 12}: components join at 0.5, 1, 1, 1.5 and 8.
TWO = l2([[0.0], [1.0], [2.0], [10.0], [11.5], [12.0]])


def test_the_gap_is_between_the_distances_at_which_components_join() -> None:
    # The widest is that from 1.5 to 8; among all distances, from 2 to 8. Both give the same clusters.
    gap = widest_gap(TWO)
    assert gap == (4.75, 1.5, 8.0)
    assert components(TWO, gap.threshold).tolist() == [0, 0, 0, 1, 1, 1]


def test_a_wider_gap_between_far_pairs_is_ignored() -> None:
    # {0, 1}, {4, 5} and {8, 9}: components join at 1, 1, 1, 3, 3.
    three = l2([[0.0], [1.0], [4.0], [5.0], [8.0], [9.0]])
    assert widest_gap(three) == (2.0, 1.0, 3.0)
    apart = three.copy()
    apart[0, 5] = apart[5, 0] = (
        50.0  # the widest gap of all distances, from 8 to 50, where a cut would join all clients
    )
    assert widest_gap(apart) == (2.0, 1.0, 3.0)


def test_at_the_cut_at_least_half_of_the_clients_are_in_clusters() -> None:
    # Joins at 0.1, 2, 2.2, 2.4, 2.6: the widest gap is after the first, which leaves 4 of 6 isolated. The others are
    # 0.2.
    chain = l2(np.cumsum([[0.0], [0.1], [2.0], [2.2], [2.4], [2.6]], axis=0))
    assert widest_gap(chain).low == pytest.approx(2.0)
    assert widest_gap(chain, min_size=1).low == pytest.approx(0.1)
    # A cut with half of the clients in pairs is valid: joins at 0.1, 0.1 and 5.
    pairs = l2([[0.0], [0.1], [5.1], [10.1], [15.1], [15.2]])
    assert widest_gap(pairs, min_size=2) == pytest.approx((2.55, 0.1, 5.0))


def test_two_clients_or_equal_ones_are_joined() -> None:
    assert widest_gap(l2([[0.0], [3.0]])) == (3.0, 3.0, 3.0)
    assert widest_gap(l2([[1.0]] * 4)) == (0.0, 0.0, 0.0)
    assert components(l2([[1.0]] * 4), 0.0).tolist() == [0] * 4
    # Three clients, none of which may be isolated: no valid cut, so all are joined.
    assert widest_gap(l2([[0.0], [1.0], [3.0]]), min_size=3) == (2.0, 2.0, 2.0)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_clients_does_not_matter_and_the_cut_lies_in_the_gap(points, random) -> None:
    gap = widest_gap(l2(np.array(points, float)[:, None]))
    random.shuffle(points)
    assert widest_gap(l2(np.array(points, float)[:, None])) == gap
    assert gap.low <= gap.threshold <= gap.high


def test_a_quantile_is_one_of_the_distances() -> None:
    # Of 0, 1, 3, 6 the pairs are 1, 2, 3, 3, 5, 6: ⌈q·6⌉ counted from 0.
    line = l2([[0.0], [1.0], [3.0], [6.0]])
    assert [pairwise_quantile(line, q) for q in (0.0, 1 / 6, 0.2, 0.5, 0.9, 1.0)] == [1, 2, 3, 3, 6, 6]


def test_a_pivot_takes_its_neighbors_but_not_their_neighbors() -> None:
    # A chain a-b-c with d(a, c) > λ: one component; with pivot a, c is isolated; with pivot b, no client is.
    chain = l2([[0.0], [1.0], [2.0]])
    assert components(chain, 1.0).tolist() == [0, 0, 0]
    found = {tuple(pivots(chain, 1.0, Seed(s)).tolist()) for s in range(20)}
    assert found == {(0, 0, 1), (0, 0, 0), (0, 1, 1)}
    small = {tuple(pivots(chain, 1.0, Seed(s), min_size=2).tolist()) for s in range(20)}
    assert small == {(0, 0, -1), (0, 0, 0), (-1, 0, 0)}
    assert pivots(TWO, 5.0, Seed(0)).tolist() == [0, 0, 0, 1, 1, 1]


def test_each_client_joins_the_nearest_cluster_and_small_ones_are_dissolved() -> None:
    D = [[1.0, 2.0, 9.0], [1.0, 1.0, 9.0], [5.0, 2.0, 3.0], [7.0, 3.0, 2.0]]
    # 0, 0 (a tie), 1, 2. With t = 2 both 1 and 2 are dissolved, and all join 0.
    assert nearest(D).tolist() == [0, 0, 1, 2]
    assert nearest(D, 2).tolist() == [0, 0, 0, 0]
    # 3, 1 and 1 clients: of the two dissolved clients, one is nearer to 1, but 1 is dissolved, too.
    more = [*D[:2], [1.0, 3.0, 4.0], [9.0, 2.0, 8.0], [9.0, 8.0, 1.0]]
    assert nearest(more, 2).tolist() == [0, 0, 0, 0, 0]


def test_if_no_cluster_is_large_enough_the_largest_is_kept() -> None:
    assert nearest([[1.0, 2.0], [2.0, 1.0], [3.0, 1.0]], 4).tolist() == [1, 1, 1]
    assert nearest([[1.0, 2.0], [2.0, 1.0]], 2).tolist() == [0, 0]


def test_near_clusters_are_merged_and_the_others_keep_their_order() -> None:
    # Clusters 0 to 4, 1 is empty; 0 and 3 are near, and 3 and 4.
    at = l2([[0.0], [0.0], [50.0], [1.0], [2.0]])
    labels, parts = merge([4, 4, 2, 0, 3], at, 1.0)
    assert parts == [[0, 3, 4], [2]]
    assert labels.tolist() == [0, 0, 1, 0, 0]
    labels, parts = merge([4, 4, 2, 0, 3], at, 0.5)
    assert parts == [[0], [2], [3], [4]]
    assert labels.tolist() == [3, 3, 1, 0, 2]
    assert merge([2, 2, 2], at, 0.5)[1] == [[2]]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: widest_gap([[0.0]]), "at least 2 clients, got 1"),
        (lambda: widest_gap(TWO, 0), "min_size must be a whole number of at least 1"),
        (lambda: pairwise_quantile([[0.0]], 0.5), "at least 2 clients"),
        (lambda: pairwise_quantile(TWO, 1.5), r"share must be between 0 and 1, got 1\.5"),
        (lambda: pivots(TWO, -1.0, Seed(0)), "threshold must not be negative"),
        (lambda: nearest([[np.nan]]), "D must be finite"),
        (lambda: nearest([[1.0]], 0), "min_size must be a whole number"),
        (lambda: merge([0, 6], TWO, 1.0), "labels must be at least one number from 0 to 5"),
        (lambda: merge([], TWO, 1.0), "at least one"),
    ],
)
def test_invalid_input_is_rejected(call, text) -> None:
    with pytest.raises(SpecError, match=text):
        call()
