"""One supervised process: started, watched, restarted if wanted, and never left behind."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from coterie.errors import FederationError

log = logging.getLogger(__name__)

#: Seconds after SIGTERM until SIGKILL.
_GRACE = 5.0

#: Pauses between restarts, in seconds: the first, the longest, and the lifetime after which the first applies again.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONG_LIFE = 0.5, 30.0, 60.0

#: A log file larger than this is moved aside, replacing the one moved before.
_MAX_LOG_BYTES = 10 << 20

#: Runs in the new process before the program: the kernel kills it when this process dies, even by SIGKILL. A function
#: between fork and exec (`preexec_fn`) would do the same, but is not safe in a process with threads.
_START = """\
import os, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Process:
    """A supervised process.

    Attributes:
        name: Its name in messages.
        log: File with its output.
        restarts: How often it was restarted.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        is_ready: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
        restart: bool = False,
        before_start: Callable[[], None] | None = None,
    ) -> None:
        """Describe a process; `start` starts it.

        Args:
            name: Its name in messages.
            command: Program and arguments.
            log_file: File for its output.
            is_ready: Whether it does its work.
            environment: Variables in addition to those of this process.
            restart: Whether it is restarted when it ends.
            before_start: Called before each start.
        """
        self.name, self.log, self.restarts = name, log_file, 0
        self._command, self._is_ready, self._restart = tuple(command), is_ready, restart
        self._before_start = before_start
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, timeout: float = 60.0) -> None:
        """Start the process and wait until it is ready.

        Raises:
            FederationError: If it ends or is not ready within `timeout` seconds, with the last lines of its log.
        """
        if self._thread is not None:
            raise FederationError(f"{self.name} is running already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._stop.clear()
        started = threading.Event()
        # The kernel ties a process to the thread that started it, so one thread starts it and stays.
        self._thread = threading.Thread(target=self._supervise, args=(started,), name=self.name, daemon=True)
        self._thread.start()
        started.wait()
        end = time.monotonic() + timeout
        while not self._is_ready():
            ended = self._thread is None or not self._thread.is_alive() or not self.is_running
            if ended or time.monotonic() > end:
                why = "ended" if ended else f"is not ready after {timeout:g} seconds"
                lines = self.last_lines()
                self.stop()
                raise FederationError(f"{self.name} {why}. The end of its log ({self.log}):\n{lines}")
            self._stop.wait(0.1)

    def stop(self) -> None:
        """Stop the process: SIGTERM, after a few seconds SIGKILL. Nothing happens if it is not running."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    @property
    def is_running(self) -> bool:
        """Whether the process is running now."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id, or None if it is not running."""
        return self._child.pid if self._child is not None and self.is_running else None

    def last_lines(self, count: int = 15) -> str:
        """The end of its log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 10_000, 0))
                return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])
        except OSError:
            return ""

    def _supervise(self, started: threading.Event) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            born = time.monotonic()
            try:
                self._spawn()
            except Exception as fault:  # the caller of `start` waits, and reads the log
                self.log.write_text(f"{fault}\n")
                started.set()
                return
            started.set()
            while self.is_running and not self._stop.wait(0.2):
                self._limit_log()
            if self._stop.is_set() or not self._restart:
                break
            pause = _FIRST_PAUSE if time.monotonic() - born > _LONG_LIFE else min(2 * pause, _LONGEST_PAUSE)
            log.warning("%s ended; it is restarted in %.1f s", self.name, pause)
            if self._stop.wait(pause):
                break
            self.restarts += 1
        self._end()

    def _spawn(self) -> None:
        if self._before_start is not None:
            self._before_start()
        wrapper = (sys.executable, "-I", "-S", "-c", _START, str(os.getpid()))
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                (*wrapper, *self._command),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a terminal reaches this process only, which then stops its own
            )

    def _end(self) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
        child.wait()

    def _limit_log(self) -> None:
        if self.log.stat().st_size > _MAX_LOG_BYTES:
            shutil.copyfile(self.log, self.log.with_suffix(".old.log"))
            os.truncate(self.log, 0)  # the process writes at the end of the file, wherever that is
