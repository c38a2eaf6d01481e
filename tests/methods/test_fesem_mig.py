"""FeSEM-MIG: FeSEM to the bit, with shifts counted."""

from __future__ import annotations

import pytest

from coterie import codec
from coterie.errors import SpecError
from coterie.methods.fesem_mig import FeSEMMig
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


def test_it_is_fesem_to_the_bit_and_sends_no_model_more():
    same = {"groups": 2, "warm_start": True}
    one, _ = finished({"name": "fesem", **same})
    other, steps = finished({"name": "fesem-mig", **same})
    assert codec.encode(one.state) == codec.encode(other.state)
    assert sum(step.round.counts["shifts"] for step in steps) > 0
    mine, theirs = one.traffic.by_purpose(), other.traffic.by_purpose()
    assert {purpose: mine[purpose] for purpose in mine if purpose != "control"} == {
        purpose: theirs[purpose] for purpose in theirs if purpose != "control"
    }


def test_what_cannot_be_meant_is_refused():
    for settings, text in (({"tau": -1}, "tau must be"), ({"groups": 0}, "groups must be at least 1")):
        with pytest.raises(SpecError, match=text):
            FeSEMMig(**settings)
