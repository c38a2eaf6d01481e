"""Cross losses of clients and clusters, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.clustering import cross, losses_by_cluster
from coterie.errors import SpecError

NAN = np.nan
#: f_i(w_j) of three clients.
F = np.array([[1.0, 2.0, 9.0], [4.0, 1.0, 7.0], [5.0, 3.0, 0.5]])


def test_two_clients_are_as_far_apart_as_each_ones_model_is_bad_for_the_other_on_average() -> None:
    # (2 + 4)/2, (9 + 5)/2, (7 + 3)/2; and the distance to oneself is one's own loss.
    np.testing.assert_array_equal(cross(F, F), [[1, 3, 7], [3, 1, 5], [7, 5, 0.5]])


def test_a_clusters_loss_is_the_mean_over_its_members_each_counting_one() -> None:
    # {0, 1} and {2}: (1 + 4)/2, (2 + 1)/2, (9 + 7)/2
    np.testing.assert_array_equal(losses_by_cluster(F, [0, 0, 1], 2), [[2.5, 1.5, 8], [5, 3, 0.5]])
    # Who has no cluster counts nowhere; a cluster without members says nothing.
    found = losses_by_cluster(F, [1, -1, -1], 2)
    np.testing.assert_array_equal(found, [[NAN] * 3, [1, 2, 9]])


def test_clients_to_clusters_and_clusters_to_clusters_are_the_same_rule() -> None:
    # f_j(ω_c) of three clients and two clusters; f_c(w_j) as above.
    own = np.array([[1.0, 6.0], [2.0, 8.0], [7.0, 1.0]])
    by_cluster = losses_by_cluster(F, [0, 0, 1], 2)
    # client 0 and cluster 0: (f_0(ω_0) + f_c0(w_0))/2 = (1 + 2.5)/2; client 2 and cluster 1: (1 + 0.5)/2
    np.testing.assert_array_equal(cross(own, by_cluster), [[1.75, 5.5], [1.75, 5.5], [7.5, 0.75]])
    # f_c(ω_c'): cluster 0 has (1 + 2)/2 and (6 + 8)/2, cluster 1 has 7 and 1; between them (7 + 7)/2.
    between = losses_by_cluster(own, [0, 0, 1], 2)
    np.testing.assert_array_equal(cross(between, between), [[1.5, 7], [7, 1]])


def test_the_known_half_counts_where_the_other_is_lost_and_nothing_known_is_the_farthest() -> None:
    lost = F.copy()
    lost[0] = NAN  # client 0 did not answer
    np.testing.assert_array_equal(cross(lost, lost)[0], [5, 4, 5])  # of itself nobody knows anything: the farthest is 5
    lost[:, 0] = NAN
    np.testing.assert_array_equal(cross(lost, lost), [[5, 5, 5], [5, 1, 5], [5, 5, 0.5]])
    np.testing.assert_array_equal(losses_by_cluster(lost, [0, 0, 0], 1), [[NAN, 2, 3.75]])


@given(st.permutations(range(3)))
@settings(max_examples=6, deadline=None)
def test_renaming_clients_renames_their_distances(order: list[int]) -> None:
    turned = F[np.ix_(order, order)]
    np.testing.assert_array_equal(cross(turned, turned), cross(F, F)[np.ix_(order, order)])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: cross(F, F[:2]), r"same pairs, got shapes \(3, 3\) and \(2, 3\)"),
        (lambda: cross(F * NAN, F * NAN), "No loss is known"),
        (lambda: cross(F[0], F), "F must be a table of losses"),
        (lambda: cross(F, F * np.inf), "G must hold finite losses"),
        (lambda: losses_by_cluster(F, [0, 0], 2), "labels must be one of -1 to 1 for each of the 3 clients"),
        (lambda: losses_by_cluster(F, [0, 0, 2], 2), "labels must be one of -1 to 1"),
    ],
)
def test_tables_that_do_not_fit_are_refused(call, text) -> None:
    with pytest.raises(SpecError, match=text):
        call()
