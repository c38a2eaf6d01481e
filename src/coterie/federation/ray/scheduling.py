"""Scheduling: each free worker gets the next share; shares of lost and slow workers are computed again elsewhere."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.errors import FederationError
from coterie.federation.ray.pool import Pool, WorkerLost

log = logging.getLogger(__name__)

#: Number of workers that one share may lose.
MAX_LOSSES = 3

#: A free worker also begins a share that another one has had for this many times its usual duration, and seconds.
LATE, LATE_SECONDS = 2.0, 1.0


@dataclass
class Load:
    """What the workers of a run have done since the last row.

    Attributes:
        workers: Number of workers of the last request.
        lost: Number of workers that were lost.
        shares: Number of shares.
        busy: Seconds that workers computed, summed over workers.
        available: Seconds that they could have computed.
        up_bytes: Bytes of the arrays that they sent.
    """

    workers: int = 0
    lost: int = 0
    shares: int = 0
    busy: float = 0.0
    available: float = 0.0
    up_bytes: int = 0

    def row(self) -> dict[str, float]:
        """The entry `ray` of the line of a round; counts and times since the last call."""
        busy = self.busy / self.available if self.available else 0.0
        entry = {"workers": self.workers, "busy": round(busy, 4), "shares": self.shares}
        entry |= {"up_bytes": self.up_bytes, "lost_workers": self.lost}
        self.lost = self.shares = self.up_bytes = 0
        self.busy = self.available = 0.0
        return entry


@dataclass
class Scheduler:
    """Gives the shares of a request to workers.

    Attributes:
        pool: The workers.
        find_workers: Returns the workers that can be used now.
        load: What was done.
        clock: Returns the time in seconds.
        late: Shares that other workers have computed in the meantime, by future → the worker that still computes one.
    """

    pool: Pool
    find_workers: Callable[[], Sequence[Any]]
    load: Load = field(default_factory=Load)
    clock: Callable[[], float] = time.perf_counter
    late: dict[Any, Any] = field(default_factory=dict)

    def free_workers(self) -> list[Any]:
        """The workers that can be used now; not those that still compute a share of an earlier request."""
        while True:
            for future in self.pool.wait(list(self.late), 0.0) if self.late else ():
                self._end_late(future)
            free = [worker for worker in self.find_workers() if worker not in self.late.values()]
            if free:
                return free
            self.pool.wait(list(self.late))

    def _end_late(self, future: Any) -> None:
        worker = self.late.pop(future)
        try:
            self.pool.result(future)
        except WorkerLost as fault:
            self._lose(worker, 1, fault)
        except Exception as fault:  # of a share that is not needed any more
            log.debug("A share that was computed twice, or of a failed request: %s", fault)

    def run(
        self, costs: Sequence[float], submit: Callable[[Any, int], Any], workers: Sequence[Any]
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the result of each share and the worker that computed it, in the order of shares.

        Args:
            costs: Planned work of each share.
            submit: (worker, number of the share) → future.
            workers: The workers at the beginning.
        """
        shares = _Shares(costs, self.clock)
        idle = deque(workers)
        self.load.workers, started = len(workers), self.clock()
        try:
            for number in range(len(costs)):
                while number not in shares.done:
                    while idle and (following := shares.next()) is not None:
                        worker = idle.popleft()
                        shares.begin(following, submit(worker, following), worker)
                    for future in self.pool.wait(list(shares.running), shares.patience() if idle else None):
                        idle.extend(self._finish(shares, future))
                    if not idle and not shares.running:
                        idle.extend(self.free_workers())
                yield shares.done[number]
                shares.done[number] = None
        finally:
            self.late |= {future: each.worker for future, each in shares.running.items()}
        self.load.available += len(workers) * (self.clock() - started)

    def _finish(self, shares: _Shares, future: Any) -> list[Any]:
        """Take the result of a share; returns the worker, unless it was lost."""
        each = shares.running.pop(future)
        try:
            result = self.pool.result(future)
        except WorkerLost as fault:
            self._lose(each.worker, shares.lose(each.number), fault)
            return []
        if each.number not in shares.done:
            shares.finish(each, result)
            self.load.shares += 1
            self.load.busy += getattr(result, "seconds", 0.0)
        return [each.worker]

    def _lose(self, worker: Any, losses: int, fault: WorkerLost) -> None:
        self.pool.drop(worker)
        self.load.lost += 1
        if losses >= MAX_LOSSES:
            raise FederationError(
                f"The same clients have ended {losses} Ray workers, the last one with: {fault}. If memory ran out, use "
                "fewer workers per machine (ray.threads_per_worker), then continue with coterie resume"
            )


@dataclass(frozen=True)
class _Running:
    """A share that a worker computes, since when."""

    number: int
    worker: Any
    since: float


class _Shares:
    """The shares of a request: waiting, running, done.

    Attributes:
        running: Future → what runs.
        done: Number of a share → its result and worker; None: handed over.
    """

    def __init__(self, costs: Sequence[float], clock: Callable[[], float]) -> None:
        self.running: dict[Any, _Running] = {}
        self.done: dict[int, Any] = {}
        self._costs, self._clock = costs, clock
        self._waiting = deque(range(len(costs)))
        self._losses = [0] * len(costs)
        self._rates: list[float] = []

    def next(self) -> int | None:
        """The next share for a free worker; None: none now."""
        if self._waiting:
            return self._waiting.popleft()
        slow = [each.number for each in self._alone() if self._due(each) <= self._clock()]
        return min(slow, default=None)

    def begin(self, number: int, future: Any, worker: Any) -> None:
        self.running[future] = _Running(number, worker, self._clock())

    def finish(self, each: _Running, result: Any) -> None:
        self.done[each.number] = (result, each.worker)
        self._rates.append((self._clock() - each.since) / max(self._costs[each.number], 1.0))

    def lose(self, number: int) -> int:
        """A worker of a share was lost; returns how many so far."""
        self._losses[number] += 1
        if number not in self.done and all(each.number != number for each in self.running.values()):
            self._waiting.appendleft(number)
        return self._losses[number]

    def patience(self) -> float | None:
        """Seconds until a free worker should begin a share that another one computes; None: unknown."""
        due = [self._due(each) for each in self._alone()]
        return max(0.0, min(due) - self._clock()) if due and self._rates else None

    def _alone(self) -> list[_Running]:
        """What runs and is not done, on one worker only."""
        counts = Counter(each.number for each in self.running.values())
        return [each for each in self.running.values() if counts[each.number] == 1 and each.number not in self.done]

    def _due(self, each: _Running) -> float:
        """When a share takes too long for its planned work."""
        if not self._rates:
            return math.inf
        usual = statistics.median(self._rates) * max(self._costs[each.number], 1.0)
        return each.since + max(LATE_SECONDS, LATE * usual)
