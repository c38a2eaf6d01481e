"""Federations of ten tiny clients, the probe's works, and a wire that a test can tamper with.

The helpers are fixtures because test files cannot import from each other.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from coterie import tree
from coterie.clients import Values, Work
from coterie.federation import Sequential, Server, Vectorized
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

CARRIERS = {"sequential": Sequential, "vectorized": Vectorized}


class Wire:
    """A carrier that hands every order on, notes it, and lets `touch(order, blocks)` change what comes back."""

    def __init__(self, transport, touch=None):
        self.transport = transport
        self.touch = touch or (lambda order, blocks: blocks)
        self.orders = []

    @property
    def clients(self):
        return self.transport.clients

    @property
    def task(self):
        return self.transport.task

    @property
    def homes(self):
        return self.transport._homes

    def on(self, task):
        return Wire(self.transport.on(task), self.touch)

    def move(self, data):
        self.transport.move(data)

    def save(self):
        return self.transport.save()

    def load(self, saved):
        self.transport.load(saved)

    def carry(self, order):
        self.orders.append(order)
        yield from self.touch(order, self.transport.carry(order))


@pytest.fixture(scope="session")
def wired():
    """`wired(kind, touch)`: a federation of the ten tiny clients, and the wire to them."""

    def make(kind="sequential", touch=None, data=None, task=None, **options):
        wire = Wire(CARRIERS[kind](data or tiny_data(), task or tiny_task()), touch)
        return Server(wire, **options), wire

    return make


@pytest.fixture(scope="session")
def lose():
    """`lose({2: "1"})`: what a wire does that loses the reply of client 1 to its second order, or all with "*"."""

    def make(plan):
        count = 0

        def touch(order, blocks):
            nonlocal count
            count += 1
            gone = plan.get(count, ())
            for block in blocks:
                assert gone == "*" or len(block.clients) == 1, "the sequential carrier gives a block for each client"
                if gone != "*" and block.clients[0] not in gone:
                    yield block

        return touch

    return make


@pytest.fixture(scope="session")
def model():
    """The tiny task's model of seed 1: d = 4·4·3 + 3 = 51 numbers, so 204 bytes."""
    return tiny_task().init(Seed(1))


@pytest.fixture(scope="session")
def bank(model):
    """Two models: 408 bytes."""
    return tree.stack([model, tiny_task().init(Seed(2))])


@pytest.fixture(scope="session")
def probe():
    """The module of the method that uses every feature of the seam."""
    if "probe" not in sys.modules:
        path = Path(__file__).parents[1] / "contract" / "probe.py"
        spec = importlib.util.spec_from_file_location("probe", path)
        sys.modules["probe"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["probe"])
    return sys.modules["probe"]


def _blank(task):
    return {"n": np.zeros((), np.int32)}


def _count(task, client):
    n = client.memory["n"] + 1
    return {"n": n, "memory": {"n": n}}


def _recall(task, client):
    return {"n": client.memory["n"]}


def _count_plainly(task, x, y, seed, *, memory):
    n = np.asarray(memory["n"] + 1, np.int32)
    return {"n": n, "memory": {"n": n}}


_N = {"n": Values("int32")}
_MEMORY = {"memory": "tests.count", "blank": _blank}
_COUNT = Work("tests.count", takes={}, gives=_N, body=_count, **_MEMORY)
_RECALL = Work("tests.recall", takes={}, gives=_N, body=_recall, recalls=True, **_MEMORY)
_PLAIN = Work("tests.count_plainly", takes={}, gives=_N, plain=_count_plainly, **_MEMORY)


@pytest.fixture(scope="session")
def count():
    """A work that counts in the client's memory how often it was done, and says so."""
    return _COUNT


@pytest.fixture(scope="session")
def recall():
    """A work that says what `count` remembers."""
    return _RECALL


@pytest.fixture(scope="session")
def count_plainly():
    """`count` in NumPy, one client at a time."""
    return _PLAIN
