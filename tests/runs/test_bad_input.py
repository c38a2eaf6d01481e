"""Wrong and unusual input: error messages, exit codes, and that nothing is left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.data import from_arrays
from coterie.errors import DataError, Diverged, RecordError, SpecError
from coterie.methods.fedavg import FedAvg

BLOBS = {"name": "blobs", "clients": 8, "samples": 20}
TINY = {"data": BLOBS, "run": {"rounds": 3, "clients_per_round": 4}}


def error_of(kind, spec, **more):
    """The message of the error that a run ends with."""
    with pytest.raises(kind) as caught:
        coterie.run(spec, **more)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------------ specs


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"method": "ifac"}, r"No method 'ifac'\. Did you mean 'ifca'\? Known: "),
        ({"data": "digitz"}, r"No data set 'digitz'\. Did you mean 'digits'\? Known: "),
        ({"model": "mlpp"}, r"No model 'mlpp'\. Did you mean 'mlp'\? Known: "),
        ({"rnu": {}}, r"No section of a spec 'rnu'\. Did you mean 'run'\? Known: aggregation, attack, "),
        ({"run": {"round": 3}}, r"No setting 'round' in \[run\]\. Did you mean 'rounds'\? Known: "),
        ({"data": {**BLOBS, "sampels": 3}}, r"No setting 'sampels' of data set blobs\. Did you mean 'samples'\?"),
        ({"model": {"name": "mlp", "width": 3}}, r"No setting 'width' of model mlp\. Did you mean 'widths'\?"),
        ({"run": {"rounds": 0}}, "run.rounds must be at least 1, got 0"),
        ({"run": {"rounds": 2.5}}, "run.rounds must be a whole number, got 2.5"),
        ({"run": {"rounds": True}}, "run.rounds must be a whole number, got True"),
        ({"local": {"learning_rate": -0.1}}, "local.learning_rate must be at least 0, got -0.1"),
        ({"local": {"learning_rate": "fast"}}, "local.learning_rate must be a number, got 'fast'"),
        (
            {"data": BLOBS, "run": {"clients_per_round": 9}},
            "run.clients_per_round must be at most 8, the number of clients .*, got 9",
        ),
        ({"data": {**BLOBS, "clients": "many"}}, "data.clients must be a whole number, got 'many'"),
        ({"data": BLOBS, "model": {"name": "mclr", "l2": "big"}}, "model.l2 must be a number, got 'big'"),
        ({"data": BLOBS, "model": {"name": "mclr", "normalize": "x"}}, "model.normalize must be one of 'auto', "),
        ({"run": 3}, r"\[run\] must be a table of settings, got 3"),
        ({"data": 3}, r"\[data\] must be a name or a table with a name, got 3"),
        ({"method": FedAvg()}, r"\[method\] must be a name, got the object FedAvg.* take the name under which it is"),
        ({"faults": {"drop": 2}}, "faults.drop must be between 0 and 1, got 2"),
        ({"method": {"name": "ifca", "clusters": "four"}}, "method.clusters must be a whole number, got 'four'"),
        (
            {"method": {"name": "ifca", "first_round": "best"}},
            "method.first_round must be one of 'loss', 'balanced', 'modulo', got 'best'",
        ),
    ],
)
def test_an_invalid_spec_is_rejected_with_what_is_allowed(spec, says, tmp_path):
    with pytest.raises(SpecError, match=says) as caught:
        coterie.run(spec, out=tmp_path / "here")
    assert caught.value.exit_code == 2
    assert str(caught.value).count("\n") <= 1
    assert not list(tmp_path.iterdir()), "nothing is half-written"


@pytest.mark.parametrize("text", ["[run\n", "rounds = = 3", '[run]\nrounds = "x', "\x00"])
def test_invalid_toml_is_rejected_with_the_line(text, tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text(text)
    assert error_of(SpecError, file).startswith(f"{file} is not valid TOML: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 2000 + "]" * 2000, "cannot be read: its lists or tables are nested too deeply"),
        ("[run]\nseed = " + "9" * 5000, "is not valid TOML: Exceeds the limit (4300 digits)"),
        ("[run]\nseed = " + "9" * 400, f"run.seed must be a 64-bit whole number, got {'9' * 120}"),
        (
            "[run]\nseed = 0x" + "f" * 5000,
            "run.seed must be a 64-bit whole number, got a value of type int that is too",
        ),
        ("[local]\nlearning_rate = " + "9" * 400, f"local.learning_rate must be a finite number, got {'9' * 120}"),
        ('[data]\nname = "\\u001b[31m\\u0000"', r"No data set '\x1b[31m\x00'. Known: "),
        ('[run]\n"\\u202e" = 1', r"No setting '\u202e' in [run]. Known: "),
    ],
    ids=["deep", "5000 digits", "400 digits", "5000 hexadecimal digits", "float", "control characters", "direction"],
)
def test_absurd_values_in_a_spec_file_give_the_ordinary_error(text, says, tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text(text)
    message = error_of(SpecError, file)
    assert says in message
    assert len(message) <= 2000
    assert message.isprintable()


@pytest.mark.parametrize("spec", [{3: {}}, {"run": {None: 1}}, {"method": {"name": "ifca", (): 1}}])
def test_keys_that_are_not_text_are_unknown_names(spec):
    assert error_of(SpecError, spec).startswith("No se")


def test_a_spec_file_that_is_not_text_is_rejected(tmp_path):
    file = tmp_path / "spec.toml"
    file.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in error_of(SpecError, file)


# ------------------------------------------------------------------------------------------------------- data


def npz(folder: Path, **clients: dict) -> Path:
    folder.mkdir()
    for name, arrays in clients.items():
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


def client(n: int, *, classes: int = 3, features: int = 4, seed: int = 0) -> dict:
    y = np.arange(n) % classes
    return {"x": np.random.default_rng(seed).normal(size=(n, features)) + y[:, None], "y": y}


GOOD = client(12)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({**GOOD, "x": np.full((12, 4), np.nan)}, "'bad'.*NaN or infinite"),
        ({**GOOD, "x": np.full((12, 4), np.inf)}, "'bad'.*NaN or infinite"),
        ({**GOOD, "y": GOOD["y"] - 1}, "'bad'.*label"),
        ({**GOOD, "y": GOOD["y"] + 0.5}, "bad"),
        ({**GOOD, "x": np.zeros((12, 5))}, "'bad'.*shape"),
        ({**GOOD, "y": np.zeros(7, int)}, "'bad'"),
        ({"x": GOOD["x"]}, "has no array 'y', only x"),
        ({**GOOD, "x": np.array([{}] * 12, object)}, "array 'x' cannot be read: .*Store plain numbers, not objects"),
        ({**GOOD, "x": np.array(["one"] * 12)}, "'bad'"),
    ],
)
def test_invalid_data_are_rejected_with_the_client(bad, says, tmp_path):
    folder = npz(tmp_path / "mine", good=GOOD, bad=bad)
    with pytest.raises(DataError, match=says) as caught:
        coterie.run({"data": str(folder), "run": {"rounds": 1}}, out=tmp_path / "here")
    assert caught.value.exit_code == 3
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x80\x04K\x01."])
def test_a_file_that_is_not_an_archive_is_rejected(content, tmp_path):
    folder = npz(tmp_path / "mine", good=GOOD)
    (folder / "bad.npz").write_bytes(content)
    text = error_of(DataError, {"data": str(folder)})
    assert "bad.npz is not an archive of arrays" in text


def test_labels_above_the_number_of_classes_are_rejected(tmp_path):
    folder = npz(tmp_path / "mine", a=GOOD, b=GOOD)
    assert "labels must be" in error_of(DataError, {"data": {"name": str(folder), "classes": 2}})


def test_a_path_that_does_not_exist_is_rejected(tmp_path):
    assert error_of(DataError, {"data": str(tmp_path / "gone.csv")}).startswith("There is no file or folder ")


def arrays(**clients):
    """Data in memory: name=(x, y, x_test, y_test)."""
    return from_arrays({name: tuple(each) for name, each in clients.items()})


def parts(train: int, test: int, label: int | None = None):
    draw = np.random.default_rng(train + test)
    y, y_test = np.arange(train) % 3, np.arange(test) % 3
    if label is not None:
        y, y_test = np.full(train, label), np.full(test, label)
    return draw.normal(size=(train, 4)), y, draw.normal(size=(test, 4)), y_test


@pytest.mark.parametrize(
    "method", ["fedavg", "ifca", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("fedprox", "local"))]
)
def test_clients_without_training_or_test_examples_are_accepted(method, caplog):
    data = arrays(
        none=parts(0, 6), one=parts(1, 6), same=parts(9, 6, label=1), untested=parts(9, 0), usual=parts(12, 6)
    )
    record = coterie.run({"method": method, "run": {"rounds": 4, "clients_per_round": 4}}, data=data)
    assert record.summary["status"] == "done"
    assert record.summary["clients"] == 5
    assert record.summary["clients_without_examples"] == 1
    assert "1 clients have no training examples; they are evaluated but never sampled" in caplog.text
    drawn = {name for row in record.rounds for name in row["assignment"]}
    assert "none" not in drawn
    assert record.summary["coverage"] == 1.0


#: Data without clusters.
ALIKE = {
    "one client": {"a": parts(9, 6)},
    "few clients": {"a": parts(9, 6), "b": parts(9, 6, label=1), "c": parts(1, 6)},
    "one class": {name: parts(9, 6, label=0) for name in "abcdef"},
    "equal clients": {name: parts(1, 6) for name in "abcdef"},
}
#: Pairs of method and data in `make test`: the smallest data, and data in which all distances are zero.
EACH_TIME = {("fedgroup", "one client"), ("flhc", "equal clients")}


@pytest.mark.parametrize(
    ("method", "data"),
    [
        pytest.param(method, data, marks=() if (method, data) in EACH_TIME else pytest.mark.exhaustive)
        for method in ("flhc", "fedgroup", "fedgrouprox", "flexcfl")
        for data in ALIKE
    ],
)
def test_without_clusters_to_be_found_there_is_one(method, data):
    spec = {"method": method, "run": {"rounds": 12}}
    record = coterie.run(spec, data=arrays(**ALIKE[data]))
    assert record.summary["clusters"]["count"] == 1
    assert record.summary["coverage"] == 1.0


def test_without_test_examples_there_is_no_accuracy():
    record = coterie.run({"run": {"rounds": 2}}, data=arrays(a=parts(9, 0), b=parts(9, 0)))
    assert record.summary["accuracy"] is None
    assert record.summary["test_loss"] is None


def test_data_without_training_examples_are_rejected():
    text = error_of(SpecError, {"run": {"rounds": 1}}, data=arrays(a=parts(0, 5), b=parts(0, 5)))
    assert text == "No client of arrays has a training example; training needs at least one"


# --------------------------------------------------------------------------------------- divergence, and disks


def test_divergence_stops_the_run_and_keeps_the_record(tmp_path):
    # The rate grows a billionfold in each round: in the sixth nothing is finite.
    spec = {**TINY, "run": {"rounds": 20, "clients_per_round": 4}, "local": {"lr_decay": 1e9}}
    with pytest.raises(Diverged, match=r"Round \d: .*lower the learning rate") as caught:
        coterie.run(spec, out=tmp_path / "here")
    assert caught.value.exit_code == 4
    assert str(caught.value).endswith(f"\nThe record of the steps before is in {tmp_path / 'here'}")
    record = coterie.RunRecord.read(tmp_path / "here")
    assert record.summary["status"] == "diverged"
    assert record.summary["reason"].startswith(f"Round {len(record.rounds) + 1}: ")
    assert [row["t"] for row in record.rounds] == list(range(len(record.rounds)))
    assert record.models()


@pytest.mark.parametrize(
    "method", ["fedavg", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("ifca", "local"))]
)
def test_a_huge_learning_rate_diverges(method):
    spec = {**TINY, "method": method, "model": {"name": "mlp"}, "local": {"learning_rate": 1e20}}
    assert "lower the learning rate" in error_of(Diverged, spec)


@pytest.mark.parametrize("where", ["file/here", "/proc/here"])
def test_a_folder_that_cannot_be_created_is_named(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(RecordError, match=f"The record in {where} cannot be written: ") as caught:
        coterie.run(TINY, out=where)
    assert caught.value.exit_code == 2


def test_a_full_disk_ends_the_run_and_keeps_earlier_lines(tmp_path, monkeypatch):
    sync, lines = os.fsync, tmp_path / "here" / "rounds.jsonl"

    def full(descriptor: int) -> None:
        if lines.is_file() and lines.read_bytes().count(b"\n") == 4:  # the first checkpoints fit
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    spec = {**TINY, "run": {"rounds": 6, "clients_per_round": 4, "checkpoint_every": 2}}
    text = error_of(RecordError, spec, out=tmp_path / "here")
    assert text == f"The record in {tmp_path / 'here'} cannot be written: No space left on device"
    assert len(coterie.RunRecord.read(tmp_path / "here").rounds) == 4
    assert not list(tmp_path.rglob("*.part"))
    assert (tmp_path / "here" / "checkpoint" / "latest.safetensors").is_file()
    monkeypatch.undo()
    assert coterie.resume(tmp_path / "here").summary["rounds"] == 6


def test_a_disk_that_fills_up_while_a_line_is_written_keeps_earlier_lines(tmp_path, monkeypatch):
    opened = os.open

    def full(path, flags, *args, **kwargs):
        if Path(path).name == "rounds.jsonl" and flags & os.O_APPEND and Path(path).read_bytes().count(b"\n") == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", full)
    assert error_of(RecordError, TINY, out=tmp_path / "here").endswith("No space left on device")
    assert len(coterie.RunRecord.read(tmp_path / "here").rounds) == 2
