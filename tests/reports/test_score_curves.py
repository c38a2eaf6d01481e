"""Scores over rounds."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.reports.score_curves import PrimaryMetric, worst_tenth
from coterie.reports.view import RunView

ACCURACY = PrimaryMetric("accuracy", "accuracy", greater_is_better=True, percent=True)
LOSS = PrimaryMetric("loss", "test loss", greater_is_better=False, percent=False)


def test_the_band_holds_quantiles_over_clients(write):
    # Three clients with 0.2, 0.6 and 1.0. Between order statistics quantiles are linear: position q · 2.
    #   p10: 0.2 + 0.2 · 0.4 = 0.28   p25: 0.2 + 0.5 · 0.4 = 0.4   p50: 0.6   p75: 0.8   p90: 0.6 + 0.8 · 0.4 = 0.92
    curves = RunView.read(write([{"a": (0, 2), "b": (0, 6), "c": (1, 10)}])).curves
    found = {name: values.tolist() for name, values in curves.band.items()}
    assert found == {
        "p10": pytest.approx([0.28]),
        "p25": pytest.approx([0.4]),
        "p50": pytest.approx([0.6]),
        "p75": pytest.approx([0.8]),
        "p90": pytest.approx([0.92]),
    }
    assert curves.mean.tolist() == pytest.approx([0.6])
    assert {cluster: values.tolist() for cluster, values in curves.per_cluster.items()} == {0: [0.4], 1: [1.0]}


def test_rounds_count_from_one_and_a_later_cluster_has_no_score_before(write):
    curves = RunView.read(write([{"a": (0, 5), "b": (0, 5)}, {"a": (0, 5), "b": (2, 7)}])).curves
    assert curves.round.tolist() == [1, 2]
    assert np.isnan(curves.per_cluster[2][0])
    assert curves.per_cluster[2][1] == 0.7


def test_the_worst_tenth_is_at_least_one_client_and_for_a_loss_the_highest():
    scores = np.array([0.5, np.nan, 0.1, 0.9])
    assert worst_tenth(scores, ACCURACY) == 0.1
    assert worst_tenth(scores, LOSS) == 0.9
    # Twenty clients: the two worst, 0 and 1.
    assert worst_tenth(np.arange(20.0), ACCURACY) == 0.5
    assert np.isnan(worst_tenth(np.array([np.nan]), ACCURACY))


def test_sizes_are_those_of_the_lines_and_empty_clusters_are_left_out(write):
    sizes = RunView.read(write([{"a": (0, 5), "b": (0, 5)}, {"a": (0, 5), "b": (2, 7)}])).sizes
    assert {cluster: values.tolist() for cluster, values in sizes.clusters.items()} == {0: [2, 1], 2: [0, 1]}


def test_the_loss_of_a_cluster_is_weighted_by_test_examples(write):
    # Losses are 1 - accuracy: 0.8 and 0.4 in cluster 0, ten examples each.
    view = RunView.read(write([{"a": (0, 2), "b": (0, 6)}], spec={"run": {"primary_metric": "loss"}}))
    assert not view.metric.greater_is_better
    assert view.curves.per_cluster[0].tolist() == pytest.approx([0.6])
    assert view.clients.score.tolist() == pytest.approx([0.8, 0.4])
