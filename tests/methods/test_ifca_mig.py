"""IFCA-MIG: IFCA's models, an assignment that follows shifts at once, and what that costs."""

from __future__ import annotations

import pytest

from coterie import tree
from coterie.errors import SpecError
from coterie.methods.ifca_mig import IFCAMig
from coterie.runs.build import build
from coterie.runs.spec import Spec

TINY = {
    "data": {"name": "blobs", "clients": 10, "clusters": 2, "samples": 40, "side": 4, "classes": 3},
    "local": {"batch": 8, "rate": 0.1},
    "run": {"rounds": 5, "cohort": 4},
    "shift": {"name": "incremental", "rounds": [1, 2, 3, 4]},
}


def finished(method):
    play, steps = build(Spec.of({**TINY, "method": method})).play, []
    while play.t < 5:
        steps.append(play.step())
    return play, steps


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


def test_what_cannot_be_meant_is_refused():
    for settings, text in (({"tau": -1}, "tau must be"), ({"clusters": 0}, "clusters of ifca must be at least 1")):
        with pytest.raises(SpecError, match=text):
            IFCAMig(**settings)
