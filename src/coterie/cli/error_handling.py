"""Turns exceptions into one or two lines on stderr and an exit code, and warnings of the library into notes."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

import typer

from coterie.cli import output, signals
from coterie.errors import Error, SpecError

P = ParamSpec("P")


def report_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that exceptions become messages; with `debug=True` the traceback is shown instead."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with signals.during("command"), _warnings_as_notes(silent=bool(kwargs.get("quiet"))):
                command(*args, **kwargs)
        except KeyboardInterrupt as fault:
            output.error(str(fault) or "Nothing was saved.", f"{signals.description()} ")
            signals.exit_at_once()
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as fault:
            if kwargs.get("debug"):
                raise
            output.error(_message(fault))
            raise typer.Exit(_exit_code(fault)) from fault

    return wrapped


def _message(fault: Exception) -> str:
    if isinstance(fault, Error):
        return str(fault)
    if isinstance(fault, OSError):
        return f"{fault.filename}: {fault.strerror}" if fault.filename and fault.strerror else str(fault)
    if isinstance(fault, MemoryError):
        return "Not enough memory; use fewer clients, fewer clients per round or a smaller model"
    first = (str(fault).strip() or "no message").splitlines()[0]
    return f"{type(fault).__name__}: {first}\nThis is a bug in Coterie; --debug shows the traceback."


def _exit_code(fault: Exception) -> int:
    if isinstance(fault, Error):
        return fault.exit_code
    return SpecError.exit_code if isinstance(fault, OSError) else Error.exit_code


class _NoteHandler(logging.Handler):
    """Prints each distinct warning of the library once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # Rejected replies are counted in the record; a line for each would hide everything else.
        if text not in self._seen and not record.name.startswith("coterie.federation"):
            self._seen.add(text)
            output.note(text)


@contextmanager
def _warnings_as_notes(*, silent: bool) -> Iterator[None]:
    log = logging.getLogger("coterie")
    handler: logging.Handler = logging.NullHandler() if silent else _NoteHandler()
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
