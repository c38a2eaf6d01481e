"""FeSEM: each client belongs to the center nearest to its last local model, by stochastic expectation maximization.

Xie, Long, Shen, Zhou, Wang, Jiang, Zhang, "Multi-Center Federated Learning", arXiv:2005.01026, in the form in which
FedGroup and FlexCFL compare with it. Minimises Σ_i min_k ||w_i - c_k||² alternately with local training:

    E:  z_i = argmin_k ||w_i - c_k||                    server: for the cohort; w_i is w_0 before i first trains
    M:  w_i ← LocalUpdate(c_{z_i})                      client
        c_k ← mean of {w_i : i in the cohort, z_i = k}  server

c_k is row k of `bank`, w_i is `models[i]`, flat and kept by the server, so that nothing more is sent than in FedAvg.
`members="all"` averages over all clients whose local model is known, as the original has it; its λ is `local.mu`.
With `recluster_every` above 1, E is done in those rounds only, for all clients whose local model is known, and in
between everyone stays where it is; `agg="first_only"` is what FlexCFL's published code does instead of a mean.

Departures: ties go to the lowest k, and a center that nobody is near keeps its model to the bit. All start with
w_i = w_0, so all of the first cohort choose the same center and FeSEM tends to stay there; that is what the papers
report, and kept. With `warm_start` a client trains one epoch from w_0 before its first E-step, and the first centers
are the means of k-means over those models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import fit
from coterie.clients.directions import update
from coterie.clustering import kmeans
from coterie.codec import state
from coterie.federation.protocol import Cached, Cohort, Federation, PerClient, Replies
from coterie.methods.centering import Centering
from coterie.methods.fedavg import loss_of
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of FeSEM is.

    Attributes:
        w0: What a client that never trained counts as.
        bank: The centers.
        counted: Which of a model's numbers enter distances.
        models: Client → its last local model, flat.
        samples: Client → how many examples that was trained on.
        warmed: Whether the centers have been taken from models, where they are to be.
        assignment: Client → its center since the last E-step, where there is none in every round.
    """

    w0: Params
    bank: Bank
    counted: Array
    models: ClientMap[Array] = field(default_factory=ClientMap)
    samples: ClientMap[int] = field(default_factory=ClientMap)
    warmed: bool = False
    assignment: ClientMap[int] = field(default_factory=ClientMap)

    def distances(self, clients: Iterable[ClientId]) -> Array:
        """||w_i - c_k|| in float64: (clients, centers)."""
        centers = tree.flatten_rows(self.bank)[:, self.counted].astype(np.float64)
        cold = self._to(tree.flatten(self.w0), centers)
        found = [self._to(self.models[c], centers) if c in self.models else cold for c in clients]
        return np.array(found).reshape(-1, len(centers))

    def nearest(self, clients: Iterable[ClientId]) -> dict[ClientId, int]:
        """Client → its nearest center; ties go to the lowest."""
        asked = list(clients)
        return dict(zip(asked, self.distances(asked).argmin(axis=1).tolist(), strict=True))

    def _to(self, model: Array, centers: Array) -> Array:
        apart: Array = np.sqrt(np.square(centers - model[self.counted]).sum(axis=1))
        return apart


@dataclass(frozen=True)
class FeSEM(Centering):
    """m centers, and every client trains the one nearest to its last local model."""

    def start(self, task: Task, seed: Seed) -> State:
        """Independent draws, of which the first is every method's, so that one center is FedAvg."""
        names = [("init",) if k == 0 else ("init", k) for k in range(self.clusters)]
        bank = tree.stack(task.init(seed.fold(*name)) for name in names)
        # w_0 is a draw of its own where there is a choice: as a center's twin it would decide the first E-step.
        w0 = task.init(seed.fold("w0")) if self.clusters > 1 else tree.row(bank, 0)
        last = task.layers[-1] if self.layers == "last" else ""

        def counts(path: str, leaf: Array) -> Array:
            keys = path.split("/")
            return np.full(leaf.shape, "stats" not in keys and (not last or keys[0] == last))

        return State(w0, bank, tree.flatten(tree.map_paths(counts, w0)))

    def stage(self, now: State) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """E on the server, M with one exchange: one center down, one model up."""
        active = cohort.active()
        if not len(active):
            return Round(now, counts={"empty_clusters": self.clusters})
        if self.warm_start:
            now = self._warm(now, fed, active, seed)
        now, row = self._assigned(now, active)
        got = fed.ask(active, fit, seed, start=PerClient(now.bank, row), local=self.local.at(cohort.t))
        after = dataclasses.replace(
            now,
            models=now.models.set({client: tree.flatten(model) for client, model in got.by_client("params").items()}),
            samples=now.samples.set(dict(zip(got.clients, got.samples.tolist(), strict=True))),
        )
        after = dataclasses.replace(after, bank=self._centres(after, fed, row, got))
        assignment = {client: row[client] for client in got.clients}
        served = tree.take(after.bank, list(assignment.values()))
        distances = dict(zip(got.clients, tree.row_distances(got["params"], served).tolist(), strict=True))
        empty = self.clusters - len(set(assignment.values()))
        return Round(after, assignment, loss_of(got), distances, counts={"empty_clusters": empty})

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its center, or the one nearest to its last local model; w_0 stands for a client that never trained."""
        everyone = list(clients)
        known = {client: now.assignment[client] for client in everyone if client in now.assignment}
        return Placement(now.bank, known | now.nearest(client for client in everyone if client not in known))

    def _assigned(self, now: State, cohort: Cohort) -> tuple[State, dict[ClientId, int]]:
        """E, or between two of them the last one, with those who are new."""
        if self.recluster_every == 1:
            return now, now.nearest({*cohort, *now.models} if self.members == "all" else cohort)
        kept = {} if cohort.t % self.recluster_every == 0 else dict(now.assignment)
        row = kept | now.nearest(sorted({*cohort, *now.models}.difference(kept)))
        return dataclasses.replace(now, assignment=ClientMap(row)), row

    def _centres(self, now: State, fed: Federation, row: dict[ClientId, int], got: Replies) -> Bank:
        """M: each center at the mean of its clients; those without examples count for nothing."""
        pool = sorted(now.models) if self.members == "all" else got.clients
        members: dict[int, list[ClientId]] = {k: [] for k in range(self.clusters)}
        for client in pool:
            if now.samples[client]:
                members[row[client]].append(client)
        return tree.stack(
            self._mean(now, fed, members[k]) if members[k] else tree.row(now.bank, k) for k in range(self.clusters)
        )

    def _mean(self, now: State, fed: Federation, clients: list[ClientId]) -> Params:
        clients = clients[:1] if self.agg == "first_only" else clients
        weights = [float(now.samples[c]) if self.weights == "samples" else 1.0 for c in clients]
        return fed.average(tree.stack(tree.unflatten(now.models[c], now.w0) for c in clients), weights)

    def _warm(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> State:
        """A first local model for those who have none; then, once, the first centers."""
        new = cohort.of(client for client in cohort if client not in now.models)
        if not len(new):
            return now
        local = dataclasses.replace(self.local, epochs=1, steps=0, mu=0.0)
        # Who is not heard counts as w_0; but the first centers need somebody.
        min_replies = 0 if now.warmed else None
        got = fed.ask(new, update, seed.fold("warm"), w0=Cached(now.w0), local=local, min_replies=min_replies)
        if not len(got):
            return now
        models = tree.flatten_rows(got["update"]) + tree.flatten(now.w0)  # (replies, parameters)
        known: dict[str, Any] = {
            "models": now.models.set({client: row.copy() for client, row in zip(got.clients, models, strict=True)}),
            "samples": now.samples.set(dict(zip(got.clients, got.samples.tolist(), strict=True))),
        }
        if not now.warmed:
            k = min(self.clusters, len(got))
            labels, _ = kmeans(models[:, now.counted], k, seed.fold("kmeans"))
            first = [tree.unflatten(models[labels == j].mean(axis=0, dtype=np.float64), now.w0) for j in range(k)]
            rest = [tree.row(now.bank, j) for j in range(k, self.clusters)]
            known |= {"bank": tree.stack([*first, *rest]), "warmed": True}
        return dataclasses.replace(now, **known)
