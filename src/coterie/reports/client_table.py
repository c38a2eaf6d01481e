"""One row per client: cluster, true cluster, samples, score, nearest other cluster, moves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.reports.score_curves import client_scores
from coterie.types import Array

if TYPE_CHECKING:
    from coterie.reports.view import RunView


@dataclass(frozen=True)
class ClientTable:
    """The clients of the last evaluation; entry i of each column belongs to client i.

    Attributes:
        name: Client id.
        cluster: Cluster; -1 for the fallback model.
        truth: True cluster after the last step; None if true clusters are not known.
        differs: Whether most clients of its cluster have another true cluster; None if not known.
        samples: Number of training examples at the start; None if it is not recorded.
        test_samples: Number of test examples, or the sum of their weights.
        score: Primary metric; NaN without test examples.
        loss: Mean test loss; NaN without test examples.
        nearest: Nearest other cluster by what the method clusters on; empty if it is not known.
        margin: How much better the own cluster is than that one; NaN if it is not known.
        moved: Number of changes of cluster.
        joined: Round of its first evaluation, for clients that were not in the first evaluation; 0 for the others.
        attacker: Whether it is malicious (simulated).
    """

    name: tuple[str, ...]
    cluster: Array
    truth: Array | None
    differs: Array | None
    samples: Array | None
    test_samples: Array
    score: Array
    loss: Array
    nearest: tuple[str, ...]
    margin: Array
    moved: Array
    joined: Array
    attacker: Array


def client_table(view: RunView) -> ClientTable:
    """The table of a run; empty if no step was evaluated."""
    results = view.last_evaluation
    if results is None:
        none = np.zeros(0)
        return ClientTable((), none, None, None, None, none, none, none, (), none, none, none, none)
    names = results.clients
    moves = Counter(each.client for each in view.movements.migrations)
    malicious = set(view.record.served.get("attackers") or ())
    nearest, margin = _decisions(view, names, results.cluster)
    true = view.true_clusters
    truth = np.array([true[name] for name in names], np.int64) if true and all(n in true for n in names) else None
    return ClientTable(
        name=names,
        cluster=results.cluster,
        truth=truth,
        differs=None if truth is None else differs(results.cluster, truth),
        samples=_samples(view, names),
        test_samples=results.total,
        score=client_scores(results, view.metric),
        loss=np.asarray(results.loss, np.float64),
        nearest=nearest,
        margin=margin,
        moved=np.array([moves[name] for name in names], np.int64),
        joined=_joined(view, names),
        attacker=np.array([name in malicious for name in names], bool),
    )


def differs(cluster: Array, truth: Array) -> Array:
    """Whether each client is in a cluster most of whose clients have another true cluster.

    This counts as `coterie.metrics.misclustering` does; a client without a cluster differs.
    """
    found = np.ones(len(cluster), bool)
    for each in np.unique(cluster[cluster >= 0]):
        mine = cluster == each
        values, counts = np.unique(truth[mine], return_counts=True)
        found[mine] = truth[mine] != values[counts.argmax()]
    return found


def _decisions(view: RunView, names: tuple[str, ...], cluster: Array) -> tuple[tuple[str, ...], Array]:
    """The nearest other cluster of each client, and by how much its own cluster is better."""
    nearest, margin = [], np.full(len(names), np.nan)
    for place, name in enumerate(names):
        reason = view.evidence.reasons.get(name)
        own = "its part" if reason is not None and "its part" in reason.values else str(int(cluster[place]))
        nearest.append("" if reason is None else reason.nearest_other(own) or "")
        value = None if reason is None else reason.margin(own)
        margin[place] = np.nan if value is None else value
    return tuple(nearest), margin


def _samples(view: RunView, names: tuple[str, ...]) -> Array | None:
    if view.facts is None:
        return None
    known = dict(zip(view.facts.clients, view.facts.samples.tolist(), strict=True))
    return np.array([known.get(name, 0) for name in names], np.int64)


def _joined(view: RunView, names: tuple[str, ...]) -> Array:
    first: dict[str, int] = {}
    for t, results in view.evaluations.items():
        for client in results.clients:
            first.setdefault(client, t)
    start = min(first.values(), default=0)
    found = np.array([first.get(name, 0) for name in names], np.int64)
    return np.where(found > start, found, 0)
