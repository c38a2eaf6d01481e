"""From what went wrong to one or two lines on stderr and an exit code."""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, ParamSpec

import typer

from coterie.cli.screen import complain, note
from coterie.errors import Error, SpecError

P = ParamSpec("P")

#: What a shell expects of a command that Ctrl-C ended.
INTERRUPTED = 130


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with errors as texts; its parameter `debug` asks for the traceback."""

    @functools.wraps(command)
    def safe(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _notes(silent=bool(kwargs.get("quiet"))):
                command(*args, **kwargs)
        except KeyboardInterrupt as fault:
            complain(str(fault), "Interrupted. ")
            _leave()
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as fault:
            if kwargs.get("debug"):
                raise
            complain(_text(fault))
            raise typer.Exit(_code(fault)) from fault

    return safe


def _leave() -> NoReturn:
    """End at once: a compiled call in another thread may go on for minutes, and nobody waits for its result."""
    import multiprocessing

    children = multiprocessing.active_children()
    limit = time.monotonic() + 1.0
    for child in children:
        child.join(max(0.0, limit - time.monotonic()))  # Ctrl-C reached it, too: it is writing its checkpoint
        child.terminate()
    if children:  # they did the work: there is no compiled call here, and their queues want to be closed
        raise typer.Exit(INTERRUPTED)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _text(fault: Exception) -> str:
    if isinstance(fault, Error):
        return str(fault)
    if isinstance(fault, OSError):
        return f"{fault.filename}: {fault.strerror}" if fault.filename and fault.strerror else str(fault)
    if isinstance(fault, MemoryError):
        return "There is not enough memory for this; take fewer clients, a smaller model or a smaller cohort"
    first = (str(fault).strip() or "no message").splitlines()[0]
    return f"{type(fault).__name__}: {first}\nThis is a fault in Coterie; --debug shows where."


def _code(fault: Exception) -> int:
    if isinstance(fault, Error):
        return fault.exit_code
    return SpecError.exit_code if isinstance(fault, OSError) else Error.exit_code


class _Notes(logging.Handler):
    """Warnings of the library as notes, each once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # Refused replies are counted in the record; a line for each would hide everything else.
        if text not in self._seen and not record.name.startswith("coterie.federation"):
            self._seen.add(text)
            note(text)


@contextmanager
def _notes(*, silent: bool) -> Iterator[Any]:
    log = logging.getLogger("coterie")
    handler: logging.Handler = logging.NullHandler() if silent else _Notes()
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.propagate = before
