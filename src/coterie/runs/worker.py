"""A worker process: does the runs that it is sent, one after another, and reports each step.

The worker has one end of a pipe. When the other end is closed, because the parent process closed it, has ended or was
killed, the worker saves a checkpoint after the current step and ends. If the step takes too long, it ends without one:
no worker outlives its parent by more than `GRACE` seconds, or the time of its imports.

Messages are JSON objects. To the worker: `label`, `spec`, `folder`, `validation`; or `stop`, which ends the current run
after its step. From the worker: `kind`, which is `step` (`row`), `log` (`name`, `level`, `text`), `done` (`record`; the
next message has the models, encoded, if there is no folder), `stopped`, or `error` (`type`, `text`, `trace`).
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: Seconds from the end of the parent until the worker ends, at the latest.
GRACE = 2.0

#: Message to the worker: end the current run.
STOP = b'"stop"'


def main(handle: int) -> None:
    """Run the worker.

    Args:
        handle: File descriptor of the worker's end of the pipe.
    """
    parent = _Parent(Connection(handle))
    try:
        _serve(parent)
    except KeyboardInterrupt:
        pass
    finally:
        os._exit(0)  # without waiting for compiled calls in other threads


class StopRun(Exception):
    """The parent wants no more steps of the current run."""


class _Parent:
    """The other end of the pipe."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._jobs: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._gone = self._stopping = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            while True:
                message = self._connection.recv_bytes()
                if message == STOP:
                    self._stopping = True
                else:
                    self._jobs.put(message)
        except (EOFError, OSError):
            self._gone = True
            self._jobs.put(None)
            threading.Event().wait(GRACE)
            os._exit(1)

    def next_job(self) -> dict[str, Any]:
        message = self._jobs.get()
        if message is None:
            raise KeyboardInterrupt
        self._stopping = False  # a request to stop that came too late is about the run before
        job: dict[str, Any] = json.loads(message)
        return job

    def step(self, row: object) -> None:
        """Report a step; if the run is to end, raise StopRun."""
        self.send("step", row=row)
        if self._stopping:
            raise StopRun

    def send(self, kind: str, **content: object) -> None:
        """Send a message; if there is no parent any more, raise KeyboardInterrupt, which makes a run save itself."""
        self.send_bytes(json.dumps({"kind": kind, **content}).encode())

    def send_bytes(self, message: bytes) -> None:
        try:
            with self._lock:
                self._connection.send_bytes(message)
        except OSError:
            self._gone = True
        if self._gone:
            raise KeyboardInterrupt


class _LogHandler(logging.Handler):
    """Sends warnings of the library to the parent."""

    def __init__(self, parent: _Parent) -> None:
        super().__init__(logging.WARNING)
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        self._parent.send("log", name=record.name, level=record.levelno, text=record.getMessage())


def _serve(parent: _Parent) -> None:
    log = logging.getLogger("coterie")
    log.addHandler(_LogHandler(parent))
    log.propagate = False
    while True:
        job = parent.next_job()
        try:
            _carry_out(job, parent)
        except StopRun:
            parent.send("stopped")
        except Exception as fault:
            import traceback

            parent.send("error", type=type(fault).__name__, text=str(fault), trace=traceback.format_exc())


def _carry_out(given: dict[str, Any], parent: _Parent) -> None:
    from coterie import codec
    from coterie.runs.jobs import Job, carry_out
    from coterie.runs.spec import Spec

    folder = None if given["folder"] is None else Path(given["folder"])
    job = Job(given["label"], Spec.from_dict(given["spec"]), folder, given["validation"])
    record = carry_out(job, on_round=parent.step)
    if folder is not None:
        parent.send("done", record=None)
    else:
        parent.send("done", record={"summary": record.summary, "rounds": record.rounds})
        parent.send_bytes(codec.encode(record.served))
