"""Whether a run goes on: the process whose id is in the lock file."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from coterie.reports.status import being_written, status_of


def lock(folder, pid, age=0.0):
    file = folder / ".lock"
    file.write_text(str(pid))
    then = time.time() - age
    os.utime(file, (then, then))


def test_a_living_process_writes_it(tmp_path):
    lock(tmp_path, os.getpid())
    assert being_written(tmp_path)
    assert status_of(tmp_path, {}) == "running"


@pytest.mark.parametrize("content", ["", "no number", "-", str(10**30)])
def test_a_lock_without_a_process_is_free(tmp_path, content):
    lock(tmp_path, content)
    assert status_of(tmp_path, {}) == "interrupted"


def test_without_a_lock_file_it_is_interrupted(tmp_path):
    assert status_of(tmp_path, {}) == "interrupted"


def test_a_process_that_has_ended_does_not_write(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lock(tmp_path, ended.pid)
    assert not being_written(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the state and the start of a process")
def test_a_killed_process_that_its_parent_did_not_wait_for_does_not_write(tmp_path):
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    lock(tmp_path, killed.pid)
    assert being_written(tmp_path)
    killed.kill()
    limit = time.monotonic() + 10
    while being_written(tmp_path) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not being_written(tmp_path)
    os.kill(killed.pid, 0)  # its id is still taken
    killed.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the state and the start of a process")
def test_a_process_that_is_younger_than_the_lock_is_another_one(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    lock(tmp_path, other.pid, age=3600)
    assert not being_written(tmp_path)
    other.kill()
    other.wait()


@pytest.mark.parametrize("status", ["done", "failed", "diverged"])
def test_a_summary_has_the_status_of_a_run_that_ended(tmp_path, status):
    (tmp_path / "summary.json").touch()
    assert status_of(tmp_path, {"status": status}) == status


def test_a_failed_run_that_was_resumed_is_running_until_it_has_a_new_summary(tmp_path):
    summary = tmp_path / "summary.json"
    summary.touch()
    os.utime(summary, (1, 1))
    lock(tmp_path, os.getpid())
    assert status_of(tmp_path, {"status": "failed"}) == "running"
    later = time.time() + 5
    os.utime(summary, (later, later))
    assert status_of(tmp_path, {"status": "failed"}) == "failed"
