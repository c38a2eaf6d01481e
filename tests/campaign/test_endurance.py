"""A long run and many runs in one process: memory stays flat after a warm-up."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import coterie

pytestmark = pytest.mark.slow

#: Methods of the runs in one process, in turn: with one model, with clusters, with clustering, with client memory.
METHODS = ("fedavg", "ifca", "fedgroup", "fedsoft")
#: Growth of memory that is allowed, in bytes: per round, for its line of the record, and per run; and noise.
PER_ROUND, PER_RUN, NOISE = 10_000, 50_000, 8 << 20


def spec(method: str, rounds: int, seed: int = 0) -> dict:
    return {
        "data": {"name": "blobs", "clients": 12, "samples": 20, "side": 4, "seed": 0},
        "method": {"name": method, **({"clusters": 2, "alpha": 2} if method == "fedgroup" else {})},
        "local": {"epochs": 1, "learning_rate": 0.05},
        "run": {"rounds": rounds, "clients_per_round": 6, "seed": seed},
    }


def memory() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def growth(sizes: list[int]) -> float:
    """Growth of memory over the last two thirds, by the slope of a line; the first third is the warm-up."""
    kept = np.array(sizes[len(sizes) // 3 :], float)
    return float(np.polyfit(np.arange(len(kept)), kept, 1)[0]) * len(kept)


@pytest.mark.exhaustive
def test_memory_stays_flat_over_the_rounds_of_a_run(campaign, tally, tmp_path):
    counts = tally("endurance", "rounds of one run")
    sizes: list[int] = []
    every = max(1, campaign.rounds // 30)  # collecting garbage takes longer than a round

    def measure(row):
        if row["t"] % every == 0:
            sizes.append(memory())

    record = coterie.run(spec("ifca", campaign.rounds), out=tmp_path / "run", on_round=measure)
    grown = growth(sizes)
    assert grown <= NOISE + PER_ROUND * campaign.rounds
    counts.add("finished", record.summary["rounds"])
    counts.facts["bytes_each"] = round(grown / (campaign.rounds * 2 / 3))


@pytest.mark.exhaustive
def test_memory_stays_flat_over_many_runs_in_one_process(campaign, tally):
    counts = tally("endurance", "runs in one process")
    sizes: list[int] = []
    for number in range(campaign.runs):
        record = coterie.run(spec(METHODS[number % len(METHODS)], rounds=3, seed=number))
        counts.add("finished", record.summary["status"] == "done")
        sizes.append(memory())
    grown = growth(sizes)
    assert grown <= NOISE + PER_RUN * campaign.runs
    counts.facts["bytes_each"] = round(grown / (campaign.runs * 2 / 3))
