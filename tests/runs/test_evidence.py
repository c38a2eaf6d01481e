"""Recorded evidence as reasons: one value per cluster for each client."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.runs.evidence import Reason, reasons

PAIRS = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 5.0], [4.0, 5.0, 0.0]])


def test_losses_are_values_per_cluster():
    found = reasons({"clients": ["a", "b"], "losses": np.array([[0.5, 2.0], [3.0, 1.0]])})
    assert found == {"a": Reason("loss", {"0": 0.5, "1": 2.0}), "b": Reason("loss", {"0": 3.0, "1": 1.0})}
    assert found["a"].margin("0") == 1.5
    assert found["b"].margin("0") == -2.0  # cluster 1 would be better


def test_the_largest_cosine_is_the_best():
    found = reasons({"clients": ["a"], "cosines": np.array([[0.25, 0.75, -1.0]])})["a"]
    assert found.ranked() == ["1", "0", "2"]
    assert (found.margin("1"), found.nearest_other("1")) == (0.5, "0")


@pytest.mark.parametrize("key", ["distances", "angles", "proximity"])
def test_pairs_become_means_over_the_other_clients_of_each_cluster(key):
    found = reasons({"clients": ["a", "b", "c"], "labels": np.array([0, 0, 1]), key: PAIRS})
    assert found["a"].values == {"0": 1.0, "1": 4.0}
    assert found["b"].values == {"0": 1.0, "1": 5.0}
    assert found["c"].values == {"0": 4.5}  # (4 + 5) / 2; there is no other client in its own cluster


def test_a_client_without_a_cluster_counts_for_none():
    found = reasons({"clients": ["a", "b", "c"], "labels": np.array([0, 0, -1]), "distances": PAIRS})
    assert found["a"].values == {"0": 1.0}


def test_points_are_compared_with_the_means_of_the_clusters():
    # The means of {0, 2} and {10} are 1 and 10.
    evidence = {
        "clients": ["a", "b", "c"],
        "labels": np.array([0, 0, 1]),
        "embedding": np.array([[0.0], [2.0], [10.0]]),
    }
    assert [reasons(evidence)[client].values for client in "abc"] == [
        {"0": 1.0, "1": 10.0},
        {"0": 1.0, "1": 8.0},
        {"0": 9.0, "1": 0.0},
    ]


def test_a_merged_cluster_is_as_near_as_its_nearest_part():
    # SR-FCA merges clusters 0 and 2 to the new cluster 0; cluster 1 stays alone.
    evidence = {
        "clients": ["a"],
        "labels": np.array([0]),
        "distances": np.array([[3.0, 2.0, 1.0]]),
        "merged": [[0, 2], [1]],
    }
    assert reasons(evidence)["a"].values == {"0": 1.0, "1": 2.0}


def test_a_split_compares_the_two_parts():
    similarities = np.array([[1.0, 0.5, -1.0], [0.5, 1.0, -0.5], [-1.0, -0.5, 1.0]])
    split = {"clients": ["a", "b", "c"], "labels": np.array([0, 0, 1]), "similarities": similarities}
    found = reasons({"0": split, "1": {"clients": ["d"], "mean_norm": 1.0}})
    assert found["a"].values == {"its part": 0.5, "other part": -1.0}
    assert found["c"].values == {"other part": -0.75}  # (-1 - 0.5) / 2
    assert "d" not in found


@pytest.mark.parametrize(
    "evidence", [{}, {"clients": ["a"], "goodness": 1.0}, {"clients": ["a"], "losses": np.ones(3)}]
)
def test_evidence_without_a_value_per_cluster_gives_no_reason(evidence):
    assert reasons(evidence) == {}


def test_a_single_cluster_has_no_margin():
    only = Reason("loss", {"0": 1.0})
    assert (only.margin("0"), only.nearest_other("0")) == (None, None)
