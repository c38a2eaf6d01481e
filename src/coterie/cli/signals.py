"""SIGINT (Ctrl-C) and SIGTERM: one line on stderr and the exit code of shells, at any time after the start.

- Before a command begins, and while it imports modules, a signal ends the process at once: there is nothing to save.
- Later it raises KeyboardInterrupt: temporary files are removed, and a run saves a checkpoint.
- A second signal ends the process at once.

KeyboardInterrupt is not raised inside imports and JAX, but a little later: Python ignores it in callbacks of the
garbage collector, of which JAX has one, and JAX may crash if it is interrupted while it traces a function. An alarm
repeats the signal; a thread could not be started in a signal handler, because the main thread may hold the lock for it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Literal, NoReturn

#: What the process is doing. loading: no command has begun, or it has ended; run: runs, which save checkpoints.
Phase = Literal["loading", "command", "run"]

#: Seconds between repetitions of a signal, and seconds after which KeyboardInterrupt is raised in any case.
_PAUSE, _LIMIT = 0.02, 2.0

#: Windows has no alarm; KeyboardInterrupt is raised at once there.
_ALARM = hasattr(signal, "setitimer")

_phase: Phase = "loading"
_received: int | None = None
_raised = False
_deadline = 0.0


def install() -> None:
    """Handle SIGINT and SIGTERM, unless they are ignored, as in background jobs of some shells."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)
    if _ALARM:
        signal.signal(signal.SIGALRM, lambda number, frame: _handle(_received or signal.SIGINT, frame))
        sys.unraisablehook = _repeat_if_ignored


@contextmanager
def during(phase: Phase) -> Iterator[None]:
    """State what the process is doing."""
    global _phase
    before, _phase = _phase, phase
    try:
        yield
    finally:
        _phase = before


def description() -> str:
    """What the received signal is called in messages."""
    return "Terminated." if _received == signal.SIGTERM else "Interrupted."


def exit_at_once() -> NoReturn:
    """End the process with the exit code of the signal, without waiting for other threads or for compiled calls."""
    with suppress(Exception):  # a signal may arrive while the same stream is flushed
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + (_received or signal.SIGINT))


def _handle(number: int, frame: FrameType | None) -> None:
    global _received, _raised, _deadline
    if _received is None:
        _received, _deadline = number, time.monotonic() + _LIMIT
    if _phase == "loading" or _raised or (_phase == "command" and _in(frame, "<frozen importlib")):
        _end("The last step was not saved." if _raised and _phase == "run" else "Nothing was saved.")
    if _ALARM and time.monotonic() < _deadline and _in(frame, "<frozen importlib", f"{os.sep}jax{os.sep}"):
        signal.setitimer(signal.ITIMER_REAL, _PAUSE)
        return
    _raised = True
    raise KeyboardInterrupt


def _repeat_if_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """Called for an exception that Python ignores, as in `__del__`. The signal is repeated if it was its exception."""
    global _raised
    if _raised and issubclass(ignored.exc_type, KeyboardInterrupt):
        _raised = False
        signal.setitimer(signal.ITIMER_REAL, _PAUSE)
    else:
        sys.__unraisablehook__(ignored)


def _end(text: str) -> NoReturn:
    clear = "\r\x1b[2K\x1b[?25h" if os.isatty(2) else ""  # the progress display has hidden the cursor
    with suppress(OSError):
        os.write(2, f"{clear}{description()} {text}\n".encode())
    exit_at_once()


def _in(frame: FrameType | None, *places: str) -> bool:
    """Whether the frame or one of its callers is in a file whose path has one of these parts."""
    while frame is not None:
        if any(place in frame.f_code.co_filename for place in places):
            return True
        frame = frame.f_back
    return False
