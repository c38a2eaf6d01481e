"""Checks that every method must pass. Each takes a harness and raises AssertionError if the method fails."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coterie import codec
from coterie.federation import Faults
from coterie.runs.session import Session, Step
from coterie.testing.behavior import (
    a_lost_reply_is_like_an_absent_client,
    a_round_without_replies_changes_nothing,
    asks_only_the_clients_of_the_round,
    observed_session,
    steps_of,
)
from coterie.testing.conditions import CONDITIONS, run_under
from coterie.testing.harness import Harness
from coterie.testing.serving import keeps_paid_placements, learns, places_every_client
from coterie.testing.states import AGREEMENT, change_of, distance, freeze

#: Kinds of dtypes that are numbers or truth values.
NUMBERS = "biuf"


def same_round_on_every_federation(harness: Harness) -> None:
    """The sequential and the vectorized federation give the same states (to 1e-5), assignments and traffic."""
    one, other = harness.session("sequential"), harness.session("vectorized")
    initial = one.state
    for step, same_step in zip(harness.finish(one), harness.finish(other), strict=True):
        a, b = step.round, same_step.round
        assert (a is None) == (b is None), f"round t={step.t} was skipped by one federation only"
        if a is not None and b is not None:
            assert dict(a.assignment) == dict(b.assignment), f"assignments differ in round t={step.t}"
    difference, change = distance(one.state, other.state, NUMBERS), change_of(one.state, initial, NUMBERS)
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
    """Two runs with the same seed are equal to the bit, whatever generators, clock, hashes and true clusters are."""
    one = run_under(harness)
    if run_under(harness, CONDITIONS) == one:
        return
    assert run_under(harness) == one, (
        "two runs with the same seed differ: the method keeps values outside of its state, reads the clock, or draws "
        "from a generator without a seed"
    )
    for condition, reason in CONDITIONS.items():
        assert run_under(harness, [condition]) == one, f"two runs with the same seed differ: {reason}"
    raise AssertionError("two runs with the same seed differ")


def resumes_after_any_step(harness: Harness) -> None:
    """A run that is saved and restored after any step has the same result as an uninterrupted run."""
    whole = harness.session()
    saved = [whole.save() for _ in harness.steps(whole)]
    for count, snapshot in enumerate(saved[:-1], start=1):
        resumed = harness.session()
        resumed.load(codec.decode(snapshot))
        harness.finish(resumed)
        assert resumed.save() == saved[-1], f"the run differs if it is saved and restored after step {count}"


def leaves_its_arguments_alone(harness: Harness) -> None:
    """Neither `round` nor `place` modifies its arguments, the replies or the method object."""
    session, observed = observed_session(harness)
    settings = _attributes(observed.method)
    try:
        for _ in _frozen_steps(harness, session):
            pass
        before = codec.encode(session.state)
        session.evaluate()
    except ValueError as fault:
        if "read-only" not in str(fault):
            raise
        raise AssertionError("the method changes an array of its state or of a reply in place; make a copy") from fault
    assert codec.encode(session.state) == before, "`place` changed the state"
    changed = sorted(name for name, value in _attributes(observed.method).items() if settings.get(name) != value)
    assert not changed, (
        f"the method object changed in the run: {', '.join(changed)}; it holds settings only, everything else belongs "
        "to the state"
    )


def _frozen_steps(harness: Harness, session: Session[Any]) -> Iterator[Step[Any]]:
    """Run a session with read-only states."""
    given = session.state
    freeze(given)
    before = codec.encode(given)
    for step in harness.steps(session):
        assert codec.encode(given) == before, "`round` changed the state that it was given"
        yield step
        given = session.state
        freeze(given)
        before = codec.encode(given)


def _attributes(method: object) -> dict[str, str]:
    """The attributes of an object as text, without those of `cached_property`."""
    cached = {
        name
        for kind in type(method).__mro__
        for name, value in vars(kind).items()
        if isinstance(value, functools.cached_property)
    }
    fields = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    named = {
        **vars(type(method)),
        **getattr(method, "__dict__", {}),
        **{f.name: getattr(method, f.name) for f in fields},
    }
    return {name: _text(value) for name, value in named.items() if name not in cached and not name.startswith("__")}


def _text(value: object) -> str:
    try:
        return codec.encode(value).hex()
    except TypeError:
        return repr(value)


def tolerates_faults(harness: Harness) -> None:
    """Lost, late, repeated and malformed replies are ignored, and the run continues."""
    session = harness.session(faults=Faults(drop=0.1, late=0.05, duplicate=0.1, nan=0.02, shape=0.05))
    for _ in steps_of(harness, session):
        pass
    assert codec.finite(session.state), "the state is not finite"


#: All checks.
CHECKS: tuple[Callable[[Harness], None], ...] = (
    same_round_on_every_federation,
    every_value_survives_the_codec,
    same_seed_same_bytes,
    resumes_after_any_step,
    leaves_its_arguments_alone,
    tolerates_faults,
    a_round_without_replies_changes_nothing,
    a_lost_reply_is_like_an_absent_client,
    asks_only_the_clients_of_the_round,
    learns,
    places_every_client,
    keeps_paid_placements,
)


#: Checks that need one short run, for variants of a method that passes all checks with its defaults.
CHEAP_CHECKS: tuple[Callable[[Harness], None], ...] = (
    leaves_its_arguments_alone,
    tolerates_faults,
    a_round_without_replies_changes_nothing,
    asks_only_the_clients_of_the_round,
    places_every_client,
)


def _same_scores(one: Session[Any], other: Session[Any]) -> None:
    a, b = one.evaluate(), other.evaluate()
    assert a.clients == b.clients, "the federations evaluate different clients"
    assert np.array_equal(a.total, b.total), "the federations count different test examples"
