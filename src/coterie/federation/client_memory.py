"""`ClientMemory`: the memories of all clients under one name, by version, as banks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie import tree
from coterie.types import Array, Bank, ClientId, Params

#: Version of a client that has no memory.
NO_VERSION = -1


@dataclass(frozen=True)
class _Table:
    """Memories of one version.

    Attributes:
        place: Client → row of its memory in the bank. Rows of other clients are not used any more.
        bank: The memories.
    """

    place: Mapping[ClientId, int]
    bank: Bank

    def without(self, clients: Collection[ClientId]) -> _Table | None:
        """The memories of the other clients; None if there are none."""
        place = {client: row for client, row in self.place.items() if client not in clients}
        if not place:
            return None
        if 2 * len(place) > tree.rows(self.bank):
            return _Table(place, self.bank)
        # A few clients must not keep the memories of all others.
        return _Table(dict(zip(place, range(len(place)), strict=True)), tree.take(self.bank, list(place.values())))


class ClientMemory:
    """Memories of clients under one name. Those that were written together stay together, as rows of one bank.

    Tables are never changed, only replaced, so that copies are cheap.
    """

    def __init__(self, tables: Mapping[int, tuple[_Table, ...]] | None = None) -> None:
        """Start with these tables of each version."""
        self._tables: dict[int, tuple[_Table, ...]] = dict(tables or {})

    def copy(self) -> ClientMemory:
        """A copy that later writes do not change."""
        return ClientMemory(self._tables)

    def write(
        self,
        version: int,
        clients: Sequence[ClientId],
        memory: Bank | Sequence[Params],
        wanted: Sequence[Mapping[ClientId, int]] = (),
    ) -> None:
        """Store a new version of the memory of some clients.

        Args:
            version: The new version.
            clients: The clients.
            memory: Their memories: a bank, or one for each client.
            wanted: Client → an earlier version that is kept; all other versions of these clients are removed.
        """
        asked = set(clients)
        for earlier in list(self._tables):
            keep = [{client for client, kept in each.items() if kept == earlier} for each in wanted]
            self._remove(earlier, asked.difference(*keep) if earlier != version else asked)
        self._add(version, _tables(clients, memory))

    def add(self, version: int, client: ClientId, memory: Params) -> None:
        """Store one memory that was read from a file."""
        self._add(version, _tables([client], [memory]))

    def _add(self, version: int, tables: Iterable[_Table]) -> None:
        self._tables[version] = (*self._tables.get(version, ()), *tables)

    def remove(self, client: ClientId) -> None:
        """Remove all versions of one client."""
        for version in list(self._tables):
            self._remove(version, {client})

    def _remove(self, version: int, clients: set[ClientId]) -> None:
        tables = [
            table if table.place.keys().isdisjoint(clients) else table.without(clients)
            for table in self._tables[version]
        ]
        kept = tuple(table for table in tables if table is not None)
        if kept:
            self._tables[version] = kept
        else:
            del self._tables[version]

    def versions_of(self, client: ClientId) -> dict[int, Params]:
        """Version → memory of one client."""
        return {
            version: tree.unstack(tree.take(table.bank, [table.place[client]]))[0]
            for version, tables in self._tables.items()
            for table in tables
            if client in table.place
        }

    def named(self, clients: Sequence[ClientId], versions: Mapping[ClientId, int]) -> list[Params | None]:
        """The memory of each client in the version of that client; None if it does not have it."""
        found: list[Params | None] = [None] * len(clients)
        for positions, table, rows in self._located(clients, versions):
            for position, own in zip(positions, tree.unstack(tree.take(table.bank, rows)), strict=True):
                found[position] = own
        return found

    def bank(self, clients: Sequence[ClientId], versions: Mapping[ClientId, int], blank: Params) -> Bank:
        """The same as one bank, with those entries that a blank memory has, and the latter where there is none."""
        pieces: list[Bank] = []
        order: list[int] = []
        for positions, table, rows in self._located(clients, versions):
            pieces.append(tree.take({name: table.bank[name] for name in blank}, rows))
            order += positions
        if len(order) < len(clients):
            found = set(order)
            missing = [position for position in range(len(clients)) if position not in found]
            pieces.append(tree.map(lambda leaf: np.broadcast_to(leaf, (len(missing), *leaf.shape)), blank))
            order += missing
        joined = tree.concatenate(pieces)
        return joined if len(pieces) == 1 else tree.take(joined, np.argsort(order))

    def _located(
        self, clients: Sequence[ClientId], versions: Mapping[ClientId, int]
    ) -> Iterator[tuple[list[int], _Table, list[int]]]:
        """Where the memories are: positions among the clients, the table, and the rows in it."""
        of_version: dict[int, list[int]] = {}
        if len(versions) == len(clients) and len(set(versions.values())) == 1:  # the same request wrote all of them
            of_version[next(iter(versions.values()))] = list(range(len(clients)))
        else:
            for position, client in enumerate(clients):
                of_version.setdefault(versions.get(client, NO_VERSION), []).append(position)
        for version, positions in of_version.items():
            for table in self._tables.get(version, ()):
                here = [position for position in positions if clients[position] in table.place]
                if here:
                    yield here, table, [table.place[clients[position]] for position in here]

    def save(self) -> list[dict[str, Any]]:
        """All memories as plain data: one bank for all of the same structure, sorted by client and version."""
        alike: dict[Any, list[tuple[int, _Table]]] = {}
        for version, tables in self._tables.items():
            for table in tables:
                alike.setdefault(_structure(table.bank), []).append((version, table))
        saved = []
        for _, entries in sorted(alike.items(), key=lambda item: item[0]):
            labels = [(client, version) for version, table in entries for client in table.place]
            order = sorted(range(len(labels)), key=labels.__getitem__)
            bank = tree.concatenate([tree.take(table.bank, list(table.place.values())) for _, table in entries])
            saved.append(
                {
                    "clients": [labels[i][0] for i in order],
                    "versions": np.array([labels[i][1] for i in order]),
                    "memories": tree.take(bank, order),
                }
            )
        return saved

    @classmethod
    def load(cls, saved: Sequence[Mapping[str, Any]] | Mapping[ClientId, Mapping[int, Params]]) -> ClientMemory:
        """Restore what `save` returned; also reads checkpoints of earlier versions: client → version → memory."""
        memory = cls()
        if isinstance(saved, Mapping):
            for client, versions in saved.items():
                for version, own in versions.items():
                    memory.add(version, client, own)
            return memory
        for entry in saved:
            clients, stored = entry["clients"], np.asarray(entry["versions"])
            for version in np.unique(stored).tolist():
                rows = np.flatnonzero(stored == version)
                own = tree.take(entry["memories"], rows)
                memory._add(version, _tables([clients[row] for row in rows], own))
        return memory


def _tables(clients: Sequence[ClientId], memory: Bank | Sequence[Params]) -> list[_Table]:
    """Tables with the memories of some clients: one for all of the same structure."""
    if isinstance(memory, Mapping):
        return [_Table(dict(zip(clients, range(len(clients)), strict=True)), tree.map(_own, memory))]
    alike: dict[Hashable, list[int]] = {}
    for position, own in enumerate(memory):
        alike.setdefault(_structure(tree.map(lambda leaf: np.asarray(leaf)[None], own)), []).append(position)
    return [
        _Table(
            {clients[position]: row for row, position in enumerate(positions)},
            tree.stack([memory[position] for position in positions]),
        )
        for positions in alike.values()
    ]


def _own(array: Array) -> Array:
    """The array, or a copy if it is a part of a larger one, which it would keep in memory."""
    return array if array.base is None else array.copy()


def _structure(bank: Any) -> Any:
    """Names, dtypes and shapes of the memories in a bank, as tuples that can be compared and sorted."""
    if isinstance(bank, dict):
        return tuple([(name, _structure(bank[name])) for name in sorted(bank)])
    return bank.dtype.str, bank.shape[1:]
