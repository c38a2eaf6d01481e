"""What every method must keep. Each check takes a stand, raises AssertionError with a sentence, and returns nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coterie import codec
from coterie.federation import Faults
from coterie.testing.stand import Stand
from coterie.types import Array

#: Federations agree to this, relative to how far the state has moved.
AGREEMENT = 1e-5


def same_round_on_every_federation(stand: Stand) -> None:
    """Sequential and vectorised give the same states to 1e-5 of the way gone, assignments and bytes sent."""
    one, other = stand.play("sequential"), stand.play("vectorised")
    begin = _vector(one.state)
    for mine, theirs in zip(stand.finish(one), stand.finish(other), strict=True):
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


def every_value_survives_the_codec(stand: Stand) -> None:
    """With all values going through bytes and back, the state is the same to the bit."""
    plain, recoded = stand.play(), stand.play("recoded")
    stand.finish(plain)
    stand.finish(recoded)
    assert codec.encode(plain.state) == codec.encode(recoded.state), "a value changes on its way through the codec"


def same_seed_same_bytes(stand: Stand) -> None:
    """Two runs with one seed are equal to the bit."""
    one, other = stand.play(seed=3), stand.play(seed=3)
    stand.finish(one)
    stand.finish(other)
    assert one.save() == other.save(), "two runs with one seed differ"


def stops_and_goes_on_after_any_round(stand: Stand) -> None:
    """Saved and restored after any step, a run ends as it would have without."""
    whole = stand.play()
    steps = len(stand.finish(whole))
    for count in range(1, steps):
        stopped = stand.play()
        for _ in range(count):
            stopped.step()
        resumed = stand.play()
        resumed.load(codec.decode(stopped.save()))
        stand.finish(resumed)
        assert resumed.save() == whole.save(), f"the run differs when it is stopped after step {count}"


def leaves_its_arguments_alone(stand: Stand) -> None:
    """A round changes neither the state that it was given nor what placing returns."""
    play = stand.play()
    while play.stage == "prepare" or play.t < stand.rounds:
        if play.stage == "done":
            break
        given = play.state
        _freeze(given)
        before = codec.encode(given)
        play.step()
        assert codec.encode(given) == before, "a round changed the state that it was given"
    before = codec.encode(play.state)
    play.evaluate()
    assert codec.encode(play.state) == before, "placing changed the state"


def lives_with_faults(stand: Stand) -> None:
    """With lost, late, repeated, spoilt and misshapen replies, only good ones count, and the run goes on."""
    play = stand.play(faults=Faults(drop=0.1, late=0.05, duplicate=0.1, nan=0.02, shape=0.05))
    for step in stand.finish(play):
        if step.round is not None:
            strangers = {*step.round.assignment, *(step.round.flagged or ())} - set(play.clients)
            assert not strangers, f"assignments or alarms of clients that do not exist: {strangers}"
    assert codec.finite(play.state), "the state is not finite"


def a_round_without_replies_changes_nothing(stand: Stand) -> None:
    """Where nobody answers, the round is skipped and the state stays."""
    play = stand.play(faults=Faults(drop=1.0))
    before = codec.encode(play.state)
    step = play.step()
    assert step.skipped is not None or codec.encode(play.state) == before, "a state was made of no replies"


def places_everyone(stand: Stand) -> None:
    """Each client, newcomers too, is served a model that exists, and can be scored."""
    play = stand.play()
    stand.finish(play)
    placement = play.place(play.clients)
    missing = set(play.clients) - set(placement.row)
    assert not missing, f"no model for {sorted(missing)}"
    rows = {len(leaf) for leaf in codec.arrays(placement.bank)}
    assert len(rows) == 1, "the placement's bank has leaves of different lengths"
    assert all(0 <= row < next(iter(rows)) for row in placement.row.values()), "a row that the bank does not have"
    scores = play.evaluate()
    assert 0 <= scores.coverage <= 1
    assert (scores.correct <= scores.total).all(), "more right answers than questions"


CHECKS: tuple[Callable[[Stand], None], ...] = (
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
