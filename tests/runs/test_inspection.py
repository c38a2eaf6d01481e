"""Who is in which cluster, since when, and why."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import RunRecord
from coterie.errors import RecordError


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    spec = {
        "data": {"name": "blobs", "clients": 6, "samples": 20},
        "method": {"name": "ifca", "clusters": 3},
        "run": {"rounds": 3, "clients_per_round": 6},
    }
    return coterie.run(spec, out=tmp_path_factory.mktemp("runs") / "here")


def test_the_reason_is_the_last_recorded_evidence(record):
    evidence = record.evidence(2)
    losses = dict(zip(evidence["clients"], evidence["losses"], strict=True))
    for each in record.inspect():
        assert list(each.reason.values.values()) == pytest.approx(losses[each.client])
        assert each.decided == 2
        assert each.own_value == pytest.approx(losses[each.client][each.cluster])
        others = np.delete(losses[each.client], each.cluster)
        assert each.other_value == pytest.approx(others.min())


def test_scores_are_those_of_the_last_evaluation(record):
    results = record.client_results()
    found = {each.client: each for each in record.inspect()}
    assert list(found) == sorted(results.clients)
    for place, client in enumerate(results.clients):
        assert found[client].cluster == results.cluster[place]
        assert found[client].accuracy == results.accuracy[place]
        assert found[client].examples == results.total[place]


def test_one_client_is_inspected(record):
    (found,) = record.inspect("4")
    assert found.client == "4"
    assert found.to_dict()["values"]["what"] == "loss"
    with pytest.raises(RecordError, match="No client '44'"):
        record.inspect("44")


def test_since_is_the_round_of_the_last_change():
    rounds = [
        {"t": -1, "assignment": {"c": 1}},
        {"t": 0, "assignment": {"a": 0, "b": 1}},
        {"t": 1, "assignment": {"a": 1}},
        {"t": 2, "assignment": {"a": 1, "b": 1}},
    ]
    bank = {"w": np.zeros((2, 1), np.float32)}
    served = {"bank": bank, "row": {"a": 1, "b": 0, "c": 1}, "unassigned": ["d"], "spec": {}, "fallback": {}}
    found = {each.client: each.since for each in RunRecord({}, rounds, None, served).inspect()}
    # a moved in round 1; b is served another cluster than its last round gave it; c was assigned in the preparation.
    assert found == {"a": 1, "b": None, "c": -1, "d": None}
