"""`Channel`: one feed, many browsers, as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

from coterie.reports.live.feeds import Feed

log = logging.getLogger(__name__)

#: Seconds between two looks at a record, and between signs of life.
INTERVAL, ALIVE = 1.0, 10.0


class Channel:
    """Asks a feed while there are listeners, and sends each listener what it does not have yet.

    A listener that is slow gets the latest state when it is ready; nothing is queued for it.
    """

    def __init__(self, feed: Feed) -> None:
        """Prepare; the feed is asked when the first listener comes."""
        self.listeners = 0
        self._feed = feed
        self._latest: dict[str, tuple[int, bytes]] = {}
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._ended = False

    async def events(self) -> AsyncIterator[bytes]:
        """The events of one listener, until the server ends."""
        self.listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._ask())
        seen: dict[str, int] = {}
        try:
            yield b"retry: 2000\n\n"
            while True:
                async with self._changed:
                    ended = self._ended  # what came before the end is sent first
                    fresh = [(name, *entry) for name, entry in self._latest.items() if seen.get(name) != entry[0]]
                    if not fresh and not ended:
                        fresh = await self._news()
                for name, version, content in fresh:
                    seen[name] = version
                    yield b"event: " + name.encode() + b"\ndata: " + content + b"\n\n"
                if ended:
                    yield b"event: end\ndata: {}\n\n"
                    return
        finally:
            self.listeners -= 1
            if not self.listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _news(self) -> list[tuple[str, int, bytes]]:
        """Wait for a change; a comment that keeps the connection open if there is none for a while."""
        try:
            await asyncio.wait_for(self._changed.wait(), ALIVE)
        except TimeoutError:
            return [("alive", 0, b"{}")]
        return []

    async def _ask(self) -> None:
        while True:
            await self._look(last=False)
            await asyncio.sleep(INTERVAL)

    async def _look(self, *, last: bool) -> None:
        async with self._looking:
            try:
                found = await asyncio.to_thread(self._feed.look, last=last)
            except Exception as fault:  # the page says it, and the next look may succeed
                log.exception("The record cannot be shown")
                found = {"problem": json.dumps(f"{type(fault).__name__}: {fault}").encode()}
            async with self._changed:
                for name, content in found.items():
                    version, before = self._latest.get(name, (0, b""))
                    if content != before:
                        self._latest[name] = version + 1, content
                self._changed.notify_all()

    async def end(self, *, last: bool) -> None:
        """End all streams; `last`: after a last look, so that browsers have the end of the run."""
        if self._task is not None:
            self._task.cancel()
        if last and self.listeners:
            await self._look(last=True)
        async with self._changed:
            self._ended = True
            self._changed.notify_all()
