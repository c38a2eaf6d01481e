"""Progress of downloads and other long operations, reported to a callback; the library itself prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Called with a description, the bytes done, and the total if it is known. In the last call both numbers are equal.
Watch = Callable[[str, int, int | None], None]

_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(by: Watch) -> Iterator[None]:
    """Report progress to this function within the block."""
    token = _watch.set(by)
    try:
        yield
    finally:
        _watch.reset(token)


def report(what: str, done: int, total: int | None) -> None:
    """Report progress to the current callback, if there is one."""
    if (watch := _watch.get()) is not None:
        watch(what, done, total)
