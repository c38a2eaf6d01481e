"""Ctrl-C and worse, in processes of their own; a run that is resumed equals one that was never stopped."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LONG = [
    "--data",
    "blobs",
    "--set",
    "data.clients=8",
    "--set",
    "data.samples=20",
    "--clients-per-round",
    "4",
    "--method",
    "ifca",
]
LONG += ["--set", "run.evaluate_every=10"]
ROUNDS = 200


def wait_for_rounds(folder: Path, many: int, process) -> None:
    """Until a run has written so many lines."""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        file = folder / "rounds.jsonl"
        if file.exists() and file.read_bytes().count(b"\n") >= many:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    raise AssertionError("the run does not get anywhere")


def lines(folder: str) -> list[dict]:
    rows = [json.loads(line) for line in Path(folder, "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_interrupted_and_killed_runs_resume_to_the_same_bytes(coterie, process, tmp_path):
    # Interrupted
    going = process("run", *LONG, "--rounds", ROUNDS, "--out", "here", "--json")
    wait_for_rounds(tmp_path / "here", 3, going)
    begun = time.monotonic()
    going.send_signal(signal.SIGINT)
    out, said = going.communicate(timeout=60)
    assert time.monotonic() - begun < 6  # two seconds, and a margin for machines under load
    assert going.returncode == 130
    assert out == ""
    assert said == "Interrupted. There is a checkpoint. Go on with: coterie resume here\n"
    done = len(lines("here"))
    assert 3 <= done < ROUNDS, "the run was over before it was interrupted"
    assert (tmp_path / "here" / "checkpoint" / "latest.safetensors").is_file()
    assert not (tmp_path / "here" / "summary.json").exists()

    # Killed, with a last line that was cut off
    going = process("run", *LONG, "--rounds", ROUNDS, "--out", "there", "--set", "run.checkpoint_every=5")
    wait_for_rounds(tmp_path / "there", 8, going)
    going.kill()
    going.communicate()
    assert len(lines("there")) < ROUNDS
    with (tmp_path / "there" / "rounds.jsonl").open("a") as file:
        file.write('{"t": 99, "sta')

    # Never stopped
    whole = coterie("run", *LONG, "--rounds", ROUNDS, "--out", "whole", "--json")
    assert whole.exit_code == 0, whole.stderr
    expected = json.loads(whole.stdout)
    for folder in ("here", "there"):
        again = process("resume", folder, "--json")  # in a new process, which knows no class of a state yet
        out, said = again.communicate(timeout=120)
        assert again.returncode == 0, said
        summary = json.loads(out)
        for key in ("status", "rounds", "accuracy", "test_loss", "clusters", "truth", "traffic", "discrepancy"):
            assert summary[key] == expected[key], (folder, key)
        assert lines(folder) == lines("whole")
        models = Path(folder, "models.safetensors").read_bytes()
        if folder == "here":  # the other one has another setting in its spec
            assert models == Path("whole", "models.safetensors").read_bytes()


def test_ctrl_c_while_data_load_leaves_nothing(process, tmp_path):
    going = process("run", "--data", "blobs", "--set", "data.clients=20000", "--set", "data.side=28", "--out", "here")
    time.sleep(1.5)
    going.send_signal(signal.SIGINT)
    _, said = going.communicate(timeout=60)
    assert going.returncode == 130
    assert "Traceback" not in said
