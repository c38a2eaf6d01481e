"""REFINE of SR-FCA: RECLUSTER and MERGE, and how a client that comes later joins a cluster.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538:

    RECLUSTER   C'(i) = argmin_c dist(ω_c, w_i)                   every client i, after TrimmedMeanGD
    MERGE       an edge between c and c' where dist(ω_c, ω_c') ≤ λ; components become one cluster, with the mean ω
    join        C(i) = argmin_c dist(ω_c, w_i)                    a newcomer i, after training alone from w_0

ω_c is row c of `bank`, w_i the model that client i trained alone, λ `threshold`; methods/srfca.py lists the departures
from the paper. With cross losses, client i computes f_i(ω_c), and the members of cluster c compute f_c(w_i).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from coterie import tree
from coterie.aggregation import weighted_mean
from coterie.clients import fit, losses_of
from coterie.clustering import merge, nearest
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.cluster_training import Clients, subset
from coterie.methods.model_distances import LocalModels, between_clusters, clients_to_clusters, positions
from coterie.methods.one_shot import OneShot
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


class Refined(NamedTuple):
    """Clusters after RECLUSTER and MERGE.

    Attributes:
        bank: The merged models.
        assignment: Client → cluster.
        evidence: The values behind the decisions, for the record.
        counts: Clients moved, clusters dissolved and merged.
    """

    bank: Bank
    assignment: dict[ClientId, int]
    evidence: dict[str, object]
    counts: dict[str, int]


def recluster_and_merge(
    settings: OneShot,
    bank: Bank,
    assignment: Mapping[ClientId, int],
    trained: LocalModels,
    losses: Array,
    threshold: float,
    *,
    weighted: bool,
) -> Refined:
    """Move every client to the nearest cluster, then merge clusters that are close.

    Args:
        settings: The distance and t.
        bank: ω_c.
        assignment: The clusters before; clients without a cluster are missing.
        trained: w_i, and the losses f_i(w_j).
        losses: With cross losses: f_i(ω_c), (clients, clusters), NaN where unknown.
        threshold: λ.
        weighted: Whether merged models are weighted by the number of clients in their clusters.
    """
    before = np.array([assignment.get(client, -1) for client in trained.clients])
    # RECLUSTER
    distances = clients_to_clusters(settings.distance, bank, trained.models, trained.table, before, losses)
    labels = nearest(distances, settings.min_size)
    # MERGE
    between = between_clusters(settings.distance, bank, labels, losses)
    merged, parts = merge(labels, between, threshold)
    sizes = np.bincount(labels, minlength=len(between)) if weighted else np.ones(len(between))
    models = tree.stack(weighted_mean(tree.take(bank, part), sizes[part]) for part in parts)

    row = dict(zip(trained.clients, merged.tolist(), strict=True))
    left = sum(map(len, parts))
    counts = {
        "clients_moved": int((labels != before).sum()),
        "clusters_dissolved": len(between) - left,
        "clusters_merged": left - len(parts),
    }
    evidence = {"clients": list(row), "labels": merged, "distances": distances, "clusters": between, "merged": parts}
    return Refined(models, row, evidence, counts)


def losses_of_clusters(
    settings: OneShot, bank: Bank, trained: LocalModels, fed: Federation, cohort: Cohort, seed: Seed
) -> Array:
    """f_i(ω_c) of the clients that trained alone, (clients, clusters); NaN if a client does not reply, or with l2."""
    losses = np.full((len(trained.clients), tree.rows(bank)), np.nan)
    if settings.distance == "cross":
        got = fed.ask(cohort.of(set(trained.clients).intersection(cohort)), losses_of, seed, centers=bank)
        losses[positions(trained.clients, got.clients)] = got["losses"]
    return losses


def join(
    settings: OneShot,
    w0: Params,
    bank: Bank,
    assignment: Mapping[ClientId, int],
    trained: LocalModels,
    fed: Federation,
    newcomers: Clients,
    seed: Seed,
) -> tuple[dict[ClientId, int], LocalModels, dict[str, object]]:
    """The nearest cluster of each newcomer that replies; the models with theirs, which they train only once; distances.

    Args:
        settings: The distance and the training alone.
        w0: The common initial model.
        bank: ω_c.
        assignment: Client → cluster.
        trained: The models that clients have trained alone so far.
        fed: The federation.
        newcomers: Clients without a cluster; they train alone as in ONE_SHOT. With cross losses, the members of the
            clusters, those available in a round, are asked for f_j(w_i).
        seed: Seed of the training.
    """
    got = fed.ask(newcomers, fit, seed, start=w0, local=settings.init_training, min_replies=0)
    if not len(got):
        return {}, trained, {}
    by_members, labels = np.zeros((0, len(got))), np.zeros(0, np.int64)  # f_j(w_i), C(j)
    own = np.full((len(got), tree.rows(bank)), np.nan)  # f_i(ω_c)
    scorers: tuple[ClientId, ...] = ()
    if settings.distance == "cross":
        reachable = set(newcomers.available) if isinstance(newcomers, Cohort) else assignment
        members = subset(newcomers, [client for client in assignment if client in reachable])
        scored = fed.ask(members, losses_of, seed.fold("others"), centers=got["params"], min_replies=0)
        scorers, by_members = scored.clients, scored["losses"].reshape(-1, len(got))
        labels = np.array([assignment[client] for client in scored.clients], int)
        replied = fed.ask(subset(newcomers, got.clients), losses_of, seed.fold("own"), centers=bank, min_replies=0)
        own[positions(got.clients, replied.clients)] = replied["losses"].reshape(-1, own.shape[1])
        if not len(scored) and not len(replied):
            return {}, trained, {}
    # Members without a model of their own are not part of the table.
    rows = [i for i, client in enumerate(scorers) if client in set(trained.clients)]
    by = [scorers[i] for i in rows]
    trained = trained.added(settings.distance, got.clients, got["params"], by, by_members[rows])
    distances = clients_to_clusters(settings.distance, bank, got["params"], by_members, labels, own)
    row = dict(zip(got.clients, nearest(distances).tolist(), strict=True))
    return row, trained, {"clients": list(got.clients), "distances": distances}
