"""Checks that every method must pass. Each takes a harness and raises AssertionError if the method fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coterie import codec
from coterie.federation import Faults
from coterie.runs.session import Session
from coterie.testing.harness import Harness
from coterie.types import Array

#: Maximum difference between the results of two backends, relative to the change of the state.
AGREEMENT = 1e-5


def same_round_on_every_federation(harness: Harness) -> None:
    """The sequential and the vectorized federation give the same states (to 1e-5), assignments and traffic."""
    one, other = harness.session("sequential"), harness.session("vectorized")
    initial = _vector(one.state)
    for step, same_step in zip(harness.finish(one), harness.finish(other), strict=True):
        a, b = step.round, same_step.round
        assert (a is None) == (b is None), f"round {step.t} was skipped by one federation only"
        if a is not None and b is not None:
            assert dict(a.assignment) == dict(b.assignment), f"assignments differ in round {step.t}"
    final, same_final = _vector(one.state), _vector(other.state)
    assert final.shape == same_final.shape, "the states have different shapes"
    change = float(np.linalg.norm(final - initial if final.shape == initial.shape else final))
    difference = float(np.linalg.norm(final - same_final))
    assert difference <= AGREEMENT * max(change, 1e-12), (
        f"the states differ by {difference:.2e} after a change of {change:.2e}"
    )
    assert one.traffic.save() == other.traffic.save(), "the federations count different bytes"
    _same_scores(one, other)


def every_value_survives_the_codec(harness: Harness) -> None:
    """If all messages are encoded and decoded, the final state is the same to the bit."""
    plain, recoded = harness.session(), harness.session("recoded")
    harness.finish(plain)
    harness.finish(recoded)
    assert codec.encode(plain.state) == codec.encode(recoded.state), "a value changes in the codec"


def same_seed_same_bytes(harness: Harness) -> None:
    """Two runs with the same seed are equal to the bit."""
    one, other = harness.session(seed=3), harness.session(seed=3)
    harness.finish(one)
    harness.finish(other)
    assert one.save() == other.save(), "two runs with the same seed differ"


def resumes_after_any_step(harness: Harness) -> None:
    """A run that is saved and restored after any step has the same result as an uninterrupted run."""
    whole = harness.session()
    saved = [whole.save() for _ in whole.steps(harness.rounds)]
    for count, snapshot in enumerate(saved[:-1], start=1):
        resumed = harness.session()
        resumed.load(codec.decode(snapshot))
        harness.finish(resumed)
        assert resumed.save() == saved[-1], f"the run differs if it is saved and restored after step {count}"


def leaves_its_arguments_alone(harness: Harness) -> None:
    """Neither `round` nor `place` modifies its arguments in place."""
    session = harness.session()
    given = session.state
    _freeze(given)
    before = codec.encode(given)
    for _ in session.steps(harness.rounds):
        assert codec.encode(given) == before, "`round` changed the state that it was given"
        given = session.state
        _freeze(given)
        before = codec.encode(given)
    session.evaluate()
    assert codec.encode(session.state) == before, "`place` changed the state"


def tolerates_faults(harness: Harness) -> None:
    """Lost, late, repeated and malformed replies are ignored, and the run continues."""
    session = harness.session(faults=Faults(drop=0.1, late=0.05, duplicate=0.1, nan=0.02, shape=0.05))
    for step in harness.finish(session):
        if step.round is not None:
            strangers = {*step.round.assignment, *(step.round.flagged or ())} - set(session.clients)
            assert not strangers, f"clients that do not exist are assigned or flagged: {strangers}"
    assert codec.finite(session.state), "the state is not finite"


def a_round_without_replies_changes_nothing(harness: Harness) -> None:
    """If no client replies, the round is skipped or the state stays the same."""
    session = harness.session(faults=Faults(drop=1.0))
    before = codec.encode(session.state)
    step = session.step()
    assert step.skipped is not None or codec.encode(session.state) == before, "the state changed without replies"


def places_every_client(harness: Harness) -> None:
    """Every client, newcomers included, is served a model of the bank, and can be evaluated."""
    session = harness.session()
    harness.finish(session)
    placement = session.place(session.clients)
    missing = set(session.clients) - set(placement.row)
    assert not missing, f"no model for {sorted(missing)}"
    rows = {len(leaf) for leaf in codec.arrays(placement.bank)}
    assert len(rows) == 1, "the leaves of the placement's bank have different lengths"
    assert all(0 <= row < next(iter(rows)) for row in placement.row.values()), (
        "a client is served a row that the bank does not have"
    )
    scores = session.evaluate()
    assert 0 <= scores.coverage <= 1
    assert (scores.correct <= scores.total).all(), "more correct predictions than test examples"


#: All checks.
CHECKS: tuple[Callable[[Harness], None], ...] = (
    same_round_on_every_federation,
    every_value_survives_the_codec,
    same_seed_same_bytes,
    resumes_after_any_step,
    leaves_its_arguments_alone,
    tolerates_faults,
    a_round_without_replies_changes_nothing,
    places_every_client,
)


#: Checks that need one short run, for variants of a method that passes all checks with its defaults.
CHEAP_CHECKS: tuple[Callable[[Harness], None], ...] = (
    leaves_its_arguments_alone,
    tolerates_faults,
    a_round_without_replies_changes_nothing,
    places_every_client,
)


def _vector(state: object) -> Array:
    # Infinite values are markers, such as a loss before any training.
    parts = [np.asarray(a, np.float64).reshape(-1) for a in codec.arrays(state)]
    whole: Array = np.concatenate([np.zeros(0), *parts])
    kept: Array = whole[np.isfinite(whole)]
    return kept


def _same_scores(one: Session[Any], other: Session[Any]) -> None:
    a, b = one.evaluate(), other.evaluate()
    assert a.clients == b.clients, "the federations evaluate different clients"
    assert np.array_equal(a.total, b.total), "the federations count different test examples"


def _freeze(value: object) -> None:
    for array in codec.arrays(value):
        if isinstance(array, np.ndarray) and array.ndim:
            array.setflags(write=False)
