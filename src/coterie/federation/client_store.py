"""What simulated clients have at home: their examples, memories by version, and values that are sent once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie import tree
from coterie.clients.work import Work
from coterie.data.federated import FederatedData
from coterie.federation.messages import Request
from coterie.models import Task
from coterie.types import ClientId, Params


class ClientStore:
    """The clients' own storage, which the server never reads; shared by the carriers of all tasks.

    Attributes:
        data: Their examples as they are now.
        moves: How often those have changed.
    """

    def __init__(self, data: FederatedData) -> None:
        """Homes with examples and nothing else."""
        self.data = data
        self.moves = 0
        self._memories: dict[str, dict[ClientId, dict[int, Params]]] = {}
        self._holders: dict[str, set[ClientId]] = {}
        self._blanks: dict[tuple[Work, Task], Params] = {}

    def move(self, data: FederatedData) -> None:
        """Give the clients other examples of the same pool: the world has changed."""
        assert data.x is self.data.x, "examples may change hands, but not themselves"
        self.data = data
        self.moves += 1

    def receive(self, order: Request) -> tuple[list[ClientId], list[ClientId]]:
        """Take in the kept values of an order; who can do the work, and who lacks a value that was not attached.

        Only who has which is noted: the values themselves come with every order in a simulation.
        """
        lacking: set[ClientId] = set()
        for each in (order, order.after):
            for key, attached in each.once.values() if each is not None else ():
                holders = self._holders.setdefault(key, set())
                holders.update(attached.intersection(order.clients))
                lacking.update(client for client in order.clients if client not in holders)
        return [client for client in order.clients if client not in lacking], sorted(lacking)

    def memory(self, order: Request, client: ClientId, task: Task) -> Params:
        """What the client remembers: the version that the order names, or a blank."""
        work = order.work
        assert work.memory is not None
        assert work.blank is not None
        kept = self._memories.get(work.memory, {}).get(client, {})
        # A version that this client does not have means a blank, as for one that has none: its disk was lost.
        memory = kept.get(order.versions.get(client, -1))
        if memory is None and (work, task) not in self._blanks:
            self._blanks[work, task] = tree.host(work.blank(task))
        return self._blanks[work, task] if memory is None else memory

    def remember(self, order: Request, client: ClientId, memory: Params) -> None:
        """Keep a new version beside those that may be asked for again: the accepted one, and that before the round."""
        assert order.work.memory is not None
        if order.evaluating:  # to be scored leaves nothing behind
            return
        kept = self._memories.setdefault(order.work.memory, {}).setdefault(client, {})
        wanted = (order.versions.get(client), order.standing.get(client))
        for version in [version for version in kept if version not in wanted]:
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
            "holders": {key: sorted(clients) for key, clients in self._holders.items()},
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Take over homes that were saved."""
        self._memories = {
            name: {client: dict(versions) for client, versions in clients.items()}
            for name, clients in saved["memories"].items()
        }
        self._holders = {key: set(clients) for key, clients in saved["holders"].items()}


class SimulatedTransport:
    """What carriers to simulated clients share: who they are, what they learn, and their homes."""

    def __init__(self, task: Task, homes: ClientStore) -> None:
        """Clients with these homes.

        Args:
            task: What they learn; refused where it does not fit their examples.
            homes: With their examples.
        """
        data = homes.data
        task.check(data.x, data.y, shape=data.shape, tokens=data.ids)
        self._task = task
        self._homes = homes
        self._clients = tuple(sorted(data.clients))

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients, sorted."""
        return self._clients

    @property
    def task(self) -> Task:
        """What they learn."""
        return self._task

    @property
    def _data(self) -> FederatedData:
        return self._homes.data

    def move(self, data: FederatedData) -> None:
        """Give the clients other examples."""
        self._homes.move(data)

    def save(self) -> Any:
        """What the clients keep."""
        return self._homes.save()

    def load(self, saved: Any) -> None:
        """Take over what was saved."""
        self._homes.load(saved)
