"""ONE_SHOT-IFCA: IFCA with the number of clusters and the initial assignment from SR-FCA's ONE_SHOT.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538, section 5, which uses it to show that IFCA lacks more than a good initialization:

    C_0 ← ONE_SHOT(λ, t),  k = |C_0|                     methods/one_shot.py
    round 0     θ_j ← mean of LocalUpdate_i(θ_j)         over at most K members i of cluster j of C_0
    round 1, …  IFCA, option II                          all clients choose by loss, at most K of each cluster train

θ_j is row j of IFCA's bank, K is `members`; all clients have the same weight. The paper does not say what θ_j is before
round 0. Its code draws it at random, which is `first_models="random"`: after one short round no model fits any client
much better than the others do, and the clusters of ONE_SHOT are lost for a while. Here it is the mean of the models
that the members trained alone, all from one w_0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from coterie import tree
from coterie.bounds import Bound
from coterie.client_map import ClientMap
from coterie.clients import fit
from coterie.codec import state
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient
from coterie.methods import ifca
from coterie.methods.cluster_training import draw_members
from coterie.methods.fedavg import distances_of, loss_of, move_groups, one_model
from coterie.methods.model_distances import LocalModels, positions
from coterie.methods.one_shot import OneShot, one_shot
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a ONE_SHOT-IFCA run.

    Attributes:
        w0: The common initial model.
        seed: Seed of the clusters' first models.
        first: C_0: client → cluster; empty before ONE_SHOT.
        ifca: State of IFCA; None before ONE_SHOT.
    """

    w0: Params
    seed: Seed
    first: ClientMap[int] = field(default_factory=ClientMap)
    ifca: ifca.State | None = None


@dataclass(frozen=True)
class OneShotIFCA(OneShot):
    """One model per cluster of ONE_SHOT; then every client trains the model that fits it best.

    Attributes:
        members: K, number of clients per cluster that train in a round.
        first_models: The clusters' first models: the mean of their members' models, or random.
    """

    asks_all: ClassVar[str] = "all clients choose a cluster before the members of each are drawn"
    members: Annotated[int, Bound(at_least=1)] = 10
    first_models: Literal["mean", "random"] = "mean"

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, without clusters."""
        return State(task.init(seed.fold("init")), seed)

    def stage(self, now: State) -> Stage:
        """ONE_SHOT is a preparation step."""
        return "prepare" if now.ifca is None else "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """ONE_SHOT; then the clusters of C_0 train; then IFCA."""
        if now.ifca is None:
            trained, row, _, evidence = one_shot(self, now.w0, fed, cohort, seed)
            bank = self._first_models(now, trained, row, fed)
            initial = ifca.State((bank,), (np.inf,), (ClientMap(row),), fed.task.layers)
            return Round(State(now.w0, now.seed, ClientMap(row), initial), row, evidence=evidence, label="one shot")
        if now.ifca.rounds == 0:
            return self._train_first(now, now.ifca, fed, cohort, seed)
        done = self._ifca(now.ifca).round(now.ifca, fed, cohort, seed)
        after = dataclasses.replace(now, ifca=done.state)
        return Round(after, done.assignment, done.loss, done.distances, done.evidence, done.counts, label="ifca")

    def _ifca(self, now: ifca.State) -> ifca.IFCA:
        return ifca.IFCA(self.local, clusters=tree.rows(now.banks[0]), members=self.members)

    def _first_models(self, now: State, trained: LocalModels, row: dict[ClientId, int], fed: Federation) -> Bank:
        """The clusters' first models."""
        groups = [[client for client in row if row[client] == j] for j in range(max(row.values()) + 1)]
        if self.first_models == "random":
            return tree.stack(fed.task.init(now.seed.fold("init", j)) for j in range(len(groups)))
        members = [tree.take(trained.models, positions(trained.clients, each)) for each in groups]
        return tree.stack(
            fed.average(models, np.ones(tree.rows(models)), clients=each, start=now.w0)
            for models, each in zip(members, groups, strict=True)
        )

    def _train_first(
        self, now: State, initial: ifca.State, fed: Federation, cohort: Cohort, seed: Seed
    ) -> Round[State]:
        """Round 0: each cluster trains on its own members, even if another model fits them better."""
        bank, row = initial.banks[0], now.first
        asked = draw_members(cohort, row, tree.rows(bank), self.members, name="ifca").active()
        mean = Mean(groups=tree.rows(bank), by=row, weights="uniform", spread=True)
        got = fed.ask(asked, fit, seed, start=PerClient(bank, row), local=self.local.at(cohort.t), reduce=mean)
        trained = {client: row[client] for client in got.clients}
        loss = loss_of(got)
        after = dataclasses.replace(
            initial,
            banks=(move_groups(bank, got),),
            losses=initial.losses if loss is None else (loss,),
            assignments=(initial.assignment.set(trained),),
            rounds=1,
        )
        return Round(dataclasses.replace(now, ifca=after), trained, loss, distances_of(got), label="ifca")

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Serve each client, newcomers too, the model with the lowest loss on its training examples."""
        if now.ifca is None:
            return now, one_model(now.w0, clients)
        after, placement = self._ifca(now.ifca).place(now.ifca, fed, clients, seed)
        return dataclasses.replace(now, ifca=after), placement
