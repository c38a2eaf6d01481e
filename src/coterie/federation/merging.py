"""`MergingTransport`: requests of evaluations travel with those of the rounds that follow.

An exchange with clients on other machines takes seconds, however small it is. An evaluation is therefore run in the
background: each of its requests waits for the next request of a round, and both are sent in one exchange. `flush` sends
what is left.

    round t          request ─────────┐
    evaluation t                      │ request 1 waits ──┐        request 2 waits ──┐
    round t + 1                       └─── one exchange with request 1               │
    round t + 2                                            one exchange with request 2

Background functions run in threads, but only one thread runs at a time, and in a fixed order: a function runs until it
sends a request or ends, while the main thread waits. Results do not depend on timing.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.transport import Transport, TransportWrapper
from coterie.models import Task

T = TypeVar("T")


@runtime_checkable
class BatchTransport(Transport, Protocol):
    """A transport that can send several requests in one exchange."""

    def send_all(self, requests: Sequence[Request]) -> list[list[ReplyBatch]]:
        """Send several requests in one exchange; returns the replies to each, in the order that `send` promises."""

    def on(self, task: Task) -> BatchTransport:
        """Return a transport to the same clients with another task."""


class _Abandoned(BaseException):
    """Raised in a background function that is not needed any more."""


class Background(Generic[T]):
    """A function that runs in the background; `MergingTransport.start` creates it.

    Attributes:
        request: The request that waits for an exchange; None if there is none.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        """Prepare to run a function; it starts with the first `proceed`."""
        self.request: Request | None = None
        self._batches: list[ReplyBatch] = []
        self._result: T | None = None
        self._fault: BaseException | None = None
        self._abandoned = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.done = False
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=lambda: run(self._run, function), name="evaluation", daemon=True)
        self._thread.start()

    @property
    def thread(self) -> threading.Thread:
        """The thread in which the function runs."""
        return self._thread

    def result(self) -> T:
        """The result of the function; raises what it raised."""
        assert self.done, "the function has not ended"
        if self._fault is not None:
            raise self._fault
        return self._result  # type: ignore[return-value]

    def proceed(self, batches: Sequence[ReplyBatch] = ()) -> None:
        """Let the function run until its next request or its end.

        Args:
            batches: The replies to the request that it waits for.
        """
        self.request, self._batches = None, list(batches)
        self._go.release()
        self._stopped.acquire()

    def abandon(self) -> None:
        """End the function at the request that it waits for."""
        self._abandoned = True
        if not self.done:
            self.proceed()

    def wait_for_replies(self, request: Request) -> Iterator[ReplyBatch]:
        """Called in the thread of the function: wait until the request was sent; returns the replies."""
        self.request = request
        self._stopped.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned
        return iter(self._batches)

    def _run(self, function: Callable[[], T]) -> None:
        self._go.acquire()
        try:
            if not self._abandoned:
                self._result = function()
        except BaseException as fault:  # raised again by `result`
            self._fault = fault
        finally:
            self.done = True
            self._stopped.release()


class MergingTransport(TransportWrapper):
    """A transport that sends waiting requests of background functions together with each request of the main thread."""

    _transport: BatchTransport

    def __init__(self, transport: BatchTransport, pending: list[Background[object]] | None = None) -> None:
        """Wrap a transport.

        Args:
            transport: Sends the requests.
            pending: Background functions that have not ended, shared by the transports of all tasks; None: none.
        """
        super().__init__(transport)
        self._pending: list[Background[object]] = [] if pending is None else pending

    def on(self, task: Task) -> MergingTransport:
        """Return a transport to the same clients with another task."""
        return MergingTransport(self._transport.on(task), self._pending)

    def start(self, function: Callable[[], T]) -> Background[T]:
        """Run a function in the background, until its first request or its end."""
        background = Background(function)
        self._pending.append(background)  # type: ignore[arg-type]
        background.proceed()
        self._remove_done()
        return background

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send a request, with those that wait; in a background function: wait for the next exchange."""
        current = threading.current_thread()
        for background in self._pending:
            if background.thread is current:
                return background.wait_for_replies(request)
        return iter(self.send_all([request])[0])

    def flush(self) -> None:
        """Send the requests that wait until all background functions have ended."""
        while self._pending:
            self.send_all([])

    def close(self) -> None:
        """End all background functions without sending their requests."""
        for background in self._pending:
            background.abandon()
        self._pending.clear()

    def send_all(self, requests: Sequence[Request]) -> list[list[ReplyBatch]]:
        """Send requests of the main thread with those that wait, in one exchange; returns the replies to the former."""
        waiting = [(each, each.request) for each in self._pending if each.request is not None]
        replies = self._transport.send_all([*requests, *(request for _, request in waiting)])
        for (background, _), batches in zip(waiting, replies[len(requests) :], strict=True):
            background.proceed(batches)
        self._remove_done()
        return replies[: len(requests)]

    def _remove_done(self) -> None:
        self._pending[:] = [each for each in self._pending if not each.done]
