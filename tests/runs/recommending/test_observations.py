"""What `recommend` says about data and clusters."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import data
from coterie.runs.recommending.observations import cluster_facts, data_facts, label_skew
from coterie.runs.recommending.sentences import about_clusters, about_data
from coterie.runs.recommending.validation_runs import ValidationRun


def labeled(*clients):
    arrays = {f"c{i}": (np.zeros((len(y), 2), np.float32), y) for i, y in enumerate(clients)}
    return data.from_arrays(arrays, classes=2, test_share=0)


def run(*clusters):
    return ValidationRun({}, np.zeros(len(clusters)), np.ones(len(clusters)), np.array(clusters))


def test_the_distance_of_label_distributions_is_weighted_by_examples():
    # Labels: 6 of class 0, 2 of class 1, so 3/4 and 1/4. Client 0 has (1, 0), distance 1/4, 4 examples; client 1 has
    # (1/2, 1/2), distance 1/4, 4 examples; mean 1/4.
    assert label_skew(labeled([0, 0, 0, 0], [0, 0, 1, 1]))["distance"] == pytest.approx(1 / 4)


def test_one_class_per_client_is_the_strongest_skew():
    found = label_skew(labeled([0] * 50, [1] * 50))
    assert found["distance"] == pytest.approx(1 / 2)
    assert found["skew"] > 0.4
    assert found["classes_per_client"] == 1


def test_random_labels_have_no_skew_beyond_chance():
    draws = np.random.default_rng(0).integers(0, 2, (20, 30))
    found = data_facts(labeled(*draws), 20)
    assert found["label_skew"]["distance"] == pytest.approx(found["label_skew"]["by_chance"], abs=0.03)
    lines = about_data(found)
    assert lines[0] == "20 clients; 30 training examples each."
    assert "no label skew beyond chance" in lines[1]


def test_different_numbers_of_examples_are_a_range():
    assert about_data(data_facts(labeled([0, 1], [0, 1, 1], [0, 1, 1, 0]), 3))[0] == (
        "3 clients; 2 to 4 training examples each, median 3."
    )


def test_a_sample_of_clients_is_stated():
    found = data_facts(labeled([0, 1], [0, 1]), 1000)
    assert about_data(found)[0].startswith("1,000 clients, of which 2 drawn at random ran; ")


def test_agreement_is_that_of_methods_with_several_clusters_and_the_same_seed():
    found = cluster_facts(
        {
            "ifca": [run(0, 0, 1, 1), run(0, 1, 0, 1)],
            "fedgroup": [run(1, 1, 0, 0), run(1, 0, 1, 0)],
            "cfl": [run(0, 0, 0, 0), run(0, 0, 0, 0)],
        }
    )
    assert found["found"] == {"ifca": [2, 2], "fedgroup": [2, 2], "cfl": [1, 1]}
    assert found["agreement"] == 1.0
    # (0, 0, 1, 1) and (0, 1, 0, 1): no pair is together in both; expected (2·2)/6, so (0 - 2/3) / (2 - 2/3) = -1/2.
    assert found["stability"] == {"ifca": pytest.approx(-0.5), "fedgroup": pytest.approx(-0.5), "cfl": 1.0}
    lines = about_clusters(found)
    assert lines[0] == "Clusters found: ifca 2, fedgroup 2, cfl 1."
    assert "agree on who belongs together (mean adjusted Rand index 1.00)" in lines[1]
    assert lines[2].endswith("ifca -0.50, fedgroup -0.50.")


def test_one_cluster_each_is_all_there_is_to_say():
    assert about_clusters(cluster_facts({"cfl": [run(0, 0)], "flhc": [run(0, 0)]})) == [
        "Clusters found: cfl 1, flhc 1."
    ]
    assert about_clusters(cluster_facts({})) == []
