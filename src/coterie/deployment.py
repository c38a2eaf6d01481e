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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import FederationError, SpecError
from coterie.federation.network import files
from coterie.federation.network.address import PORT, check_port_is_free, server_address
from coterie.federation.network.admission_check import check_admission
from coterie.federation.network.gate.config import GateConfig
from coterie.federation.network.launch import Gate, SuperLink, SuperNode, check_installed
from coterie.federation.network.live import LiveAdmissions, reported
from coterie.federation.network.roster import Roster
from coterie.runs.build import server_spec
from coterie.runs.joining import LEFT, Membership
from coterie.runs.loop import OnRound
from coterie.runs.record import RunRecord
from coterie.runs.serving import Serving, about_run, check_resumable
from coterie.runs.spec import Spec, SpecLike
from coterie.runs.writer import Writer

__all__ = [
    "PORT",
    "Place",
    "check_admission",
    "check_installed",
    "client_folder",
    "join",
    "serve",
    "server_address",
    "wait_for_server",
]

#: Seconds between two looks whether the owner has withdrawn the client, and whether its SuperNode runs.
_INTERVAL = 1.0


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
    check_installed()
    # Mistakes are found now, not after the clients have come.
    given = server_spec(Spec.of(spec)) if resume is None else check_resumable(resume)
    if out is not None:
        Writer(out).check_empty()
    with contextlib.ExitStack() as stack:
        say = on_status or (lambda _: None)
        stack.enter_context(files.in_use(folder, "A server"))
        check_port_is_free(place.host, place.port)
        files.remove_leftovers(folder)
        say("starting the gate and Flower's SuperLink")
        members = LiveAdmissions(folder)
        link = SuperLink(folder / "superlink")
        stack.callback(link.stop)
        link.start()
        config = GateConfig(
            port=place.port,
            host=place.host,
            certificate=str(folder / "server.crt"),
            key=str(folder / "server.key"),
            upstream=link.address,
            upstream_certificate=str(link.certificate),
            allowed_keys=str(members.allowed),
            about=json.dumps(about_run(given)),
        )
        roster, serving = stack.enter_context(_server(given, link, members, say, on_clients))
        members.keys()  # before the gate is open: Flower refuses keys that it does not know
        gate = Gate(folder / "gate", config)
        stack.callback(gate.stop)
        check_port_is_free(place.host, place.port)  # again: the gate of another server would be taken for this one
        gate.start()
        stack.enter_context(reported(folder, str(out or resume or ""), roster, members))
        if resume is not None:
            return serving.resume(resume, on_round)
        return serving.start(out, on_round)


@contextlib.contextmanager
def _server(
    spec: Spec,
    link: SuperLink,
    members: LiveAdmissions,
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
    address = server_address(server)
    node = SuperNode(membership.folder / "supernode", address, private_key=key, root_certificates=certificate)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_watched(membership, node, say))
        stack.callback(node.stop)
        node.start()
        say(f"connected to {address}")
        answer_tasks(node.address, membership.answer, membership.stop, secret=node.secret)


@contextlib.contextmanager
def _watched(membership: Membership, node: SuperNode, say: Callable[[str], None]) -> Iterator[None]:
    """End the client when its owner withdraws it, and say why its SuperNode ends, if it does."""
    ended = threading.Event()

    def watch() -> None:
        restarts = 0
        while not ended.wait(_INTERVAL):
            if (membership.folder / LEFT).exists():
                membership.stop.set()
            if node.process.restarts > restarts:
                restarts = node.process.restarts
                say(
                    "the connection was lost or refused and is tried again, as when another process uses the same key; "
                    f"details: {node.process.log}"
                )

    thread = threading.Thread(target=watch, name="client", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def client_folder(folder: Path) -> Iterator[None]:
    """Hold the folder of a client, so that no second process takes part with it.

    Args:
        folder: The folder; it is created if it does not exist.

    Raises:
        SpecError: If the extra `network` is missing, the client has withdrawn, or another process uses the folder.
    """
    check_installed()
    files.create_folder(folder, 0o700)
    if (folder / LEFT).exists():
        raise SpecError(
            f"This client has withdrawn (coterie leave). To take part again, remove the file {folder / LEFT}"
        )
    with files.in_use(folder, "Another coterie join"):
        yield


def wait_for_server(
    server: str,
    *,
    key: Path,
    certificate: Path,
    on_wait: Callable[[str], None],
    pause: float = 5.0,
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
