"""Each tracker stores parameters, tags, metrics per round and the summary; all work without a network."""

from __future__ import annotations

import time

import pytest

import coterie
from coterie import tracking

SPEC = {
    "data": {"name": "blobs", "clients": 4},
    "method": {"name": "ifca", "clusters": 2},
    "local": {"epochs": 1},
    "run": {"rounds": 3, "seed": 5},
}
EXTRA = "the tracker is an extra: pip install 'coterie[{}]'"


def test_tensorboard_has_a_value_per_round_in_an_event_file_of_the_record(tmp_path):
    pytest.importorskip("tensorboardX", reason=EXTRA.format("tensorboard"))
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    record = coterie.run(SPEC, out=tmp_path / "run", observers=[tracking.TensorBoard()])
    (file,) = (tmp_path / "run" / "tensorboard").iterdir()
    content, found, texts = file.read_bytes(), {}, {}
    while content:  # an event file is a sequence of: length (8 bytes), its checksum (4), event, checksum (4)
        length = int.from_bytes(content[:8], "little")
        assert int.from_bytes(content[8:12], "little") == masked_crc32c(content[:8])
        for value in Event.FromString(content[12 : 12 + length]).summary.value:
            step = Event.FromString(content[12 : 12 + length]).step
            if value.HasField("simple_value"):
                found.setdefault(value.tag, {})[step] = value.simple_value
            else:
                texts[value.tag] = value.tensor.string_val[0].decode()
        content = content[16 + length :]
    expected = {row["t"]: row["accuracy"]["weighted"] for row in record.rounds if row["stage"] == "train"}
    assert found["accuracy/weighted"] == pytest.approx(expected)
    assert found["final/accuracy.weighted"] == pytest.approx({3: record.summary["accuracy"]["weighted"]})
    assert "method.clusters = 2" in texts["settings/text_summary"]
    assert coterie.RunRecord.read(tmp_path / "run").summary == record.summary


def test_tensorboard_without_a_record_writes_to_a_folder_of_its_own(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX", reason=EXTRA.format("tensorboard"))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        coterie.run({**SPEC, "run": {"rounds": 1}}, observers=[tracking.TensorBoard()])
    assert sorted(path.name for path in (tmp_path / "tensorboard").iterdir()) == ["blobs-ifca-0", "blobs-ifca-0-2"]


@pytest.mark.filterwarnings("ignore")  # of MLflow's store
def test_mlflow_has_parameters_tags_metrics_and_the_status(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason=EXTRA.format("mlflow"))
    pytest.importorskip("sqlalchemy", reason="MLflow's local store needs it")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    record = coterie.run(SPEC, out=tmp_path / "run", observers=[tracking.MLflow("mine", uri)])
    client = MlflowClient(uri)
    (stored,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert stored.info.status == "FINISHED"
    assert stored.data.params["method.clusters"] == "2"
    assert stored.data.params["model.name"] == "mclr"
    assert {name: stored.data.tags[name] for name in ("method", "data", "seed")} == {
        "method": "ifca",
        "data": "blobs",
        "seed": "5",
    }
    assert stored.data.tags["coterie.record"] == str(tmp_path / "run")
    history = {each.step: each.value for each in client.get_metric_history(stored.info.run_id, "accuracy.weighted")}
    assert history == pytest.approx({row["t"]: row["accuracy"]["weighted"] for row in record.rounds})
    assert stored.data.metrics["final.traffic.up_bytes"] == record.summary["traffic"]["up_bytes"]


@pytest.mark.filterwarnings("ignore")  # of wandb's own packages
def test_wandb_writes_a_run_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason=EXTRA.format("wandb"))
    monkeypatch.chdir(tmp_path)
    seen, init = [], wandb.init
    monkeypatch.setattr(wandb, "init", lambda **given: seen.append(init(**given)) or seen[-1])
    coterie.run(SPEC, observers=[tracking.WandB(mode="offline", folder=tmp_path / "tracked")])
    (stored,) = seen
    assert stored.config["method.clusters"] == 2
    assert set(stored.tags) == {"method:ifca", "data:blobs", "model:mclr", "seed:5"}
    (file,) = (tmp_path / "tracked" / "wandb").glob("offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 60  # a process of wandb writes the file, at times after the end of the run
    while b"final.accuracy.weighted_last_ten" not in file.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)
    content = file.read_bytes()  # names are stored as plain text
    assert b"accuracy.weighted" in content
    assert b"final.accuracy.weighted_last_ten" in content
