"""Ctrl-C and kill, in subprocesses: a resumed run equals an uninterrupted one."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LONG = ["--data", "blobs", "--set", "data.clients=8", "--set", "data.samples=20", "--clients-per-round", "4"]
LONG += ["--method", "ifca", "--set", "run.evaluate_every=10"]
ROUNDS = 200


def wait_for_rounds(folder: Path, number: int, process) -> None:
    """Wait until a run has written this number of lines."""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        file = folder / "rounds.jsonl"
        if file.exists() and file.read_bytes().count(b"\n") >= number:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    raise AssertionError("the run makes no progress")


def lines(folder: str) -> list[dict]:
    rows = [json.loads(line) for line in Path(folder, "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.mark.exhaustive
def test_interrupted_and_killed_runs_resume_to_the_same_bytes(coterie, process, tmp_path):
    # Interrupted
    going = process("run", *LONG, "--rounds", ROUNDS, "--out", "here", "--json")
    wait_for_rounds(tmp_path / "here", 3, going)
    begun = time.monotonic()
    going.send_signal(signal.SIGINT)
    out, message = going.communicate(timeout=60)
    assert time.monotonic() - begun < 6  # two seconds, and a margin for machines under load
    assert going.returncode == 130
    assert out == ""
    assert message == "Interrupted. A checkpoint was saved. Continue with: coterie resume here\n"
    done = len(lines("here"))
    assert 3 <= done < ROUNDS, "the run ended before it was interrupted"
    assert (tmp_path / "here" / "checkpoint" / "latest.safetensors").is_file()
    assert not (tmp_path / "here" / "summary.json").exists()

    # Killed, with an incomplete last line
    going = process("run", *LONG, "--rounds", ROUNDS, "--out", "there", "--set", "run.checkpoint_every=5")
    wait_for_rounds(tmp_path / "there", 8, going)
    going.kill()
    going.communicate()
    assert len(lines("there")) < ROUNDS
    with (tmp_path / "there" / "rounds.jsonl").open("a") as file:
        file.write('{"t": 99, "sta')

    # Not interrupted
    whole = coterie("run", *LONG, "--rounds", ROUNDS, "--out", "whole", "--json")
    assert whole.exit_code == 0, whole.stderr
    expected = json.loads(whole.stdout)
    for folder in ("here", "there"):
        again = process("resume", folder, "--json")  # in a new process, where no state class is registered yet
        out, message = again.communicate(timeout=120)
        assert again.returncode == 0, message
        summary = json.loads(out)
        for key in ("status", "rounds", "accuracy", "test_loss", "clusters", "truth", "traffic", "discrepancy"):
            assert summary[key] == expected[key], (folder, key)
        assert lines(folder) == lines("whole")
        models = Path(folder, "models.safetensors").read_bytes()
        if folder == "here":  # the other one has another setting in its spec
            assert models == Path("whole", "models.safetensors").read_bytes()


def test_ctrl_c_while_data_load_shows_no_traceback(process, tmp_path):
    going = process("run", "--data", "blobs", "--set", "data.clients=20000", "--set", "data.side=28", "--out", "here")
    time.sleep(1.5)
    going.send_signal(signal.SIGINT)
    _, message = going.communicate(timeout=60)
    assert going.returncode == 130
    assert "Traceback" not in message
