"""`ClientStore`: the examples, memories (by version) and cached values of simulated clients."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from coterie import tree
from coterie.clients import traced_settings as setting
from coterie.clients.work import Work
from coterie.codec import Lazy, plain
from coterie.data.federated import FederatedData
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
        self._memories: dict[str, dict[ClientId, dict[int, Params]]] = {}
        self._holders: dict[str, set[ClientId]] = {}
        self._blanks: dict[tuple[Work, Task, Hashable], Params] = {}

    def set_data(self, data: FederatedData) -> None:
        """Reassign the examples among the clients, as after a shift."""
        assert data.x is self.data.x, "a shift reassigns examples; it does not change them"
        self.data = data
        self.data_version += 1

    def receive(self, request: Request) -> tuple[list[ClientId], list[ClientId]]:
        """Store the cached values of a request; returns the clients that have all values, and those that miss one.

        Only which client has which value is stored, because simulated requests always contain the values themselves.
        """
        missing: set[ClientId] = set()
        for step in request.steps:
            for digest, attached in step.cached.values():
                holders = self._holders.setdefault(digest, set())
                holders.update(attached.intersection(request.clients))
                missing.update(client for client in request.clients if client not in holders)
        return [client for client in request.clients if client not in missing], sorted(missing)

    def memories(self, request: Request, task: Task) -> list[Params] | None:
        """The memory of each client of a request, in the version that the request names; None if it uses none."""
        work = request.work
        if work.memory is None:
            return None
        assert work.blank is not None
        key = (work, task, setting.split_all(request.settings)[0])
        if key not in self._blanks:
            self._blanks[key] = tree.host(work.blank(task, **request.settings))
        blank = self._blanks[key]
        # A client that does not have the version, because it lost its storage, starts from a blank memory.
        names = blank.keys()
        return [
            memory if memory and memory.keys() == names else {name: (memory or blank)[name] for name in names}
            for memory in self._named(request)
        ]

    def residuals(self, request: Request) -> list[Params | None]:
        """What each client of a request has lost in compression so far; None: nothing, or it lost its storage."""
        return self._named(request)

    def _named(self, request: Request) -> list[Params | None]:
        """The version that a request names of the memory of each client; None if the client does not have it."""
        stored, versions = self._memories.get(request.memory or "", {}), request.versions
        return [stored.get(client, {}).get(versions.get(client, -1)) for client in request.clients]

    def remember(self, request: Request, memory: Bank | list[Params]) -> None:
        """Store the new memory of each client of a request: a bank, or a list with one memory per client.

        Earlier versions that later requests may name are kept: the last accepted one, the one before the round, and if
        `keeps_checkpoints` those in checkpoints of the server.
        """
        assert request.memory is not None
        if not request.writes_memory:
            return
        stored = self._memories.setdefault(request.memory, {})
        memories = memory if isinstance(memory, list) else tree.unstack(memory)
        for client, own in zip(request.clients, memories, strict=True):
            before, versions = stored.get(client, {}), {}  # a new dict: snapshots share the old one
            for version in self._wanted(request, client):
                if version in before:
                    versions[version] = before[version]
            versions[request.id] = own
            stored[client] = versions

    def _wanted(self, request: Request, client: ClientId) -> tuple[int, ...]:
        """The versions of a memory that a client keeps besides the new one; -1 stands for none."""
        last = request.versions.get(client, -1), request.versions_before_round.get(client, -1)
        return (*last, *request.versions_in_checkpoints.get(client, ())) if self.keeps_checkpoints else last

    def lend(self, request: Request) -> dict[str, list[Params | None]]:
        """The memories that a request uses, in the versions that it names: name → memory of each of its clients."""
        return {step.memory: self._named(step) for step in request.steps if step.memory is not None}

    def borrow(self, clients: Sequence[ClientId], lent: Mapping[str, list[Params | None]]) -> None:
        """Replace all memories by those that another store has lent; their version is 0."""
        self._memories = {
            name: {client: {0: own} for client, own in zip(clients, memories, strict=True) if own is not None}
            for name, memories in lent.items()
        }

    def written(self, request: Request) -> list[Params] | None:
        """The memory of each client that a request has written; None if it writes none."""
        if not request.writes_memory:
            return None
        assert request.memory is not None
        stored = self._memories[request.memory]
        return [stored[client][request.id] for client in request.clients]

    def forget(self, client: ClientId) -> None:
        """Delete everything that a client stored, as after a disk failure."""
        for memories in self._memories.values():
            memories.pop(client, None)
        for holders in self._holders.values():
            holders.discard(client)

    def save(self) -> dict[str, Any]:
        """Memories and cached values as plain data, which is computed when it is encoded."""
        return {
            "memories": {name: Lazy(partial(_stacked, dict(clients))) for name, clients in self._memories.items()},
            "holders": {key: Lazy(partial(sorted, set(clients))) for key, clients in self._holders.items()},
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self._memories = {name: _unstacked(plain(memories)) for name, memories in saved["memories"].items()}
        self._holders = {key: set(plain(clients)) for key, clients in saved["holders"].items()}


def _stacked(memories: Mapping[ClientId, Mapping[int, Params]]) -> list[dict[str, Any]]:
    """Memories as banks, each with its clients and versions: one bank for all memories of the same structure."""
    alike: dict[Hashable, list[tuple[ClientId, int, Params]]] = {}
    for client in sorted(memories):
        for version, memory in sorted(memories[client].items()):
            alike.setdefault(_structure(memory), []).append((client, version, memory))
    tables = []
    for _, entries in sorted(alike.items()):
        clients, versions, own = zip(*entries, strict=True)
        tables.append({"clients": list(clients), "versions": np.array(versions), "memories": tree.stack(own)})
    return tables


def _structure(memory: Any) -> Any:
    """Names, shapes and dtypes of the arrays of a memory, as tuples that can be compared and sorted."""
    if isinstance(memory, dict):
        return tuple([(key, _structure(memory[key])) for key in sorted(memory)])
    return memory.dtype.str, memory.shape


def _unstacked(saved: list[dict[str, Any]] | Mapping[ClientId, Any]) -> dict[ClientId, dict[int, Params]]:
    """The inverse of `_stacked`; also reads checkpoints of earlier versions: client → version → memory."""
    if isinstance(saved, Mapping):
        return {client: dict(versions) for client, versions in saved.items()}
    memories: dict[ClientId, dict[int, Params]] = {}
    for table in saved:
        rows = zip(table["clients"], table["versions"].tolist(), tree.unstack(table["memories"]), strict=True)
        for client, version, memory in rows:
            memories.setdefault(client, {})[version] = memory
    return memories
