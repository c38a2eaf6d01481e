"""The record of a run: written during the run, read again, and rejected if it is damaged."""

from __future__ import annotations

import json
import re
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


def test_a_record_is_read_as_it_was_written(written):
    read = RunRecord.read(written.path)
    assert read.rounds == json.loads(json.dumps(written.rounds))
    assert read.summary == json.loads(json.dumps(written.summary))
    assert tree.same(read.models(), written.models())
    assert read.served["row"] == written.served["row"]


def test_a_record_has_these_files(written):
    names = {str(path.relative_to(written.path)) for path in written.path.rglob("*") if path.is_file()}
    assert names == {
        ".lock",
        "spec.toml",
        "rounds.jsonl",
        "summary.json",
        "models.safetensors",
        "checkpoint/latest.safetensors",
        "checkpoint/previous.safetensors",
        "clients/facts.safetensors",
        "clients/ids.safetensors",
        *(f"clients/0000{step}.safetensors" for step in range(4)),
    }


def test_a_run_without_a_folder_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert coterie.run({**SPEC, "run": {"rounds": 1}}).path is None
    assert not list(tmp_path.iterdir())


def test_rounds_become_a_pandas_data_frame(written):
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = written.to_frame()
    assert list(frame["t"]) == [0, 1, 2, 3]
    assert frame["accuracy.weighted"].iloc[-1] == written.summary["accuracy"]["weighted"]
    assert frame["traffic.train.down"].min() > 0
    assert not any(name.startswith("assignment") for name in frame.columns)


def test_there_is_one_model_per_cluster(written):
    assert tree.rows(written.models()) == 4
    assert written.models()["dense0"]["kernel"].shape == (4, 4, 64)


def test_predictions_for_a_client_use_the_model_of_its_cluster(written):
    x = coterie.data.load("blobs", clients=8, samples=30).x[:40]
    for i in range(8):  # client i is in cluster i mod 4
        np.testing.assert_array_equal(written.predict(x, client=str(i)), written.predict(x, cluster=i % 4))
    assert written.predict(x, cluster=0).shape == (40,)
    assert any((written.predict(x, cluster=0) != written.predict(x, cluster=j)).any() for j in range(1, 4))
    assert written.predict(x[:0], cluster=0).shape == (0,)


def test_predictions_have_the_accuracy_of_the_summary(written):
    data = coterie.data.load("blobs", clients=8, samples=30)
    correct = 0
    for i, name in enumerate(data.clients):
        x, y = data.examples(name, "test")
        correct += int((written.predict(x, cluster=i % 4) == y).sum())
    assert correct / data.sizes("test").sum() == pytest.approx(written.summary["accuracy"]["weighted"])


def test_an_unknown_client_is_rejected(written):
    with pytest.raises(RecordError, match=r"No client '77'\. Did you mean '7'\?"):
        written.predict(np.zeros((1, 8, 8)), client="77")


def test_inputs_of_another_shape_are_rejected(written):
    with pytest.raises(RecordError, match=r"takes inputs of shape \(rows, 8, 8\), got \(3, 64\)"):
        written.predict(np.zeros((3, 64)), cluster=0)


def test_models_that_stay_with_the_clients_cannot_predict():
    record = coterie.run({**SPEC, "method": "local"})
    with pytest.raises(RecordError, match="the adapted models are not recorded"):
        record.predict(np.zeros((1, 8, 8)), client="0")


@pytest.mark.parametrize("name", ["summary.json", "rounds.jsonl", "models.safetensors"])
@pytest.mark.parametrize("damage", [b"\xff\xfe\x00\x00\n\n", b"[1, 2]\n{}\n", b"{\x00}\n{\n"])
def test_a_damaged_file_is_rejected(name, damage, copy):
    (copy / name).write_bytes(damage)
    with pytest.raises(RecordError, match=name):
        RunRecord.read(copy)


@pytest.mark.parametrize("keep", [0, 7, 100])
def test_a_truncated_checkpoint_is_rejected(keep, copy):
    (copy / "summary.json").unlink()
    (copy / "checkpoint" / "previous.safetensors").unlink()
    file = copy / "checkpoint" / "latest.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(RecordError, match=r"latest\.safetensors: .*damaged"):
        coterie.resume(copy)


def test_a_truncated_last_line_is_left_out(copy):
    (copy / "summary.json").unlink()  # as of a run that is killed
    with (copy / "rounds.jsonl").open("a") as file:
        file.write('{"t": 4, "stage": "tr')
    assert [row["t"] for row in RunRecord.read(copy).rounds] == [0, 1, 2, 3]


def test_a_damaged_line_in_the_middle_is_rejected(copy):
    (copy / "summary.json").unlink()
    lines = (copy / "rounds.jsonl").read_text().splitlines(keepends=True)
    (copy / "rounds.jsonl").write_text("".join([lines[0], lines[1][:30] + "\n", *lines[2:]]))
    with pytest.raises(RecordError, match=r"rounds\.jsonl is damaged in line 2"):
        RunRecord.read(copy)


@pytest.mark.parametrize("name", ["spec.toml", "rounds.jsonl", "summary.json"])
def test_a_changed_digit_in_a_text_file_of_a_finished_record_is_noticed(name, copy):
    text = (copy / name).read_text()
    (copy / name).write_text(text.replace("4", "5", 1))
    with pytest.raises(RecordError, match=rf"{re.escape(name)} is damaged.*the checksum"):
        RunRecord.read(copy)


def test_a_summary_without_its_checksums_is_damaged(copy):
    summary = json.loads((copy / "summary.json").read_text())
    del summary["checksums"]
    (copy / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(RecordError, match=r"summary\.json is damaged: the checksum does not match"):
        RunRecord.read(copy)


@pytest.mark.parametrize("summary", [{"format": 1}, {"format": 99}, {}])
def test_another_format_is_rejected(summary, copy):
    (copy / "summary.json").write_text(json.dumps(summary))
    text = f"has record format {summary.get('format')}; this version of Coterie reads format 2"
    with pytest.raises(RecordError, match=text):
        RunRecord.read(copy)


def test_a_folder_without_a_spec_is_not_a_record(tmp_path):
    with pytest.raises(RecordError, match=r"is not the record of a run: it has no spec\.toml$"):
        RunRecord.read(tmp_path)
    with pytest.raises(RecordError, match=r"is not the record of a run: it does not exist$"):
        RunRecord.read(tmp_path / "nowhere")


def test_a_folder_of_records_is_named_with_them(copy):
    with pytest.raises(RecordError, match=rf"it has no spec\.toml\. Records in it: {copy.name}$"):
        RunRecord.read(copy.parent)


def test_an_unfinished_run_has_no_summary_and_no_models(copy):
    for name in ("summary.json", "models.safetensors"):
        (copy / name).unlink()
    record = RunRecord.read(copy)
    assert record.summary == {}
    with pytest.raises(RecordError, match=r"This run is not finished .* Continue it with: coterie resume"):
        record.models()


def test_a_run_without_a_checkpoint_cannot_be_resumed(copy):
    (copy / "summary.json").unlink()
    shutil.rmtree(copy / "checkpoint")
    with pytest.raises(RecordError, match="has no checkpoint to resume from; run it again"):
        coterie.resume(copy)


def test_a_folder_with_another_run_is_not_overwritten(written):
    with pytest.raises(
        RecordError, match=r"exists and is not empty; choose another folder \(--out; out= in Python\) or remove it"
    ):
        coterie.run(SPEC, out=written.path)


def test_resuming_a_finished_run_does_nothing(written):
    steps = []
    assert coterie.resume(written.path, on_round=steps.append).summary["rounds"] == 4
    assert not steps


@pytest.mark.parametrize("method", ["fedavg", "ifca", "local"])
@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_run_resumes_to_the_same_bytes(method, after, tmp_path):
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


@pytest.mark.parametrize(
    "method", ["srfca", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("flag", "flhc"))]
)
def test_preparation_is_not_lost_in_a_crash(method, tmp_path):
    # A crash writes no checkpoint, unlike Ctrl-C. It comes after the last preparation step.
    spec = {**SPEC, "method": method, "run": {"rounds": 12, "clients_per_round": 4, "checkpoint_every": 100}}
    whole = coterie.run(spec, out=tmp_path / "whole")
    prepared = [place for place, row in enumerate(whole.rounds) if row["stage"] == "prepare"]
    steps = []

    def crash(row):
        steps.append(row)
        if len(steps) == prepared[-1] + 1:
            raise OSError("crashed")

    with pytest.raises(OSError, match="crashed"):
        coterie.run(spec, out=tmp_path / "crashed", on_round=crash)
    again = []
    crashed = coterie.resume(tmp_path / "crashed", on_round=again.append)
    assert len(again) == len(whole.rounds) - len(steps)
    read = [(record.path / "models.safetensors").read_bytes() for record in (crashed, whole)]
    assert read[0] == read[1]


def test_the_seconds_of_the_setup_include_building_and_add_up_when_resumed(tmp_path, monkeypatch):
    from coterie.runs import loop

    # The clock stands still but while the run is built, which takes 100 seconds.
    now, build = [0.0], loop.build

    def slow(*args, **kwargs):
        now[0] += 100
        return build(*args, **kwargs)

    def stop(row):
        if row["t"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(loop, "build", slow)
    with pytest.raises(KeyboardInterrupt):
        coterie.run(SPEC, out=tmp_path / "here", on_round=stop)
    seconds = coterie.resume(tmp_path / "here").summary["seconds"]
    assert (seconds["setup"], seconds["total"]) == (200, 200)
    assert seconds["training"] == seconds["evaluation"] == seconds["clustering"] == 0


def test_a_record_has_a_short_repr(tmp_path):
    record = coterie.run({"data": {"name": "blobs", "clients": 6}, "run": {"rounds": 2}}, out=tmp_path / "here")
    shown = f"RunRecord(fedavg on blobs, 2 rounds, accuracy {record.summary['accuracy']['weighted']:.3f}, "
    assert repr(record) == f"{shown}path={str(tmp_path / 'here')!r})"
    assert repr(RunRecord({}, [], None)) == "RunRecord(unfinished, 0 steps, path=None)"


def test_the_record_of_a_table_has_names_and_encoding(tmp_path):
    rows = {
        "client": ["a", "b"] * 10,
        "label": ["no", "yes"] * 10,
        "age": [30, None, 50, 70] * 5,
        "color": ["red", "blue"] * 10,
    }
    data = coterie.data.from_table(rows)
    coterie.run({"run": {"rounds": 1}}, data=data, out=tmp_path / "run")
    served = RunRecord.read(tmp_path / "run").served
    assert served["class_names"] == ["no", "yes"]
    assert served["features"] == ["age", "color=blue", "color=red"]
    assert coterie.data.Preprocessing.from_dict(served["preprocessing"]) == data.preprocessing


def test_the_record_of_other_data_has_no_names(written):
    assert not {"class_names", "features", "preprocessing"} & set(written.served)


def test_a_run_takes_columns_as_they_are():
    rows = {"client": ["a", "b"] * 10, "label": ["no", "yes"] * 10, "age": [1.5, 2.5] * 10}
    frame = pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(rows)
    assert coterie.run({"run": {"rounds": 1}}, data=frame).served["class_names"] == ["no", "yes"]
