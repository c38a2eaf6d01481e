"""Data for browsers: event → JSON, for the page of a run and for the list of runs.

A feed returns the current state each time it is asked; nothing is queued. Making the page of a run takes processor time
from runs on the same machine, so a feed waits after each page for twenty times as long; the same holds for lists of
many runs.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from coterie import __version__
from coterie.errors import Error, message_text
from coterie.reports.live.following import Directory, Follower, RunState
from coterie.reports.page.build import build_page
from coterie.reports.page.page_data import page_data
from coterie.reports.view import RunView
from coterie.runs.record import JsonObject, finite
from coterie.threads import one_thread

#: Seconds between two pages of a run, at least; and in multiples of the processor time that the last one took.
PAUSE, REST = 1.5, 20.0

#: Largest page data, in bytes, that are sent while a run goes on.
LARGEST = 24 * 2**20

#: Runs in a list, and points of a small curve.
MAX_RUNS, MAX_POINTS = 500, 40

#: Seconds between two searches for new runs, and seconds that reading lines for a list may take at once.
_SEARCH, _BUDGET = 2.0, 0.5

#: Connections are allowed to the server of the page only.
_CONNECT = "'self'"


class Feed(Protocol):
    """Something that browsers follow."""

    def look(self, *, last: bool = False) -> Mapping[str, bytes]:
        """Event → JSON as it is now; `last`: the server ends, so that what was put off is made."""
        ...


class RunFeed:
    """The page of one run: `state`, which is small, and `report`, the data of the whole page."""

    def __init__(self, follower: Follower, events: str, back: str | None = None) -> None:
        """Prepare; nothing is read yet.

        Args:
            follower: The run.
            events: Address of its events.
            back: Address of the list of runs; None if there is none.
        """
        self._follower = follower
        self._one_at_a_time = threading.RLock()
        self._live = {"events": events, "list": back}
        self._data: JsonObject | None = None
        self._sent = b""
        self._made: tuple[object, ...] = ()
        self._status = ""
        self._next = 0.0
        self._problem = ""

    def look(self, *, last: bool = False) -> Mapping[str, bytes]:
        """`state`, and `report` if there is one."""
        with self._one_at_a_time:
            return self._look(last=last)

    def _look(self, *, last: bool) -> Mapping[str, bytes]:
        state = self._follower.look()
        ended = state.status != "running" and state.status != self._status
        due = last or ended or time.monotonic() >= self._next
        if state.stamp != self._made and state.status != "missing" and due:
            self._make(state)
        shown = {**state_data(state), "problem": self._problem, "command": state.resume}
        events = {"state": _json(shown)}
        return {**events, "report": self._sent} if self._sent else events

    def page(self) -> str:
        """The page as HTML, with what is there now."""
        with self._one_at_a_time:
            self._look(last=False)
            return build_page(self._data or self._empty(), connect=_CONNECT)

    def _make(self, state: RunState) -> None:
        started = time.thread_time()
        try:
            with one_thread():
                data = page_data([RunView.read(self._follower.folder)])
            data["live"] = self._live
            data["runs"][0]["status"] = state.status
            encoded = _json(data)
        except (Error, OSError, ValueError, KeyError, TypeError, IndexError) as fault:
            # A file may have been replaced while it was read. If it is damaged, the next attempt says so again.
            self._problem = message_text(str(fault) if isinstance(fault, Error) else f"{type(fault).__name__}: {fault}")
            self._next = time.monotonic() + PAUSE
            return
        self._data, self._made, self._status, self._problem = data, state.stamp, state.status, ""
        if len(encoded) <= LARGEST:
            self._sent = encoded
        else:
            self._problem = "The page is too large to be sent after each round; reload it to see the latest rounds."
        self._next = time.monotonic() + max(PAUSE, REST * (time.thread_time() - started))

    def _empty(self) -> JsonObject:
        title = f"Waiting for {self._follower.folder.name}"
        common = {"format": 1, "created": None, "version": __version__, "kind": "run", "comparison": None}
        return {**common, "title": title, "runs": [], "live": self._live}


class ListFeed:
    """The list of runs below a folder, as the event `list`."""

    def __init__(self, directory: Directory, events: str) -> None:
        """Prepare; nothing is read yet.

        Args:
            directory: The runs.
            events: Address of the events.
        """
        self._directory = directory
        self._one_at_a_time = threading.RLock()
        self._events = events
        self._followers: Mapping[str, Follower] = {}
        self._states: dict[str, RunState] = {}
        self._search = self._next = 0.0
        self._shown: JsonObject = {}

    def look(self, *, last: bool = False) -> Mapping[str, bytes]:
        """The event `list`."""
        return {"list": _json(self.data())}

    def page(self) -> str:
        """The page as HTML."""
        title = f"Runs in {self._directory.root.resolve().name}"
        data = {"title": title, "version": __version__, "live": {"events": self._events}, **self.data()}
        return build_page(data, connect=_CONNECT, template="list.html")

    def data(self) -> JsonObject:
        """The runs, those that go on first, then those that changed last."""
        with self._one_at_a_time:
            if not self._shown or time.monotonic() >= self._next:
                started = time.thread_time()
                self._shown = self._data()
                self._next = time.monotonic() + REST * (time.thread_time() - started)
            return self._shown

    def _data(self) -> JsonObject:
        now = time.monotonic()
        if now >= self._search:
            self._followers = self._directory.scan()
            self._search = time.monotonic() + _SEARCH
        self._look(now + _BUDGET)
        known = [(key, self._states[key]) for key in self._followers if key in self._states]
        known.sort(key=lambda each: (each[1].status != "running", -(each[1].updated or 0.0)))
        rows = [self._row(key, state) for key, state in known[:MAX_RUNS]]
        root = self._directory.root
        waiting = len(self._followers) - len(known)
        return {
            "runs": rows,
            "total": len(self._followers),
            "reading": waiting,
            "exists": root.is_dir(),
            "folder": str(root.resolve()),
            "single": self._directory.only() is not None,
        }

    def _look(self, deadline: float) -> None:
        """Look at all runs, those first that were not looked at; at the deadline the others keep their state."""
        self._states = {key: state for key, state in self._states.items() if key in self._followers}
        for key in sorted(self._followers, key=lambda each: each in self._states):
            self._states[key] = self._followers[key].look()
            if time.monotonic() > deadline:
                break

    def _row(self, key: str, state: RunState) -> JsonObject:
        root, folder = self._directory.root, self._followers[key].folder
        name = folder.relative_to(root).as_posix()
        history = _thinned(state.history)
        value = history[-1] if history else None
        path = folder.resolve() if name == "." else Path(name)
        return {"id": key, "name": str(path), **state_data(state), "value": value, "history": history}


def state_data(state: RunState) -> JsonObject:
    """The state of a run without its history."""
    metric = None if state.metric is None else asdict(state.metric)
    keys = ("status", "round", "rounds", "preparing", "seconds_per_round", "seconds_left", "updated", "reason")
    return {**{key: getattr(state, key) for key in keys}, **state.names, "metric": metric}


def _thinned(values: tuple[float, ...]) -> list[float]:
    """At most `MAX_POINTS` values, the first and the last among them."""
    if len(values) <= MAX_POINTS:
        return list(values)
    return [values[round(i * (len(values) - 1) / (MAX_POINTS - 1))] for i in range(MAX_POINTS)]


def _json(value: Any) -> bytes:
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
