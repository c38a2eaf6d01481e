"""Runs of a comparison in this process and in workers; a comparison that is continued."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import coterie
from coterie.errors import Diverged, Error, RecordError, SpecError
from coterie.runs import worker_pool
from coterie.runs.compare import compare
from coterie.runs.loop import run

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
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_steps_are_reported_between_the_start_and_the_end_of_their_run(jobs):
    seen = events(specs=[SMALL], seeds=2, jobs=jobs)
    for seed in (0, 1):
        assert [what for _, at, what in seen if at == seed] == ["started", 0, 1, 2, "finished"]


@pytest.mark.exhaustive
def test_steps_are_reported_while_the_run_goes_on_and_a_killed_worker_is_an_error_that_names_its_run(monkeypatch):
    started, start = [], worker_pool._start
    monkeypatch.setattr(worker_pool, "_start", lambda: started.append(start()) or started[-1])
    long = {**SMALL, "run": {"rounds": 5000}}
    with pytest.raises(
        Error, match=r"^fedavg, seed 0: the process of this run ended by signal 9\. If memory ran out, "
    ):
        compare([long], jobs=2, on_step=lambda job, row: started[0].process.kill())
    assert len(started) == 1, "one run needs one worker"


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_methods_are_compared_by_their_primary_metric_also_when_continued(tmp_path):
    run = {"rounds": 2, "primary_metric": "ece", "metrics": ["auroc"]}
    specs = {name: {**SMALL, "method": name, "run": run} for name in ("fedavg", "oracle")}
    found = compare(specs, seeds=2, out=tmp_path)
    assert (found.headline, found.higher_is_better) == ("ece", False)
    for row, group in zip(found.table, found.records.values(), strict=True):
        for name in ("ece", "auroc"):
            values = [record.summary["metrics"][name]["last_ten"] for record in group]
            assert row[name] == pytest.approx(sum(values) / 2)
    one, other = (row["ece"] for row in found.table)
    assert found.significance["oracle"]["difference"] == pytest.approx(other - one)
    assert without_times(compare(specs, seeds=2, out=tmp_path)) == without_times(found)


def test_one_comparison_has_one_primary_metric():
    specs = [{**SMALL, "run": {"primary_metric": name}} for name in ("ece", "loss")]
    with pytest.raises(SpecError, match=r"compared by one metric; run.primary_metric is ece and loss"):
        compare(specs)


def test_labels_that_give_the_same_folder_are_an_error(tmp_path):
    with pytest.raises(SpecError, match=r"Two runs would be recorded in .*a_b-0; give labels and seeds that differ"):
        compare({"a b": SMALL, "a/b": SMALL}, out=tmp_path)


def test_an_error_in_any_spec_is_reported_before_the_first_run(tmp_path):
    good = {"data": {"name": "blobs", "clients": 4}, "run": {"rounds": 1}}
    bad = {**good, "method": {"name": "ifca", "cluster": 2}}
    with pytest.raises(SpecError, match=r"No setting 'cluster' of method ifca\. Did you mean 'clusters'\?"):
        compare([good, bad], out=tmp_path / "records")
    assert not (tmp_path / "records").exists()


@pytest.mark.exhaustive
def test_methods_are_compared_on_objects(tmp_path):
    data = coterie.data.load("blobs", clients=4, samples=20)
    task = coterie.models.from_functions(
        lambda key: {"w": np.zeros((64, 4))}, lambda w, x: x.reshape(len(x), -1) @ w["w"], (8, 8), 4, name="mine"
    )
    given = {"data": data, "task": task, "metrics": {"right": lambda y_true, y_pred: (y_true == y_pred).mean()}}
    specs = [{"method": name, "run": {"rounds": 2}} for name in ("fedavg", "oracle")]
    found = coterie.compare(specs, out=tmp_path, **given)
    for row, spec in zip(found.table, specs, strict=True):
        alone = coterie.run(spec, **given)
        assert row["right"] == pytest.approx(alone.summary["metrics"]["right"]["last_ten"])
        assert row["right"] == pytest.approx(row["last_ten"])
    assert found.records["fedavg"][0].summary["model"] == "mine"
    calls = []
    again = coterie.compare(specs, out=tmp_path, on_step=lambda job, row: calls.append(job), **given)
    assert again.table == found.table
    assert not calls  # both records were read
    with pytest.raises(SpecError, match=r"data= and task= and metrics= cannot be sent to the processes of jobs=2"):
        coterie.compare(specs, jobs=2, **given)
