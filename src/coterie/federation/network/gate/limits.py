"""Limits of the gate: requests per second, requests at once, bytes at once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from coterie.federation.network.gate.keys import Refused

#: Largest number of keys or addresses that are remembered.
_REMEMBERED = 10_000


class Rate:
    """Requests per second of each key or address (token bucket)."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Allow requests.

        Args:
            per_second: How many per second in the long run.
            burst: How many seconds' worth at once.
            clock: The time in seconds.
        """
        self._per_second, self._most, self._clock = per_second, max(per_second * burst, 1.0), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name → requests left, at this time

    def check(self, name: str) -> None:
        """Count a request.

        Raises:
            Refused: If there are too many (429).
        """
        now = self._clock()
        left, at = self._left.pop(name, (self._most, now))
        left = min(left + (now - at) * self._per_second, self._most)
        allowed = left >= 1
        self._left[name] = (left - 1 if allowed else left, now)
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)  # the one that was quiet for longest
        if not allowed:
            raise Refused(429, "Too many requests")


class InFlight:
    """Requests, and bytes of them, that are being passed on."""

    def __init__(self, requests: int, size: int, patience: float) -> None:
        """Limit what is passed on at once.

        Args:
            requests: Number of requests.
            size: Number of bytes.
            patience: Seconds that a request waits for its turn.
        """
        self._requests, self._bytes, self._patience = requests, size, patience
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait for room for a request of this size, and hold it.

        Raises:
            Refused: If there is none in time (503); a SuperNode then tries again.
        """
        try:
            async with asyncio.timeout(self._patience), self._changed:
                await self._changed.wait_for(lambda: self._requests >= 1 and self._bytes >= size)
                self._requests -= 1
                self._bytes -= size
        except TimeoutError as fault:
            raise Refused(503, "Too many requests at once") from fault
        try:
            yield
        finally:
            self._requests += 1
            self._bytes += size
            async with self._changed:
                self._changed.notify_all()
