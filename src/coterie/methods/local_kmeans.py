"""Local-KMeans: every client trains alone, and k-means clusters the models; a centroid is its clients' model.

Ghosh, Hong, Yin, Ramchandran, "Robust Federated Learning in a Heterogeneous Environment", arXiv:1906.06629; the
baseline of that name in SR-FCA, arXiv:2210.11538, section 5:

    w_i ← I batches of local training from w_0          client; its model goes to the server
    Z ← k-means++ of the vectors w_i, k clusters        server; nothing is standardized
    ω_c = mean of w_i over cluster c                    server; every client counts 1

I is `init_steps`, k `clusters`, ω_c is row c of `bank`. Nothing more is trained, unless `finetune_rounds` asks for
rounds of FedAvg in each cluster from its centroid. Who missed the clustering trains alone and joins the cluster of the
nearest centroid: before the first of those rounds in whose cohort it is, or to be served.

Departures. All clients start from one w_0; with `init="own"` each from one of its own, where the mean of networks whose
units are in different orders is good for nothing. SR-FCA's code fills every layer of a centroid from the beginning of
the vector: that is why it prints 10 %. The partition does not suffer from it.
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
from coterie.clustering import kmeans, nearest
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, PerClient, Replies
from coterie.methods.clusters import train_clusters
from coterie.methods.fedavg import loss_of
from coterie.methods.one_shot import l2_to
from coterie.methods.protocol import Placement, Round, Stage, check_choices, from_run
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of Local-KMeans is.

    Attributes:
        w0: The common initial model.
        seed: Of the clients' own ones.
        bank: The clusters' models; before clustering, w_0.
        centroids: What newcomers are compared with: the clusters' first models, without statistics.
        assignment: The cluster of each client that has one.
        rounds: Rounds gone by.
    """

    w0: Params
    seed: Seed
    bank: Bank
    centroids: Bank
    assignment: ClientMap[int] = field(default_factory=ClientMap)
    rounds: int = 0


@dataclass(frozen=True)
class LocalKMeans:
    """k clusters of the models of clients that trained alone.

    Attributes:
        local: How clients train.
        clusters: k.
        init_steps: I, batches of every client's training alone.
        init: All start from one model, or each from one of its own.
        finetune_rounds: Rounds of FedAvg in each cluster after that.
        weights: In those, a client counts its examples, or 1.
        rounds: Of the run.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int = 4
    init_steps: int = 250
    init: Literal["common", "own"] = "common"
    finetune_rounds: int = 0
    weights: Literal["samples", "uniform"] = "samples"
    rounds: int = from_run("rounds")

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name, least in (("clusters", 1), ("init_steps", 1), ("finetune_rounds", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} of localkmeans must be at least {least}, got {getattr(self, name)}")
        if self.finetune_rounds > self.rounds:
            raise SpecError(
                f"localkmeans with finetune_rounds = {self.finetune_rounds} needs run.rounds of at least as many, got "
                f"{self.rounds}"
            )

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, and no cluster yet."""
        w0 = task.init(seed.fold("init"))
        bank = tree.stack([w0])
        return State(w0, seed, bank, trainable(bank))

    def stage(self, now: State) -> Stage:
        """Clustering prepares; it is all there is, unless there are rounds after it."""
        if not len(now.assignment):
            return "prepare"
        return "train" if now.rounds < self.finetune_rounds else "done"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Everyone trains alone and is clustered; or a round of FedAvg in each cluster."""
        if len(now.assignment):
            done = train_clusters(now, fed, cohort, seed, self.local.at(cohort.t), self._join, self.weights)
            return dataclasses.replace(
                done, state=dataclasses.replace(done.state, rounds=cohort.t + 1), label="fine-tuning"
            )
        got = self._alone(now, fed, cohort, seed)
        points = tree.flatten_rows(trainable(got["params"]))
        labels, _ = kmeans(points, self.clusters, seed)
        members = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
        bank = tree.stack(fed.average(tree.take(got["params"], mine), np.ones(len(mine))) for mine in members)
        row = dict(zip(got.clients, labels.tolist(), strict=True))
        after = dataclasses.replace(now, bank=bank, centroids=trainable(bank), assignment=ClientMap(row))
        evidence = {"clients": list(got.clients), "labels": labels}
        return Round(after, row, loss_of(got), evidence=evidence, label="k-means", closes=True)

    def _alone(
        self, now: State, fed: Federation, asked: Cohort | list[ClientId], seed: Seed, min_replies: int | None = None
    ) -> Replies:
        """The models of clients that train alone, from w_0 or each from its own start."""
        local = dataclasses.replace(self.local, steps=self.init_steps, mu=0.0, lr_decay=1.0)
        if self.init == "common":
            return fed.ask(asked, fit, seed, start=now.w0, local=local, min_replies=min_replies)
        starts = tree.stack(fed.task.init(now.seed.fold("init", client)) for client in asked)
        own = PerClient(starts, {client: place for place, client in enumerate(asked)})
        return fed.ask(asked, fit, seed, start=own, local=local, min_replies=min_replies)

    def _join(
        self, now: State, fed: Federation, cold: Cohort | list[ClientId], seed: Seed, min_replies: int | None = None
    ) -> tuple[dict[ClientId, int], dict[str, Any]]:
        """The clusters of those who have none yet, and on what that was decided; who is not heard stays without."""
        got = self._alone(now, fed, cold, seed.fold("join"), min_replies) if len(cold) else None
        if not got:
            return {}, {}
        apart = l2_to(trainable(got["params"]), now.centroids)
        row = dict(zip(got.clients, nearest(apart).tolist(), strict=True))
        return row, {"clients": list(got.clients), "distances": apart}

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its cluster's model; a newcomer trains alone and joins the nearest centroid."""
        everyone = list(clients)
        if not len(now.assignment):
            return Placement(now.bank, dict.fromkeys(everyone, 0))
        row = {client: now.assignment[client] for client in everyone if client in now.assignment}
        strangers = [client for client in everyone if client not in row]
        return Placement(now.bank, row | self._join(now, fed, strangers, seed)[0])
