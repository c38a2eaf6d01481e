"""Observers follow a run, and cannot harm it."""

from __future__ import annotations

import logging

import pytest

import coterie
from coterie.errors import Diverged, SpecError
from coterie.runs.observers import Observer, ending

SMALL = {"data": {"name": "blobs", "clients": 4}, "local": {"epochs": 1}, "run": {"rounds": 3, "checkpoint_every": 1}}


class Notes:
    """Notes what it is told; `fails`: the events in which it raises an exception."""

    def __init__(self, *fails):
        self.seen, self._fails = [], fails

    def _note(self, event, content):
        self.seen.append((event, content))
        if event in self._fails:
            raise RuntimeError(f"no {event}\nand more")

    def on_start(self, spec, record_path):
        self._note("start", (spec, record_path))

    def on_round(self, row):
        self._note("round", row)

    def on_end(self, summary):
        self._note("end", summary)

    def events(self):
        return [event for event, _ in self.seen]


def without_times(record):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in record.rounds]


def test_an_observer_gets_the_resolved_spec_each_line_and_the_summary(tmp_path):
    notes = Notes()
    assert isinstance(notes, Observer)
    record = coterie.run(SMALL, out=tmp_path / "run", observers=[notes])
    assert notes.events() == ["start", "round", "round", "round", "end"]
    spec, path = notes.seen[0][1]
    assert (spec.model.name, path) == ("mclr", tmp_path / "run")  # the default model of blobs, not `auto`
    assert [row for event, row in notes.seen if event == "round"] == record.rounds
    assert notes.seen[-1][1] == record.summary


def test_without_a_folder_the_path_is_none():
    notes = Notes()
    coterie.run(SMALL, observers=[notes])
    assert notes.seen[0][1][1] is None


@pytest.mark.parametrize(
    ("fails", "called"),
    [
        (["start"], ["start"]),  # it has nothing to close
        (["round"], ["start", "round", "end"]),
        (["round", "end"], ["start", "round", "end"]),
        (["end"], ["start", "round", "round", "round", "end"]),
    ],
)
def test_an_observer_that_fails_is_reported_once_and_does_not_change_the_run(fails, called, caplog):
    failing, other = Notes(*fails), Notes()
    with caplog.at_level(logging.WARNING, "coterie"):
        record = coterie.run(SMALL, observers=[failing, other])
    assert failing.events() == called
    assert [each.getMessage() for each in caplog.records] == [
        f"Observer Notes failed in on_{fails[0]} and is ignored: RuntimeError: no {fails[0]}"
    ]
    assert other.events() == ["start", "round", "round", "round", "end"]
    assert without_times(record) == without_times(coterie.run(SMALL))


def test_an_observer_that_changes_what_it_gets_does_not_change_the_record():
    class Vandal(Notes):
        def on_round(self, row):
            row["traffic"].clear()
            row.clear()

        def on_end(self, summary):
            summary["accuracy"].clear()

    record = coterie.run(SMALL, observers=[Vandal()])
    plain = coterie.run(SMALL)
    assert without_times(record) == without_times(plain)
    assert record.summary["accuracy"] == plain.summary["accuracy"]


def test_an_interrupted_run_ends_for_its_observers_and_a_resumed_one_starts_again(tmp_path):
    def stop(row):
        if row["t"] == 1:
            raise KeyboardInterrupt

    notes, rest = Notes(), Notes()
    with pytest.raises(KeyboardInterrupt):
        coterie.run(SMALL, out=tmp_path / "run", on_round=stop, observers=[notes])
    assert notes.events() == ["start", "round", "round", "end"]
    assert notes.seen[-1][1] == {"status": "interrupted", "reason": "KeyboardInterrupt"}
    coterie.resume(tmp_path / "run", observers=[rest])
    assert [row["t"] for event, row in rest.seen if event == "round"] == [2]
    assert rest.seen[-1][1]["status"] == "done"


def test_a_failed_run_has_a_status_and_a_reason():
    assert ending(Diverged("Round 3: not finite")) == {
        "status": "diverged",
        "reason": "Diverged: Round 3: not finite",
    }
    assert ending(ValueError()) == {"status": "failed", "reason": "ValueError"}


def test_a_folder_that_is_in_use_is_refused_before_observers_start(tmp_path):
    (tmp_path / "file").write_text("mine")
    notes = Notes()
    with pytest.raises(coterie.Error, match="is not empty"):
        coterie.run(SMALL, out=tmp_path, observers=[notes])
    assert notes.seen == []


@pytest.mark.parametrize("wrong", [Notes, print])
def test_an_object_that_is_no_observer_is_an_error(wrong):
    with pytest.raises(SpecError, match="observers must be objects with on_start, on_round and on_end, got"):
        coterie.run(SMALL, observers=[wrong])


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_each_run_of_a_comparison_has_its_own_observers(jobs):
    by_run = {}

    def observers(job):
        return [by_run.setdefault((job.label, job.seed), Notes())]

    specs = {"a": SMALL, "b": {**SMALL, "method": "local"}}
    found = coterie.compare(specs, seeds=1, jobs=jobs, observers=observers)
    assert sorted(by_run) == [("a", 0), ("b", 0)]
    for (label, _), notes in by_run.items():
        assert notes.events() == ["start", "round", "round", "round", "end"]
        assert notes.seen[0][1][0].method.name == found.records[label][0].summary["method"]
        assert notes.seen[-1][1] == found.records[label][0].summary


def test_a_comparison_that_is_broken_off_ends_for_its_observers():
    notes = Notes()

    def stop(job, row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.compare([SMALL], on_step=stop, observers=lambda job: [notes])
    assert notes.events() == ["start", "round", "end"]
    assert notes.seen[-1][1]["status"] == "interrupted"
