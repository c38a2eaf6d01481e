"""FL+HC: some rounds of FedAvg, then one hierarchical clustering of everybody's update, then FedAvg in each cluster.

Briggs, Fan, Andras, "Federated learning with hierarchical clustering of local updates to improve training on non-IID
data", IJCNN 2020, arXiv:2004.11791:

    w ← FedAvg                                                  rounds 1 to n of T, with cohorts
    Δ_i = LocalUpdate(w) - w                                    client: every client, once
    P_ij = ‖Δ_i - Δ_j‖₁, ‖Δ_i - Δ_j‖₂ or 1 - cos(Δ_i, Δ_j)      server
    clusters = merge the nearest two while P between them ≤ λ   server: by a linkage
    w_j = Σ_{i∈j} n_i (w + Δ_i) / Σ_{i∈j} n_i                   server: the training of that step is not wasted
    w_j ← FedAvg on the cohort's members of j                   rounds n + 1 to T
    late client:  j = argmin_j mean_{i∈j} P(Δ, Δ_i)             after training from w

n is `warm_rounds`, T the run's `rounds`, λ `threshold`, w_j is row j of `bank`. The step with everybody comes between
two rounds, is none itself, and trains at the rate of the next. Until then everyone is served w; a round that is skipped
is not one of the n. A client that did not answer in that step has no cluster until it is in a cohort, or is to be
served.

The paper sweeps λ, metric and linkage for each data set: λ is a distance between updates of one model at one rate, and
says nothing about the next. So by default λ is `auto`: it leaves as many clusters as the eigengap of P finds, and one
where that gap is no wider than in data without groups (`coterie.clustering.n_clusters`). A number, a share of all pairs
that is nearer (`threshold_quantile`), or how many (`clusters`) decide otherwise. Cosine and average linkage are the
defaults because clients of one kind with few examples lie far apart, each off in a direction of its own: on rotated
digits, L2 or complete linkage misplaces clients even where it is told their number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.directions import update
from coterie.clustering import agglomerative, choose, cosine, l1, l2, pairwise_quantile
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.clusters import nearest_clusters, train_clusters
from coterie.methods.fedavg import average, loss_of
from coterie.methods.protocol import Placement, Round, Stage, check_choices, from_run
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

#: How updates are compared.
Metric = Literal["cosine", "l2", "l1"]


@state
@dataclass(frozen=True)
class State:
    """Where a run of FL+HC is.

    Attributes:
        w: The common model; once there are clusters, that from which the updates came.
        bank: The clusters' models; w alone before there are any.
        updates: Of the clients that were clustered, one a row.
        labels: The cluster of each of them.
        assignment: The cluster of each client that has one.
        warmed: Rounds of FedAvg done.
        clustered: Whether the step with everybody is done.
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
    """Clusters of clients whose updates are alike, found once.

    Attributes:
        local: How clients train.
        warm_rounds: n: rounds of FedAvg before, of those of the run.
        metric: How updates are compared.
        linkage: The distance of clusters: the mean over their pairs, the farthest, the nearest; `ward` with L2 only.
        threshold: λ; or `auto`, found by the eigengap.
        threshold_quantile: Above 0, instead of λ: so that this share of all pairs is nearer.
        clusters: Above 0, instead of λ: how many.
        max_clusters: With `auto`: the largest number of clusters to consider.
        weights: A client counts its examples, or 1.
        rounds: T, of the run.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    warm_rounds: int = 10
    metric: Metric = "cosine"
    linkage: Literal["average", "complete", "single", "ward"] = "average"
    threshold: float | Literal["auto"] = "auto"
    threshold_quantile: float = 0.0
    clusters: int = 0
    max_clusters: int = 10
    weights: Literal["samples", "uniform"] = "samples"
    rounds: int = from_run("rounds")

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name, least in (("warm_rounds", 0), ("clusters", 0), ("max_clusters", 1)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")
        if self.warm_rounds >= self.rounds:
            raise SpecError(
                f"method.warm_rounds of flhc must be less than run.rounds, {self.rounds}, for clusters to be trained, "
                f"got {self.warm_rounds}; lower it or play more rounds"
            )
        number = isinstance(self.threshold, int | float) and self.threshold >= 0
        if self.threshold != "auto" and not number:
            raise SpecError(f"method.threshold must be a number of at least 0, or 'auto', got {self.threshold!r}")
        if not 0 <= self.threshold_quantile <= 1:
            raise SpecError(f"method.threshold_quantile must lie between 0 and 1, got {self.threshold_quantile}")
        if (self.threshold != "auto") + (self.threshold_quantile > 0) + (self.clusters > 0) > 1:
            raise SpecError("Give one of method.threshold, method.threshold_quantile and method.clusters, not several")
        if self.linkage == "ward" and self.metric != "l2":
            raise SpecError(f"method.linkage 'ward' needs method.metric 'l2', got {self.metric!r}")

    @property
    def moving(self) -> LocalSGD:
        """How clients train for Δ_i, late ones too."""
        return self.local.at(self.warm_rounds)

    def start(self, task: Task, seed: Seed) -> State:
        """The common initial model; no clusters."""
        w = task.init(seed.fold("init"))
        nobody = np.zeros((0, tree.size(trainable(w))), np.float32)
        return State(w, tree.stack([w]), nobody, np.zeros(0, np.int64))

    def stage(self, now: State) -> Stage:
        """After n rounds the step with everybody prepares the others."""
        return "prepare" if now.warmed >= self.warm_rounds and not now.clustered else "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """FedAvg; then everybody; then FedAvg in each cluster, which late clients join first."""
        local = self.local.at(cohort.t)
        if now.clustered:
            return train_clusters(now, fed, cohort, seed, local, self._join, self.weights)
        if now.warmed == self.warm_rounds:
            return self._cluster(now, fed, cohort, seed)
        one = average(now.w, fed, cohort.active(), seed, local, self.weights)
        after = dataclasses.replace(now, w=one.state, bank=tree.stack([one.state]), warmed=now.warmed + 1)
        return Round(after, one.assignment, one.loss, one.distances)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its cluster; a late client that whose members it is nearest to, for which it has to train."""
        everyone = list(clients)
        if not now.clustered:
            return Placement(now.bank, dict.fromkeys(everyone, 0))
        row = {client: now.assignment[client] for client in everyone if client in now.assignment}
        late = [client for client in everyone if client not in row]
        return Placement(now.bank, row | self._join(now, fed, late, seed)[0] if late else row)

    def _cluster(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """The step with everybody; those without an example have no update, and are late."""
        got = fed.ask(cohort, fit, seed, start=now.w, local=self.moving)
        able = np.flatnonzero(got.samples)
        if not len(able):
            return Round(dataclasses.replace(now, clustered=True))
        models = tree.take(got["params"], able)
        updates = tree.flatten_rows(trainable(models)) - tree.flatten(trainable(now.w))
        labels, evidence = self._labels(apart(updates, self.metric), seed)
        counts = got.samples[able] if self.weights == "samples" else np.ones(len(able))
        members = [np.flatnonzero(labels == j) for j in range(labels.max() + 1)]
        bank = tree.stack(fed.average(tree.take(models, each), counts[each]) for each in members)
        clients = [got.clients[place] for place in able]
        row = dict(zip(clients, labels.tolist(), strict=True))
        after = State(now.w, bank, updates, labels, ClientMap(row), now.warmed, clustered=True)
        distances = tree.row_distances(models, tree.take(bank, labels)).tolist()
        evidence = {"clients": clients, "labels": labels, **evidence}
        return Round(after, row, loss_of(got), dict(zip(clients, distances, strict=True)), evidence)

    def _labels(self, distances: Array, seed: Seed) -> tuple[Array, dict[str, Any]]:
        """The cluster of each client, and on what that was decided."""
        if len(distances) == 1:
            return np.zeros(1, np.int64), {}
        if self.threshold_quantile or not (self.clusters or self.threshold == "auto"):
            share = self.threshold_quantile
            threshold = pairwise_quantile(distances, share) if share else float(self.threshold)
            labels = agglomerative(distances, threshold=threshold, linkage=self.linkage)
            return labels, {"distances": distances, "threshold": threshold}
        k, scores = self.clusters, dict[int, float]()
        if not k:
            k, scores = choose(distances, self.max_clusters, "eigengap", seed=seed.fold("auto"), kind="distances")
        shown = {str(number): score for number, score in scores.items()}
        return agglomerative(distances, k=k, linkage=self.linkage), {"distances": distances, "scores": shown}

    def _join(
        self, now: State, fed: Federation, clients: Cohort | list[ClientId], seed: Seed, min_replies: int | None = None
    ) -> tuple[dict[ClientId, int], dict[str, Any]]:
        """The clusters of late clients that answer, and the mean distances on which that was decided."""
        got = fed.ask(clients, update, seed.fold("join"), w0=now.w, local=self.moving, min_replies=min_replies)
        if not len(got) or not len(now.labels):
            return dict.fromkeys(got.clients, 0), {}
        new = tree.flatten_rows(trainable(got["update"]))
        known = len(now.updates)
        far = apart(np.concatenate([now.updates, new]), self.metric)[known:, :known]  # (replies, clustered)
        rows, means = nearest_clusters(far, now.labels)
        return dict(zip(got.clients, rows, strict=True)), {"clients": list(got.clients), "mean_distances": means}


def apart(updates: Array, metric: Metric) -> Array:
    """P: distances of all pairs of updates."""
    if metric == "cosine":
        return np.maximum(1 - cosine(updates), 0.0)
    return l2(updates) if metric == "l2" else l1(updates)
