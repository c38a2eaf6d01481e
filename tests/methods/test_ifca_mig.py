"""IFCA-MIG: IFCA's models, an assignment that follows shifts at once, and what that costs."""

from __future__ import annotations

import pytest

from coterie import tree
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.federation import Sequential, Server
from coterie.methods.ifca_mig import IFCAMig
from coterie.runs.build import build
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.shift import DriftingData, ShiftSettings
from coterie.testing import tiny_data, tiny_task

TINY = {
    "data": {"name": "blobs", "clients": 10, "clusters": 2, "samples": 40, "side": 4, "classes": 3},
    "local": {"batch_size": 8, "learning_rate": 0.1},
    "run": {"rounds": 5, "clients_per_round": 4},
    "shift": {"name": "incremental", "rounds": [1, 2, 3, 4]},
}


def finished(method):
    run_rounds, steps = build(Spec.of({**TINY, "method": method})).session, []
    while run_rounds.t < 5:
        steps.append(run_rounds.step())
    return run_rounds, steps


@pytest.fixture(scope="module")
def both():
    """The same run of IFCA and of IFCA-MIG, in which examples are released a quarter at a time."""
    return finished({"name": "ifca", "clusters": 2}), finished({"name": "ifca-mig", "clusters": 2})


def test_the_models_are_ifcas_to_the_bit(both):
    (one, _), (other, _) = both
    assert tree.same(one.state.banks[0], other.state.banks[0])


def test_every_shift_downloads_all_models(both):
    # (m + 1) K T + m · shifts, of which IFCA has the first.
    (one, _), (other, steps) = both
    shifts = sum(step.round.counts["shifts"] for step in steps)
    model = 4 * one.parameters
    assert shifts > 0
    assert one.traffic.total(purpose="train") == (2 + 1) * 4 * 5 * model
    assert other.traffic.total(purpose="train") == ((2 + 1) * 4 * 5 + 2 * shifts) * model


def test_who_shifted_is_assigned_again_out_of_the_cohort_too(both):
    _, (_, steps) = both
    beyond = [set(step.round.assignment).difference(step.cohort) for step in steps]
    assert any(beyond)
    assert all(step.round.counts["migrations"] <= step.round.counts["shifts"] for step in steps)


def test_whom_the_detector_names_is_flagged(both):
    _, (_, steps) = both
    assert [len(step.round.flagged) for step in steps] == [step.round.counts["shifts"] for step in steps]
    assert all(set(step.round.flagged) <= set(step.shifted) for step in steps)


def test_a_lone_shift_that_is_not_heard_costs_nobody_the_round():
    # Everyone shifts before rounds 1 to 4; no choice arrives, and all stay where they are.
    class Losing(Sequential):
        def carry(self, order):
            return iter(()) if order.work.name == "closest" else super().carry(order)

    method, transport = IFCAMig(LocalSGD(batch_size=8, learning_rate=0.1), clusters=2), Losing(tiny_data(), tiny_task())
    seed = Seed(0)
    drifting = DriftingData(tiny_data(), ShiftSettings("incremental", rounds=(1, 2, 3, 4)), seed)
    run_rounds = Session(method, Server(transport), seed, Sampler(transport.clients, 4, seed), drifting)
    steps = [run_rounds.step() for _ in range(3)]
    assert [step.skipped for step in steps] == [None] * 3
    assert [step.round.counts["migrations"] for step in steps] == [0, 0, 0]
    assert sum(step.round.counts["shifts"] for step in steps) > 0


def test_the_first_client_may_stand_for_all():
    same = {"clusters": 2, "agg": "first_only"}
    one, other = (finished({"name": name, **same})[0] for name in ("ifca", "ifca-mig"))
    assert tree.same(one.state.banks[0], other.state.banks[0])


def test_what_cannot_be_meant_is_refused():
    for settings, text in (({"tau": -1}, "tau must be"), ({"clusters": 0}, "clusters of ifca must be at least 1")):
        with pytest.raises(SpecError, match=text):
            IFCAMig(**settings)
