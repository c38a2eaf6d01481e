"""`run_in_processes` does several runs at a time, each in a worker process (`coterie.runs.worker`)."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from coterie import codec, errors
from coterie.errors import Error, SpecError
from coterie.runs.jobs import Job
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.worker import GRACE, STOP

#: What happens to a run: ("started", None), ("step", line of the record), ("done", the record), ("stopped", None),
#: ("failed", the exception).
Event = tuple[Job, str, Any]


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    job: Job | None = None
    reported: bool = False  # whether it has sent a message


def run_in_processes(
    jobs: Iterable[Job], workers: int, *, stop: Collection[Job] = (), catch: tuple[type[Exception], ...] = ()
) -> Generator[Event, None, None]:
    """Do all runs, and yield what happens to them as it happens.

    If the iterator is closed or an error occurs, running workers save a checkpoint and end.

    Args:
        jobs: The runs; the next one is taken when a worker is free.
        workers: Number of worker processes; never more than there are jobs, if their number is known.
        stop: Runs to end after their current step. The caller may add to it whenever it gets a step.
        catch: Errors that end only their run: the event `failed`.
    """
    if os.name != "posix":
        raise SpecError("Several jobs at a time need Linux or macOS; use one job")
    waiting = iter(jobs)
    with _workers(min(workers, len(jobs)) if isinstance(jobs, Sized) else workers) as pool:
        for worker in pool:
            if (job := next(waiting, None)) is not None:
                yield _begin(worker, job)
        while busy := {worker.connection: worker for worker in pool if worker.job is not None}:
            for ready in wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                event = _receive(worker, catch)
                if event is None:
                    continue
                yield event
                if event[1] == "step":
                    _stop(worker, stop)
                else:
                    worker.job = None
                    if (job := next(waiting, None)) is not None:
                        yield _begin(worker, job)


def _stop(worker: _Worker, stop: Collection[Job]) -> None:
    if worker.job in stop:
        with suppress(OSError):  # it has ended; the next message says how
            worker.connection.send_bytes(STOP)


@contextmanager
def _workers(count: int) -> Iterator[list[_Worker]]:
    pool: list[_Worker] = []
    try:
        for _ in range(count):
            pool.append(_start())
        yield pool
    finally:
        for worker in pool:
            worker.connection.close()  # the worker saves a checkpoint and ends
            if not worker.reported:  # it has nothing to save; its imports may take seconds
                worker.process.kill()
        limit = time.monotonic() + GRACE + 1.0
        for worker in pool:
            try:
                worker.process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def _start() -> _Worker:
    ours, theirs = multiprocessing.Pipe()
    code = f"import sys; sys.path[:] = {sys.path!r}; from coterie.runs.worker import main; main({theirs.fileno()})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # stdout is for results
        start_new_session=True,  # Ctrl-C in a terminal goes to the parent only, which then ends the workers
    )
    theirs.close()
    return _Worker(process, ours)


def _begin(worker: _Worker, job: Job) -> Event:
    worker.job = job
    folder = None if job.folder is None else str(job.folder)
    message = {"label": job.label, "spec": job.spec.to_dict(), "folder": folder, "validation": job.validation}
    try:
        worker.connection.send_bytes(json.dumps(message).encode())
    except OSError:
        raise _ended(worker, job) from None
    return job, "started", None


def _receive(worker: _Worker, catch: tuple[type[Exception], ...]) -> Event | None:
    """The next event of a worker; None for a message of its log, which is logged here."""
    job = worker.job
    assert job is not None
    message: JsonObject = json.loads(_next_message(worker, job))
    if message["kind"] == "log":
        logging.getLogger(message["name"]).log(message["level"], "%s", message["text"])
        return None
    if message["kind"] == "error":
        fault = error_of(message)
        if isinstance(fault, catch):
            return job, "failed", fault
        raise fault
    if message["kind"] == "stopped":
        return job, "stopped", None
    if message["kind"] == "step":
        return job, "step", message["row"]
    if job.folder is not None:
        return job, "done", RunRecord.read(job.folder)
    served = codec.decode(_next_message(worker, job))
    return job, "done", RunRecord(message["record"]["summary"], message["record"]["rounds"], None, served)


def _next_message(worker: _Worker, job: Job) -> bytes:
    try:
        message = worker.connection.recv_bytes()
    except (EOFError, OSError):
        raise _ended(worker, job) from None
    worker.reported = True
    return message


def _ended(worker: _Worker, job: Job) -> Error:
    code = worker.process.wait()
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    advice = "If memory ran out, run fewer jobs at a time"
    return Error(f"{job.label}, seed {job.seed}: the process of this run ended {how}. {advice}")


def error_of(message: JsonObject) -> Exception:
    """The exception of a worker, with its traceback as a note."""
    kinds = {"MemoryError": MemoryError, "OSError": OSError}
    kind = getattr(errors, message["type"], kinds.get(message["type"]))
    if isinstance(kind, type) and issubclass(kind, Exception):
        fault: Exception = kind(message["text"])
    else:
        fault = RuntimeError(f"{message['type']}: {message['text']}")
    fault.add_note(f"In a worker process:\n{message['trace']}")
    return fault
