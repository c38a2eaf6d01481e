"""Runs of a comparison in this process and in workers; a comparison that is continued; significance tests."""

from __future__ import annotations

import math
import shutil

import pytest

from coterie.errors import Diverged, Error, RecordError, SpecError
from coterie.runs import worker_pool
from coterie.runs.compare import _add_holm, _tests, compare
from coterie.runs.loop import run
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


SMALL = {"data": {"name": "blobs", "clients": 4}, "local": {"epochs": 1}, "run": {"rounds": 3}}


def events(**kwargs):
    """Everything that a comparison reports: (label, seed, round or what happened)."""
    seen = []
    compare(
        on_step=lambda job, row: seen.append((job.label, job.seed, row["t"])),
        on_job=lambda job, what: seen.append((job.label, job.seed, what)),
        **kwargs,
    )
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_steps_are_reported_between_the_start_and_the_end_of_their_run(jobs):
    seen = events(specs=[SMALL], seeds=2, jobs=jobs)
    for seed in (0, 1):
        assert [what for _, at, what in seen if at == seed] == ["started", 0, 1, 2, "finished"]


@pytest.mark.slow
def test_steps_are_reported_while_the_run_goes_on_and_a_killed_worker_is_an_error_that_names_its_run(monkeypatch):
    started, start = [], worker_pool._start
    monkeypatch.setattr(worker_pool, "_start", lambda: started.append(start()) or started[-1])
    long = {**SMALL, "run": {"rounds": 5000}}
    with pytest.raises(
        Error, match=r"^fedavg, seed 0: the process of this run ended by signal 9\. If memory ran out, "
    ):
        compare([long], jobs=2, on_step=lambda job, row: started[0].process.kill())
    assert len(started) == 1, "one run needs one worker"


@pytest.mark.slow
def test_the_error_of_a_worker_has_the_type_and_text_of_the_error_in_this_process():
    diverging = {**SMALL, "local": {"lr_decay": 1e9}, "run": {"rounds": 20}}
    texts = []
    for jobs in (1, 2):
        with pytest.raises(Diverged) as caught:
            compare([diverging], jobs=jobs)
        texts.append(str(caught.value))
    assert texts[0].startswith("fedavg: Round ")
    assert texts[0] == texts[1]


def without_times(found):
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in found.table]


def test_the_same_call_reads_finished_runs_continues_unfinished_ones_and_runs_missing_ones(tmp_path):
    specs = {"a": SMALL, "b": {**SMALL, "method": {"name": "ifca", "clusters": 2}, "run": {"rounds": 3}}}
    for spec in specs.values():
        spec["run"] = {"rounds": 3, "checkpoint_every": 1}
    whole = compare(specs, seeds=2, out=tmp_path / "kept")
    shutil.rmtree(tmp_path / "kept" / "a-1")  # missing
    seen = []

    def stop(row):
        if row["t"] == 1:
            raise KeyboardInterrupt

    shutil.rmtree(tmp_path / "kept" / "b-0")  # interrupted after two of three rounds
    with pytest.raises(KeyboardInterrupt):
        run(specs["b"], out=tmp_path / "kept" / "b-0", on_round=stop)
    again = compare(
        specs,
        seeds=2,
        out=tmp_path / "kept",
        on_step=lambda job, row: seen.append((job.label, job.seed, row["t"])),
    )
    assert seen == [("a", 1, 0), ("a", 1, 1), ("a", 1, 2), ("b", 0, 2)]
    assert without_times(again) == without_times(whole)
    assert again.significance == whole.significance
    assert events(specs=specs, seeds=2, out=tmp_path / "kept") == [
        (label, seed, "finished") for label in ("a", "b") for seed in (0, 1)
    ]


def test_a_folder_with_the_record_of_another_spec_is_an_error_that_names_the_first_difference(tmp_path):
    compare([SMALL], out=tmp_path)
    changed = {**SMALL, "local": {"epochs": 2}}
    with pytest.raises(
        RecordError, match=r"fedavg-0 has the record of another run: there local\.epochs is 1, in this "
    ):
        compare([changed], out=tmp_path)
    more = {**SMALL, "data": {"name": "blobs", "clients": 5}}
    with pytest.raises(RecordError, match=r"there data\.clients is 4, in this comparison 5\. Repeat the settings"):
        compare([more, {**SMALL, "method": "local"}], out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fedavg-0"], "nothing was run"


def test_labels_that_give_the_same_folder_are_an_error(tmp_path):
    with pytest.raises(SpecError, match=r"Two runs would be recorded in .*a_b-0; give labels and seeds that differ"):
        compare({"a b": SMALL, "a/b": SMALL}, out=tmp_path)


def test_an_error_in_any_spec_is_reported_before_the_first_run(tmp_path):
    good = {"data": {"name": "blobs", "clients": 4}, "run": {"rounds": 1}}
    bad = {**good, "method": {"name": "ifca", "cluster": 2}}
    with pytest.raises(SpecError, match=r"No setting 'cluster' of method ifca\. Did you mean 'clusters'\?"):
        compare([good, bad], out=tmp_path / "records")
    assert not (tmp_path / "records").exists()
