"""What clients were clustered on."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.reports.view import RunView


def rounds(count):
    return [{"a": (0, 5), "b": (1, 5), "c": (1, 5)}] * count


def test_each_client_has_its_latest_row(write):
    evidence = {
        0: {"clients": ["a", "b", "c"], "losses": np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 1.0]])},
        2: {"clients": ["b"], "losses": np.array([[5.0, 4.0]])},
    }
    found = RunView.read(write(rounds(3), evidence=evidence)).evidence
    assert found.features.clients == ("a", "b", "c")
    assert found.features.values.tolist() == [[1, 2], [5, 4], [3, 1]]
    assert found.features.rounds.tolist() == [1, 3, 1]
    assert found.reasons["b"].values == {"0": 5.0, "1": 4.0}


def test_without_pairs_distances_are_those_of_the_rows(write):
    evidence = {0: {"clients": ["a", "b"], "losses": np.array([[0.0, 3.0], [4.0, 0.0]])}}
    pairs = RunView.read(write(rounds(1), evidence=evidence)).evidence.pairs
    assert pairs.derived
    assert pairs.values.tolist() == [[0, 5], [5, 0]]


def test_recorded_pairs_are_taken_as_they_are(write):
    distances = np.array([[0.0, 0.5, 1.0], [0.5, 0.0, 2.0], [1.0, 2.0, 0.0]])
    evidence = {0: {"clients": ["a", "b", "c"], "labels": np.array([0, 1, 1]), "distances": distances}}
    found = RunView.read(write(rounds(1), evidence=evidence)).evidence
    assert found.features is None
    assert found.pairs.values.tolist() == distances.tolist()
    assert not found.pairs.derived


def test_rows_of_another_number_of_clusters_are_not_mixed(write):
    evidence = {
        0: {"clients": ["a", "b"], "losses": np.ones((2, 3))},
        1: {"clients": ["a"], "losses": np.array([[1.0, 2.0]])},
    }
    found = RunView.read(write(rounds(2), evidence=evidence)).evidence
    assert found.features.clients == ("a",)
    assert found.features.values.shape == (1, 2)


def test_principal_components_of_different_rounds_are_not_mixed(write):
    evidence = {
        t: {"clients": clients, "scores": np.eye(2)[: len(clients)]} for t, clients in enumerate((["a"], ["b"]))
    }
    assert RunView.read(write(rounds(2), evidence=evidence)).evidence.features.clients == ("b",)


def test_cfl_has_similarities_of_each_cluster_and_the_largest_is_shown(write):
    one = {"clients": ["a"], "mean_norm": 1.0}
    other = {"clients": ["b", "c"], "similarities": np.array([[1.0, 0.5], [0.5, 1.0]]), "labels": np.array([0, 1])}
    pairs = RunView.read(write(rounds(1), evidence={0: {"0": one, "1": other}})).evidence.pairs
    assert pairs.clients == ("b", "c")
    assert pairs.alike
    assert pairs.distances() == pytest.approx(np.array([[0, 0.5], [0.5, 0]]))


def test_a_record_without_evidence_has_no_map(write):
    found = RunView.read(write(rounds(1))).evidence
    assert (found.features, found.pairs, dict(found.reasons)) == (None, None, {})
