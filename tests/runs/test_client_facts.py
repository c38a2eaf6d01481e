"""What a record knows about the data of each client."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.data.federated import FederatedData, Index
from coterie.runs.client_facts import FACTS, RecordedFacts

SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 30},
    "method": {"name": "fedavg"},
    "run": {"rounds": 2, "clients_per_round": 4},
    "local": {"epochs": 1},
}


def tiny(classes=3, truth=(0, 1)):
    # a has examples 0, 1, 2 (labels 0, 0, 2), b has 3 (label 1); 4 is a test example.
    fit = Index.from_lists([np.array([0, 1, 2]), np.array([3])])
    test = Index.from_lists([np.array([4]), np.array([], int)])
    y = np.array([0, 0, 2, 1, 1], np.float32 if classes is None else np.int32)
    known = None if truth is None else np.array(truth)
    return FederatedData("tiny", np.zeros((5, 1), np.float32), y, ("a", "b"), fit, test, classes, truth=known)


def test_training_examples_and_their_labels_are_counted():
    facts = RecordedFacts.of(tiny())
    assert facts.samples.tolist() == [3, 1]
    assert facts.labels.tolist() == [[2, 0, 1], [0, 1, 0]]
    assert facts.true_cluster.tolist() == [0, 1]


def test_a_regression_has_no_labels_and_may_have_no_truth():
    facts = RecordedFacts.of(tiny(classes=None, truth=None))
    assert (facts.labels, facts.true_cluster) == (None, None)


def test_facts_are_written_small_and_read_again(tmp_path):
    record = coterie.run(SPEC, out=tmp_path / "run")
    facts = RecordedFacts.read(record.path)
    data = coterie.data.load("blobs", clients=8, samples=30, seed=0)
    assert facts.clients == data.clients
    assert facts.samples.tolist() == data.sizes("fit").tolist()
    assert facts.labels.sum(axis=1).tolist() == facts.samples.tolist()
    assert facts.true_cluster.tolist() == data.truth.tolist()
    assert (record.path / FACTS).stat().st_size < 1200
    assert record.client_results().clients == facts.clients


def test_a_record_without_facts_is_read(tmp_path):
    assert RecordedFacts.read(tmp_path) is None


def test_facts_are_the_same_to_the_byte_after_a_resume(tmp_path):
    whole = coterie.run(SPEC, out=tmp_path / "whole").path

    def stop(row):
        if row["t"] == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(SPEC, out=tmp_path / "cut", on_round=stop)
    (tmp_path / "cut" / FACTS).unlink()
    coterie.resume(tmp_path / "cut")
    assert (tmp_path / "cut" / FACTS).read_bytes() == (whole / FACTS).read_bytes()
