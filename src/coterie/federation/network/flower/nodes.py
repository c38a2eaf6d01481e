"""Who is connected to the SuperLink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coterie.errors import SpecError
from coterie.federation.network.fingerprint import fingerprint
from coterie.types import ClientId

#: A SuperNode counts as online until this many heartbeat intervals have passed.
_PATIENCE = 2


class Grid(Protocol):
    """The part of `flwr.serverapp.Grid` that is used."""

    def get_nodes(self) -> Iterable[Any]:
        """The connected nodes."""

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        """Send messages; returns their ids, empty for a node that is not there."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """The replies that have arrived."""


@dataclass(frozen=True)
class ConnectedNode:
    """A SuperNode that is connected.

    Attributes:
        id: Its number in Flower.
        fingerprint: Fingerprint of the key that it has authenticated with.
        status: Its status, as Flower says: "online".
        last_seen: Time of its last heartbeat, in seconds since 1970.
    """

    id: int
    fingerprint: str
    status: str
    last_seen: float


class Nodes:
    """The connected nodes, by key and by client."""

    def __init__(self, grid: Grid, key_of: Mapping[ClientId, str] | Callable[[ClientId], str | None]) -> None:
        """Look at the nodes of a grid.

        Args:
            grid: The grid of the run.
            key_of: Client id → fingerprint of its key. It is looked up at each call, since clients may be admitted and
                revoked during the run.
        """
        self._grid = grid
        self._key_of = key_of if callable(key_of) else key_of.get

    def connected(self) -> dict[str, ConnectedNode]:
        """Fingerprint → the node that is connected now."""
        found = {}
        for info in self._grid.get_nodes():
            try:
                key = fingerprint(bytes(info.public_key))
            except SpecError:
                continue  # a node without a key cannot belong to a client
            seen = float(info.online_until) - _PATIENCE * float(info.heartbeat_interval)
            found[key] = ConnectedNode(int(info.node_id), key, str(info.status), seen)
        return found

    def of(self, clients: Collection[ClientId]) -> dict[ClientId, int]:
        """Client → its node, of those clients that are connected now."""
        connected = self.connected()
        keys = {client: self._key_of(client) for client in clients}
        return {client: connected[key].id for client, key in keys.items() if key in connected}
