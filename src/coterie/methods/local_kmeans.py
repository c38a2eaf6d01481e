"""Local-KMeans: every client trains alone, and k-means clusters the models; a centroid is its clients' model.

Ghosh, Hong, Yin, Ramchandran, "Robust Federated Learning in a Heterogeneous Environment", arXiv:1906.06629; the
baseline of that name in SR-FCA, arXiv:2210.11538, section 5:

    w_i ← I batches of local training from w_0          client; its model goes to the server
    Z ← k-means++ of the vectors w_i, k clusters        server; nothing is standardised
    ω_c = mean of w_i over cluster c                    server; every client counts 1

I is `init_steps`, k `clusters`, ω_c is row c of `bank`. Nothing more is trained, unless `finetune_rounds` asks for
rounds of FedAvg in each cluster from its centroid.

Departures. All clients start from one w_0; with `init="own"` each from one of its own, where the mean of networks whose
units are in different orders is good for nothing. SR-FCA's code fills every layer of a centroid from the beginning of
the vector: that is why it prints 10 %. The partition does not suffer from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coterie import tree
from coterie.aggregation import uniform_mean
from coterie.clients import LocalSGD, fit
from coterie.clustering import kmeans, nearest
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, Replies, Rows
from coterie.kept import Kept
from coterie.methods.fedavg import distances_of, loss_of, move_groups
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of Local-KMeans is.

    Attributes:
        w0: The common initial model.
        seed: Of the clients' own ones.
        bank: The clusters' models; before clustering, w_0.
        centroids: What newcomers are compared with, a row for each cluster.
        row: The cluster of each client that has one.
        rounds: Rounds gone by.
    """

    w0: Params
    seed: Seed
    bank: Bank
    centroids: Array
    row: Kept[int] = field(default_factory=Kept)
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
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int = 4
    init_steps: int = 250
    init: Literal["common", "own"] = "common"
    finetune_rounds: int = 0
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name, least in (("clusters", 1), ("init_steps", 1), ("finetune_rounds", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} of localkmeans must be at least {least}, got {getattr(self, name)}")

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, and no cluster yet."""
        w0 = task.init(seed.fold("init"))
        return State(w0, seed, tree.stack([w0]), np.zeros((0, 0), np.float32))

    def stage(self, now: State) -> Stage:
        """Clustering prepares; it is all there is, unless there are rounds after it."""
        if not len(now.row):
            return "prepare"
        return "train" if now.rounds < self.finetune_rounds else "done"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Everyone trains alone and is clustered; or a round of FedAvg in each cluster."""
        if len(now.row):
            return self._finetune(now, fed, cohort, seed)
        got = self._alone(now, fed, cohort, seed)
        points = tree.flatten_rows(trainable(got["params"]))
        labels, _ = kmeans(points, self.clusters, seed)
        members = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
        bank = tree.stack(uniform_mean(tree.take(got["params"], mine)) for mine in members)
        row = dict(zip(got.clients, labels.tolist(), strict=True))
        after = dataclasses.replace(now, bank=bank, centroids=tree.flatten_rows(trainable(bank)), row=Kept(row))
        evidence = {"clients": list(got.clients), "labels": labels}
        return Round(after, row, loss_of(got), evidence=evidence, label="k-means", closes=True)

    def _alone(self, now: State, fed: Federation, clients: Cohort | Iterable[ClientId], seed: Seed) -> Replies:
        """The models of clients that train alone, from w_0 or each from its own start."""
        asked = clients if isinstance(clients, Cohort) else list(clients)
        local = dataclasses.replace(self.local, steps=self.init_steps, mu=0.0, rate_decay=1.0)
        if self.init == "common":
            return fed.ask(asked, fit, seed, start=now.w0, local=local)
        starts = tree.stack(fed.task.init(now.seed.fold("init", client)) for client in asked)
        own = Rows(starts, {client: place for place, client in enumerate(asked)})
        return fed.ask(asked, fit, seed, start=own, local=local)

    def _finetune(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        row = {client: now.row[client] for client in cohort.active() if client in now.row}
        how = Mean(groups=tree.rows(now.bank), by=row, weights=self.weights, spread=True)
        local = self.local.at(cohort.t)
        got = fed.ask(cohort.of(row), fit, seed, start=Rows(now.bank, row), local=local, reduce=how)
        after = dataclasses.replace(now, bank=move_groups(now.bank, got), rounds=cohort.t + 1)
        trained = {client: row[client] for client in got.clients}
        return Round(after, trained, loss_of(got), distances_of(got), label="fine-tuning")

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its cluster's model; a newcomer trains alone and joins the nearest centroid."""
        everyone = list(clients)
        if not len(now.row):
            return Placement(now.bank, dict.fromkeys(everyone, 0))
        row = {client: now.row[client] for client in everyone if client in now.row}
        strangers = [client for client in everyone if client not in row]
        if strangers:
            got = self._alone(now, fed, strangers, seed)
            if len(got):
                points = tree.flatten_rows(trainable(got["params"]))[:, None] - now.centroids.astype(np.float64)
                row |= dict(zip(got.clients, nearest(np.linalg.norm(points, axis=2)).tolist(), strict=True))
        return Placement(now.bank, row)
