"""ONE_SHOT-IFCA: IFCA whose number of clusters and first assignment come from SR-FCA's ONE_SHOT.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538, section 5, where it shows that IFCA lacks more than a good start:

    C_0 ← ONE_SHOT(λ, t),  k = |C_0|                     methods/one_shot.py
    round 0     θ_j ← mean of LocalUpdate_i(θ_j)         over at most K members i of cluster j of C_0; the others wait
    round 1, …  IFCA, option II                          all clients choose by loss, at most K of each cluster train

θ_j is row j of IFCA's bank, K is `members`; every model counts 1. The paper does not say what θ_j is before round 0. In
its code it is drawn anew, which is `first_models="random"`: after one short round no model fits anybody much better
than the others do, and what ONE_SHOT found is lost for a while. Here it is the mean of the members' own models, which
all come from one w_0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import fit
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient
from coterie.methods import ifca
from coterie.methods.fedavg import distances_of, loss_of, move_groups
from coterie.methods.one_shot import Locals, OneShot, one_shot, places
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of ONE_SHOT-IFCA is.

    Attributes:
        w0: The common initial model.
        seed: Of the clusters' first models.
        first: C_0, without clients that have no cluster in it; empty before ONE_SHOT.
        ifca: Where IFCA is; None before ONE_SHOT.
    """

    w0: Params
    seed: Seed
    first: ClientMap[int] = field(default_factory=ClientMap)
    ifca: ifca.State | None = None


@dataclass(frozen=True)
class OneShotIFCA(OneShot):
    """As many models as ONE_SHOT finds clusters; then every client trains the one that fits it best.

    Attributes:
        members: K, so many clients of each cluster train in a round.
        first_models: The clusters' first models: the means of their members' own, or drawn at random.
    """

    members: int = 10
    first_models: Literal["mean", "random"] = "mean"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        if self.members < 1:
            raise SpecError(f"method.members of oneshotifca must be at least 1, got {self.members}")

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, and no cluster yet."""
        return State(task.init(seed.fold("init")), seed)

    def stage(self, now: State) -> Stage:
        """ONE_SHOT prepares."""
        return "prepare" if now.ifca is None else "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """ONE_SHOT; then C_0 trains; then IFCA."""
        if now.ifca is None:
            trained, row, _, evidence = one_shot(self, now.w0, fed, cohort, seed)
            bank = self._first(now, trained, row, fed)
            begun = ifca.State((bank,), (np.inf,), ClientMap(), fed.task.layers)
            return Round(State(now.w0, now.seed, ClientMap(row), begun), row, evidence=evidence, label="one shot")
        if now.ifca.rounds == 0:
            return self._train_first(now, now.ifca, fed, cohort, seed)
        done = self._ifca(now.ifca).round(now.ifca, fed, cohort, seed)
        after = dataclasses.replace(now, ifca=done.state)
        return Round(after, done.assignment, done.loss, done.distances, done.evidence, done.counts, label="ifca")

    def _ifca(self, now: ifca.State) -> ifca.IFCA:
        return ifca.IFCA(self.local, clusters=tree.rows(now.banks[0]), members=self.members)

    def _first(self, now: State, trained: Locals, row: dict[ClientId, int], fed: Federation) -> Bank:
        """The clusters' first models."""
        groups = [[client for client in row if row[client] == j] for j in range(max(row.values()) + 1)]
        if self.first_models == "random":
            return tree.stack(fed.task.init(now.seed.fold("init", j)) for j in range(len(groups)))
        members = [tree.take(trained.models, places(trained.clients, each)) for each in groups]
        return tree.stack(fed.average(models, np.ones(tree.rows(models))) for models in members)

    def _train_first(self, now: State, begun: ifca.State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Round 0: each cluster trains on its own members, whatever fits them best."""
        bank, row = begun.banks[0], now.first
        pools = [[c for c in cohort.available if row.get(c) == j] for j in range(tree.rows(bank))]
        drawn = [cohort.draw(pool, self.members, name=f"ifca {j}") for j, pool in enumerate(pools)]
        asked = cohort.of(client for each in drawn for client in each).active()
        how = Mean(groups=len(pools), by=row, weights="uniform", spread=True)
        got = fed.ask(asked, fit, seed, start=PerClient(bank, row), local=self.local.at(cohort.t), reduce=how)
        trained = {client: row[client] for client in got.clients}
        loss = loss_of(got)
        after = dataclasses.replace(
            begun,
            banks=(move_groups(bank, got),),
            losses=begun.losses if loss is None else (loss,),
            assignment=ClientMap(trained),
            rounds=1,
        )
        return Round(dataclasses.replace(now, ifca=after), trained, loss, distances_of(got), label="ifca")

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Serve each client, newcomers too, the model with the lowest loss on its training examples."""
        if now.ifca is None:
            return Placement(tree.stack([now.w0]), dict.fromkeys(clients, 0))
        return self._ifca(now.ifca).place(now.ifca, fed, clients, seed)
