"""Local-KMeans: every client trains alone, k-means clusters the models, and a client is served its cluster's centroid.

Ghosh, Hong, Yin, Ramchandran, "Robust Federated Learning in a Heterogeneous Environment", arXiv:1906.06629; the
baseline of that name in SR-FCA, arXiv:2210.11538, section 5:

    w_i ← I batches of local training from w_0          client; its model goes to the server
    Z ← k-means++ of the vectors w_i, k clusters        server; nothing is standardized
    ω_c = mean of w_i over cluster c                    server; all clients have the same weight

I is `init_steps`, k `clusters`, ω_c is row c of `bank`. There is no further training, unless `finetune_rounds` asks
for rounds of FedAvg in each cluster from its centroid. A client that missed the clustering trains alone and joins the
cluster of the nearest centroid: when it is in the cohort of such a round, or when it is served.

Departures from the paper. All clients start from one w_0. With `init="own"` each starts from its own random model; the
mean of such models is useless, because their units are in different orders. SR-FCA's code fills every layer of a
centroid from the beginning of the flat vector, which explains its 10 % accuracy; the partition is not affected.
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
from coterie.clustering import kmeans, nearest
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, PerClient, Replies
from coterie.methods.cluster_training import Clients, Joined, place_in_clusters, train_clusters
from coterie.methods.fedavg import loss_of, one_model
from coterie.methods.model_distances import l2_to
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a Local-KMeans run.

    Attributes:
        w0: The common initial model.
        seed: Seed of the clients' own initial models.
        bank: The clusters' models; before the clustering, w_0.
        centroids: The clusters' first models, without running statistics; newcomers are compared with them.
        assignment: Client → cluster.
        rounds: Number of rounds done.
    """

    w0: Params
    seed: Seed
    bank: Bank
    centroids: Bank
    assignment: ClientMap[int] = field(default_factory=ClientMap)
    rounds: int = 0


@dataclass(frozen=True)
class LocalKMeans:
    """k clusters of models that clients trained alone.

    Attributes:
        local: Settings of local training.
        clusters: k, number of clusters.
        init_steps: I, number of batches that every client trains alone.
        init: All clients start from one model, or each from its own random model.
        finetune_rounds: Number of FedAvg rounds in each cluster after the clustering.
        weights: Client weight in these rounds: number of samples, or uniform.
        rounds: Number of rounds of the run.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: Annotated[int, Bound(at_least=1)] = 4
    init_steps: Annotated[int, Bound(at_least=1)] = 250
    init: Literal["common", "own"] = "common"
    finetune_rounds: Annotated[int, Bound(at_least=0)] = 0
    weights: Literal["samples", "uniform"] = "samples"
    rounds: int = from_run("rounds")

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")
        if self.finetune_rounds > self.rounds:
            raise SpecError(
                f"localkmeans with finetune_rounds = {self.finetune_rounds} needs at least as many run.rounds, got "
                f"{self.rounds}"
            )

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, without clusters."""
        w0 = task.init(seed.fold("init"))
        bank = tree.stack([w0])
        return State(w0, seed, bank, trainable(bank))

    def stage(self, now: State) -> Stage:
        """Clustering is a preparation step; the rounds of fine-tuning follow, if any."""
        if not len(now.assignment):
            return "prepare"
        return "train" if now.rounds < self.finetune_rounds else "done"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """All clients train alone and are clustered; or a round of FedAvg in each cluster."""
        if len(now.assignment):
            done = train_clusters(now, fed, cohort, seed, self.local.at(cohort.t), self._join, self.weights)
            return dataclasses.replace(
                done, state=dataclasses.replace(done.state, rounds=cohort.t + 1), label="fine-tuning"
            )
        got = self._train_alone(now, fed, cohort, seed)
        points = tree.flatten_rows(trainable(got["params"]))
        labels, _ = kmeans(points, self.clusters, seed)
        members = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
        bank = tree.stack(
            fed.average(
                tree.take(got["params"], each), np.ones(len(each)), clients=[got.clients[i] for i in each], start=now.w0
            )
            for each in members
        )
        row = dict(zip(got.clients, labels.tolist(), strict=True))
        after = dataclasses.replace(now, bank=bank, centroids=trainable(bank), assignment=ClientMap(row))
        evidence = {"clients": list(got.clients), "labels": labels}
        return Round(after, row, loss_of(got), evidence=evidence, label="k-means", closes=True)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Serve each client its cluster's model; a newcomer trains alone to join a cluster."""
        if not len(now.assignment):
            return now, one_model(now.w0, clients)
        return place_in_clusters(now, fed, clients, seed, self._join)

    def _train_alone(
        self, now: State, fed: Federation, asked: Clients, seed: Seed, min_replies: int | None = None
    ) -> Replies:
        """The models that clients train alone, from w_0 or from their own initial models."""
        local = dataclasses.replace(self.local, steps=self.init_steps, mu=0.0, lr_decay=1.0, in_turn=False)
        if self.init == "common":
            return fed.ask(asked, fit, seed, start=now.w0, local=local, min_replies=min_replies)
        starts = tree.stack(fed.task.init(now.seed.fold("init", client)) for client in asked)
        own = PerClient(starts, {client: i for i, client in enumerate(asked)})
        return fed.ask(asked, fit, seed, start=own, local=local, min_replies=min_replies)

    def _join(
        self, now: State, fed: Federation, newcomers: Clients, seed: Seed, min_replies: int | None = None
    ) -> Joined:
        """Newcomers train alone and join the cluster of the nearest centroid."""
        got = self._train_alone(now, fed, newcomers, seed.fold("join"), min_replies)
        if not len(got):
            return Joined({}, {})
        distances = l2_to(trainable(got["params"]), now.centroids)
        row = dict(zip(got.clients, nearest(distances).tolist(), strict=True))
        return Joined(row, {"clients": list(got.clients), "distances": distances})
