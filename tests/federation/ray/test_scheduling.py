"""Which worker computes which share, with workers of given speeds and a clock that only waiting moves."""

from __future__ import annotations

import pytest

from coterie.errors import SpecError
from coterie.federation.ray.pool import WorkerLost
from coterie.federation.ray.scheduling import Scheduler


class Workers:
    """Workers that need `seconds[worker]` for each unit of work, one share after another."""

    def __init__(self, seconds, costs, lost=()):
        self.seconds, self.costs, self.lost = seconds, costs, set(lost)
        self.now, self.free, self.ends, self.shares = 0.0, dict.fromkeys(seconds, 0.0), {}, []

    def begin(self, worker, number):
        self.shares.append((worker, number))
        self.free[worker] = max(self.now, self.free[worker]) + self.seconds[worker] * self.costs[number]
        future = len(self.shares) - 1
        self.ends[future] = self.free[worker]
        return future

    def wait(self, futures, timeout=None):
        first = min(self.ends[future] for future in futures)
        self.now = max(self.now, first if timeout is None else min(first, self.now + timeout))
        return [future for future in futures if self.ends[future] <= self.now]

    def result(self, future):
        worker, number = self.shares[future]
        if worker in self.lost:
            raise WorkerLost("planned by the test")
        if self.costs[number] < 0.5:
            raise SpecError("planned by the test")
        return f"share {number}"

    def drop(self, worker):
        del self.seconds[worker]

    def find(self):
        return list(self.seconds)


def scheduler_of(workers):
    return Scheduler(workers, workers.find, clock=lambda: workers.now)


def run(scheduler, workers):
    return list(scheduler.run(workers.costs, workers.begin, scheduler.free_workers()))


def test_a_free_worker_also_computes_the_share_of_a_slow_one():
    # b computes shares 1 to 3 until second 6. Share 0 should have taken 2 s and is late after 2 * 2 = 4 s: b computes
    # it, too, until second 8. a would need until second 200.
    workers = Workers({"a": 100.0, "b": 1.0}, [2.0] * 4)
    scheduler = scheduler_of(workers)
    got = run(scheduler, workers)
    assert got == [("share 0", "b"), ("share 1", "b"), ("share 2", "b"), ("share 3", "b")]
    assert workers.now == 8.0
    assert workers.shares == [("a", 0), ("b", 1), ("b", 2), ("b", 3), ("b", 0)]
    # a has nothing to do with the next request until it is free again.
    run(scheduler, workers)
    assert {worker for worker, _ in workers.shares[5:]} == {"b"}
    workers.now = 200.0
    assert scheduler.free_workers() == ["a", "b"]


def test_a_free_worker_waits_for_shares_that_are_not_late():
    # a needs 3 s for share 0, b 2 s for share 1: 1.5 times its time is usual.
    workers = Workers({"a": 1.5, "b": 1.0}, [2.0, 2.0])
    assert [worker for _, worker in run(scheduler_of(workers), workers)] == ["a", "b"]
    assert workers.shares == [("a", 0), ("b", 1)]
    assert workers.now == 3.0


def test_the_longest_planned_share_is_not_late_because_others_are_short():
    # 20 s of planned work beside shares of 1 s on equal workers.
    workers = Workers({"a": 1.0, "b": 1.0}, [20.0, 1.0, 1.0])
    run(scheduler_of(workers), workers)
    assert workers.shares == [("a", 0), ("b", 1), ("b", 2)]


def test_a_slow_worker_that_is_lost_after_its_share_was_computed_elsewhere_does_no_harm():
    # b computes shares 1 to 3 and then share 0. That a was lost is noticed before the next request.
    workers = Workers({"a": 100.0, "b": 1.0}, [1.0] * 4, lost={"a"})
    scheduler = scheduler_of(workers)
    assert len(run(scheduler, workers)) == 4
    workers.now = 100.0
    assert [worker for _, worker in run(scheduler, workers)] == ["b"] * 4
    assert scheduler.load.lost == 1


def test_workers_that_compute_a_share_of_a_failed_request_are_not_free():
    # The share of b fails at second 0.1, while a computes until second 5.
    workers = Workers({"a": 1.0, "b": 1.0}, [5.0, 0.1])
    scheduler = scheduler_of(workers)
    with pytest.raises(SpecError):
        run(scheduler, workers)
    assert scheduler.free_workers() == ["b"]
