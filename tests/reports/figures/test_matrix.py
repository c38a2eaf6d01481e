"""The matrix of distances is ordered by cluster."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.reports import matrix

CLIENTS = ["a", "b", "c", "d"]
ANSWERS = [{"a": (0, 5), "b": (1, 7), "c": (0, 5), "d": (1, 9)}]
LOSSES = np.array([[0.1, 0.9], [0.8, 0.2], [0.2, 0.7], [0.9, 0.3]])


def test_the_matrix_is_ordered_by_cluster_with_lines_between_clusters(write):
    # a and c are in cluster 0, b and d in cluster 1.
    distances = np.array([[0, 4, 1, 4], [4, 0, 4, 2], [1, 4, 0, 4], [4, 2, 4, 0.0]])
    evidence = {0: {"clients": CLIENTS, "distances": distances, "labels": np.array([0, 1, 0, 1])}}
    ax = matrix(write(ANSWERS, evidence=evidence))
    shown = ax.images[0].get_array()
    assert sorted([shown[0, 1], shown[2, 3]]) == [1, 2]
    assert (shown[:2, 2:] == 4).all()
    assert [line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1] == [1.5]
    assert [text.get_text() for text in ax.get_xticklabels()] in (["0", "1"], ["1", "0"])


def test_distances_of_embeddings_are_edc(write):
    # EDC is the Euclidean distance of the embedded updates over their number of columns: √(3² + 4²) / 2 = 2.5.
    evidence = {0: {"clients": ["a", "b"], "embedding": np.array([[0.0, 0.0], [3.0, 4.0]]), "labels": np.array([0, 1])}}
    ax = matrix(write([{"a": (0, 5), "b": (1, 7)}], spec={"method": {"name": "fedgroup"}}, evidence=evidence))
    np.testing.assert_allclose(ax.images[0].get_array(), [[0, 2.5], [2.5, 0]])
    assert ax.figure.axes[1].get_ylabel() == "EDC of updates"
