"""`JobRunner`: does whole runs in a process on another machine, one at a time, and reports each step."""

from __future__ import annotations

import logging
import queue
import tempfile
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie import codec
from coterie.runs.jobs import Job, carry_out
from coterie.runs.record import RunRecord
from coterie.runs.spec import Spec
from coterie.runs.worker import StopRun


class JobRunner:
    """Does the runs that it is given. A run has a thread of its own, so that it can be asked for events meanwhile."""

    def __init__(self) -> None:
        """Start without a run."""
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._stopping = False
        log = logging.getLogger("coterie")
        log.addHandler(_LogHandler(self))
        log.propagate = False

    def start(self, job: Mapping[str, Any], shared: str | None, files: Mapping[str, bytes]) -> None:
        """Begin a run.

        Args:
            job: `label`, `spec`, `folder` and `validation` of a `Job`, as plain data.
            shared: A file in the folder of records: if it exists here, the folder is shared. Otherwise the record is
                written to a temporary folder and returned at the end.
            files: What the record has already, for a folder that is not shared.
        """
        self._stopping = False
        here = shared is not None and not Path(shared).exists()
        threading.Thread(target=self._run, args=(dict(job), here, dict(files)), daemon=True).start()

    def stop(self) -> None:
        """End the run after its current step."""
        self._stopping = True

    def events(self, seconds: float) -> list[dict[str, Any]]:
        """What has happened since the last call; waits up to `seconds` for it."""
        found: list[dict[str, Any]] = []
        try:
            found.append(self._events.get(timeout=seconds))
            while True:
                found.append(self._events.get_nowait())
        except queue.Empty:
            return found

    def send(self, kind: str, **content: object) -> None:
        """Add an event."""
        self._events.put({"kind": kind, **content})

    def step(self, row: object) -> None:
        """Report a step; if the run is to end, raise StopRun."""
        self.send("step", row=row)
        if self._stopping:
            raise StopRun

    def _run(self, job: dict[str, Any], elsewhere: bool, files: dict[str, bytes]) -> None:
        try:
            if elsewhere:
                with tempfile.TemporaryDirectory(prefix="coterie-") as folder:
                    write_files(Path(folder) / "record", files)
                    self._carry_out(job, Path(folder) / "record")
                    self.send("done", files=files_of(Path(folder) / "record"))
            elif job["folder"] is not None:
                self._carry_out(job, Path(job["folder"]))
                self.send("done", files={})
            else:
                record = self._carry_out(job, None)
                models = codec.encode(record.served)
                self.send("done", record={"summary": record.summary, "rounds": record.rounds}, models=models)
        except StopRun:
            self.send("stopped")
        except Exception as fault:
            self.send("error", type=type(fault).__name__, text=str(fault), trace=traceback.format_exc())

    def _carry_out(self, job: dict[str, Any], folder: Path | None) -> RunRecord:
        todo = Job(job["label"], Spec.from_dict(job["spec"]), folder, job["validation"])
        return carry_out(todo, on_round=self.step)


class _LogHandler(logging.Handler):
    """Reports warnings of the library as events."""

    def __init__(self, runner: JobRunner) -> None:
        super().__init__(logging.WARNING)
        self._runner = runner

    def emit(self, record: logging.LogRecord) -> None:
        self._runner.send("log", name=record.name, level=record.levelno, text=record.getMessage())


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their relative paths."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()] if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, by their relative paths."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
