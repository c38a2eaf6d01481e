"""CFL's tree of clusters: inner nodes are clusters that were split, leaves are the current clusters.

A split stores what newcomers need to descend: the model that the updates started from, the updates, and the part that
each of these clients went to. It is decided by the updates of the members that replied in that round. The other members
stay at the split, and descend like newcomers when they reply again: before they train, or when they are served.

    descend:  at each split, compute Δ from its model and follow the client with the most similar update
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clustering import cosine
from coterie.codec import state
from coterie.models import trainable
from coterie.types import Array, Bank, ClientId, Params

#: The node of clients that were never asked.
ROOT = 0


@state
@dataclass(frozen=True)
class Split:
    """A cluster that was split.

    Attributes:
        parts: The nodes of its two parts.
        model: The model that the updates started from.
        updates: The updates that decided the split, one client per row.
        sides: The part of each of these clients, 0 or 1.
        t: Round of the split.
    """

    parts: tuple[int, int]
    model: Params
    updates: Array
    sides: Array
    t: int

    def sides_of(self, updates: Bank) -> list[int]:
        """For each of these updates, the part of the client with the most similar update; ties go to the first part."""
        both = np.concatenate([self.updates, tree.flatten_rows(trainable(updates))])
        similarities = cosine(both)[len(self.updates) :, : len(self.updates)]  # (newcomers, clients of the split)
        first, second = (similarities[:, self.sides == side].max(axis=1) for side in (0, 1))
        sides: list[int] = (second > first).astype(int).tolist()
        return sides


@state
@dataclass(frozen=True)
class LastUpdate:
    """A client's last update.

    Attributes:
        node: The node whose model the update started from.
        t: Round of the update.
        update: Δ_i.
        samples: Number of examples.
    """

    node: int
    t: int
    update: Array
    samples: int


@state
@dataclass(frozen=True)
class State:
    """State of a CFL run.

    Attributes:
        bank: The clusters' models.
        rows: Node → row of its model; the first part of a split takes over the row.
        splits: Node → its split; the other nodes are the clusters.
        nodes: Client → node, for the clients that have ever replied.
        largest: The largest norm of a mean update so far.
        updates: With cohorts: the last update of each client.
        refused: Cluster → the last round in which halves of its clients' examples disagreed about a split.
    """

    bank: Bank
    rows: tuple[int, ...] = (0,)
    splits: Mapping[int, Split] = field(default_factory=dict)
    nodes: ClientMap[int] = field(default_factory=ClientMap)
    largest: float = 0.0
    updates: ClientMap[LastUpdate] = field(default_factory=ClientMap)
    refused: Mapping[int, int] = field(default_factory=dict)

    def clusters(self, clients: Iterable[ClientId]) -> dict[ClientId, int]:
        """Client → node, for the clients that are not at a split."""
        nodes = {client: self.nodes.get(client, ROOT) for client in clients}
        return {client: node for client, node in nodes.items() if node not in self.splits}

    def assignment(self, clients: Iterable[ClientId]) -> dict[ClientId, int]:
        """Client → row of its cluster's model, for the clients that are not at a split."""
        return {client: self.rows[node] for client, node in self.clusters(clients).items()}

    def with_split(self, node: int, model: Params, basis: Mapping[ClientId, LastUpdate], sides: Array, t: int) -> State:
        """The tree after this cluster is split: the first part takes over its row, the second gets a new one.

        Args:
            node: The cluster.
            model: The model that the updates started from.
            basis: The updates that decided the split.
            sides: The part of each of their clients, 0 or 1.
            t: The round.
        """
        row, parts = self.rows[node], (len(self.rows), len(self.rows) + 1)
        split = Split(parts, model, np.stack([last.update for last in basis.values()]), sides, t)
        return dataclasses.replace(
            self,
            bank=tree.concatenate([self.bank, tree.take(self.bank, [row])]),
            rows=(*self.rows, row, tree.rows(self.bank)),
            splits={**self.splits, node: split},
            nodes=self.nodes.set({client: parts[side] for client, side in zip(basis, sides.tolist(), strict=True)}),
        )
