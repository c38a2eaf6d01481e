"""IFCA-MIG: the models of IFCA, an assignment that follows drift at once, and its traffic."""

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
    session, steps = build(Spec.of({**TINY, "method": method})).session, []
    while session.t < 5:
        steps.append(session.step())
    return session, steps


@pytest.fixture(scope="module")
def both():
    """The same run of IFCA and of IFCA-MIG, in which a quarter of the samples is released at a time."""
    return finished({"name": "ifca", "clusters": 2}), finished({"name": "ifca-mig", "clusters": 2})


def test_the_models_equal_those_of_ifca_to_the_bit(both):
    (one, _), (other, _) = both
    assert tree.same(one.state.banks[0], other.state.banks[0])


def test_every_drift_downloads_all_models(both):
    # (m + 1) K T + m · shifts models; the first term is IFCA's.
    (one, _), (other, steps) = both
    shifts = sum(step.round.counts["shifts"] for step in steps)
    model = 4 * one.parameters
    assert shifts > 0
    assert one.traffic.total(purpose="train") == (2 + 1) * 4 * 5 * model
    assert other.traffic.total(purpose="train") == ((2 + 1) * 4 * 5 + 2 * shifts) * model


def test_drifted_clients_outside_the_cohort_are_assigned_again_too(both):
    _, (_, steps) = both
    outside = [set(step.round.assignment).difference(step.cohort) for step in steps]
    assert any(outside)
    assert all(step.round.counts["migrations"] <= step.round.counts["shifts"] for step in steps)


def test_drifted_clients_are_flagged(both):
    _, (_, steps) = both
    assert [len(step.round.flagged) for step in steps] == [step.round.counts["shifts"] for step in steps]
    assert all(set(step.round.flagged) <= set(step.shifted) for step in steps)


def test_lost_choices_of_drifted_clients_do_not_skip_the_round():
    # All clients drift before rounds 1 to 4; all choices are lost, and all clients keep their cluster.
    class Losing(Sequential):
        def send(self, request):
            return iter(()) if request.work.name == "closest" else super().send(request)

    method, transport = IFCAMig(LocalSGD(batch_size=8, learning_rate=0.1), clusters=2), Losing(tiny_data(), tiny_task())
    seed = Seed(0)
    drifting = DriftingData(tiny_data(), ShiftSettings("incremental", rounds=(1, 2, 3, 4)), seed)
    session = Session(method, Server(transport), seed, Sampler(transport.clients, 4, seed), drifting)
    steps = [session.step() for _ in range(3)]
    assert [step.skipped for step in steps] == [None] * 3
    assert [step.round.counts["migrations"] for step in steps] == [0, 0, 0]
    assert sum(step.round.counts["shifts"] for step in steps) > 0


def test_a_cluster_can_be_its_first_client():
    same = {"clusters": 2, "agg": "first_only"}
    one, other = (finished({"name": name, **same})[0] for name in ("ifca", "ifca-mig"))
    assert tree.same(one.state.banks[0], other.state.banks[0])


def test_invalid_settings_are_refused():
    for settings, text in (({"tau": -1}, "tau must be"), ({"clusters": 0}, "clusters must be at least 1")):
        with pytest.raises(SpecError, match=text):
            IFCAMig(**settings)
