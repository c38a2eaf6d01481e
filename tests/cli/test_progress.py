"""Progress of a comparison: a line for all runs, and one for each run that is going on."""

from __future__ import annotations

import pytest
from rich.console import Console

from coterie.cli import progress
from coterie.cli.jobs_progress import JobsProgress
from coterie.runs.jobs import Job
from coterie.runs.spec import Spec


def row(t, accuracy=0.5, coverage=1.0, stage="train"):
    traffic = {"train": {"down": 600, "up": 400}, "evaluate": {"down": 9999, "up": 9999}}
    return {
        "t": t,
        "stage": stage,
        "accuracy": {"weighted": accuracy},
        "coverage": coverage,
        "clusters": {"count": 2},
        "traffic": traffic,
    }


def job(label, seed=0, rounds=4):
    return Job(label, Spec.from_dict({"run": {"rounds": rounds, "seed": seed}}))


@pytest.fixture
def display(monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with progress.ProgressDisplay(silent=False) as shown:
        yield shown


def lines(display):
    return [(task.description, task.completed, task.total, task.fields["note"]) for task in display._progress.tasks]


def test_each_running_job_has_a_line_with_its_rounds_and_all_runs_have_one(display):
    a, b, c = job("ifca"), job("ifca", seed=1), job("local")
    shown = JobsProgress(display, runs=3, rounds=12)
    assert lines(display) == [("0 of 3 runs", 0, 12, "")]
    shown.job(a, "started")
    shown.job(b, "started")
    shown.step(a, row(-1, stage="prepare"))
    shown.step(b, row(0, coverage=0.25))
    assert lines(display) == [
        ("0 of 3 runs", 1, 12, ""),
        ("  ifca, seed 0: preparation", 0, 4, ""),
        ("  ifca, seed 1", 1, 4, "round 1 of 4 · accuracy 50.0 % · coverage 25.0 % · 2 clusters · 1.0 kB"),
    ]
    shown.step(a, row(0))
    assert lines(display)[1][3].endswith("2 clusters · 2.0 kB")  # preparation and one round, without evaluation
    shown.job(a, "finished")  # after one of four rounds: 12 - 3 are left
    shown.job(c, "started")
    assert lines(display) == [
        ("1 of 3 runs", 2, 9, ""),
        ("  ifca, seed 1", 1, 4, "round 1 of 4 · accuracy 50.0 % · coverage 25.0 % · 2 clusters · 1.0 kB"),
        ("  local, seed 0: loading data, compiling", 0, 4, ""),
    ]


def test_rounds_that_were_recorded_earlier_do_not_count_for_the_remaining_time(display):
    read, continued = job("fedavg"), job("ifca")
    shown = JobsProgress(display, runs=2, rounds=8)
    shown.job(read, "finished")
    assert lines(display) == [("1 of 2 runs", 0, 4, "")]
    shown.job(continued, "started")
    shown.step(continued, row(2))  # rounds 0 and 1 were recorded: two of the four are to be done, one is
    assert [line[:3] for line in lines(display)] == [("1 of 2 runs", 1, 2), ("  ifca, seed 0", 3, 4)]


def test_the_remaining_time_is_labeled(display):
    console = Console(width=100, color_system=None)

    def last_words():
        with console.capture() as shown:
            console.print(display._progress.get_renderable())
        return shown.get().split()[-2:]

    assert "left" not in last_words()  # the number of rounds is not known yet
    display.expect(4)
    display.step(row(0))
    assert last_words() == ["-:--:--", "left"]


def test_nothing_is_shown_if_the_display_is_silent():
    with progress.ProgressDisplay(silent=True) as display:
        shown = JobsProgress(display, runs=1, rounds=4)
        shown.job(job("ifca"), "started")


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set, and no terminal."""
    now = [1000.0]
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False, raising=False)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_a_run_prints_a_line_per_minute(clock, capsys):
    with progress.ProgressDisplay(silent=False) as display:
        display.expect(10)
        clock[0] += 59
        display.step(row(0))
        assert capsys.readouterr().err == ""
        clock[0] += 61  # 120 s for two of ten rounds: 480 s for the other eight
        display.step(row(1))
        expected = (
            "training · round 2 · accuracy 50.0 % · 2 clusters · 2.0 kB · after 2 min 00 s · about 8 min 00 s left"
        )
        assert capsys.readouterr().err.split() == expected.split()
        clock[0] += 30
        display.step(row(2))
        assert capsys.readouterr().err == ""


def test_without_a_terminal_several_runs_print_how_many_are_finished(clock, capsys):
    a, b = job("ifca"), job("local")
    with progress.ProgressDisplay(silent=False) as display:
        shown = JobsProgress(display, runs=2, rounds=8)
        shown.job(a, "started")
        for t in range(4):
            shown.step(a, row(t))
        clock[0] += 90  # 90 s for the four rounds of one run, as many for the other
        shown.job(a, "finished")
        shown.job(b, "started")
        assert capsys.readouterr().err.splitlines() == ["1 of 2 runs · after 90.0 s · about 90.0 s left"]


def test_what_runs_without_a_terminal_can_be_silenced(clock, capsys):
    with progress.ProgressDisplay(silent=True) as display:
        display.expect(4)
        clock[0] += 600
        display.step(row(0))
    assert capsys.readouterr().err == ""


def test_a_step_on_a_ray_cluster_shows_workers_their_load_and_losses():
    load = {"workers": 3, "busy": 0.934, "shares": 9, "up_bytes": 10, "lost_workers": 0}
    assert progress.figures({**row(0), "ray": load}, 1000).endswith("2 clusters · 3 workers 93 % busy · 1.0 kB")
    lost = {**load, "workers": 1, "lost_workers": 2}
    assert "1 worker 93 % busy, 2 lost" in progress.figures({**row(0), "ray": lost}, 1000)
