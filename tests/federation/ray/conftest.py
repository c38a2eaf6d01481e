"""Workers in this process: everything but Ray itself, with losses that a test can plan.

The helpers are fixtures because test files cannot import from each other.
"""

from __future__ import annotations

import pickle
from collections import deque

import pytest

from coterie.federation.ray.pool import WorkerLost
from coterie.federation.ray.shipping import Handle
from coterie.federation.ray.transport import RayTransport
from coterie.federation.ray.worker import Worker


class Pool:
    """Runs the calls of workers one after another when they are waited for.

    `lose(worker, method)` says whether a worker is lost before a call.
    """

    def __init__(self, count, lose=None, slow=()):
        self.count, self.lose, self.slow = count, lose or (lambda worker, method: False), slow
        self.alive, self.started, self.calls, self.bytes = {}, 0, [], 0
        self.queue = deque()

    def workers(self, arrays):
        while len(self.alive) < self.count:
            self.alive[self.started] = Worker(1, {name: Handle(name, each) for name, each in arrays.items()}, _itself)
            self.started += 1
        return list(self.alive)

    def put(self, value):
        return value

    def submit(self, worker, method, *args):
        self.queue.append((len(self.calls), worker, method, args))
        self.calls.append((worker, method, args))
        return len(self.calls) - 1

    def wait(self, futures, timeout=None):
        ready = [each for each in self.queue if each[0] in futures]
        # Workers in `slow` answer last.
        first = min(ready, key=lambda each: (each[1] in self.slow, each[0]))
        return [first[0]]

    def result(self, future):
        _, worker, method, args = next(each for each in self.queue if each[0] == future)
        self.queue = deque(each for each in self.queue if each[0] != future)
        if worker not in self.alive or self.lose(worker, method):
            raise WorkerLost("planned by the test")
        found = getattr(self.alive[worker], method)(*args)
        self.bytes += len(pickle.dumps(found))
        return found

    def drop(self, worker):
        self.alive.pop(worker, None)

    def close(self):
        self.alive.clear()


def _itself(value):
    return value


@pytest.fixture(scope="session")
def pool_of():
    """`pool_of(workers, lose, slow)`: workers in this process."""
    return Pool


@pytest.fixture(scope="session")
def spread():
    """`spread(data, task, workers, ...)`: a `RayTransport` to workers in this process, and its pool."""

    def make(data, task, workers, **options):
        pool = Pool(workers, **options)
        return RayTransport(data, task, pool), pool

    return make
