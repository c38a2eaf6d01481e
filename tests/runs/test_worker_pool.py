"""Worker processes: runs that are stopped or fail do not end the others; scripts need no main guard."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coterie.errors import Diverged
from coterie.runs.jobs import Job
from coterie.runs.spec import Spec
from coterie.runs.worker_pool import run_in_processes

pytestmark = pytest.mark.slow

SMALL = {"data": {"name": "blobs", "clients": 4}, "local": {"epochs": 1}, "run": {"rounds": 400}}


def test_a_run_that_is_stopped_or_fails_is_an_event_and_the_next_one_is_taken_when_a_worker_is_free():
    stopped = Job("stopped", Spec.from_dict(SMALL))
    diverging = {**SMALL, "local": {"lr_decay": 1e9}, "run": {"rounds": 20}}
    failing = Job("failing", Spec.from_dict(diverging))
    short = Job("short", Spec.from_dict({**SMALL, "run": {"rounds": 2}}), validation=True)
    taken, stop, seen = [], set(), []

    def jobs():
        for job in (stopped, failing, short):
            taken.append(job.label)
            yield job

    for job, what, content in run_in_processes(jobs(), 1, stop=stop, catch=(Diverged,)):
        if what == "step":
            stop.add(stopped)
            continue
        seen.append((job.label, what))
        if what == "started":
            assert taken[-1] == job.label, "a job is taken when its worker is free"
        if what == "failed":
            assert isinstance(content, Diverged)
        if what == "done":
            assert content.summary["rounds"] == 2
    assert seen == [
        ("stopped", "started"),
        ("stopped", "stopped"),
        ("failing", "started"),
        ("failing", "failed"),
        ("short", "started"),
        ("short", "done"),
    ]


@pytest.mark.exhaustive
def test_a_script_without_a_main_guard_can_use_several_jobs(tmp_path):
    code = (
        "import coterie\n"
        "small = {'data': {'name': 'blobs', 'clients': 4}, 'run': {'rounds': 1}}\n"
        "print(coterie.compare([{**small, 'method': name} for name in ('fedavg', 'local')], jobs=2))\n"
    )
    (tmp_path / "script.py").write_text(code)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Comparison(fedavg, local; seeds: 1, headline: last_ten)\n", "the script ran once"
