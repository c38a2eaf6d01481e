"""Cross losses of clients and clusters, computed by hand."""

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


def test_the_cross_loss_of_two_clients_is_the_mean_loss_of_each_model_on_the_other_client() -> None:
    # (2 + 4)/2, (9 + 5)/2, (7 + 3)/2; and the distance to itself is the client's own loss.
    np.testing.assert_array_equal(cross(F, F), [[1, 3, 7], [3, 1, 5], [7, 5, 0.5]])


def test_the_loss_of_a_cluster_is_the_unweighted_mean_over_its_members() -> None:
    # {0, 1} and {2}: (1 + 4)/2, (2 + 1)/2, (9 + 7)/2
    np.testing.assert_array_equal(losses_by_cluster(F, [0, 0, 1], 2), [[2.5, 1.5, 8], [5, 3, 0.5]])
    # A client without a cluster is ignored; a cluster without members has unknown losses.
    found = losses_by_cluster(F, [1, -1, -1], 2)
    np.testing.assert_array_equal(found, [[NAN] * 3, [1, 2, 9]])


def test_the_same_rule_holds_for_clients_and_clusters_and_between_clusters() -> None:
    # f_j(ω_c) of three clients and two clusters; f_c(w_j) as above.
    own = np.array([[1.0, 6.0], [2.0, 8.0], [7.0, 1.0]])
    by_cluster = losses_by_cluster(F, [0, 0, 1], 2)
    # client 0 and cluster 0: (f_0(ω_0) + f_c0(w_0))/2 = (1 + 2.5)/2; client 2 and cluster 1: (1 + 0.5)/2
    np.testing.assert_array_equal(cross(own, by_cluster), [[1.75, 5.5], [1.75, 5.5], [7.5, 0.75]])
    # f_c(ω_c'): cluster 0 has (1 + 2)/2 and (6 + 8)/2, cluster 1 has 7 and 1; between them (7 + 7)/2.
    between = losses_by_cluster(own, [0, 0, 1], 2)
    np.testing.assert_array_equal(cross(between, between), [[1.5, 7], [7, 1]])


def test_a_known_half_is_used_alone_and_an_unknown_pair_gets_the_largest_distance() -> None:
    lost = F.copy()
    lost[0] = NAN  # client 0 did not reply
    np.testing.assert_array_equal(
        cross(lost, lost)[0], [5, 4, 5]
    )  # its distance to itself is unknown: the largest is 5
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
        (lambda: cross(F, F[:2]), r"shape of F transposed, got shapes \(3, 3\) and \(2, 3\)"),
        (lambda: cross(F * NAN, F * NAN), "All losses are unknown"),
        (lambda: cross(F[0], F), "F must be a matrix of losses"),
        (lambda: cross(F, F * np.inf), "G must hold finite losses"),
        (lambda: losses_by_cluster(F, [0, 0], 2), "labels must be numbers from -1 to 1, one for each of the 3 clients"),
        (lambda: losses_by_cluster(F, [0, 0, 2], 2), "labels must be numbers from -1 to 1"),
    ],
)
def test_invalid_tables_are_rejected(call, text) -> None:
    with pytest.raises(SpecError, match=text):
        call()
