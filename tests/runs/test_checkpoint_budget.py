"""Large checkpoints are written less often."""

from __future__ import annotations

import pytest

import coterie
from coterie.runs import checkpoint_budget
from coterie.runs.checkpoint_budget import LARGE, CheckpointBudget
from coterie.runs.writer import Writer

SPEC = {
    "data": {"name": "blobs", "clients": 4, "samples": 12},
    "method": "fedavg",
    "local": {"epochs": 1},
    "run": {"rounds": 6, "clients_per_round": 2, "checkpoint_every": 2},
}


def test_small_checkpoints_are_always_written():
    budget = CheckpointBudget()
    assert budget.allows(0.0)
    budget.spend(LARGE - 1, 10.0, 15.0)
    assert budget.allows(15.0)


@pytest.mark.parametrize(("now", "allowed"), [(48.9, False), (49.1, True)])
def test_large_ones_take_at_most_a_twentieth_of_the_time(now, allowed):
    budget = CheckpointBudget()
    budget.spend(LARGE, 9.0, 11.0)  # 2 s: a twentieth of 40 s, of which the writing is 2 s
    assert budget.allows(now) is allowed


@pytest.fixture
def written(monkeypatch):
    """The numbers of steps at which checkpoints are written."""
    steps, checkpoint = [], Writer.checkpoint

    def noted(self, saved):
        steps.append(saved["steps"])
        return checkpoint(self, saved)

    monkeypatch.setattr(Writer, "checkpoint", noted)
    return steps


def test_a_run_writes_small_checkpoints_when_they_are_due(written, tmp_path):
    coterie.run(SPEC, out=tmp_path / "run")
    assert written == [0, 2, 4, 6]


@pytest.mark.parametrize(("every", "steps"), [(2, [0, 6]), (1, [0, 1, 2, 3, 4, 5, 6])])
def test_a_run_puts_off_large_ones_unless_every_round_shall_have_one(written, monkeypatch, tmp_path, every, steps):
    monkeypatch.setattr(checkpoint_budget, "LARGE", 0)
    monkeypatch.setattr(checkpoint_budget, "FRACTION", 0.0)  # each takes too long
    run = {**SPEC["run"], "checkpoint_every": every}
    coterie.run({**SPEC, "run": run}, out=tmp_path / "run")
    assert written == steps
