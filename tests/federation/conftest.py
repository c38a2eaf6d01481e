"""Federations of ten tiny clients, the works of the probe method, and a transport whose replies a test can change.

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

BACKENDS = {"sequential": Sequential, "vectorized": Vectorized}


class Wire:
    """A transport that records every request and lets `touch(request, batches)` change the replies."""

    def __init__(self, transport, touch=None):
        self.transport = transport
        self.touch = touch or (lambda request, batches: batches)
        self.requests = []

    @property
    def clients(self):
        return self.transport.clients

    @property
    def task(self):
        return self.transport.task

    @property
    def store(self):
        return self.transport._store

    def on(self, task):
        return Wire(self.transport.on(task), self.touch)

    def set_data(self, data):
        self.transport.set_data(data)

    outlives_server = False

    def save(self):
        return self.transport.save()

    def load(self, saved):
        self.transport.load(saved)

    def send(self, request):
        self.requests.append(request)
        yield from self.touch(request, self.transport.send(request))


@pytest.fixture(scope="session")
def wired():
    """`wired(backend, touch)`: a server of the ten tiny clients, and the `Wire` to them."""

    def make(backend="sequential", touch=None, data=None, task=None, **options):
        wire = Wire(BACKENDS[backend](data or tiny_data(), task or tiny_task()), touch)
        return Server(wire, **options), wire

    return make


@pytest.fixture(scope="session")
def lose():
    """`lose({2: "1"})`: a touch that loses the reply of client 1 to the second request, or all replies with "*"."""

    def make(plan):
        count = 0

        def touch(request, batches):
            nonlocal count
            count += 1
            gone = plan.get(count, ())
            for batch in batches:
                assert gone == "*" or len(batch.clients) == 1, "the sequential backend returns one batch per client"
                if gone != "*" and batch.clients[0] not in gone:
                    yield batch

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
    """The module of a method that uses every feature of the federation."""
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
_COUNT = Work("tests.count", takes={}, gives=_N, body=_count, **_MEMORY, trains=False)
_RECALL = Work("tests.recall", takes={}, gives=_N, body=_recall, recalls=True, **_MEMORY, trains=False)
_PLAIN = Work("tests.count_plainly", takes={}, gives=_N, plain=_count_plainly, **_MEMORY, trains=False)


@pytest.fixture(scope="session")
def count():
    """A work that counts its calls in the client's memory and returns the count."""
    return _COUNT


@pytest.fixture(scope="session")
def recall():
    """A work that returns the count that `count` stored."""
    return _RECALL


@pytest.fixture(scope="session")
def count_plainly():
    """`count` as a plain NumPy work."""
    return _PLAIN
