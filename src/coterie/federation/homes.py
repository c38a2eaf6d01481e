"""What simulated clients keep at home: memories by version, and values that are sent once."""

from __future__ import annotations

from typing import Any

from coterie import tree
from coterie.federation.order import Order
from coterie.models import Task
from coterie.types import ClientId, Params


class Homes:
    """The clients' own storage, which the server never reads."""

    def __init__(self) -> None:
        """Empty homes."""
        self._memories: dict[str, dict[ClientId, dict[int, Params]]] = {}
        self._kept: dict[str, Any] = {}
        self._holders: dict[str, set[ClientId]] = {}

    def receive(self, order: Order) -> tuple[list[ClientId], list[ClientId]]:
        """Take in the kept values of an order; who can do the work, and who lacks a value that was not attached."""
        lacking: set[ClientId] = set()
        for each in (order, order.after):
            for name, (key, attached) in each.once.items() if each is not None else ():
                assert each is not None
                holders = self._holders.setdefault(key, set())
                self._kept.setdefault(key, each.shared[name])
                holders.update(attached.intersection(order.clients))
                lacking.update(client for client in order.clients if client not in holders)
        return [client for client in order.clients if client not in lacking], sorted(lacking)

    def memory(self, order: Order, client: ClientId, task: Task) -> Params:
        """What the client remembers: the version that the order names, or a blank."""
        work = order.work
        assert work.memory is not None
        assert work.blank is not None
        kept = self._memories.get(work.memory, {}).get(client, {})
        # A version that this client does not have means a blank, as for one that has none: its disk was lost.
        memory = kept.get(order.versions.get(client, -1))
        blank: Params = work.blank(task)
        return tree.host(blank) if memory is None else memory

    def remember(self, order: Order, client: ClientId, memory: Params) -> None:
        """Keep a new version beside the one that the server accepted last; older ones are never asked for again."""
        assert order.work.memory is not None
        kept = self._memories.setdefault(order.work.memory, {}).setdefault(client, {})
        accepted = order.versions.get(client)
        for version in [version for version in kept if version != accepted]:
            del kept[version]
        kept[order.id] = memory

    def forget(self, client: ClientId) -> None:
        """Lose all that a client kept, as a client with a broken disk does."""
        for memories in self._memories.values():
            memories.pop(client, None)
        for holders in self._holders.values():
            holders.discard(client)

    def save(self) -> dict[str, Any]:
        """All homes as plain data."""
        return {
            "memories": {
                name: {client: dict(versions) for client, versions in clients.items()}
                for name, clients in self._memories.items()
            },
            "kept": dict(self._kept),
            "holders": {key: sorted(clients) for key, clients in self._holders.items()},
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Take over homes that were saved."""
        self._memories = {
            name: {client: dict(versions) for client, versions in clients.items()}
            for name, clients in saved["memories"].items()
        }
        self._kept = dict(saved["kept"])
        self._holders = {key: set(clients) for key, clients in saved["holders"].items()}
