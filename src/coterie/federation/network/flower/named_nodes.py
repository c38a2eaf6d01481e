"""`NamedNodes`: which node of a Flower deployment is which client, where no keys were admitted by Coterie.

The name of a client is, in this order:

    1. the name under which the operator of the SuperLink has registered its node
    2. what the node states when it is asked: `client-id` or `partition-id` of its node configuration
    3. the number of the node

Flower authenticates nodes: no node can answer for another one. A stated name belongs to the first connected node that
states it, and never replaces a registered one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from coterie.federation.network.channel import Message
from coterie.federation.network.flower.channel import FlowerChannel
from coterie.federation.network.flower.nodes import Grid
from coterie.types import ClientId

log = logging.getLogger(__name__)

#: Seconds after which a node that is asked for its name is late, and after which it is asked again.
DEADLINE, PAUSE = 60.0, 300.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NamedNodes:
    """The connected nodes by the names of clients."""

    def __init__(self, grid: Grid, *, deadline: float = DEADLINE, clock: Callable[[], float] = time.monotonic) -> None:
        """Look at the nodes of a grid.

        Args:
            grid: The grid of the run.
            deadline: Seconds after which a node that is asked for its name is late.
            clock: The time, in seconds.
        """
        self._grid, self._deadline, self._clock = grid, deadline, clock
        self._channel = FlowerChannel(
            grid, lambda nodes: {node: int(node) for node in nodes}, message_type="query", pause=0.1
        )
        self._registered: set[ClientId] = set()
        self._stated: dict[int, ClientId] = {}  # node → its name, of those that were asked
        self._asked: dict[int, float] = {}  # node without an answer → when it was asked
        self._clients: dict[ClientId, int] = {}

    def keys(self) -> Mapping[ClientId, str]:
        """Client → its key in a roster, of all clients that are or were connected. The name is the key."""
        self._refresh()
        return {client: str(client) for client in self._clients}

    def connected(self) -> list[str]:
        """The keys of the clients that are connected now."""
        return [str(client) for client in self._refresh()]

    def of(self, clients: Collection[ClientId]) -> dict[ClientId, int]:
        """Client → its node, of those clients that are connected now."""
        connected = self._refresh()
        return {client: connected[client] for client in clients if client in connected}

    def _refresh(self) -> dict[ClientId, int]:
        """Client → its node, of all clients that are connected now."""
        nodes = {int(info.node_id): _registered_name(info) for info in self._grid.get_nodes()}
        registered = {name: node for node, name in nodes.items() if name is not None}
        self._registered.update(registered)
        self._clients.update(registered)
        self._ask([node for node, name in nodes.items() if name is None and node not in self._stated])
        for node, name in nodes.items():
            client = self._stated.get(node)
            if name is not None or client is None:
                continue
            holder = self._clients.setdefault(client, node)
            if client in self._registered or (holder != node and holder in nodes):
                self._refuse(node, client)
            else:  # the node that had the name before is gone: its SuperNode was started again
                self._clients[client] = node
        return {client: node for client, node in self._clients.items() if node in nodes}

    def _refuse(self, node: int, client: ClientId) -> None:
        """Give a node whose name belongs to another one its number as a name."""
        log.warning("Node %d states the name %s, which belongs to another node; it is called %d", node, client, node)
        self._stated[node] = ClientId(str(node))
        self._clients.setdefault(self._stated[node], node)

    def _ask(self, nodes: list[int]) -> None:
        """Ask nodes for their names."""
        now = self._clock()
        due = [node for node in nodes if now - self._asked.get(node, -PAUSE) >= PAUSE]
        if not due:
            return
        self._asked.update(dict.fromkeys(due, now))
        messages = {ClientId(str(node)): Message(b"", b"") for node in due}
        for number, reply, problem in self._channel.exchange(messages, self._deadline):
            if reply is None:
                log.warning("Node %s did not state its name: %s", number, problem)
                continue
            name = reply.decode(errors="replace")
            self._stated[int(number)] = ClientId(name if _NAME.fullmatch(name) else str(number))
            self._asked.pop(int(number), None)


def stated_name(node_config: Mapping[str, Any]) -> str:
    """The name that a node states, from its configuration; empty: none.

    Partitions are named as the clients of Coterie's data sets are: with leading zeros.
    """
    if "client-id" in node_config:
        return str(node_config["client-id"])
    if "partition-id" not in node_config:
        return ""
    last = int(node_config.get("num-partitions", 1)) - 1
    return str(int(node_config["partition-id"])).zfill(len(str(max(last, 0))))


def _registered_name(info: Any) -> ClientId | None:
    name = str(info.name or "")
    return ClientId(name) if _NAME.fullmatch(name) else None
