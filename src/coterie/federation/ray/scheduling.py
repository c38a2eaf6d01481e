"""Scheduling: each free worker gets the next share, and shares of lost workers are computed again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.errors import FederationError
from coterie.federation.ray.pool import Pool, WorkerLost

#: Number of workers that one share may lose.
MAX_LOSSES = 3


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
    """

    pool: Pool
    find_workers: Callable[[], Sequence[Any]]
    load: Load = field(default_factory=Load)

    def run(
        self, shares: Sequence[tuple[int, int]], submit: Callable[[Any, int], Any], workers: Sequence[Any]
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the result of each share and the worker that computed it, in the order of shares.

        Args:
            shares: The shares.
            submit: (worker, number of the share) → future.
            workers: The workers at the beginning.
        """
        waiting, done = deque(range(len(shares))), dict[int, tuple[Any, Any]]()
        idle, running, losses = deque(workers), dict[Any, tuple[Any, int]](), [0] * len(shares)
        self.load.workers, clock = len(workers), time.perf_counter()
        following = 0
        while following < len(shares):
            while waiting and idle:
                worker, number = idle.popleft(), waiting.popleft()
                running[submit(worker, number)] = (worker, number)
            for future in self.pool.wait(list(running)):
                worker, number = running.pop(future)
                try:
                    done[number] = (self.pool.result(future), worker)
                    idle.append(worker)
                    self.load.shares += 1
                    self.load.busy += getattr(done[number][0], "seconds", 0.0)
                except WorkerLost as fault:
                    losses[number] += 1
                    self._lose(worker, losses[number], fault)
                    waiting.appendleft(number)
            if waiting and not idle and not running:
                idle.extend(self.find_workers())
            while following in done:
                yield done.pop(following)
                following += 1
        self.load.available += len(workers) * (time.perf_counter() - clock)

    def _lose(self, worker: Any, losses: int, fault: WorkerLost) -> None:
        self.pool.drop(worker)
        self.load.lost += 1
        if losses >= MAX_LOSSES:
            raise FederationError(
                f"The same clients have ended {losses} Ray workers, the last one with: {fault}. If memory ran out, use "
                "fewer workers per machine (ray.threads_per_worker), then continue with coterie resume"
            )
