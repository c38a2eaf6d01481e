"""coterie compare with worker processes: no worker outlives its parent, and the same command continues."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROUNDS = 300
COMMAND = ["compare", "--data", "blobs", "--set", "data.clients=8", "--set", "data.samples=20", "--clients-per-round"]
COMMAND += ["4", "--methods", "fedavg,ifca", "--rounds", str(ROUNDS), "--set", "run.evaluate_every=50", "--json"]
JOBS = ["--jobs", "2", "--out", "kept"]


def children(parent: int) -> set[int]:
    """Processes that the parent started, except those that have ended but were not waited for."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {int(pid) for pid, ppid, state in rows if int(ppid) == parent and not state.startswith("Z")}


def running(processes: set[int]) -> set[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    return processes & {int(pid) for pid, state in map(str.split, listed.splitlines()) if not state.startswith("Z")}


def wait_until(condition, seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it takes too long"
        time.sleep(0.05)


def lines(name: str) -> int:
    file = Path("kept", f"{name}-0", "rounds.jsonl")
    return file.read_bytes().count(b"\n") if file.exists() else 0


def begin(process, least: int):
    """Start the comparison; both of its runs have at least this number of lines when this returns."""
    going = process(*COMMAND, *JOBS)
    wait_until(lambda: going.poll() is not None or min(lines("fedavg"), lines("ifca")) >= least)
    assert going.poll() is None, going.stderr.read()
    workers = children(going.pid)
    assert len(workers) == 2
    return going, workers


def without_times(text: str) -> dict:
    found = json.loads(text)
    rows = [{key: value for key, value in row.items() if "seconds" not in key} for row in found["table"]]
    return {"table": rows, **{key: found[key] for key in ("reference", "significance", "conclusion")}}


@pytest.mark.exhaustive
def test_workers_end_with_their_parent_and_the_same_command_gives_the_table_of_an_uninterrupted_comparison(
    coterie, process
):
    going, workers = begin(process, 12)
    going.kill()
    going.communicate()
    wait_until(lambda: not running(workers), 30)
    killed_at = {name: lines(name) for name in ("fedavg", "ifca")}
    assert max(killed_at.values()) < ROUNDS, "the runs ended before they were killed"

    going, workers = begin(process, max(killed_at.values()) + 1)
    going.send_signal(signal.SIGINT)
    out, message = going.communicate(timeout=60)
    assert going.returncode == 130
    assert out == ""
    again = " ".join(["coterie", *COMMAND, *JOBS])
    assert message == f"Interrupted. Finished runs and checkpoints are in kept. Continue with: {again}\n"
    assert not running(workers)
    assert max(lines("fedavg"), lines("ifca")) < ROUNDS, "the runs ended before they were interrupted"

    continued = coterie(*COMMAND, "--out", "kept")
    assert continued.exit_code == 0, continued.stderr
    whole = coterie(*COMMAND)
    assert whole.exit_code == 0, whole.stderr
    assert without_times(continued.stdout) == without_times(whole.stdout)
