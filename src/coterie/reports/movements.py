"""Moves between clusters: the clusters of clients over rounds, and each change of a client's cluster.

Columns of the diagram are evaluations, in which every client has a cluster. Migrations come from the lines of the
record, round by round, as in `coterie.drift`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.runs.client_results import ClientResults
from coterie.runs.record import JsonObject
from coterie.types import Array

#: Columns of the diagram.
MAX_STEPS = 12

#: Cluster of a client that is served the fallback model, and of one that has not joined yet.
UNASSIGNED, ABSENT = -1, -2


@dataclass(frozen=True)
class Migration:
    """A change of the cluster of one client.

    Attributes:
        round: Round, from 1; 0 in a preparation step before the first round.
        client: Client id.
        before: Its cluster before.
        after: Its cluster after.
        shifted: Whether its data had changed since its last migration (simulated drift).
        flagged: Whether the method flagged it as drifted in this round.
        correct: Whether most other clients of its true cluster are in the new cluster; None if that is not known.
    """

    round: int
    client: str
    before: int
    after: int
    shifted: bool
    flagged: bool
    correct: bool | None


@dataclass(frozen=True)
class Link:
    """Clients that go from one cluster to another between two columns.

    Attributes:
        step: Position of the column in which they start.
        before: Cluster there.
        after: Cluster in the next column.
        clients: Their number.
        drifted: Number of them whose data changed in between.
        flagged: Number of them that the method flagged as drifted in between.
    """

    step: int
    before: int
    after: int
    clients: int
    drifted: int = 0
    flagged: int = 0


@dataclass(frozen=True)
class Movements:
    """The clusters of clients over rounds.

    Attributes:
        round: Evaluated rounds, from 1.
        clients: Client ids.
        cluster: (rounds, clients); `UNASSIGNED`: fallback model; `ABSENT`: not evaluated.
        changes: Number of clients that changed their cluster before each evaluated round, since the one before.
        shown: Positions in `round` of the columns of the diagram.
        links: Links between these columns.
        migrations: Every change of a cluster.
        shifts: Round → number of clients whose data changed before it.
        flags: Round → number of clients that the method flagged.
    """

    round: Array
    clients: tuple[str, ...]
    cluster: Array
    changes: Array
    shown: tuple[int, ...]
    links: tuple[Link, ...]
    migrations: tuple[Migration, ...]
    shifts: Mapping[int, int]
    flags: Mapping[int, int]


def movements_of(
    rows: Sequence[JsonObject], evaluations: Mapping[int, ClientResults], truth: Mapping[str, int]
) -> Movements:
    """The movements of a run.

    Args:
        rows: The lines of the record.
        evaluations: Round, from 1 → results of each client.
        truth: Client → true cluster before the first round; empty if not known.
    """
    rounds = list(evaluations)
    clients = tuple(dict.fromkeys(client for each in evaluations.values() for client in each.clients))
    table = _table(evaluations, clients)
    both = (table[1:] >= 0) & (table[:-1] >= 0)
    changes = np.concatenate([[0], ((table[1:] != table[:-1]) & both).sum(axis=1)])[: len(rounds)]
    shown = _shown(changes)
    shifted, flagged = (_events(rows, key, clients) for key in ("shifted", "flagged"))
    return Movements(
        round=np.array(rounds, np.int64),
        clients=clients,
        cluster=table,
        changes=changes.astype(np.int64),
        shown=shown,
        links=_links(table, shown, rounds, shifted, flagged),
        migrations=_migrations(rows, truth),
        shifts={t: len(places) for t, places in shifted.items() if places},
        flags={t: len(places) for t, places in flagged.items() if places},
    )


def _table(evaluations: Mapping[int, ClientResults], clients: tuple[str, ...]) -> Array:
    """(rounds, clients) the cluster of each client in each evaluation."""
    table = np.full((len(evaluations), len(clients)), ABSENT, np.int64)
    position = {client: place for place, client in enumerate(clients)}
    for line, results in zip(table, evaluations.values(), strict=True):
        if results.clients == clients:
            line[:] = results.cluster
        else:
            line[[position[client] for client in results.clients]] = results.cluster
    return table


def _shown(changes: Array) -> tuple[int, ...]:
    """The columns: the first, the last, and between them those before which most clients moved."""
    if len(changes) <= MAX_STEPS and (changes[1:-1] > 0).all():
        return tuple(range(len(changes)))
    last = len(changes) - 1
    moved = [place for place in range(1, last) if changes[place]]
    most = sorted(moved, key=lambda place: (-int(changes[place]), place))[: MAX_STEPS - 2]
    return tuple(sorted({0, *most, last}))


def _events(rows: Sequence[JsonObject], key: str, clients: tuple[str, ...]) -> dict[int, set[int]]:
    """Round → positions of the clients in a list of each line."""
    position = {client: place for place, client in enumerate(clients)}
    found: defaultdict[int, set[int]] = defaultdict(set)
    for row in rows:
        found[row["t"] + 1] |= {position[client] for client in row.get(key) or () if client in position}
    return dict(found)


def _links(
    table: Array,
    shown: Sequence[int],
    rounds: Sequence[int],
    shifted: Mapping[int, set[int]],
    flagged: Mapping[int, set[int]],
) -> tuple[Link, ...]:
    links = []
    for step, (start, end) in enumerate(itertools.pairwise(shown)):
        between = range(rounds[start] + 1, rounds[end] + 1)
        marks = [_marked(events, between, table.shape[1]) for events in (shifted, flagged)]
        pairs = np.stack([table[start], table[end]], axis=1)
        found, which = np.unique(pairs, axis=0, return_inverse=True)
        which = which.reshape(-1)
        counts = [np.bincount(which, weights=each, minlength=len(found)) for each in (np.ones(len(pairs)), *marks)]
        for place, (before, after) in enumerate(found.tolist()):
            if (before, after) != (ABSENT, ABSENT):
                links.append(Link(step, before, after, *(int(each[place]) for each in counts)))
    return tuple(links)


def _marked(events: Mapping[int, set[int]], between: range, clients: int) -> Array:
    marked = np.zeros(clients)
    marked[sorted({place for t in between for place in events.get(t, ())})] = 1
    return marked


def _migrations(rows: Sequence[JsonObject], truth: Mapping[str, int]) -> tuple[Migration, ...]:
    true, found = dict(truth), dict[str, int]()
    members: defaultdict[int, Counter[int]] = defaultdict(Counter)  # true cluster → found cluster → clients
    pending: set[str] = set()
    migrations = []
    for row in rows:
        pending |= set(row.get("shifted") or ())
        changed: Mapping[str, int] = (row.get("true_clusters") or {}) if truth else {}
        for client, cluster in changed.items():
            if client in found and client in true:
                members[true[client]][found[client]] -= 1
                members[cluster][found[client]] += 1
            true[client] = cluster
        assigned: Mapping[str, int] = row.get("assignment") or {}
        moved = {client: found[client] for client, new in assigned.items() if found.get(client, new) != new}
        for client, new in assigned.items():
            if client in true:
                if client in found:
                    members[true[client]][found[client]] -= 1
                members[true[client]][new] += 1
            found[client] = new
        flags = set(row.get("flagged") or ())
        for client, before in moved.items():  # after all clients are in their new clusters
            correct = _correct(members[true[client]], found[client]) if client in true else None
            shifted = client in pending
            pending.discard(client)
            migrations.append(Migration(row["t"] + 1, client, before, found[client], shifted, client in flags, correct))
    return tuple(migrations)


def _correct(members: Counter[int], new: int) -> bool | None:
    """Whether most other clients of the true cluster are in the new cluster; None without others."""
    others = members - Counter([new])
    return others[new] == max(others.values()) if others else None
