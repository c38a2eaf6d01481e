"""How far a download or a drawing of many examples is, for whoever wants to show it; nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Is told what goes on, the bytes that are there, and how many there will be, where that is known. The last call about
#: a thing has the same number twice.
Watch = Callable[[str, int, int | None], None]

_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(by: Watch) -> Iterator[None]:
    """Tell this function how far things are."""
    token = _watch.set(by)
    try:
        yield
    finally:
        _watch.reset(token)


def tell(what: str, done: int, total: int | None) -> None:
    """Say how far something is."""
    if (watch := _watch.get()) is not None:
        watch(what, done, total)
