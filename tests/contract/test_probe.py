"""A method that uses every feature of the federation protocol passes the contract suite."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from coterie.clients import LocalSGD
from coterie.testing import CHECKS, Harness

spec = importlib.util.spec_from_file_location("probe", Path(__file__).with_name("probe.py"))
probe = sys.modules.setdefault("probe", importlib.util.module_from_spec(spec))
spec.loader.exec_module(probe)

LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_probe_keeps_the_contract(check):
    check(Harness(lambda given: probe.Probe(LOCAL), rounds=9))


@pytest.mark.parametrize("kind", ["sequential", "vectorized", "recoded"])
def test_the_probe_runs_all_its_stages(kind):
    harness = Harness(lambda given: probe.Probe(LOCAL), rounds=9)
    session = harness.session(kind)
    steps = harness.finish(session)
    assert [step.stage for step in steps] == ["prepare"] * 2 + ["train"] * 4
    assert session.stage == "done"
    # Each client has three classes, and of class c the probe takes 1 + c rows.
    assert set(session.state.classes.values()) == {3}
    assert steps[0].round.evidence["rows"] == [1, 2, 3] * 8
    assert session.state.goodness > 1 / 3  # better than chance
    assert all(len(step.round.distances) == len(step.round.assignment) > 0 for step in steps[2:])
    # The served models are adapted on the client.
    assert session.evaluate().coverage == 1.0
