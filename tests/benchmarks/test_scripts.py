"""Benchmarks of speed run with --tiny, and end with one line of JSON."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("script", "key"),
    [
        ("against_peers.py --only mclr", "models"),  # peers that are not installed are left out
        ("how_fast_is_a_round.py --only mclr", "models"),
        ("where_does_the_time_go.py", "models"),
        ("how_fast_is_clustering.py", "cold_start"),
        ("how_does_it_scale.py", "growth"),
    ],
)
def test_a_benchmark_of_speed_runs_with_tiny_and_ends_with_json(script, key):
    name, *options = script.split()
    command = [sys.executable, BENCHMARKS / name, "--tiny", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert key in json.loads(done.stdout.splitlines()[-1])


def test_the_share_of_all_models_is_that_of_all_rounds(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    share_of_all = runpy.run_path(str(BENCHMARKS / "where_does_the_time_go.py"))["share_of_all"]

    def run(training, setup, total, rounds=300):
        parts = {"training": {"seconds": training}, "setup": {"seconds": setup}}
        return {"parts": parts, "total_seconds": total, "rounds": rounds}

    mclr, cnn = run(6.0, 1.0, 10.0), run(8.0, 1.0, 11.0, rounds=15)
    assert share_of_all({"mclr": mclr}, 300) == 0.4
    # A twentieth of the rounds of the CNN: 1 + 20 · 10 = 201 s, of which 160 s are training.
    assert share_of_all({"cnn": cnn}, 300) == round(41 / 201, 3)
    assert share_of_all({"mclr": mclr, "cnn": cnn}, 300) == round(45 / 211, 3)
