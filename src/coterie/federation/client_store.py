"""`ClientStore`: the examples, memories (by version) and cached values of simulated clients."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from coterie import tree
from coterie.clients import traced_settings as setting
from coterie.clients.work import Work
from coterie.codec import Lazy, plain
from coterie.data.federated import FederatedData
from coterie.federation.client_memory import ClientMemory
from coterie.federation.messages import Request
from coterie.models import Task
from coterie.types import Bank, ClientId, Params


class ClientStore:
    """The storage of all simulated clients, which the server never reads; shared by the transports of all tasks.

    Attributes:
        data: The clients' current examples.
        data_version: Number of times that the examples have changed.
        keeps_checkpoints: Whether memories that checkpoints of the server name are kept. Not in simulation: there the
            checkpoints contain the memories.
    """

    keeps_checkpoints = False

    def __init__(self, data: FederatedData) -> None:
        """Start with these examples, without memories and cached values."""
        self.data = data
        self.data_version = 0
        self._memories: dict[str, ClientMemory] = {}
        self._holders: dict[str, set[ClientId]] = {}
        self._blanks: dict[tuple[Work, Task, Hashable], Params] = {}

    def set_data(self, data: FederatedData) -> None:
        """Reassign the examples among the clients, as after a shift."""
        assert data.x is self.data.x, "a shift reassigns examples; it does not change them"
        self.data = data
        self.data_version += 1

    def receive(self, request: Request) -> tuple[Sequence[ClientId], list[ClientId]]:
        """Store the cached values of a request; returns the clients that have all values, and those that miss one.

        Only which client has which value is stored, because simulated requests always contain the values themselves.
        """
        missing: set[ClientId] = set()
        for step in request.steps:
            for digest, attached in step.cached.values():
                holders = self._holders.setdefault(digest, set())
                holders.update(attached.intersection(request.clients))
                missing.update(client for client in request.clients if client not in holders)
        return [client for client in request.clients if client not in missing] if missing else request.clients, sorted(
            missing
        )

    def memories(self, request: Request, task: Task) -> Bank | None:
        """The memories of the clients of a request, in the versions that the request names; None if it uses none.

        A client that does not have the version, because it lost its storage, starts from a blank memory.
        """
        work = request.work
        if work.memory is None:
            return None
        assert work.blank is not None
        key = (work, task, setting.split_all(request.settings)[0])
        if key not in self._blanks:
            self._blanks[key] = tree.host(work.blank(task, **request.settings))
        return self._memory(request).bank(request.clients, request.versions, self._blanks[key])

    def residuals(self, request: Request) -> list[Params | None]:
        """What each client of a request has lost in compression so far; None: nothing, or it lost its storage."""
        return self._named(request)

    def _named(self, request: Request) -> list[Params | None]:
        """The version that a request names of the memory of each client; None if the client does not have it."""
        return self._memory(request).named(request.clients, request.versions)

    def _memory(self, request: Request) -> ClientMemory:
        """What clients store under the name that a request uses."""
        return self._memories.get(request.memory or "", ClientMemory())

    def remember(self, request: Request, memory: Bank | list[Params]) -> None:
        """Store the new memory of each client of a request: a bank, or a list with one memory per client.

        Earlier versions that later requests may name are kept: the last accepted one, the one before the round, and if
        `keeps_checkpoints` those in checkpoints of the server.
        """
        assert request.memory is not None
        if not request.writes_memory:
            return
        stored = self._memories.setdefault(request.memory, ClientMemory())
        wanted = [request.versions]
        if request.versions_before_round is not request.versions:
            wanted.append(request.versions_before_round)
        if self.keeps_checkpoints:
            named = request.versions_in_checkpoints.items()
            wanted += [{client: version} for client, versions in named for version in versions]
        stored.write(request.id, request.clients, memory, wanted)

    def lend(self, request: Request) -> dict[str, list[Params | None]]:
        """The memories that a request uses, in the versions that it names: name → memory of each of its clients."""
        return {step.memory: self._named(step) for step in request.steps if step.memory is not None}

    def borrow(self, clients: Sequence[ClientId], lent: Mapping[str, list[Params | None]]) -> None:
        """Replace all memories by those that another store has lent; their version is 0."""
        self._memories = {}
        for name, memories in lent.items():
            stored = self._memories[name] = ClientMemory()
            known = [place for place, own in enumerate(memories) if own is not None]
            stored.write(0, [clients[place] for place in known], [own for own in memories if own is not None])

    def written(self, request: Request) -> list[Params] | None:
        """The memory of each client that a request has written; None if it writes none."""
        if not request.writes_memory:
            return None
        new = dict.fromkeys(request.clients, request.id)
        return [own for own in self._memory(request).named(request.clients, new) if own is not None]

    def forget(self, client: ClientId) -> None:
        """Delete everything that a client stored, as after a disk failure."""
        for memories in self._memories.values():
            memories.remove(client)
        for holders in self._holders.values():
            holders.discard(client)

    def save(self) -> dict[str, Any]:
        """Memories and cached values as plain data, which is computed when it is encoded."""
        return {
            "memories": {name: Lazy(memories.copy().save) for name, memories in self._memories.items()},
            "holders": {key: Lazy(partial(sorted, set(clients))) for key, clients in self._holders.items()},
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self._memories = {name: ClientMemory.load(plain(memories)) for name, memories in saved["memories"].items()}
        self._holders = {key: set(plain(clients)) for key, clients in saved["holders"].items()}
