"""`Follower`: the current progress of a run, from its record; `Directory`: the runs below a folder."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.errors import Error
from coterie.reports.live.tail import Tail
from coterie.reports.score_curves import PrimaryMetric, primary_metric
from coterie.reports.status import resume_command, status_of
from coterie.runs.early_stopping import primary_value
from coterie.runs.record import JsonObject, read_summary
from coterie.runs.record_files import LOCK, ROUNDS, SPEC, SUMMARY
from coterie.runs.record_list import record_folders
from coterie.runs.spec import read_toml

#: Number of rounds over which the pace is measured.
_PACE_ROUNDS = 20

#: Seconds, and rounds, without a new line after which a run that another machine writes counts as interrupted.
_PATIENCE_SECONDS, _PATIENCE_ROUNDS = 60.0, 5.0


@dataclass(frozen=True)
class RunState:
    """Progress of a run.

    Attributes:
        status: `done`, `failed`, `diverged`, `running`, `interrupted`; `missing`: there is no record; `unreadable`.
        round: Number of rounds that are recorded.
        rounds: Number of rounds that were asked for; None if it is not known.
        preparing: Whether the last step was one of preparation.
        seconds_per_round: Pace of the last rounds; None if it is not known, or the run does not go on.
        seconds_left: Seconds until the last round at that pace.
        updated: When the record changed last, as a Unix time.
        names: Method, data, model and seed.
        metric: The primary metric.
        history: Its values over rounds.
        reason: Why the run failed, or why its record cannot be read; empty otherwise.
        resume: The command that continues the run; empty if it goes on or is done.
        stamp: Differs whenever the record changed.
    """

    status: str
    round: int = 0
    rounds: int | None = None
    preparing: bool = False
    seconds_per_round: float | None = None
    seconds_left: float | None = None
    updated: float | None = None
    names: Mapping[str, Any] = field(default_factory=dict)
    metric: PrimaryMetric | None = None
    history: tuple[float, ...] = ()
    reason: str = ""
    resume: str = ""
    stamp: tuple[object, ...] = ()


class Follower:
    """Looks at a record whenever it is asked. Only what was added is read; files are opened only if they changed.

    The record may be missing, appear, be cut back by `coterie resume`, be removed and appear again.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Follow the record in a folder, which need not exist.

        Args:
            folder: The folder.
            clock: The current time.
        """
        self.folder = folder
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._tail = Tail(folder / ROUNDS, _kept)
        self._read: dict[str, tuple[object, JsonObject]] = {}
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=_PACE_ROUNDS)
        self._orphan: tuple[object, object] | None = None
        self._elsewhere: float | None = None

    def look(self) -> RunState:
        """How far the run is now; several threads may ask."""
        with self._one_at_a_time:
            return self._look()

    def _look(self) -> RunState:
        stamps = {name: _stamp(self.folder / name) for name in (SPEC, SUMMARY, LOCK)}
        if stamps[SPEC] is None:
            self._forget()
            return RunState("missing")
        grown = self._tail.read()
        times = [each[-1] for each in (*stamps.values(), self._tail.stamp) if each]
        known: dict[str, Any] = {"updated": max(times) / 1e9}
        try:
            spec = self._contents(SPEC, stamps[SPEC], lambda: read_toml(self.folder / SPEC))
            summary = self._contents(SUMMARY, stamps[SUMMARY], lambda: read_summary(self.folder))
            status = self._seen_growing(status_of(self.folder, summary), stamps[LOCK], grown=grown)
            known |= self._facts(spec, summary, status)
            if self._tail.damaged:
                raise Error(f"{self.folder / ROUNDS} is damaged in line {self._tail.damaged}")
        except (Error, OSError) as fault:
            known |= {"reason": str(fault)}
            status = "unreadable"
        except (KeyError, TypeError, ValueError) as fault:
            known |= {"reason": f"{SPEC} is damaged: {type(fault).__name__}: {fault}"}
            status = "unreadable"
        stamp = (status, stamps[SPEC], stamps[SUMMARY], self._tail.stamp)
        return RunState(status, **known, stamp=stamp)

    def _forget(self) -> None:
        self._tail.read()
        self._read.clear()
        self._arrivals.clear()
        self._orphan = self._elsewhere = None

    def _contents(self, name: str, stamp: object, read: Callable[[], JsonObject]) -> JsonObject:
        """What a file says; it is read if it changed."""
        if name not in self._read or self._read[name][0] != stamp:
            self._read[name] = stamp, ({} if stamp is None else read())
        return self._read[name][1]

    def _seen_growing(self, status: str, lock: object, *, grown: bool) -> str:
        """`running` for a run without a process here whose lines grow: another machine or container writes it."""
        if status != "interrupted":
            self._orphan = self._elsewhere = None
            return status
        now = self._clock()
        if self._orphan is None or self._orphan[0] != lock:
            self._tail.read()  # the process may have written a line before it ended
            self._orphan = lock, self._tail.stamp
        elif grown and self._orphan[1] != self._tail.stamp:
            self._elsewhere = now
        patience = max(_PATIENCE_SECONDS, _PATIENCE_ROUNDS * (self._pace() or 0.0))
        return "running" if self._elsewhere is not None and now - self._elsewhere < patience else status

    def _facts(self, spec: JsonObject, summary: JsonObject, status: str) -> dict[str, Any]:
        rows = self._tail.rows
        metric = primary_metric(spec, rows)
        done = max((row["t"] for row in rows if row["stage"] == "train"), default=-1) + 1
        rounds = int(spec["run"]["rounds"])
        self._note(done, going_on=status == "running")
        pace = self._pace() if status == "running" else None
        values = [primary_value(row, metric.name) for row in rows if row.get("coverage") is not None]
        stopped = status in ("interrupted", "failed", "diverged")
        return {
            "round": done,
            "rounds": rounds,
            "preparing": bool(rows) and rows[-1]["stage"] == "prepare",
            "seconds_per_round": pace,
            "seconds_left": None if pace is None else pace * max(0, rounds - done),
            "names": {
                **{section: str(spec[section]["name"]) for section in ("method", "data", "model")},
                "seed": spec["run"]["seed"],
            },
            "metric": metric,
            "history": tuple(float(each) for each in values if each is not None),
            "reason": str(summary.get("reason") or "") if stopped else "",
            "resume": resume_command(self.folder, status, served=bool(rows) and rows[0]["served"]),
        }

    def _note(self, done: int, *, going_on: bool) -> None:
        """Remember when rounds arrived; a run that went back or stopped is measured anew."""
        if not going_on or (self._arrivals and done < self._arrivals[-1][1]):
            self._arrivals.clear()
        if going_on and (not self._arrivals or done > self._arrivals[-1][1]):
            self._arrivals.append((self._clock(), done))

    def _pace(self) -> float | None:
        """Seconds per round: as rounds arrived, or as the lines say it, which leaves out evaluations."""
        if len(self._arrivals) > 2:
            (start, first), (end, last) = self._arrivals[1], self._arrivals[-1]  # the first was there before
            return (end - start) / (last - first)
        seconds = [row["seconds"] for row in self._tail.rows if row["stage"] == "train" and row["seconds"] is not None]
        recent = seconds[-_PACE_ROUNDS:]
        return sum(recent) / len(recent) if recent else None


class Directory:
    """The runs below a folder. New ones are found, removed ones are dropped."""

    def __init__(self, root: Path) -> None:
        """Follow the runs below a folder, which need not exist, or which may itself be a record."""
        self.root = root
        self._followers: dict[str, Follower] = {}

    def scan(self) -> dict[str, Follower]:
        """Id → run, ordered by path. Ids are hashes, so that no id of a request can name another folder."""
        found = {_id(folder, self.root): folder for folder in record_folders(self.root)}
        self._followers = {key: self._followers.get(key) or Follower(folder) for key, folder in found.items()}
        return self._followers

    def get(self, key: str) -> Follower | None:
        """The run with an id; None if there is no such run."""
        return self._followers.get(key) or self.scan().get(key)

    def only(self) -> str | None:
        """The id of the folder itself, if it is the record of a run."""
        return _id(self.root, self.root) if (self.root / SPEC).is_file() else None


def _id(folder: Path, root: Path) -> str:
    return hashlib.sha256(os.fsencode(folder.relative_to(root))).hexdigest()[:16]


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def _kept(row: JsonObject) -> JsonObject:
    """The part of a line that is shown while the run goes on; the assignments of many clients are left out."""
    accuracy, metrics = row.get("accuracy"), row.get("metrics") or {}
    return {
        "t": int(row["t"]),
        "stage": str(row["stage"]),
        "seconds": row.get("seconds"),
        "coverage": row.get("coverage"),
        "accuracy": accuracy and {"weighted": accuracy["weighted"]},
        "test_loss": row.get("test_loss"),
        "metrics": {
            name: {"value": each.get("value"), "greater_is_better": each.get("greater_is_better")}
            for name, each in metrics.items()
        },
        "served": "network" in row,
    }
