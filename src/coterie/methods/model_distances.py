"""Distances between the models of clients and clusters, as SR-FCA compares them: l2, or the cross loss.

    client i, client j      ‖w_i - w_j‖₂      or   ½ (f_i(w_j) + f_j(w_i))
    client j, cluster c     ‖w_j - ω_c‖₂      or   ½ (f_c(w_j) + f_j(ω_c))
    cluster c, cluster c'   ‖ω_c - ω_c'‖₂     or   ½ (f_c(ω_c') + f_c'(ω_c))

w_i is the model that client i trained alone, ω_c is row c of `bank`, f_i the mean training loss of client i, f_c the
mean of f_i over the members of c. The cross loss is in clustering/cross_loss.py; running statistics of a model are not
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie import tree
from coterie.clustering import cross, l2, losses_by_cluster
from coterie.codec import state
from coterie.models import trainable
from coterie.types import Array, Bank, ClientId

#: The cross loss, or the l2 distance.
Distance = Literal["cross", "l2"]


@state
@dataclass(frozen=True)
class LocalModels:
    """Models that clients trained alone from w_0, and the cross losses known of them.

    Attributes:
        clients: The clients.
        models: w_i, one row per client; empty once they are no longer needed.
        losses: With cross losses: f_i(w_j), one row per client i and one column per model j.
        known: Mask of the losses that are known.
    """

    clients: tuple[ClientId, ...]
    models: Bank
    losses: Array
    known: Array

    @property
    def table(self) -> Array:
        """The losses, NaN where unknown."""
        return np.where(self.known, self.losses, np.nan)

    def added(
        self,
        distance: Distance,
        clients: Sequence[ClientId],
        models: Bank,
        by: Sequence[ClientId] = (),
        losses: Array | None = None,
    ) -> LocalModels:
        """With the models of clients that trained later.

        Args:
            distance: The distance.
            clients: The clients that trained.
            models: Their models.
            by: With cross losses: the clients that computed the losses of these models.
            losses: Their losses, one row per client of `by`.
        """
        everyone, old = (*self.clients, *clients), len(self.clients)
        # Models are dropped once they are no longer needed; then later ones are not kept, either.
        kept = tree.concatenate([self.models, models]) if self.models else {} if old else models
        if distance == "l2":
            return LocalModels(everyone, kept, self.losses, self.known)
        table, known = np.zeros((len(everyone),) * 2, np.float32), np.zeros((len(everyone),) * 2, bool)
        table[:old, :old], known[:old, :old] = self.losses, self.known
        if losses is not None:
            rows = positions(everyone, by)
            table[rows, old:], known[rows, old:] = losses, True
        return LocalModels(everyone, kept, table, known)


NO_MODELS = LocalModels((), {}, np.zeros((0, 0), np.float32), np.zeros((0, 0), bool))


def between_clients(distance: Distance, trained: LocalModels) -> Array:
    """The distances between all pairs of clients."""
    if distance == "l2":
        return l2(tree.flatten_rows(trainable(trained.models)))
    return cross(trained.table, trained.table)


def clients_to_clusters(
    distance: Distance, bank: Bank, models: Bank, losses: Array, labels: Array, cluster_losses: Array
) -> Array:
    """The distances of clients to clusters, (clients, clusters).

    The two halves of the cross loss ½ (f_c(w_j) + f_j(ω_c)) differ in size: the model w_j of a single client does worse
    on the examples of others than the model ω_c of a cluster does on the client's. Therefore, if some f_c(w_j) are
    unknown for a client j, all clusters are compared by f_j(ω_c) alone; if those are unknown too, by the f_c(w_j) that
    are known.

    Args:
        distance: The distance.
        bank: The clusters' models.
        models: With l2: the clients' models.
        losses: With cross losses: f_i(w_j) of cluster members i and these clients j; NaN where unknown.
        labels: With cross losses: the cluster of each member i, -1 for none.
        cluster_losses: With cross losses: f_j(ω_c), (clients, clusters); NaN where unknown.
    """
    if distance == "l2":
        return l2_to(trainable(models), trainable(bank))
    by_members = losses_by_cluster(losses, labels, tree.rows(bank))  # f_c(w_j), (clusters, clients)
    own_only = np.isnan(by_members).any(axis=0) & ~np.isnan(cluster_losses).any(axis=1)
    return cross(cluster_losses, np.where(own_only, np.nan, by_members))


def between_clusters(distance: Distance, bank: Bank, labels: Array, cluster_losses: Array) -> Array:
    """The distances between all pairs of clusters.

    Args:
        distance: The distance.
        bank: The clusters' models.
        labels: With cross losses: the cluster of each client.
        cluster_losses: With cross losses: f_j(ω_c), (clients, clusters); NaN where unknown.
    """
    if distance == "l2":
        return l2(tree.flatten_rows(trainable(bank)))
    losses = losses_by_cluster(cluster_losses, labels, tree.rows(bank))
    return cross(losses, losses)


def l2_to(models: Bank, centers: Bank) -> Array:
    """The l2 distance of each model to each center, (models, centers)."""
    # One center at a time: all at once would take models × centers × parameters.
    return np.stack([tree.row_distances(models, tree.take(centers, [c])) for c in range(tree.rows(centers))], axis=1)


def positions(clients: Sequence[ClientId], chosen: Sequence[ClientId]) -> list[int]:
    """The positions of the chosen clients among all of them."""
    position = {client: i for i, client in enumerate(clients)}
    return [position[client] for client in chosen]
