"""The search for the number of clusters, and explained variance."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.errors import RecordError
from coterie.reports import client_map, cluster_search, explained_variance, matrix

CLIENTS = ["a", "b", "c", "d"]
ANSWERS = [{"a": (0, 5), "b": (1, 7), "c": (0, 5), "d": (1, 9)}]
LOSSES = np.array([[0.1, 0.9], [0.8, 0.2], [0.2, 0.7], [0.9, 0.3]])


def test_runs_without_evidence_say_which_runs_have_it(write):
    run = write(ANSWERS, spec={"method": {"name": "fedavg"}})
    for draw, message in (
        (client_map, "has no evidence of clustering to draw: fedavg recorded none. Draw a run of a method that"),
        (matrix, "has no distances between clients: fedavg recorded none. Draw a run of a method that"),
        (cluster_search, "has no search for the number of clusters. Draw a run of flag"),
        (explained_variance, "has no principal components of gradients; draw a run of fedsim"),
    ):
        with pytest.raises(RecordError, match=message):
            draw(run)


def test_the_search_of_flag_has_thresholds_accuracies_and_numbers_of_clusters(write):
    # The smallest threshold gives the most clusters. Keys of scores are numbers of clusters, in any order.
    evidence = {
        "clients": CLIENTS,
        "labels": np.array([0, 1, 0, 1]),
        "scores": {"1": 0.3, "4": 0.5, "2": 0.8},
        "thresholds": [0.2, 0.5, 1.0],
        "threshold": 0.5,
    }
    ax = cluster_search(write(ANSWERS, spec={"method": {"name": "flag"}}, evidence={0: evidence}))
    scores, chosen = ax.lines
    np.testing.assert_allclose(scores.get_xydata(), [[0.2, 50], [0.5, 80], [1.0, 30]])
    assert set(chosen.get_xdata()) == {0.5}
    bars = ax.figure.axes[1].containers[0]
    assert [bar.get_height() for bar in bars] == [4, 2, 1]


def test_the_search_of_other_methods_is_over_numbers_of_clusters(write):
    evidence = {"clients": CLIENTS, "labels": np.array([0, 1, 0, 1]), "scores": {"1": 0.3, "10": 0.5, "2": 0.8}}
    run = write(ANSWERS, spec={"method": {"name": "pacfl"}}, evidence={0: evidence})
    ax = cluster_search(run)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 0.3], [2, 0.8], [10, 0.5]])
    assert ax.get_xlabel() == "number of clusters"


def test_explained_variance_is_the_mean_over_rounds_of_cumulative_shares(write):
    # Round 1: squares 9 + 9 = 18 and 1 + 1 = 2, so 90 % and 100 %. Round 2 has one component: 100 %.
    evidence = {
        0: {"clients": ["a", "b"], "scores": np.array([[3.0, 1.0], [-3.0, -1.0]])},
        1: {"clients": ["a", "b"], "scores": np.array([[1.0], [-1.0]])},
    }
    spec = {"method": {"name": "fedsim", "variance": 1.0}}
    ax = explained_variance(write([*ANSWERS, *ANSWERS], spec=spec, evidence=evidence))
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 95], [2, 100]])
    # 95 % are reached with one component.
    assert ax.lines[1].get_xdata()[0] == 1


def test_explained_variance_needs_all_components(write):
    with pytest.raises(RecordError, match=r"run it with --set method.variance=1"):
        explained_variance(write(ANSWERS, spec={"method": {"name": "fedsim"}}))
