"""Records that grow as the test says, and a server of live pages."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from coterie.runs.client_results import ClientResults
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec
from coterie.runs.summary import final
from coterie.runs.writer import Writer


def line(t: int, accuracy: float, seconds: float = 2.0, **more: Any) -> dict[str, Any]:
    """The line of an evaluated round with two clients, which score alike."""
    scores = {"weighted": accuracy, "mean": accuracy, "worst_tenth": accuracy, "per_cluster": {"0": accuracy}}
    sizes = {"count": 1, "sizes": [2], "empty": 0, "unassigned": 0, "collapsed": False, "adapted": False}
    row = {"t": t, "stage": "train", "cohort_size": 2, "skipped": None, "seconds": seconds, "loss": 1.0}
    row |= {"discrepancy": 0.1, "assignment": {"a": 0, "b": 0}, "counts": {}, "truth": None, "coverage": 1.0}
    row |= {"traffic": {"train": {"down": 10, "up": 5}}, "accuracy": scores, "test_loss": 1 - accuracy}
    return {**row, "clusters": sizes, **more}


class Growing:
    """A record that this process writes: `begin`, `add` rounds, then `end`, `stop` or `kill`; `resume` continues it."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.rounds = folder, rounds
        self._stack = contextlib.ExitStack()
        self._writer: Writer | None = None
        self._rows: list[dict[str, Any]] = []

    def begin(self) -> Growing:
        run = {"rounds": self.rounds, "primary_metric": "accuracy", "score_with": "current"}
        names = {"data": {"name": "blobs"}, "model": {"name": "mclr"}, "method": {"name": "ifca"}}
        self._spec = fill_defaults(Spec.from_dict({**names, "run": run}))
        self._writer = self._stack.enter_context(Writer.create(self.folder, self._spec.to_toml()))
        return self

    def add(self, *accuracies: float, **more: Any) -> Growing:
        assert self._writer is not None
        for accuracy in accuracies:
            t = len(self._rows)
            self._rows.append(line(t, accuracy, **more))
            right = np.array([round(10 * accuracy)] * 2)
            found = ClientResults(t, ("a", "b"), np.zeros(2, int), np.full(2, 10), np.zeros(2, np.float32), right)
            self._writer.client_results(found, ["a", "b"])
            self._writer.append(self._rows[-1])
        return self

    def stop(self) -> Growing:
        self._stack.close()
        return self

    def end(self, status: str = "done", **more: Any) -> Growing:
        assert self._writer is not None
        facts = {"format": 2, "status": status, "method": "ifca", "data": "blobs", "model": "mclr", "seed": 0}
        facts |= {"rounds": len(self._rows), "clients": 2, **final(self._rows, 0.0), "drift": None, "privacy": None}
        facts |= {"traffic": {"by_purpose": {}}, "rejected_replies": {}, "lost_replies": 0}
        self._writer.end({**facts, "seconds": {"total": 5.0}, "versions": {}, **more}, {})
        return self.stop()

    def kill(self) -> Growing:
        """As after SIGKILL: no summary, and the id of a process that has ended in the lock file."""
        self.stop()
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        (self.folder / ".lock").write_text(str(ended.pid))
        return self

    def resume(self, steps: int) -> Growing:
        """Continue from a checkpoint after `steps` lines."""
        self._writer = self._stack.enter_context(Writer.reopen(self.folder))
        self._writer.rewind({"steps": steps, "rounds": None})
        self._rows = self._rows[:steps]
        return self


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Callable[..., Growing]]:
    """Begins a record: `growing("name", rounds=10)`."""
    made: list[Growing] = []

    def begin(name: str = "runs/a", rounds: int = 10) -> Growing:
        made.append(Growing(tmp_path / name, rounds).begin())
        return made[-1]

    yield begin
    for each in made:
        each.stop()


class Client:
    """Requests to a server of live pages."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.port, self.query = parts.port, parts.query

    def get(self, path: str = "/", *, method: str = "GET", query: str | None = None, host: str | None = None):
        """Status, headers and text of an answer; `path` is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {} if host is None else {"Host": host}
        asked = self.query if query is None else query
        connection.request(method, f"{path}?{asked}" if asked else path, headers=headers)
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def ids(self) -> dict[str, str]:
        """Name of a run → its id, from the page of the list."""
        text = self.get("/")[2].split('id="report-data">')[1].split("</script>")[0]
        return {each["name"]: each["id"] for each in json.loads(text)["runs"]}

    @contextlib.contextmanager
    def events(self, path: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """The events of a stream, as they come: name and data."""
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        opened.sendall(f"GET {path}?{self.query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with opened, opened.makefile("rb") as lines:
            assert lines.readline().startswith(b"HTTP/1.1 200")
            yield _events(lines)


def _events(lines: Any) -> Iterator[tuple[str, Any]]:
    name = ""
    for each in lines:
        if each.startswith(b"event: "):
            name = each[7:].decode().strip()
        elif each.startswith(b"data: "):
            yield name, json.loads(each[6:])


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Client]]:
    """Serves a folder in a thread of this process."""
    server_module = pytest.importorskip("coterie.reports.live.server", reason="needs the extra watch")
    running: list[tuple[Any, threading.Thread]] = []

    def start(root: Path) -> Client:
        server = server_module.LiveServer(root)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        client = Client(server.address)
        client.server = server
        return client

    yield start
    for server, thread in running:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()
