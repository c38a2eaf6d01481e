"""A small federation whose clients are sites in this process, beside the same federation in the simulator."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie import codec, methods
from coterie.federation import Server
from coterie.federation.network.channel import InProcessChannel
from coterie.federation.network.remote import Connection, Remote
from coterie.federation.network.site import Site
from coterie.federation.network.wire import Held
from coterie.runs.build import build
from coterie.runs.session import Session
from coterie.runs.spec import Spec
from coterie.seeds import Seed

#: Six clients in two true clusters; four of them take part in a round.
SPEC: dict[str, Any] = {
    "data": {"name": "digits", "clients": 6, "partition": "inverted", "clusters": 2},
    "local": {"epochs": 1},
    "run": {"rounds": 3, "clients_per_round": 4, "seed": 1, "backend": "sequential"},
}


class Members:
    """A roster without keys."""

    def __init__(self, clients) -> None:
        self.clients = self.present = tuple(sorted(clients))
        self.missed: list[str] = []

    def refresh(self) -> None:
        pass

    def save(self) -> dict:
        return {}

    def load(self, saved) -> None:
        pass

    def see(self, client) -> None:
        self.present = tuple(sorted({*self.present, client}))

    def miss(self, client, reason="") -> None:
        self.missed.append(client)
        self.present = tuple(each for each in self.present if each != client)


@dataclasses.dataclass
class Pair:
    """The same run in the simulator and over a channel."""

    simulated: Session
    networked: Session
    server: Server
    remote: Remote
    channel: InProcessChannel
    sites: dict[str, Site]
    members: Members
    restart: Callable[..., Session]


@pytest.fixture(scope="session", autouse=True)
def works_are_known():
    for name in methods.names():
        methods.method_class(name)


def _pair(folder: Path, method: str | dict = "fedavg", **sections: dict) -> Pair:
    plain = {
        **SPEC,
        "method": method,
        **{name: {**SPEC.get(name, {}), **given} for name, given in sections.items()},
    }
    spec = Spec.from_dict(plain)
    built = build(spec)
    data, seed = built.data, Seed(spec.run.seed)
    sites = {client: Site(data.only(client), folder / client, threads=1) for client in data.clients}
    channel = InProcessChannel({client: site.answer for client, site in sites.items()})
    members = Members(data.clients)
    held = Held(data.held_share, data.held_seed)
    connection = Connection(channel, members, "run-1", backend=spec.run.backend, deadline=60, held=held)

    def session(saved=None, starts: int = 0) -> tuple[Session, Server, Remote]:
        other = build(spec)
        remote = Remote(connection, built.task)
        server = Server(remote, averaging=other.session.averaging, compression=spec.compression)
        made = Session(other.session._method, server, seed, other.session._sampler)
        if saved is not None:
            made.load(saved)
            server.start_again(starts)
        return made, server, remote

    networked, server, remote = session()

    def restart(saved, starts: int = 1) -> Session:
        return session(saved, starts)[0]

    return Pair(build(spec).session, networked, server, remote, channel, sites, members, restart)


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., Pair]:
    """Creates pairs: pair("ifca", **sections)."""
    return functools.partial(_pair, tmp_path / "sites")


@pytest.fixture(scope="session")
def round_without(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """`round_without(client, **sections)`: the state after a round of FedAvg that the client misses, computed once."""
    known: dict[str, bytes] = {}

    def state(client: str, **sections: dict) -> bytes:
        key = json.dumps([client, sections], sort_keys=True)
        if key not in known:
            alone = _pair(tmp_path_factory.mktemp("alone"), "fedavg", **sections)
            alone.members.present = tuple(each for each in alone.members.present if each != client)
            alone.networked.step()
            known[key] = codec.encode(alone.networked.state)
        return known[key]

    return state
