"""Significance tests of a comparison, on records written by hand; and runs in separate processes."""

from __future__ import annotations

import math

import pytest

from coterie.errors import SpecError
from coterie.runs.compare import _add_holm, _tests, compare
from coterie.runs.record import RunRecord


def record(*accuracies):
    rows = [{"t": t, "stage": "train", "coverage": 1.0, "accuracy": {"weighted": a}} for t, a in enumerate(accuracies)]
    return RunRecord({"accuracy": {"weighted": accuracies[-1], "weighted_last_ten": sum(accuracies) / 2}}, rows)


def test_methods_are_tested_on_the_last_ten_rounds_and_compared_over_all():
    reference = [record(0.5, 0.5), record(0.4, 0.6), record(0.5, 0.5)]
    better = [record(0.6, 0.6), record(0.6, 0.8), record(0.7, 0.9)]
    found = _tests(better, reference)
    # Means of the rounds: 0.6, 0.7, 0.8 against 0.5. Differences 0.1, 0.2, 0.3: t = 0.2/(0.1/√3) = 2√3.
    assert found["difference"] == pytest.approx(0.2)
    # Student's t with 2 degrees: P(T > t) = (1 - t/√(2 + t²))/2 = (1 - √12/√14)/2.
    assert found["t_test"] == pytest.approx((1 - math.sqrt(12 / 14)) / 2)
    assert found["wilcoxon"] == pytest.approx(1 / 8)  # all three signs positive: one of the eight ways
    # Over seeds, round 0: 1.9/3 - 1.4/3 = 0.5/3; round 1: 2.3/3 - 1.6/3 = 0.7/3.
    assert found["improvement"] == pytest.approx(0.2)
    assert found["improvement_deviation"] == pytest.approx(0.1 / 3)


def test_equal_differences_and_single_seeds_have_no_p_values():
    for seeds in (1, 2):
        found = _tests([record(0.6, 0.6)] * seeds, [record(0.5, 0.5)] * seeds)
        assert found["difference"] == pytest.approx(0.1)
        assert found["t_test"] is found["wilcoxon"] is found["t_test_holm"] is None


def test_runs_of_different_length_have_no_improvement():
    assert _tests([record(0.6)], [record(0.5, 0.5)])["improvement"] is None


def test_p_values_are_corrected_for_the_number_of_tested_methods():
    tests = {"a": {"t_test": 0.03}, "b": {"t_test": None}, "c": {"t_test": 0.01}}
    _add_holm(tests)
    assert tests["a"]["t_test_holm"] == pytest.approx(0.03)  # the larger of two: once itself, and not below 0.02
    assert tests["c"]["t_test_holm"] == pytest.approx(0.02)
    assert "t_test_holm" not in tests["b"]


@pytest.mark.slow
def test_runs_in_separate_processes_report_their_steps_at_the_end():
    reported = []
    spec = {"data": {"name": "blobs", "clients": 4}, "local": {"epochs": 1}, "run": {"rounds": 3}}
    compare([spec], seeds=2, jobs=2, on_step=lambda label, row: reported.append((label, row["t"])))
    assert reported == [("fedavg", t) for t in range(3)] * 2


def test_an_error_in_any_spec_is_reported_before_the_first_run(tmp_path):
    good = {"data": {"name": "blobs", "clients": 4}, "run": {"rounds": 1}}
    bad = {**good, "method": {"name": "ifca", "cluster": 2}}
    with pytest.raises(SpecError, match=r"No setting 'cluster' of method ifca\. Did you mean 'clusters'\?"):
        compare([good, bad], out=tmp_path / "records")
    assert not (tmp_path / "records").exists()
