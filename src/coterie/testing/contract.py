"""What every method must keep. Each check takes a stand, raises AssertionError with a sentence, and returns nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coterie import codec
from coterie.federation import Faults
from coterie.testing.harness import Harness
from coterie.types import Array

#: Federations agree to this, relative to how far the state has moved.
AGREEMENT = 1e-5


def same_round_on_every_federation(harness: Harness) -> None:
    """Sequential and vectorized give the same states to 1e-5 of the way gone, assignments and bytes sent."""
    one, other = harness.session("sequential"), harness.session("vectorized")
    begin = _vector(one.state)
    for mine, theirs in zip(harness.finish(one), harness.finish(other), strict=True):
        a, b = mine.round, theirs.round
        assert (a is None) == (b is None), f"round {mine.t} was skipped by one federation only"
        if a is not None and b is not None:
            assert dict(a.assignment) == dict(b.assignment), f"assignments differ in round {mine.t}"
    here, there = _vector(one.state), _vector(other.state)
    assert here.shape == there.shape, "the states have different shapes"
    way = float(np.linalg.norm(here - begin if here.shape == begin.shape else here))
    gap = float(np.linalg.norm(here - there))
    assert gap <= AGREEMENT * max(way, 1e-12), f"the states are {gap:.2e} apart after a way of {way:.2e}"
    assert one.traffic.save() == other.traffic.save(), "the federations count different bytes"
    _same_scores(one, other)


def every_value_survives_the_codec(harness: Harness) -> None:
    """With all values going through bytes and back, the state is the same to the bit."""
    plain, recoded = harness.session(), harness.session("recoded")
    harness.finish(plain)
    harness.finish(recoded)
    assert codec.encode(plain.state) == codec.encode(recoded.state), "a value changes on its way through the codec"


def same_seed_same_bytes(harness: Harness) -> None:
    """Two runs with one seed are equal to the bit."""
    one, other = harness.session(seed=3), harness.session(seed=3)
    harness.finish(one)
    harness.finish(other)
    assert one.save() == other.save(), "two runs with one seed differ"


def stops_and_goes_on_after_any_round(harness: Harness) -> None:
    """Saved and restored after any step, a run ends as it would have without."""
    whole = harness.session()
    steps = len(harness.finish(whole))
    for count in range(1, steps):
        stopped = harness.session()
        for _ in range(count):
            stopped.step()
        resumed = harness.session()
        resumed.load(codec.decode(stopped.save()))
        harness.finish(resumed)
        assert resumed.save() == whole.save(), f"the run differs when it is stopped after step {count}"


def leaves_its_arguments_alone(harness: Harness) -> None:
    """A round changes neither the state that it was given nor what placing returns."""
    session = harness.session()
    while session.stage == "prepare" or session.t < harness.rounds:
        if session.stage == "done":
            break
        given = session.state
        _freeze(given)
        before = codec.encode(given)
        session.step()
        assert codec.encode(given) == before, "a round changed the state that it was given"
    before = codec.encode(session.state)
    session.evaluate()
    assert codec.encode(session.state) == before, "placing changed the state"


def lives_with_faults(harness: Harness) -> None:
    """With lost, late, repeated, spoilt and misshapen replies, only good ones count, and the run goes on."""
    session = harness.session(faults=Faults(drop=0.1, late=0.05, duplicate=0.1, nan=0.02, shape=0.05))
    for step in harness.finish(session):
        if step.round is not None:
            strangers = {*step.round.assignment, *(step.round.flagged or ())} - set(session.clients)
            assert not strangers, f"assignments or alarms of clients that do not exist: {strangers}"
    assert codec.finite(session.state), "the state is not finite"


def a_round_without_replies_changes_nothing(harness: Harness) -> None:
    """Where nobody answers, the round is skipped and the state stays."""
    session = harness.session(faults=Faults(drop=1.0))
    before = codec.encode(session.state)
    step = session.step()
    assert step.skipped is not None or codec.encode(session.state) == before, "a state was made of no replies"


def places_everyone(harness: Harness) -> None:
    """Each client, newcomers too, is served a model that exists, and can be scored."""
    session = harness.session()
    harness.finish(session)
    placement = session.place(session.clients)
    missing = set(session.clients) - set(placement.row)
    assert not missing, f"no model for {sorted(missing)}"
    rows = {len(leaf) for leaf in codec.arrays(placement.bank)}
    assert len(rows) == 1, "the placement's bank has leaves of different lengths"
    assert all(0 <= row < next(iter(rows)) for row in placement.row.values()), "a row that the bank does not have"
    scores = session.evaluate()
    assert 0 <= scores.coverage <= 1
    assert (scores.correct <= scores.total).all(), "more right answers than questions"


CHECKS: tuple[Callable[[Harness], None], ...] = (
    same_round_on_every_federation,
    every_value_survives_the_codec,
    same_seed_same_bytes,
    stops_and_goes_on_after_any_round,
    leaves_its_arguments_alone,
    lives_with_faults,
    a_round_without_replies_changes_nothing,
    places_everyone,
)


def _vector(state: Any) -> Array:
    # Infinite single floats (a loss before any training) are markers, not models.
    parts = [np.asarray(a, np.float64).reshape(-1) for a in codec.arrays(state)]
    whole: Array = np.concatenate([np.zeros(0), *parts])
    kept: Array = whole[np.isfinite(whole)]
    return kept


def _same_scores(one: Any, other: Any) -> None:
    a, b = one.evaluate(), other.evaluate()
    assert a.clients == b.clients, "the federations score different clients"
    assert np.array_equal(a.total, b.total), "the federations count different test examples"


def _freeze(value: Any) -> None:
    for array in codec.arrays(value):
        if isinstance(array, np.ndarray) and array.ndim:
            array.setflags(write=False)
