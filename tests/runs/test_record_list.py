"""Lists of records: read by their summaries, filtered, sorted, deleted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import coterie
from coterie.errors import RecordError, SpecError
from coterie.runs.record_list import RecordEntry, delete_record, list_records, order, select

SPEC = {"data": {"name": "blobs", "clients": 4}, "local": {"epochs": 1}, "run": {"rounds": 2}}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Four records: finished, unfinished, damaged, of another format."""
    folder = tmp_path_factory.mktemp("runs")
    coterie.run(SPEC, out=folder / "done")
    for name in ("deep/unfinished", "damaged", "old"):
        shutil.copytree(folder / "done", folder / name)
    (folder / "deep" / "unfinished" / "summary.json").unlink()
    (folder / "damaged" / "summary.json").write_text("{")
    (folder / "old" / "summary.json").write_text(json.dumps({"format": 1}))
    (folder / "no record").mkdir()
    return folder


def test_every_record_is_listed_with_its_status_and_the_reason_if_it_cannot_be_read(recorded):
    listed = {each.path.relative_to(recorded).as_posix(): each for each in list_records(recorded)}
    assert {name: each.status for name, each in listed.items()} == {
        "damaged": "unreadable",
        "deep/unfinished": "unfinished",
        "done": "done",
        "old": "unreadable",
    }
    assert "damaged" in listed["damaged"].reason
    assert "has record format 1; this version of Coterie reads format 2" in listed["old"].reason
    unfinished = listed["deep/unfinished"]
    assert (unfinished.method, unfinished.data, unfinished.model, unfinished.seed) == ("fedavg", "blobs", "mclr", 0)
    summary = coterie.RunRecord.read(recorded / "done").summary
    assert listed["done"].values["accuracy"] == summary["accuracy"]["weighted"]
    assert listed["done"].values["rounds"] == 2


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(RecordError, match=r"There is no folder .*nothing; give the folder that has the records"):
        list_records(tmp_path / "nothing")


def entry(name, accuracy, seed=0):
    return RecordEntry(Path(name), "done", "ifca", "digits", "mlp", seed, {"accuracy": accuracy})


ENTRIES = [entry("a", 0.5, 3), entry("b", None, 1), entry("c", 0.75, 2)]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["accuracy>0.5"], "c"),
        (["accuracy >= 0.5"], "ac"),
        (["accuracy!=0.5"], "c"),  # b has no accuracy
        (["accuracy<=0.5", "seed==3"], "a"),
        (["seed=1"], "b"),
        ([], "abc"),
    ],
)
def test_conditions_select_records(conditions, names):
    assert "".join(str(each.path) for each in select(ENTRIES, conditions)) == names


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("accuracy", "A condition has the form COLUMN>NUMBER, such as 'accuracy>0.9', got 'accuracy'"),
        ("acuracy>1", "No column 'acuracy'. Did you mean 'accuracy'?"),
        ("accuracy>high", "accuracy is compared with a number, got 'high'"),
    ],
)
def test_a_wrong_condition_is_an_error(condition, message):
    with pytest.raises(SpecError) as caught:
        select(ENTRIES, [condition])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("column", "names"), [("accuracy", "cab"), ("seed", "bca"), ("path", "abc")])
def test_the_best_accuracy_and_the_lowest_other_value_come_first_and_missing_values_last(column, names):
    assert "".join(str(each.path) for each in order(ENTRIES, column)) == names


def test_sorting_by_an_unknown_column_is_an_error():
    with pytest.raises(SpecError, match=r"No column 'loss'\. Did you mean 'test_loss'"):
        order(ENTRIES, "loss")


def test_a_record_is_deleted_but_no_other_folder(recorded, tmp_path):
    copy = shutil.copytree(recorded / "done", tmp_path / "copy")
    (copy / "thesis.txt").write_text("mine")
    with pytest.raises(RecordError, match=r"has files that are not part of a record, such as thesis\.txt"):
        delete_record(copy)
    (copy / "thesis.txt").unlink()
    (tmp_path / "link").symlink_to(copy)
    for wrong in (tmp_path, tmp_path / "link"):
        with pytest.raises(RecordError, match="is not the record of a run; it is not deleted"):
            delete_record(wrong)
    delete_record(copy)
    assert not copy.exists()
