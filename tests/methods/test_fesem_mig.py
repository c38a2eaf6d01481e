"""FeSEM-MIG: FeSEM to the bit, with drifts counted."""

from __future__ import annotations

import itertools

import pytest

from coterie import codec
from coterie.errors import SpecError
from coterie.methods.fesem_mig import FeSEMMig
from coterie.runs.build import build
from coterie.runs.spec import Spec

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


def test_it_is_fesem_to_the_bit_and_sends_no_additional_models():
    same = {"clusters": 2, "warm_start": True}
    one, _ = finished({"name": "fesem", **same})
    other, steps = finished({"name": "fesem-mig", **same})
    assert codec.encode(one.state) == codec.encode(other.state)
    assert sum(step.round.counts["shifts"] for step in steps) > 0
    mine, theirs = one.traffic.by_purpose(), other.traffic.by_purpose()
    assert {purpose: mine[purpose] for purpose in mine if purpose != "control"} == {
        purpose: theirs[purpose] for purpose in theirs if purpose != "control"
    }


def test_drifted_clients_are_flagged():
    _, steps = finished({"name": "fesem-mig", "clusters": 2})
    assert [len(step.round.flagged) for step in steps] == [step.round.counts["shifts"] for step in steps]
    assert all(set(step.round.flagged) <= set(step.shifted) for step in steps)


def test_between_two_e_steps_drifted_clients_are_assigned_again_and_the_others_stay():
    # E-steps in rounds 0 and 3; from round 1 on all known clients drift before each round.
    same = {"clusters": 2, "warm_start": True, "recluster_every": 3}
    (_, plain), (_, steps) = finished({"name": "fesem", **same}), finished({"name": "fesem-mig", **same})
    for before, after in itertools.pairwise(plain[:3]):
        kept, later = before.round.state.assignment, after.round.state.assignment
        assert {client: later[client] for client in kept} == dict(kept)
    for before, after in itertools.pairwise(step.round for step in steps[:3]):
        nearest = before.state.nearest(after.flagged)
        assert nearest
        assert {client: after.state.assignment[client] for client in nearest} == nearest


def test_invalid_settings_are_refused():
    for settings, text in (({"tau": -1}, "tau must be"), ({"clusters": 0}, "clusters must be at least 1")):
        with pytest.raises(SpecError, match=text):
            FeSEMMig(**settings)
