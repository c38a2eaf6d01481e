"""SIGKILL at file operations of a run: the resumed run has the same bytes as one that was not killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import coterie
from coterie.methods import METHODS

pytestmark = pytest.mark.slow

#: Methods that are killed at every file operation in the full campaign: without and with evidence and preparation.
EVERY = ("fedavg", "fedgroup")
#: Settings with which a method finishes within three rounds.
SETTINGS = {
    "flag": {"threshold_step": 0.5, "validation_clients": 4, "trial_rounds": 1, "trial_epochs": 1, "update_epochs": 1},
    "fedgroup": {"clusters": 2, "alpha": 2},
    "fedgrouprox": {"clusters": 2, "alpha": 2},
    "flexcfl": {"clusters": 2, "alpha": 2},
    "flhc": {"warm_rounds": 1},
    "localkmeans": {"clusters": 2, "init_steps": 5},
    "oneshotifca": {"init_steps": 5},
    "srfca": {"init_steps": 5, "refines": 1, "refine_rounds": 1},
}


def spec(method: str) -> dict:
    """Three rounds with faults, so that client memories, lost replies and skipped works are part of what is resumed."""
    return {
        "data": {"name": "blobs", "clients": 8, "samples": 20, "side": 4},
        "method": {"name": method, **SETTINGS.get(method, {})},
        "local": {"epochs": 1, "learning_rate": 0.1},
        "run": {"rounds": 3, "clients_per_round": 4, "checkpoint_every": 2},
        "faults": {"drop": 0.1},
    }


@pytest.fixture(scope="session")
def ask():
    """Send a request to the kill server."""
    command = [sys.executable, str(Path(__file__).with_name("kill_server.py"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as server:

        def send(**request):
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield send
        server.stdin.close()


def timeless(value):
    """A JSON value without durations and memory."""
    if isinstance(value, dict):
        return {
            key: timeless(each) for key, each in value.items() if key not in ("seconds", "peak_rss_bytes", "checksums")
        }
    return [timeless(each) for each in value] if isinstance(value, list) else value


def content(folder: Path) -> dict[str, object]:
    """All files of a record, without what differs between two runs of a spec: durations, memory, and checkpoints.

    The lock file is left out: a run that was killed after its last file was written leaves its process id there.
    """
    found = {}
    for file in sorted(each for each in folder.rglob("*") if each.name != ".lock"):
        name, raw = str(file.relative_to(folder)), file.read_bytes() if file.is_file() else b""
        lines = raw.splitlines() if name == "rounds.jsonl" else [raw] if name == "summary.json" else []
        found[name] = [timeless(json.loads(line)) for line in lines] or (None if "checkpoint" in name else raw)
    return found


def continued(folder: Path, method: str) -> str:
    """Resume a killed run, or start it again if it had not begun; return which."""
    if (folder / "spec.toml").is_file():
        coterie.resume(folder)
        return "resumed, same bytes"
    coterie.run(spec(method), out=folder)
    return "started again, same bytes"


@pytest.mark.parametrize(
    "method", [name if name == "fedavg" else pytest.param(name, marks=pytest.mark.exhaustive) for name in METHODS]
)
def test_a_killed_run_is_resumed_with_the_same_bytes(method, campaign, tally, ask, tmp_path):
    whole = ask(spec=spec(method), out=str(tmp_path / "whole"), kill=None)
    assert whole["code"] == 0
    expected = content(tmp_path / "whole")
    points = [(number, False) for number in range(len(whole["operations"]))]
    points += [(number, True) for number, name in enumerate(whole["operations"]) if name == "write"]
    draw = random.Random(f"kill {method} {campaign.seed}")
    if method not in EVERY or not campaign.full:
        points = draw.sample(points, campaign.kills)
    counts = tally("kills", method)
    for number, (kill, half) in enumerate(points):
        folder = tmp_path / str(number)
        assert ask(spec=spec(method), out=str(folder), kill=kill, half=half)["killed"], (kill, half)
        if (folder / "spec.toml").is_file() and draw.random() < 0.2:  # and the resumed run again
            counts.add("killed twice", ask(out=str(folder), kill=draw.randrange(20))["killed"])
        counts.add(continued(folder, method))
        assert content(folder) == expected, (kill, half, whole["operations"][kill])
