"""Runs are stored by content: finished ones are read, interrupted ones continue, failed ones do not stop the others."""

import json
import shutil

import pytest

from coterie.errors import DataError, Diverged, RecordError
from coterie.reproduce import run, running
from coterie.reproduce.loading import parse


class Log:
    """Which runs started, and the rounds that were done."""

    def __init__(self):
        self.started, self.rounds = [], []

    def job(self, job, what):
        if what == "started":
            self.started.append(job.label)

    def step(self, job, row):
        self.rounds.append(row["t"])


def values(found):
    return [cell.values for each in found for cell in each.result.cells]


def test_a_second_call_reads_the_finished_runs(tiny, tmp_path):
    first, second = Log(), Log()
    found = run([tiny], seeds=1, jobs=1, out=tmp_path, on_job=first.job)
    again = run([tiny], seeds=1, jobs=1, out=tmp_path, on_job=second.job)
    assert len(first.started) == 3
    assert second.started == []
    assert values(again) == values(found)
    folder = found[0].folder
    assert json.loads((folder / "table.json").read_text())["cells"][0]["values"] == list(values(found)[0])
    assert {"table.md", "report.html"} <= {file.name for file in folder.iterdir()}


def test_an_interrupted_run_continues_and_gives_the_same_values(tiny, tmp_path):
    whole = run([tiny], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path / "whole")

    def interrupt(job, row):
        if row["t"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([tiny], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path / "parts", on_step=interrupt)
    log = Log()
    parts = run([tiny], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path / "parts", on_step=log.step)
    assert log.rounds == [3]
    assert values(parts) == values(whole)


def test_a_run_that_fails_is_named_and_the_others_are_measured(tiny, tmp_path, monkeypatch):
    original = running.carry_out

    def fail(job, **options):
        if "IFCA" in job.label:
            raise Diverged("the models are not finite in round 1")
        return original(job, **options)

    monkeypatch.setattr(running, "carry_out", fail)
    (found,) = run([tiny], seeds=1, jobs=1, out=tmp_path)
    failures = [cell.failure for cell in found.result.cells]
    assert failures == ["", *["the models are not finite in round 1"] * 2]
    assert found.result.cells[0].mean is not None


def test_quick_results_go_to_a_folder_of_their_own_and_say_that_they_are_scaled_down(tiny, tmp_path):
    (found,) = run([tiny], quick=True, jobs=1, out=tmp_path)
    assert found.folder == tmp_path / "tiny-quick"
    for name in ("table.md", "report.html"):
        text = (found.folder / name).read_text(encoding="utf-8")
        assert "Scaled down (--quick)" in text
        assert "Two rounds." in text


def test_claims_are_not_judged_by_quick_results(tiny_text, tmp_path):
    claim = '[[claims]]\ntext = "All learn."\nrule = "at_least"\nlow = 100.0\n\n'
    entry = parse("tiny", tiny_text.replace("[quick_run]", claim + "[quick_run]"))
    (found,) = run([entry], quick=True, jobs=1, out=tmp_path)
    assert [verdict.holds for verdict in found.result.verdicts] == [None]
    text = (found.folder / "table.md").read_text(encoding="utf-8")
    assert "every value is at least 100.0: not judged, because the runs are scaled down. Values: " in text


def test_results_of_fewer_rounds_go_to_a_folder_of_their_own_and_say_so(tiny, tmp_path):
    (found,) = run([tiny], seeds=1, only=["FedAvg"], max_rounds=2, jobs=1, out=tmp_path)
    assert found.folder == tmp_path / "tiny-2-rounds-1-seed-fedavg"
    for name in ("table.md", "report.html"):
        text = (found.folder / name).read_text(encoding="utf-8")
        assert "At most 2 rounds (--max-rounds)" in text
        assert "Only cells that match FedAvg (--only)" in text


def test_a_probe_needs_no_run_and_is_stored(tiny_text, tmp_path, monkeypatch):
    probing = parse("tiny", tiny_text.replace('"last_weighted"', '{ name = "pni", draws = 2 }'))
    log = Log()
    (found,) = run([probing], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path, on_step=log.step)
    assert log.rounds == [0, 1]  # one step per random model
    monkeypatch.setattr("coterie.runs.pni.pni", lambda *args, **options: pytest.fail("it was computed again"))
    (again,) = run([probing], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path)
    assert values([again]) == values([found])
    assert found.result.cells[0].mean > 0
    for each in (found, again):
        assert each.result.versions["numpy"]
        assert each.result.sources == {"blobs": found.result.sources["blobs"]}
        assert each.result.seconds == each.result.cells[0].seconds > 0


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[1]", b"\xff", b'{"found": {"pni": {}}, "summary": {}}'])
def test_a_damaged_probe_is_computed_again(tiny_text, tmp_path, content):
    probing = parse("tiny", tiny_text.replace('"last_weighted"', '{ name = "pni", draws = 2 }'))
    (found,) = run([probing], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path)
    (file,) = (tmp_path / "records").glob("*/probe.json")
    file.write_bytes(content)
    (again,) = run([probing], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path)
    assert values([again]) == values([found])


@pytest.mark.parametrize("name", ["spec.toml", "summary.json", "rounds.jsonl"])
def test_a_damaged_record_fails_only_its_cells_and_the_note_says_what_to_do(tiny, tmp_path, name):
    (found,) = run([tiny], seeds=1, jobs=1, out=tmp_path)
    key = found.result.cells[0].cell.runs[0].key
    damaged = tmp_path / "records" / key / name
    damaged.write_bytes(damaged.read_bytes()[:40])
    (again,) = run([tiny], seeds=1, jobs=1, out=tmp_path)
    failed, *others = again.result.cells
    assert failed.failure.endswith(f"Remove {damaged.parent} to do this run again")
    assert (failed.exit_code, again.result.exit_codes) == (2, [2])
    assert [each.values for each in others] == [each.values for each in found.result.cells[1:]]
    shutil.rmtree(damaged.parent)
    assert values(run([tiny], seeds=1, jobs=1, out=tmp_path)) == values([found])


def test_all_damaged_records_of_a_cell_are_named(tiny, tmp_path):
    (found,) = run([tiny], only=["FedAvg"], jobs=1, out=tmp_path)
    folders = [tmp_path / "records" / each.key for each in found.result.cells[0].cell.runs]
    assert len(folders) == 2
    for folder in folders:
        (folder / "summary.json").write_bytes(b"{")
    (again,) = run([tiny], only=["FedAvg"], jobs=1, out=tmp_path)
    assert all(f"Remove {folder} to do this run again" in again.result.cells[0].failure for folder in folders)


def test_without_the_files_of_a_page_there_is_still_a_table(tiny, tmp_path, caplog):
    (found,) = run([tiny], quick=True, jobs=1, out=tmp_path)
    file = found.folder.parent / "records" / found.result.cells[0].cell.runs[0].key / "clients" / "facts.safetensors"
    file.write_bytes(file.read_bytes()[:50])
    (again,) = run([tiny], quick=True, jobs=1, out=tmp_path)
    assert values([again]) == values([found])
    assert "There is no page about blobs" in caplog.text
    assert "<h2>Runs</h2>" not in (again.folder / "report.html").read_text(encoding="utf-8")


def test_a_second_process_is_refused_while_one_writes(tiny, tmp_path):
    def second(job, what):
        with pytest.raises(RecordError, match="Another process"):
            run([tiny], seeds=1, jobs=1, out=tmp_path)

    run([tiny], seeds=1, only=["FedAvg"], jobs=1, out=tmp_path, on_job=second)


def test_data_that_cannot_be_read_fail_only_their_runs(tiny_text, tmp_path, monkeypatch):
    second = '\n[[rows]]\nname = "hard"\nspec.data = { name = "digits" }\npublished = ["40.0", "50.0"]\n'
    entry = parse("tiny", tiny_text + second)
    load = running.datasets.load

    def damaged(name, **options):
        if name == "digits":
            raise DataError("digits.npz is not an archive of arrays")
        return load(name, **options)

    monkeypatch.setattr(running.datasets, "load", damaged)
    (found,) = run([entry], seeds=1, only=["FedAvg"], jobs=2, out=tmp_path)
    easy, hard = found.result.cells
    assert easy.mean is not None
    assert (hard.failure, hard.exit_code) == ("digits.npz is not an archive of arrays", DataError.exit_code)


def test_a_folder_that_cannot_be_written_is_named(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"file/out/records cannot be written: Not a directory"):
        run([tiny], seeds=1, jobs=1, out=tmp_path / "file" / "out")


@pytest.mark.exhaustive
def test_several_processes_give_the_values_of_one(tiny, tmp_path):
    one = run([tiny], seeds=1, jobs=1, out=tmp_path / "one")
    two = run([tiny], seeds=1, jobs=2, out=tmp_path / "two")
    assert values(two) == values(one)


def test_a_run_whose_record_was_removed_is_done_again(tiny, tmp_path):
    log = Log()
    run([tiny], quick=True, jobs=1, out=tmp_path)
    shutil.rmtree(tmp_path / "records")
    run([tiny], quick=True, jobs=1, out=tmp_path, on_job=log.job)
    assert len(log.started) == 1
