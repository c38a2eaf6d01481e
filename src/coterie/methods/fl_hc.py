"""FL+HC: some rounds of FedAvg, then one hierarchical clustering of all clients' updates, then FedAvg in each cluster.

Briggs, Fan, Andras, "Federated learning with hierarchical clustering of local updates to improve training on non-IID
data", IJCNN 2020, arXiv:2004.11791:

    w ← FedAvg                                                  rounds 1 to n of T, with cohorts
    Δ_i = LocalUpdate(w) - w                                    client: every client, once
    P_ij = ‖Δ_i - Δ_j‖₁, ‖Δ_i - Δ_j‖₂ or 1 - cos(Δ_i, Δ_j)      server
    clusters = merge the nearest two while P between them ≤ λ   server: by a linkage
    w_j = Σ_{i∈j} n_i (w + Δ_i) / Σ_{i∈j} n_i                   server: reuses the training of that step
    w_j ← FedAvg on the cohort's members of j                   rounds n + 1 to T
    newcomer:  j = argmin_j mean_{i∈j} P(Δ, Δ_i)                after training from w

n is `warm_rounds`, T the run's `rounds`, λ `threshold`, w_j is row j of `bank`. The clustering step comes between two
rounds and is not counted as one; it trains at the learning rate of the next round. Before it, all clients are served w.
A skipped round does not count toward n. A client that did not reply in the clustering step is a newcomer: it joins a
cluster when it is in a cohort, or when it is served.

The paper sweeps λ, metric and linkage for each data set: λ is a distance between updates of one model at one learning
rate, and does not carry over to another. Therefore λ is `auto` by default, and the clusters are found: clients are
divided in two again and again by average linkage, as long as two halves of their examples agree about the division
(clustering/repeated_splits.py); there is one cluster if they never do. For that, each client also sends the updates
from two halves of its examples. If no client has two examples, the number of clusters is chosen by the eigengap of P
(`coterie.clustering.n_clusters`). A number, a quantile of all pairwise distances (`threshold_quantile`), or the number
of clusters (`clusters`) overrides this. Cosine and average linkage are the defaults because updates of clients with few
examples lie far apart even within one true cluster: on rotated digits, L2 or complete linkage misplaces clients even
with the right number of clusters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.directions import update
from coterie.clients.noise_floor import halve_updates
from coterie.clustering import (
    agglomerative,
    choose_n_clusters,
    cosine,
    l1,
    l2,
    pairwise_quantile,
    repeated_splits,
)
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation
from coterie.methods import cluster_training
from coterie.methods.cluster_training import Clients, Joined
from coterie.methods.fedavg import average, loss_of, one_model
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

# Clients of one true cluster differ less than this share of the median distance, even with other label shares.
_LEAST = 0.5

#: Distance between updates.
Metric = Literal["cosine", "l2", "l1"]


@state
@dataclass(frozen=True)
class State:
    """State of an FL+HC run.

    Attributes:
        w: The common model; after the clustering, the one that the updates started from.
        bank: The clusters' models; before the clustering, w.
        updates: Δ_i of the clients that were clustered, one per row.
        labels: The cluster of each of them.
        assignment: Client → cluster.
        warmed: Number of FedAvg rounds done.
        clustered: Whether the clustering step is done.
    """

    w: Params
    bank: Bank
    updates: Array
    labels: Array
    assignment: ClientMap[int] = field(default_factory=ClientMap)
    warmed: int = 0
    clustered: bool = False


@dataclass(frozen=True)
class FLHC:
    """Clusters of clients with similar updates, found once.

    Attributes:
        local: Settings of local training.
        warm_rounds: n, number of FedAvg rounds before the clustering.
        metric: Distance between updates.
        linkage: Distance between clusters: mean, largest or smallest of their pairs; `ward` with L2 only.
        threshold: λ: clusters up to this distance are merged; `auto`: clients are divided, by average linkage, as long
            as two halves of their examples agree.
        threshold_quantile: Above 0: λ is this quantile of all pairwise distances.
        clusters: Number of clusters, instead of λ; `auto`: found by `threshold` or `threshold_quantile`.
        max_clusters: With `auto`, if no client has two examples: the largest number of clusters to consider.
        weights: Client weight: number of samples, or uniform.
        rounds: T, number of rounds of the run.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    warm_rounds: Annotated[int, Bound(at_least=0)] = 10
    metric: Metric = "cosine"
    linkage: Literal["average", "complete", "single", "ward"] = "average"
    threshold: Annotated[float, Bound(at_least=0, infinite=True)] | Literal["auto"] = "auto"
    threshold_quantile: Annotated[float, Bound(at_least=0, at_most=1)] = 0.0
    clusters: Annotated[int, Bound(at_least=1)] | Literal["auto"] = "auto"
    max_clusters: Annotated[int, Bound(at_least=1)] = 10
    weights: Literal["samples", "uniform"] = "samples"
    rounds: int = from_run("rounds")

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")
        if self.warm_rounds >= self.rounds:
            raise SpecError(
                f"method.warm_rounds of flhc must be less than run.rounds, {self.rounds}, for clusters to be trained, "
                f"got {self.warm_rounds}; lower it or raise run.rounds"
            )
        if (self.threshold != "auto") + (self.threshold_quantile > 0) + (self.clusters != "auto") > 1:
            raise SpecError("Give one of method.threshold, method.threshold_quantile and method.clusters, not several")
        if self.linkage == "ward" and self.metric != "l2":
            raise SpecError(f"method.linkage 'ward' needs method.metric 'l2', got {self.metric!r}")

    @property
    def update_training(self) -> LocalSGD:
        """Local training for Δ_i, the same for newcomers."""
        return dataclasses.replace(self.local.at(self.warm_rounds), in_turn=False)

    def start(self, task: Task, seed: Seed) -> State:
        """The common initial model, without clusters."""
        w = task.init(seed.fold("init"))
        no_updates = np.zeros((0, tree.size(trainable(w))), np.float32)
        return State(w, tree.stack([w]), no_updates, np.zeros(0, np.int64))

    def stage(self, now: State) -> Stage:
        """The warm rounds, then the clustering as a preparation step, then the other rounds."""
        return "prepare" if now.warmed >= self.warm_rounds and not now.clustered else "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """FedAvg; then the clustering; then newcomers join and each cluster trains."""
        local = self.local.at(cohort.t)
        if now.clustered:
            return cluster_training.train_clusters(now, fed, cohort, seed, local, self._join, self.weights)
        if now.warmed == self.warm_rounds:
            return self._cluster(now, fed, cohort, seed)
        done = average(now.w, fed, cohort.active(), seed, local, self.weights)
        after = dataclasses.replace(now, w=done.state, bank=tree.stack([done.state]), warmed=now.warmed + 1)
        return Round(after, done.assignment, done.loss, done.distances)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Serve each client its cluster's model; a newcomer trains from w to join a cluster."""
        if not now.clustered:
            return now, one_model(now.w, clients)
        return cluster_training.place_in_clusters(now, fed, clients, seed, self._join)

    def _cluster(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """All clients train once and are clustered; clients without examples have no update and stay newcomers."""
        got = fed.ask(cohort, fit, seed, start=now.w, local=self.update_training)
        trained = np.flatnonzero(got.samples)
        if not len(trained):
            return Round(dataclasses.replace(now, clustered=True))
        models = tree.take(got["params"], trained)
        updates = tree.flatten_rows(trainable(models)) - tree.flatten(trainable(now.w))
        clients = [got.clients[i] for i in trained]
        halves = self._halves(now.w, updates, fed, cohort.of(clients), seed) if self._finds_clusters else None
        labels, evidence = self._labels(update_distances(updates, self.metric), halves, seed)
        weights = got.samples[trained] if self.weights == "samples" else np.ones(len(trained))
        members = [np.flatnonzero(labels == j) for j in range(labels.max() + 1)]
        bank = tree.stack(
            fed.average(tree.take(models, each), weights[each], clients=[clients[i] for i in each], start=now.w)
            for each in members
        )
        row = dict(zip(clients, labels.tolist(), strict=True))
        after = State(now.w, bank, updates, labels, ClientMap(row), now.warmed, clustered=True)
        distances = tree.row_distances(models, bank, labels).tolist()
        evidence = {"clients": clients, "labels": labels, **evidence}
        return Round(after, row, loss_of(got), dict(zip(clients, distances, strict=True)), evidence)

    @property
    def _finds_clusters(self) -> bool:
        """Whether no threshold and no number of clusters is given."""
        return self.clusters == "auto" and self.threshold == "auto" and not self.threshold_quantile

    def _halves(
        self, w: Params, updates: Array, fed: Federation, cohort: Cohort, seed: Seed
    ) -> tuple[Array, Array] | None:
        """P of two halves of each client to all clients; a client that does not reply stands for its halves.

        None if no client has two examples.
        """
        local = self.update_training
        got = fed.ask(cohort, halve_updates, seed.fold("halves"), start=w, local=local, min_replies=0)
        valid = np.flatnonzero(got.samples >= 2)
        if not len(valid):
            return None
        position = {client: i for i, client in enumerate(cohort)}
        rows, n = [position[got.clients[i]] for i in valid], len(updates)
        first, second = updates.copy(), updates.copy()
        first[rows] = tree.flatten_rows(tree.take(got["first"], valid))
        second[rows] = tree.flatten_rows(tree.take(got["second"], valid))
        one, two = (update_distances(np.concatenate([half, updates]), self.metric)[:n, n:] for half in (first, second))
        return one, two

    def _labels(
        self, distances: Array, halves: tuple[Array, Array] | None, seed: Seed
    ) -> tuple[Array, dict[str, object]]:
        """The cluster of each client, and the evidence for the record."""
        if len(distances) == 1:
            return np.zeros(1, np.int64), {}
        shown: dict[str, object] = {"distances": distances}
        if self.clusters != "auto":
            return agglomerative(distances, k=self.clusters, linkage=self.linkage), {**shown, "scores": {}}
        if self.threshold_quantile or self.threshold != "auto":
            share = self.threshold_quantile
            threshold = pairwise_quantile(distances, share) if share else float(self.threshold)
            labels = agglomerative(distances, threshold=threshold, linkage=self.linkage)
            return labels, {**shown, "threshold": threshold}
        if halves is not None:
            found = repeated_splits(distances, *halves, least=_LEAST)
            return found.labels, {**shown, "tried": [list(each) for each in found.tried]}
        k, scores = choose_n_clusters(
            distances, self.max_clusters, "eigengap", seed=seed.fold("auto"), kind="distances"
        )
        shown["scores"] = {str(number): score for number, score in scores.items()}
        return agglomerative(distances, k=k, linkage=self.linkage), shown

    def _join(
        self, now: State, fed: Federation, newcomers: Clients, seed: Seed, min_replies: int | None = None
    ) -> Joined:
        """Newcomers train from w and join by the mean distance of their updates."""
        local = self.update_training
        got = fed.ask(newcomers, update, seed.fold("join"), w0=now.w, local=local, min_replies=min_replies)
        if not len(got) or not len(now.labels):
            return Joined(dict.fromkeys(got.clients, 0), {})
        new, known = tree.flatten_rows(trainable(got["update"])), len(now.updates)
        distances = update_distances(np.concatenate([now.updates, new]), self.metric)
        to_initial = distances[known:, :known]  # (newcomers, initial clients)
        return cluster_training.join_nearest(got.clients, to_initial, now.labels, name="mean_distances")


def update_distances(updates: Array, metric: Metric) -> Array:
    """P: the distances between all pairs of updates."""
    if metric == "cosine":
        return np.maximum(1 - cosine(updates), 0.0)
    return l2(updates) if metric == "l2" else l1(updates)
