"""FeSEM-MIG: FeSEM to the bit, with shifts counted."""

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
    run_rounds, steps = build(Spec.of({**TINY, "method": method})).session, []
    while run_rounds.t < 5:
        steps.append(run_rounds.step())
    return run_rounds, steps


def test_it_is_fesem_to_the_bit_and_sends_no_model_more():
    same = {"clusters": 2, "warm_start": True}
    one, _ = finished({"name": "fesem", **same})
    other, steps = finished({"name": "fesem-mig", **same})
    assert codec.encode(one.state) == codec.encode(other.state)
    assert sum(step.round.counts["shifts"] for step in steps) > 0
    mine, theirs = one.traffic.by_purpose(), other.traffic.by_purpose()
    assert {purpose: mine[purpose] for purpose in mine if purpose != "control"} == {
        purpose: theirs[purpose] for purpose in theirs if purpose != "control"
    }


def test_whom_the_detector_names_is_flagged():
    _, steps = finished({"name": "fesem-mig", "clusters": 2})
    assert [len(step.round.flagged) for step in steps] == [step.round.counts["shifts"] for step in steps]
    assert all(set(step.round.flagged) <= set(step.shifted) for step in steps)


def test_between_two_e_steps_who_shifted_is_assigned_anew_and_the_others_stay():
    # E in rounds 0 and 3; from round 1 on all who are known shift before each round.
    same = {"clusters": 2, "warm_start": True, "recluster_every": 3}
    (_, plain), (_, steps) = finished({"name": "fesem", **same}), finished({"name": "fesem-mig", **same})
    for before, now in itertools.pairwise(plain[:3]):
        kept, after = before.round.state.assignment, now.round.state.assignment
        assert {client: after[client] for client in kept} == dict(kept)
    for before, now in itertools.pairwise(step.round for step in steps[:3]):
        nearest = before.state.nearest(now.flagged)
        assert nearest
        assert {client: now.state.assignment[client] for client in nearest} == nearest


def test_what_cannot_be_meant_is_refused():
    for settings, text in (({"tau": -1}, "tau must be"), ({"clusters": 0}, "clusters must be at least 1")):
        with pytest.raises(SpecError, match=text):
            FeSEMMig(**settings)
