"""What a running server does beside the run, every few seconds: it reads the admissions and writes who is there."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from coterie.errors import Error, SpecError
from coterie.federation.network import files
from coterie.federation.network.admissions import Admissions
from coterie.federation.network.admitted import Admitted
from coterie.federation.network.presence import ClientStatus, Presence, write_presence
from coterie.federation.network.roster import Entry, Roster
from coterie.types import ClientId

log = logging.getLogger(__name__)

#: Seconds between two looks at the admissions and two status files.
INTERVAL = 2.0


class LiveAdmissions:
    """The clients that may join, as the folder of the federation says now; the gate and Flower are told of changes.

    Attributes:
        allowed: File with the keys that the gate lets pass.
        register: Tells Flower of a key: its text and its client; None: Flower is not running yet.
    """

    def __init__(self, folder: Path) -> None:
        """Read the admissions in the folder of a federation."""
        self.allowed = folder / "allowed_keys"
        self.register: Callable[[str, str], None] | None = None
        self._admissions = Admissions(folder)
        self._clients: Mapping[ClientId, Admitted] = self._admissions.clients()
        self._registered: set[str] = set()
        self._written: bytes | None = None
        self._lock = threading.Lock()

    def keys(self) -> Mapping[ClientId, str]:
        """Client id → fingerprint of its key."""
        with self._lock:  # the run and the thread of `reported` call it
            if self._admissions.changed():
                self._clients = self._admissions.clients()
            self._tell_flower()  # first: a client that passes the gate must be known to Flower
            self._tell_gate()
            return {client: each.fingerprint for client, each in self._clients.items()}

    def truth(self) -> dict[ClientId, int]:
        """Client id → true cluster, where it is known."""
        return {client: each.cluster for client, each in self._clients.items() if each.cluster is not None}

    def _tell_gate(self) -> None:
        lines = "".join(f"{each.public_key}\n" for each in self._clients.values()).encode()
        if lines != self._written:
            files.write_over(self.allowed, lines, files.PRIVATE)
            self._written = lines

    def _tell_flower(self) -> None:
        if self.register is not None:
            for client, each in self._clients.items():
                if each.fingerprint not in self._registered:
                    try:
                        self.register(each.public_key, client)
                    except SpecError as fault:  # Flower refuses it for good; this must not end the run
                        log.warning("Client %s cannot join: %s", client, fault)
                    self._registered.add(each.fingerprint)


@contextlib.contextmanager
def reported(folder: Path, run: str, roster: Roster, members: LiveAdmissions) -> Iterator[None]:
    """While the server runs, write the status file of the clients and pass changes of the admissions on.

    A round may take long: without this, a revoked client would be connected until its end.
    """
    started, ended = datetime.now(UTC), threading.Event()

    def write() -> None:
        clients = {
            client: _status(entry) for client, entry in dict(roster.entries).items() if entry.state != "admitted"
        }
        presence = Presence(run, started, datetime.now(UTC), INTERVAL, clients, stopped=ended.is_set())
        with contextlib.suppress(SpecError):  # a full disk must not end the run
            write_presence(folder, presence)

    def repeat() -> None:
        while not ended.wait(INTERVAL):
            try:
                members.keys()
            except (Error, OSError) as fault:
                log.warning("The admissions in %s cannot be read: %s", folder, fault)
            write()

    write()
    thread = threading.Thread(target=repeat, name="presence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        write()


def _status(entry: Entry) -> ClientStatus:
    state = entry.state
    assert state != "admitted"
    return ClientStatus(
        state=state,
        since=datetime.fromtimestamp(entry.since, UTC),
        last_seen=None if entry.last_seen is None else datetime.fromtimestamp(entry.last_seen, UTC),
        answered=entry.replies,
        examples=None if entry.facts is None else entry.facts.fit,
        cluster=entry.row,
        reason="" if state == "present" else entry.problem,
    )
