"""RunView, the table of clients and the costs."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from coterie.metrics import misclustering
from coterie.reports.client_table import differs
from coterie.reports.view import RunView
from coterie.runs.client_facts import RecordedFacts

TWO = [{"a": (0, 5), "b": (1, 9)}] * 2


def test_a_finished_run_is_done(write):
    view = RunView.read(write(TWO))
    assert (view.status, view.reason, view.method) == ("done", None, "ifca")


def test_a_run_without_a_summary_was_interrupted_and_has_figures_of_its_lines(write):
    view = RunView.read(write(TWO, status=None))
    assert view.status == "interrupted"
    assert view.summary["rounds"] == 2
    assert view.summary["accuracy"]["weighted"] == 0.7
    assert view.faults.lost is None
    assert view.traffic.total == (200, 100)


def test_a_run_whose_writer_lives_is_running(write):
    folder = write(TWO, status=None)
    (folder / ".lock").write_text(str(os.getpid()))
    assert RunView.read(folder).status == "running"


def test_a_run_whose_writer_was_killed_was_interrupted(write):
    folder = write(TWO, status=None)
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (folder / ".lock").write_bytes(gone.stdout)
    assert RunView.read(folder).status == "interrupted"


def test_the_table_has_what_the_record_knows_of_each_client(write):
    facts = RecordedFacts(("a", "b"), np.array([12, 30]), np.array([0, 0]), np.array([[12, 0], [10, 20]]))
    evidence = {1: {"clients": ["b"], "losses": np.array([[0.5, 0.25]])}}
    view = RunView.read(write([{"a": (0, 5)}, {"a": (0, 5), "b": (1, 9)}], facts=facts, evidence=evidence))
    table = view.clients
    assert table.name == ("a", "b")
    assert table.samples.tolist() == [12, 30]
    assert table.truth.tolist() == [0, 0]
    assert table.score.tolist() == [0.5, 0.9]
    assert table.nearest == ("", "0")
    assert table.margin.tolist() == [pytest.approx(np.nan, nan_ok=True), 0.25]
    assert table.joined.tolist() == [0, 2]
    assert {cluster: counts.tolist() for cluster, counts in view.labels_per_cluster.items()} == {
        0: [12, 0],
        1: [10, 20],
    }
    assert view.class_names == ["0", "1"]


def test_rings_count_as_misclustering_does():
    rng = np.random.default_rng(0)
    for _ in range(20):
        cluster, truth = rng.integers(-1, 3, 12), rng.integers(0, 3, 12)
        found = {str(i): int(c) for i, c in enumerate(cluster) if c >= 0}
        expected = misclustering(found, {str(i): int(t) for i, t in enumerate(truth)})
        assert differs(cluster, truth).mean() == pytest.approx(expected)


def test_traffic_is_summed_over_rounds_without_evaluation(write):
    traffic = RunView.read(write(TWO)).traffic
    assert traffic.down.tolist() == [100, 200]
    assert traffic.up.tolist() == [50, 100]
    assert traffic.until(np.array([0, 1, 2, 9])).tolist() == [0, 150, 300, 300]


def test_skipped_rounds_have_their_reason(write):
    view = RunView.read(write(TWO, lines=[{}, {"skipped": "too few replies"}]))
    assert view.faults.skipped == ((2, "too few replies"),)


def test_a_record_without_an_evaluation_has_an_empty_table(write):
    view = RunView.read(write([], status="failed", summary={"reason": "it broke"}))
    assert view.clients.name == ()
    assert view.last_evaluation is None
    assert view.reason == "it broke"
    assert view.labels_per_cluster is None
