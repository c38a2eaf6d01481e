"""Conditions of a run that must not change its result: generators, clock, hashes, true clusters."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np

from coterie.testing.harness import Harness
from coterie.testing.transports import HashedIds

#: What differs → what is wrong with a method whose result changes.
CONDITIONS = {
    "generators": "the method draws from numpy.random or random; use seed.fold(...)",
    "clock": "the method reads the clock",
    "hashes": "the method depends on the order of a set of clients; sort them",
    "truth": "the method uses the true clusters; declare the field with from_run('truth')",
}

#: Seconds by which the clock is ahead.
AHEAD = 12_347


def run_under(harness: Harness, changed: Collection[str] = ()) -> bytes:
    """The result of a run with seed 3 under changed conditions."""
    with _generators(1 if "generators" in changed else 0), _clock(AHEAD if "clock" in changed else 0):
        session = harness.session(
            seed=3,
            wrap=lambda transport: HashedIds(transport, backward="hashes" in changed),
            truth="hidden" if "truth" in changed else "given",
        )
        harness.finish(session)
        return session.save()


@contextmanager
def _generators(seed: int) -> Iterator[None]:
    """Seed the global generators of NumPy and Python, and restore them."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)


@contextmanager
def _clock(ahead: int) -> Iterator[None]:
    """Set the clock ahead by some seconds, and restore it."""
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + ahead
    time.time_ns = lambda: nanoseconds() + ahead * 1_000_000_000
    try:
        yield
    finally:
        time.time, time.time_ns = seconds, nanoseconds
