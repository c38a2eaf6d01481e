"""The map of clients shows what they were clustered on."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.errors import RecordError, SpecError
from coterie.reports import client_map
from coterie.runs.client_facts import RecordedFacts

CLIENTS = ["a", "b", "c", "d"]
ANSWERS = [{"a": (0, 5), "b": (1, 7), "c": (0, 5), "d": (1, 9)}]
LOSSES = np.array([[0.1, 0.9], [0.8, 0.2], [0.2, 0.7], [0.9, 0.3]])


def points(ax):
    return {line.get_label(): line.get_xydata().tolist() for line in ax.lines}


def test_two_numbers_per_client_are_the_coordinates_on_the_map(write):
    ax = client_map(write(ANSWERS, evidence={0: {"clients": CLIENTS, "losses": LOSSES}}))
    assert points(ax) == {"cluster 0": [[0.1, 0.9], [0.2, 0.7]], "cluster 1": [[0.8, 0.2], [0.9, 0.3]]}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("cluster 0", "cluster 1")


def test_misclustered_clients_are_ringed(write):
    # Most clients of cluster 0 have the true cluster 0, but b has 1.
    facts = RecordedFacts(tuple(CLIENTS), np.full(4, 10), np.array([0, 1, 0, 1]))
    answers = [{"a": (0, 5), "b": (0, 7), "c": (0, 5), "d": (1, 9)}]
    run = write(answers, evidence={0: {"clients": CLIENTS, "losses": LOSSES}}, facts=facts)
    assert points(client_map(run))["misclustered"] == [[0.8, 0.2]]
    assert "misclustered" not in points(client_map(run, truth=False))


def test_the_map_of_a_round_has_the_evidence_and_clusters_of_that_round(write):
    later = [*ANSWERS, {"a": (1, 5), "b": (1, 7), "c": (1, 5), "d": (1, 9)}]
    evidence = {0: {"clients": CLIENTS, "losses": LOSSES}, 1: {"clients": CLIENTS, "losses": 1 - LOSSES}}
    run = write(later, evidence=evidence)
    assert points(client_map(run, round=1))["cluster 0"] == [[0.1, 0.9], [0.2, 0.7]]
    assert list(points(client_map(run))) == ["cluster 1"]
    with pytest.raises(RecordError, match="recorded none in round 9"):
        client_map(run, round=9)


def test_principal_components_of_fedsim_are_those_of_its_last_round(write):
    # Two clients per round; their components in different rounds cannot be compared.
    scores = np.array([[1.0, 0.5, 0.0], [-1.0, 0.5, 0.1]])
    evidence = {0: {"clients": ["a", "b"], "scores": scores}, 1: {"clients": ["c", "d"], "scores": scores}}
    run = write([*ANSWERS, *ANSWERS], spec={"method": {"name": "fedsim"}}, evidence=evidence)
    ax = client_map(run)
    assert sum(map(len, points(ax).values())) == 2
    assert ax.get_xlabel() == "PC 1 (100 %)"


def test_a_figure_of_one_run_refuses_several(write):
    with pytest.raises(SpecError, match="This figure shows one run, got 2"):
        client_map([write(ANSWERS, name="a"), write(ANSWERS, name="b")])
