"""A federation between machines: `serve` is the server, `join` is a client. Flower carries their messages.

    server:  gate (TLS, keys, limits) ── SuperLink on the loopback interface ── this process: run loop
    client:  SuperNode ── this process: data, compiled functions, storage

Neither of the two runs code of the other. `coterie serve` and `coterie join` call these functions.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coterie.errors import FederationError, SpecError
from coterie.federation.network import files
from coterie.federation.network.admission_check import check_admission
from coterie.federation.network.admissions import Admissions
from coterie.federation.network.admitted import Admitted
from coterie.federation.network.gate.config import GateConfig
from coterie.federation.network.launch import Gate, SuperLink, SuperNode
from coterie.federation.network.presence import ClientStatus, Presence, write_presence
from coterie.federation.network.roster import Entry, Roster
from coterie.runs.build import server_spec
from coterie.runs.joining import LEFT, Membership
from coterie.runs.loop import OnRound
from coterie.runs.record import RunRecord
from coterie.runs.serving import Serving, about_run
from coterie.runs.spec import Spec, SpecLike, read_toml
from coterie.types import ClientId

#: Default port of a server.
PORT = 9443

#: Seconds between two looks at the admissions and two status files.
_INTERVAL = 2.0


@dataclass(frozen=True)
class Place:
    """Where a server runs.

    Attributes:
        folder: Folder of the federation, made by `coterie keys init`.
        host: Address that the gate listens on.
        port: Port that it listens on.
    """

    folder: Path
    host: str = "0.0.0.0"
    port: int = PORT


def serve(
    spec: SpecLike | None,
    place: Place,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    on_round: OnRound | None = None,
    on_status: Callable[[str], None] | None = None,
    on_clients: Callable[[Roster], None] | None = None,
) -> RunRecord:
    """Run a spec with clients on other machines.

    Args:
        spec: What to run; None with `resume`.
        place: Where the server runs.
        out: Folder for the record; None: nothing is written, and the run cannot be resumed.
        resume: Folder of the record of an interrupted run, which is continued.
        on_round: Called after each step with its line of the record.
        on_status: Called with a sentence when the server begins to wait or to run.
        on_clients: Called when clients come, go, or answer.
    """
    folder = Path(place.folder)
    for name in ("server.crt", "server.key"):
        if not (folder / name).is_file():
            raise SpecError(
                f"{folder / name} is missing; make keys and certificate with: coterie keys init --host NAME"
            )
    given = Spec.of(spec) if resume is None else Spec.from_dict(read_toml(Path(resume) / "spec.toml"))
    files.remove_leftovers(folder)
    with contextlib.ExitStack() as stack:
        say = on_status or (lambda _: None)
        say("starting the gate and Flower's SuperLink")
        members = _Admitted(Admissions(folder), folder / "allowed_keys")
        link = SuperLink(folder / "superlink")
        link.start()
        stack.callback(link.stop)
        config = GateConfig(
            port=place.port,
            host=place.host,
            certificate=str(folder / "server.crt"),
            key=str(folder / "server.key"),
            upstream=link.address,
            upstream_certificate=str(link.certificate),
            allowed_keys=str(members.allowed),
            about=json.dumps(about_run(server_spec(given) if resume is None else given)),
        )
        gate = Gate(folder / "gate", config)
        gate.start()
        stack.callback(gate.stop)
        roster, serving = stack.enter_context(_server(given, link, members, say, on_clients))
        stack.enter_context(_reported(folder, str(out or resume or ""), roster))
        if resume is not None:
            return serving.resume(resume, on_round)
        return serving.start(out, on_round)


@contextlib.contextmanager
def _server(
    spec: Spec,
    link: SuperLink,
    members: _Admitted,
    on_status: Callable[[str], None],
    on_clients: Callable[[Roster], None] | None,
) -> Iterator[tuple[Roster, Serving]]:
    """A server on a SuperLink."""
    from coterie.federation.network.flower import Control, FlowerChannel, Nodes, server_grid

    with (
        Control(link.address, link.root_certificates) as control,
        server_grid(link.address, root_certificates=link.root_certificates, secret=link.secret) as grid,
    ):
        members.register = control.register
        nodes = Nodes(grid, lambda client: members.keys().get(client))
        network = spec.network
        roster = Roster(
            members.keys,
            lambda: list(nodes.connected()),
            minimum=network.min_replies,
            wait=network.wait,
            on_change=on_clients,
        )
        yield roster, Serving(spec, FlowerChannel(grid, nodes.of), roster, truth=members.truth(), on_status=on_status)


class _Admitted:
    """The clients that may join, as the folder of the federation says now; the gate and Flower are told of changes."""

    def __init__(self, admissions: Admissions, allowed: Path) -> None:
        self.allowed = allowed
        self.register: Callable[[str, str], None] | None = None
        self._admissions = admissions
        self._clients: Mapping[ClientId, Admitted] = {}
        self._registered: set[str] = set()
        self._read()

    def keys(self) -> Mapping[ClientId, str]:
        """Client id → fingerprint of its key."""
        if self._admissions.changed():
            self._read()
        self._tell_flower()
        return {client: each.fingerprint for client, each in self._clients.items()}

    def truth(self) -> dict[ClientId, int]:
        """Client id → true cluster, where it is known."""
        return {client: each.cluster for client, each in self._clients.items() if each.cluster is not None}

    def _read(self) -> None:
        self._clients = self._admissions.clients()
        lines = "".join(f"{each.public_key}\n" for each in self._clients.values())
        files.write_over(self.allowed, lines.encode(), files.PRIVATE)

    def _tell_flower(self) -> None:
        if self.register is not None:
            for client, each in self._clients.items():
                if each.fingerprint not in self._registered:
                    self.register(each.public_key, client)
                    self._registered.add(each.fingerprint)


@contextlib.contextmanager
def _reported(folder: Path, run: str, roster: Roster) -> Iterator[None]:
    """Write the status file of the clients while the server runs."""
    started, ended = datetime.now(UTC), threading.Event()

    def write() -> None:
        clients = {
            client: _status(entry) for client, entry in dict(roster.entries).items() if entry.state != "admitted"
        }
        presence = Presence(run, started, datetime.now(UTC), _INTERVAL, clients, stopped=ended.is_set())
        with contextlib.suppress(SpecError):  # a full disk must not end the run
            write_presence(folder, presence)

    def repeat() -> None:
        while not ended.wait(_INTERVAL):
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


def join(
    server: str,
    membership: Membership,
    *,
    key: Path,
    certificate: Path,
    on_status: Callable[[str], None] | None = None,
) -> None:
    """Take part in the runs of a server until `membership.stop` is set.

    Args:
        server: Host and port of the server.
        membership: The client.
        key: File with the private key of the client.
        certificate: File with the certificate of the authority that signed the server's certificate.
        on_status: Called with a sentence when the client is connected.
    """
    from coterie.federation.network.flower import answer_tasks

    say = on_status or (lambda _: None)
    if (membership.folder / LEFT).exists():
        raise SpecError(
            f"This client has withdrawn (coterie leave). To take part again, remove the file {membership.folder / LEFT}"
        )
    node = SuperNode(membership.folder / "supernode", server, private_key=key, root_certificates=certificate)
    node.start()
    say(f"connected to {server}")
    try:
        answer_tasks(node.address, membership.answer, membership.stop, secret=node.secret)
    finally:
        node.stop()


def wait_for_server(
    server: str, *, key: Path, certificate: Path, on_wait: Callable[[str], None], pause: float = 5.0
) -> dict[str, Any]:
    """Wait until a server answers and admits the client; returns what its run is about (see `Terms.of`).

    Args:
        server: Host and port of the server.
        key: File with the private key of the client.
        certificate: File with the certificate of the authority.
        on_wait: Called with the reason, when it changes.
        pause: Seconds between two attempts.
    """
    last = ""
    while True:
        try:
            return check_admission(server, private_key=key, root_certificates=certificate)
        except FederationError as fault:
            if str(fault) != last:
                last = str(fault)
                on_wait(last)
        time.sleep(pause)
