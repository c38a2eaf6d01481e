"""The record of a run: written as it goes, read again, and refused where it is damaged."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import coterie
from coterie import RunRecord, tree
from coterie.errors import RecordError

SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 30},
    "method": {"name": "oracle"},
    "run": {"rounds": 4, "clients_per_round": 8, "checkpoint_every": 2},
    "local": {"learning_rate": 0.1},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return coterie.run(SPEC, out=tmp_path_factory.mktemp("runs") / "here")


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written.path, tmp_path / "copy")


def test_what_was_written_is_read_again(written):
    read = RunRecord.read(written.path)
    assert read.rounds == json.loads(json.dumps(written.rounds))
    assert read.summary == json.loads(json.dumps(written.summary))
    assert tree.same(read.models(), written.models())
    assert read.served["row"] == written.served["row"]


def test_the_folder_explains_itself(written):
    names = {str(path.relative_to(written.path)) for path in written.path.rglob("*") if path.is_file()}
    assert names == {
        "spec.toml",
        "rounds.jsonl",
        "summary.json",
        "models.safetensors",
        "checkpoint/latest.safetensors",
    }


def test_a_run_without_a_folder_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert coterie.run({**SPEC, "run": {"rounds": 1}}).path is None
    assert not list(tmp_path.iterdir())


def test_rounds_as_a_frame(written):
    pytest.importorskip("pandas")
    frame = written.to_frame()
    assert list(frame["t"]) == [0, 1, 2, 3]
    assert frame["accuracy.weighted"].iloc[-1] == written.summary["accuracy"]["weighted"]
    assert frame["traffic.train.down"].min() > 0
    assert not any(name.startswith("assignment") for name in frame.columns)


def test_models_are_one_row_a_cluster(written):
    assert tree.rows(written.models()) == 4
    assert written.models()["dense0"]["kernel"].shape == (4, 4, 64)


def test_a_client_is_predicted_by_the_model_of_its_cluster(written):
    x = coterie.data.load("blobs", clients=8, samples=30).x[:40]
    for i in range(8):  # client i is in cluster i mod 4
        np.testing.assert_array_equal(written.predict(str(i), x), written.predict(i % 4, x))
    assert written.predict(0, x).shape == (40,)
    assert any((written.predict(0, x) != written.predict(j, x)).any() for j in range(1, 4))
    assert written.predict(0, x[:0]).shape == (0,)


def test_predictions_score_what_the_summary_says(written):
    data = coterie.data.load("blobs", clients=8, samples=30)
    right = 0
    for i, name in enumerate(data.clients):
        x, y = data.examples(name, "test")
        right += int((written.predict(i % 4, x) == y).sum())
    assert right / data.sizes("test").sum() == pytest.approx(written.summary["accuracy"]["weighted"])


def test_a_stranger_has_no_model(written):
    with pytest.raises(RecordError, match=r"No client or cluster '77'\. Did you mean '7'\?"):
        written.predict("77", np.zeros((1, 8, 8)))


def test_inputs_of_another_shape_are_refused(written):
    with pytest.raises(RecordError, match=r"takes inputs of shape \(rows, 8, 8\), got \(3, 64\)"):
        written.predict(0, np.zeros((3, 64)))


def test_models_that_never_left_the_clients_are_not_made_up():
    record = coterie.run({**SPEC, "method": "local"})
    with pytest.raises(RecordError, match="a model of their own, which never left them"):
        record.predict("0", np.zeros((1, 8, 8)))


@pytest.mark.parametrize("name", ["summary.json", "rounds.jsonl", "models.safetensors"])
@pytest.mark.parametrize("damage", [b"\xff\xfe\x00\x00\n\n", b"[1, 2]\n{}\n", b"{\x00}\n{\n"])
def test_damage_is_said_to_be_damage(name, damage, copy):
    (copy / name).write_bytes(damage)
    with pytest.raises(RecordError, match=name):
        RunRecord.read(copy)


@pytest.mark.parametrize("keep", [0, 7, 100])
def test_a_checkpoint_that_was_cut_off_is_refused(keep, copy):
    (copy / "summary.json").unlink()
    file = copy / "checkpoint" / "latest.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(RecordError, match=r"latest\.safetensors: .*damaged"):
        coterie.resume(copy)


def test_a_last_line_that_was_cut_off_is_left_out(copy):
    with (copy / "rounds.jsonl").open("a") as file:
        file.write('{"t": 4, "stage": "tr')
    assert [row["t"] for row in RunRecord.read(copy).rounds] == [0, 1, 2, 3]


def test_damage_in_the_middle_is_refused(copy):
    lines = (copy / "rounds.jsonl").read_text().splitlines(keepends=True)
    (copy / "rounds.jsonl").write_text("".join([lines[0], lines[1][:30] + "\n", *lines[2:]]))
    with pytest.raises(RecordError, match=r"rounds\.jsonl is damaged in line 2"):
        RunRecord.read(copy)


def test_a_newer_format_is_refused(copy):
    (copy / "summary.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(RecordError, match="has format 99; this version reads up to 1"):
        RunRecord.read(copy)


def test_a_folder_without_a_spec_is_no_record(tmp_path):
    with pytest.raises(RecordError, match=r"is not the record of a run: it has no spec\.toml"):
        RunRecord.read(tmp_path)


def test_a_run_that_is_not_over_is_read_without_summary_and_models(copy):
    for name in ("summary.json", "models.safetensors"):
        (copy / name).unlink()
    record = RunRecord.read(copy)
    assert record.summary == {}
    with pytest.raises(RecordError, match=r"it is not over\. Go on with: coterie resume"):
        record.models()


def test_a_run_without_a_checkpoint_cannot_go_on(copy):
    (copy / "summary.json").unlink()
    shutil.rmtree(copy / "checkpoint")
    with pytest.raises(RecordError, match="has no checkpoint to go on from; run it again"):
        coterie.resume(copy)


def test_a_folder_with_another_run_is_not_written_over(written):
    with pytest.raises(RecordError, match="exists and is not empty; choose another folder with --out, or remove it"):
        coterie.run(SPEC, out=written.path)


def test_a_run_that_is_over_is_not_run_again(written):
    steps = []
    assert coterie.resume(written.path, on_round=steps.append).summary["rounds"] == 4
    assert not steps


@pytest.mark.parametrize("method", ["fedavg", "ifca", "local"])
@pytest.mark.parametrize("after", [1, 3])
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(method, after, tmp_path):
    spec = {**SPEC, "method": method}

    def stop(row):
        if row["t"] == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(spec, out=tmp_path / "stopped", on_round=stop)
    stopped, whole = coterie.resume(tmp_path / "stopped"), coterie.run(spec, out=tmp_path / "whole")
    without = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in record.rounds] for record in (stopped, whole)
    ]
    assert without[0] == without[1]
    read = [(record.path / "models.safetensors").read_bytes() for record in (stopped, whole)]
    assert read[0] == read[1]


@pytest.mark.parametrize("method", ["flag", "srfca", "flhc"])
def test_what_was_prepared_is_not_lost_in_a_crash(method, tmp_path):
    # Not Ctrl-C, after which a checkpoint is written, but an end without warning after the last step of preparing.
    spec = {**SPEC, "method": method, "run": {"rounds": 12, "clients_per_round": 4, "checkpoint_every": 100}}
    whole = coterie.run(spec, out=tmp_path / "whole")
    prepared = [place for place, row in enumerate(whole.rounds) if row["stage"] == "prepare"]
    steps = []

    def crash(row):
        steps.append(row)
        if len(steps) == prepared[-1] + 1:
            raise OSError("the machine is gone")

    with pytest.raises(OSError, match="gone"):
        coterie.run(spec, out=tmp_path / "crashed", on_round=crash)
    again = []
    crashed = coterie.resume(tmp_path / "crashed", on_round=again.append)
    assert len(again) == len(whole.rounds) - len(steps)
    read = [(record.path / "models.safetensors").read_bytes() for record in (crashed, whole)]
    assert read[0] == read[1]
