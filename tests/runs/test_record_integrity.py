"""Records survive kills, second processes, damaged files and planted links."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import coterie
from coterie import RunRecord
from coterie.errors import ClientFailed, RecordError, TooFewReplies
from coterie.methods.fedavg import FedAvg
from coterie.runs import record_files, writer
from coterie.runs.record_files import locked, write_whole

SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 30},
    "method": {"name": "oracle"},
    "run": {"rounds": 5, "clients_per_round": 8, "checkpoint_every": 2},
    "local": {"learning_rate": 0.1},
}


class Killed(BaseException):
    """Stands for SIGKILL: nothing in Coterie catches it, and nothing is written after it."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return coterie.run(SPEC, out=tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture
def killed(tmp_path):
    """A run that was killed after its fourth line and the checkpoints after steps 2 and 4."""

    def kill(row):
        if row["t"] == 3:
            raise Killed

    with pytest.raises(Killed):
        coterie.run(SPEC, out=tmp_path / "killed", on_round=kill)
    return tmp_path / "killed"


def content(folder):
    """What must be equal in two records of the same spec: everything but durations and memory."""

    def timeless(value):
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "peak_rss_bytes", "checksums")}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.parent.name != "checkpoint"
    }
    files["rounds.jsonl"] = [timeless(json.loads(line)) for line in files["rounds.jsonl"].splitlines()]
    files["summary.json"] = timeless(json.loads(files["summary.json"]))
    return files


# The lock


def test_a_run_and_a_resume_of_a_running_run_are_refused(tmp_path):
    refused = []

    def second(row):
        for start in (lambda: coterie.resume(tmp_path / "here"), lambda: coterie.run(SPEC, out=tmp_path / "here")):
            with pytest.raises(RecordError) as fault:
                start()
            refused.append(str(fault.value))

    coterie.run({**SPEC, "run": {"rounds": 1}}, out=tmp_path / "here", on_round=second)
    assert refused[0] == (
        f"Another process (process {os.getpid()}) is writing the record in {tmp_path / 'here'}; "
        "wait until it has finished, or stop it"
    )
    assert refused[1] == refused[0]  # and not that the folder is not empty and could be removed
    assert len(refused) == 2


def test_of_many_runs_into_one_folder_exactly_one_begins(tmp_path):
    results = []
    start = threading.Barrier(8)
    end = threading.Event()

    def begin():
        start.wait()
        try:
            with writer.Writer.create(tmp_path / "here", "x = 1\n"):
                results.append("began")
                end.wait(10)
        except RecordError as fault:
            results.append(str(fault))
        if len(results) == 8:
            end.set()

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(results) < 8 and not end.wait(0.01):
        pass
    end.set()
    for thread in threads:
        thread.join()
    assert results.count("began") == 1
    assert all("is writing the record" in text or "is not empty" in text for text in results if text != "began")


def test_a_kill_releases_the_lock(whole, tmp_path):
    folder = shutil.copytree(whole.path, tmp_path / "copy")
    (folder / "summary.json").unlink()
    hold = (
        "import sys, time; from pathlib import Path; from coterie.runs.record_files import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(folder)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RecordError, match=rf"Another process \(process {holder.pid}\) is writing the record"):
            coterie.resume(folder)
        assert RunRecord.read(folder).rounds == whole.rounds  # reading needs no lock
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        assert coterie.resume(folder).summary["status"] == "done"
    assert (folder / ".lock").read_bytes() == b""


def test_a_finished_run_is_read_again_while_another_process_holds_the_lock(whole):
    with locked(whole.path):
        assert coterie.resume(whole.path).summary["rounds"] == 5


def test_a_run_that_another_process_has_just_finished_is_not_resumed(whole, tmp_path, monkeypatch):
    # The other process finishes after the first look at the record and before the lock is taken.
    folder = shutil.copytree(whole.path, tmp_path / "copy")
    (folder / "summary.json").rename(tmp_path / "summary.json")
    taken = record_files.locked

    def finished_first(path):
        (tmp_path / "summary.json").rename(folder / "summary.json")
        return taken(path)

    monkeypatch.setattr(writer, "locked", finished_first)
    assert coterie.resume(folder).summary == json.loads(json.dumps(whole.summary))


def test_a_folder_with_only_a_lock_and_temporary_files_is_empty(tmp_path):
    (tmp_path / ".lock").write_text("12345")
    (tmp_path / ".spec.toml-0123.part").write_text("half")
    (tmp_path / "rounds.jsonl").touch()
    with writer.Writer.create(tmp_path, "x = 1\n"):
        names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [".lock", "rounds.jsonl", "spec.toml"]


def test_a_file_system_without_locks_gives_a_warning(tmp_path, monkeypatch, caplog):
    import filelock

    def missing(*_, **__):
        raise NotImplementedError("no flock")

    monkeypatch.setattr(filelock.FileLock, "acquire", missing)
    with writer.Writer.create(tmp_path / "here", "x = 1\n"):
        pass
    assert "cannot be locked here (no flock); do not write to it from another process" in caplog.text


# rounds.jsonl and the checkpoint


def test_lines_are_on_the_disk_before_the_checkpoint_that_counts_them(tmp_path, monkeypatch):
    events = []
    names = {}
    fsync, opened, replace = os.fsync, os.open, os.replace

    def noted_open(path, *args, **kwargs):
        number = opened(path, *args, **kwargs)
        names[number] = Path(os.fspath(path)).name
        return number

    def noted_fsync(number):
        fsync(number)
        events.append(("sync", names.get(number)))

    def noted_replace(self, target):
        replace(self, target)
        events.append(("move", Path(target).name))
        return target

    monkeypatch.setattr(os, "open", noted_open)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    with writer.Writer.create(tmp_path / "here", "x = 1\n") as made:
        made.append({"t": 0})
        made.evidence(0, {"a": 1})
        events.clear()
        made.checkpoint({"session": {}, "steps": 1, "seconds": {}})
    moved = events.index(("move", "latest.safetensors"))
    assert ("sync", "rounds.jsonl") in events[:moved]
    assert ("sync", "00000.safetensors") in events[:moved]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda lines: lines[:3], "has 3 complete lines, but the checkpoint counts 4: lines are missing"),
        (lambda lines: [*lines[:3], lines[3][:-1]], "has 3 complete lines, but the checkpoint counts 4"),
        (lambda lines: [], "has 0 complete lines, but the checkpoint counts 4"),
        (lambda lines: [lines[0].replace(b'"t":0', b'"t":7'), *lines[1:]], "was changed: its first 4 lines are not"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "was changed: its first 4 lines are not"),
        (lambda lines: [*lines[:2], *lines[:2]], "was changed: its first 4 lines are not"),
    ],
)
def test_missing_and_changed_lines_are_refused(killed, change, text):
    file = killed / "rounds.jsonl"
    changed = b"".join(change(file.read_bytes().splitlines(keepends=True)))
    file.write_bytes(changed)
    with pytest.raises(RecordError, match=re.escape(f"{file} {text}")):
        coterie.resume(killed)
    assert file.read_bytes() == changed


def test_lines_after_the_checkpoint_are_cut(killed, whole):
    with (killed / "rounds.jsonl").open("ab") as file:
        file.write(b'{"t":4,"stage":"train","loss":99}\n{"t":5,"sta')
    assert content(coterie.resume(killed).path) == content(whole.path)


def test_a_checkpoint_of_an_earlier_version_is_resumed(killed, whole):
    from coterie import codec

    file = killed / "checkpoint" / "latest.safetensors"
    saved = codec.decode(file.read_bytes())
    for key in ("rounds", "spec"):
        del saved[key]
    del saved["seconds"]["setup"]
    file.write_bytes(codec.encode(saved))
    assert content(coterie.resume(killed).path) == content(whole.path)


def test_a_changed_spec_is_refused(killed):
    file = killed / "spec.toml"
    file.write_text(file.read_text().replace("learning_rate = 0.1", "learning_rate = 0.3"))
    with pytest.raises(RecordError, match=re.escape(f"{file} was changed after the run began")):
        coterie.resume(killed)


# Kills


@pytest.mark.parametrize("name", ["spec.toml", "latest.safetensors", "models.safetensors", "summary.json"])
@pytest.mark.parametrize("moved", [False, True])
def test_a_run_killed_while_writing_a_file_resumes_to_the_same_bytes(name, moved, whole, tmp_path, monkeypatch):
    replace, left = Path.replace, {"latest.safetensors": 4}

    def killed_here(self, target):
        if moved:
            replace(self, target)
        if Path(target).name == name and self.name.endswith(".part"):
            left[name] = left.get(name, 1) - 1
            if left[name] == 0:
                raise Killed
        return target if moved else replace(self, target)

    folder = tmp_path / "killed"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed_here)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process removes nothing
        with pytest.raises(Killed):
            coterie.run(SPEC, out=folder)
    if not (folder / "spec.toml").exists():
        with pytest.raises(RecordError, match="is not the record of a run"):
            coterie.resume(folder)
        coterie.run(SPEC, out=folder)
    assert content(coterie.resume(folder).path) == content(whole.path)


def test_a_run_killed_before_its_first_line_starts_again(whole, tmp_path):
    with writer.Writer.create(tmp_path / "killed", (whole.path / "spec.toml").read_text()):
        pass
    assert content(coterie.resume(tmp_path / "killed").path) == content(whole.path)


def test_a_run_killed_before_its_summary_is_not_evaluated_again(whole, tmp_path, monkeypatch):
    from coterie.runs.session import Session

    folder = shutil.copytree(whole.path, tmp_path / "copy")
    for name in ("summary.json", "models.safetensors"):
        (folder / name).unlink()
    monkeypatch.delattr(Session, "evaluate")
    assert content(coterie.resume(folder).path) == content(whole.path)


# Damaged files


def flipped(file, place=-1):
    data = bytearray(file.read_bytes())
    data[place] ^= 0x10
    file.write_bytes(data)


@pytest.mark.parametrize("place", [0, 9, 40, 200, -1])
def test_a_damaged_checkpoint_is_replaced_by_the_one_before_it(killed, whole, place, caplog):
    file = killed / "checkpoint" / "latest.safetensors"
    flipped(file, place)
    with caplog.at_level(logging.WARNING, logger="coterie"):
        record = coterie.resume(killed)
    assert re.search(
        r"latest\.safetensors: .*damaged.* continues from the checkpoint before it, after 2 steps", caplog.text
    )
    assert content(record.path) == content(whole.path)


def test_a_second_kill_after_a_damaged_checkpoint_finds_an_intact_one(killed, whole):
    flipped(killed / "checkpoint" / "latest.safetensors")

    def kill(row):
        raise Killed

    with pytest.raises(Killed):
        coterie.resume(killed, on_round=kill)
    assert content(coterie.resume(killed).path) == content(whole.path)


def test_two_damaged_checkpoints_are_refused(killed):
    for name in ("latest", "previous"):
        flipped(killed / "checkpoint" / f"{name}.safetensors")
    with pytest.raises(RecordError, match=r"previous\.safetensors: The data are damaged: the checksum does not match"):
        coterie.resume(killed)


def test_a_flipped_bit_in_the_models_is_named(whole, tmp_path):
    folder = shutil.copytree(whole.path, tmp_path / "copy")
    flipped(folder / "models.safetensors")
    with pytest.raises(RecordError, match=r"models\.safetensors: The data are damaged: the checksum does not match"):
        RunRecord.read(folder)


def test_a_flipped_bit_in_the_evidence_is_named(tmp_path):
    spec = {**SPEC, "method": {"name": "flhc", "warm_rounds": 1}, "run": {"rounds": 3, "clients_per_round": 8}}
    record = coterie.run(spec, out=tmp_path / "here")
    (file,) = (record.path / "evidence").iterdir()
    assert record.evidence(int(file.stem))
    flipped(file)
    with pytest.raises(RecordError, match=re.escape(f"{file}: The data are damaged: the checksum does not match")):
        record.evidence(int(file.stem))
    with pytest.raises(RecordError, match=r"has no evidence; steps with evidence: \d+"):
        record.evidence(99)


# Runs that fail


def test_a_run_that_fails_has_a_summary_and_says_where_its_record_is(tmp_path, monkeypatch):
    spec = {**SPEC, "method": "fedavg"}
    plain = FedAvg.round

    def fails_in_round_two(self, state, fed, cohort, seed):
        if cohort.t == 2:
            raise ClientFailed("Client 3 has failed")
        return plain(self, state, fed, cohort, seed)

    monkeypatch.setattr(FedAvg, "round", fails_in_round_two)
    with pytest.raises(ClientFailed) as fault:
        coterie.run(spec, out=tmp_path / "here")
    assert str(fault.value) == f"Client 3 has failed\nThe record of the steps before is in {tmp_path / 'here'}"
    record = RunRecord.read(tmp_path / "here")
    assert (record.summary["status"], record.summary["reason"]) == ("failed", "Client 3 has failed")
    assert record.summary["rounds"] == len(record.rounds) == 2
    assert record.summary["accuracy"]["weighted"] == record.rounds[1]["accuracy"]["weighted"]
    assert record.client_results().step == 1
    monkeypatch.undo()
    again = coterie.resume(tmp_path / "here")
    assert again.summary["status"] == "done"
    assert content(again.path) == content(coterie.run(spec, out=tmp_path / "whole").path)


@pytest.mark.parametrize("stop", [1, 7])
def test_a_resumed_preparation_fails_after_the_same_number_of_attempts(stop, tmp_path):
    spec = {
        **SPEC,
        "method": {"name": "ifca", "clusters": 2, "warm_rounds": 21},
        "faults": {"drop": 1.0},
        "run": {"rounds": 3, "clients_per_round": 8},
    }
    lines = []

    def kill(row):
        lines.append(row)
        if len(lines) == stop:
            raise Killed

    with pytest.raises(Killed):
        coterie.run(spec, out=tmp_path / "killed", on_round=kill)
    for call in (lambda: coterie.resume(tmp_path / "killed"), lambda: coterie.run(spec, out=tmp_path / "whole")):
        with pytest.raises(
            TooFewReplies, match=r"Preparation failed 20 times.*\n.*The record of the steps before is in"
        ):
            call()
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert RunRecord.read(tmp_path / "whole").summary["status"] == "failed"
    # 20 attempts, 8 clients each, every reply lost
    assert RunRecord.read(tmp_path / "whole").summary["lost_replies"] == 160


# Temporary files


def test_a_planted_link_is_not_followed(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    victim.write_text("precious")
    folder.mkdir()
    for name in ("file", "file.part", ".file.part"):
        (folder / name).symlink_to(victim)
    write_whole(folder / "file", b"new")
    assert victim.read_text() == "precious"
    assert (folder / "file").read_bytes() == b"new"
    assert not (folder / "file").is_symlink()


def test_a_temporary_file_is_never_one_that_exists(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files.secrets, "token_hex", lambda _: "00")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".file-00.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "file", b"new")
    assert victim.read_text() == "precious"


def test_lines_are_not_written_through_a_planted_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    with writer.Writer.create(tmp_path / "here", "x = 1\n") as made:
        (made.path / "rounds.jsonl").unlink()
        (made.path / "rounds.jsonl").symlink_to(victim)
        with pytest.raises(RecordError, match="cannot be written"):
            made.append({"t": 0})
    assert victim.read_text() == "precious\n"


def test_temporary_files_of_a_killed_process_are_removed(killed):
    for folder in (".", "checkpoint"):
        (killed / folder / ".latest.safetensors-0123.part").write_text("half")
    coterie.resume(killed)
    assert not list(killed.rglob("*.part"))


def test_a_record_whose_folder_is_removed_gives_one_clear_error(tmp_path):
    def remove(row):
        shutil.rmtree(tmp_path / "here")

    with pytest.raises(RecordError, match=r"The record in .*here cannot be written: No such file or directory"):
        coterie.run(SPEC, out=tmp_path / "here", on_round=remove)


# Swapped files


def test_a_file_with_the_content_of_another_one_is_named(whole, tmp_path):
    folder = shutil.copytree(whole.path, tmp_path / "copy")
    shutil.copy(folder / "clients" / "00001.safetensors", folder / "clients" / "00003.safetensors")
    record = RunRecord.read(folder)
    with pytest.raises(RecordError, match=r"00003\.safetensors is damaged: it has the content of clients/00001\.safe"):
        record.client_results(3)
    shutil.copy(folder / "checkpoint" / "latest.safetensors", folder / "models.safetensors")
    with pytest.raises(RecordError, match=r"models\.safetensors is damaged: it has the content of checkpoint"):
        RunRecord.read(folder)
