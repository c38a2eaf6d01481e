"""FeSEM: each client belongs to the center nearest to its last local model (stochastic expectation maximization).

Xie, Long, Shen, Zhou, Wang, Jiang, Zhang, "Multi-Center Federated Learning", arXiv:2005.01026, in the form in which
FedGroup and FlexCFL compare with it. Minimizes Σ_i min_k ||w_i - c_k||², alternating with local training:

    E:  z_i = argmin_k ||w_i - c_k||                    server: for the cohort; w_i is w_0 until client i trains
    M:  w_i ← LocalUpdate(c_{z_i})                      client
        c_k ← mean of {w_i : i in the cohort, z_i = k}  server

c_k is row k of `bank`, w_i is `models[i]`, flat and kept on the server, so that traffic equals that of FedAvg.
`average_over="all"` averages over all clients whose local model is known, as in the original paper, whose λ is
`local.mu`. With `recluster_every` above 1, there is an E-step only every `recluster_every` rounds, for all clients
whose local model is known; in between, clients keep their center. `agg="first_only"` is the rule of FlexCFL's published
code.

Departures from the paper: ties go to the lowest k, and a center without clients keeps its model to the bit. All clients
start with w_i = w_0, so the whole first cohort chooses the same center and FeSEM tends to stay there; the papers report
this, and it is not changed here. With `warm_start` a client trains one epoch from w_0 before its first E-step, and the
first centers are the means of k-means over these models.
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
from coterie.clustering import kmeans
from coterie.codec import state
from coterie.federation.protocol import Cached, Cohort, Federation, PerClient, Replies
from coterie.methods.fedavg import global_model, loss_of
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a run of FeSEM.

    Attributes:
        w0: The model of clients that have not trained.
        bank: The centers.
        counted: Mask of the parameters that enter distances.
        models: Client → its last local model, flat.
        samples: Client → number of samples of its last training.
        warmed: Whether the first centers have been set by the warm start.
        assignment: Client → its center since the last E-step; empty if every round has an E-step.
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
        counted = slice(None) if self.counted.all() else self.counted
        centers = tree.flatten_rows(self.bank)[:, counted].astype(np.float64)
        difference = np.empty_like(centers)  # one for all clients: they may be many, with large models

        def to(model: Array) -> Array:
            np.subtract(centers, model[counted], out=difference)
            distances: Array = np.sqrt(np.einsum("kp,kp->k", difference, difference))
            return distances

        untrained = to(tree.flatten(self.w0))
        found = [to(self.models[c]) if c in self.models else untrained for c in clients]
        return np.array(found).reshape(-1, len(centers))

    def nearest(self, clients: Iterable[ClientId]) -> dict[ClientId, int]:
        """Client → its nearest center; ties go to the lowest index."""
        asked = list(clients)
        return dict(zip(asked, self.distances(asked).argmin(axis=1).tolist(), strict=True))


@dataclass(frozen=True)
class FeSEMSettings:
    """The settings that FeSEM and FeSEM-MIG have in common.

    Attributes:
        local: Settings of local training.
        clusters: Number of centers (m).
        average_over: Clients over which a center is averaged: those in the cohort, or all with a known model.
        warm_start: Whether a client trains one epoch from w_0 before its first E-step, and k-means of these models
            gives the first centers.
        layers: Parameters that enter distances: all trainable ones, or those of the last layer.
        weights: Client weight: uniform, or number of samples.
        recluster_every: Number of rounds between E-steps.
        agg: Model of a center: mean of its clients, or the first client only.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: Annotated[int, Bound(at_least=1)] = 3
    average_over: Literal["cohort", "all"] = "cohort"
    warm_start: bool = False
    layers: Literal["all", "last"] = "all"
    weights: Literal["uniform", "samples"] = "uniform"
    recluster_every: Annotated[int, Bound(at_least=1)] = 1
    agg: Literal["mean", "first_only"] = "mean"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    @property
    def own_mean(self) -> str:
        """A text about the means that do not use the run's aggregation rule; empty if all of them do."""
        return "the first centers are those of k-means (method.warm_start = false: none)" if self.warm_start else ""


@dataclass(frozen=True)
class FeSEM(FeSEMSettings):
    """m centers; every client trains the one nearest to its last local model."""

    def start(self, task: Task, seed: Seed) -> State:
        """Independent initial centers. The first equals the initial model of FedAvg, so that one center is FedAvg."""
        names = [("init",) if k == 0 else ("init", k) for k in range(self.clusters)]
        bank = tree.stack(task.init(seed.fold(*name)) for name in names)
        # With several centers w_0 is drawn separately: equal to one of them, it would decide the first E-step.
        w0 = task.init(seed.fold("w0")) if self.clusters > 1 else tree.row(bank, 0)
        last = task.layers[-1] if self.layers == "last" else ""

        def counts(path: str, leaf: Array) -> Array:
            keys = path.split("/")
            return np.full(leaf.shape, "stats" not in keys and (not last or keys[0] == last))

        return State(w0, bank, tree.flatten(tree.map_paths(counts, w0)))

    def stage(self, state: State) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """E-step on the server, M-step with one exchange: one center down, one model up."""
        active = cohort.active()
        if not len(active):
            return Round(state, counts={"empty_clusters": self.clusters})
        if self.warm_start:
            state = self._warm(state, fed, active, seed)
        state, row = self._assigned(state, active)
        got = fed.ask(active, fit, seed, start=PerClient(state.bank, row), local=self.local.at(cohort.t))
        after = dataclasses.replace(
            state,
            models=state.models.set({client: tree.flatten(model) for client, model in got.by_client("params").items()}),
            samples=state.samples.set(dict(zip(got.clients, got.samples.tolist(), strict=True))),
        )
        after = dataclasses.replace(after, bank=self._centers(after, fed, row, got))
        assignment = {client: row[client] for client in got.clients}
        apart = tree.row_distances(got["params"], after.bank, list(assignment.values()))
        distances = dict(zip(got.clients, apart.tolist(), strict=True))
        empty = self.clusters - len(set(assignment.values()))
        return Round(after, assignment, loss_of(got), distances, counts={"empty_clusters": empty})

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Each client's center: the assigned one, or the nearest to its last local model (w_0 before training)."""
        asked = list(clients)
        known = {client: state.assignment[client] for client in asked if client in state.assignment}
        row = known | state.nearest(client for client in asked if client not in known)
        return state, Placement(state.bank, row, fallback=global_model(state.bank, row))

    def _assigned(self, state: State, cohort: Cohort) -> tuple[State, dict[ClientId, int]]:
        """The E-step; between E-steps the last assignment, extended by new clients."""
        if self.recluster_every == 1:
            return state, state.nearest({*cohort, *state.models} if self.average_over == "all" else cohort)
        kept = {} if cohort.t % self.recluster_every == 0 else dict(state.assignment)
        row = kept | state.nearest(sorted({*cohort, *state.models}.difference(kept)))
        return dataclasses.replace(state, assignment=ClientMap(row)), row

    def _centers(self, state: State, fed: Federation, row: dict[ClientId, int], got: Replies) -> Bank:
        """M-step: the mean of the clients of each center; clients without samples are left out."""
        pool = sorted(state.models) if self.average_over == "all" else got.clients
        members: dict[int, list[ClientId]] = {k: [] for k in range(self.clusters)}
        for client in pool:
            if state.samples[client]:
                members[row[client]].append(client)
        return tree.stack(
            self._mean(state, fed, members[k], tree.row(state.bank, k)) if members[k] else tree.row(state.bank, k)
            for k in range(self.clusters)
        )

    def _mean(self, state: State, fed: Federation, clients: list[ClientId], center: Params) -> Params:
        clients = clients[:1] if self.agg == "first_only" else clients
        weights = [float(state.samples[c]) if self.weights == "samples" else 1.0 for c in clients]
        models = tree.stack(tree.unflatten(state.models[c], state.w0) for c in clients)
        return fed.average(models, weights, clients=clients, start=center)

    def _warm(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> State:
        """Train a first local model for clients that have none; the first call also sets the first centers."""
        new = cohort.of(client for client in cohort if client not in state.models)
        if not len(new):
            return state
        local = dataclasses.replace(self.local, epochs=1, steps=0, mu=0.0)
        # Clients whose reply is lost count as w_0, but the first centers need at least one reply.
        min_replies = 0 if state.warmed else None
        got = fed.ask(new, update, seed.fold("warm"), w0=Cached(state.w0), local=local, min_replies=min_replies)
        if not len(got):
            return state
        models = tree.flatten_rows(got["update"]) + tree.flatten(state.w0)  # (replies, parameters)
        after = dataclasses.replace(
            state,
            models=state.models.set({client: row.copy() for client, row in zip(got.clients, models, strict=True)}),
            samples=state.samples.set(dict(zip(got.clients, got.samples.tolist(), strict=True))),
        )
        if state.warmed:
            return after
        k = min(self.clusters, len(got))
        labels, _ = kmeans(models[:, state.counted], k, seed.fold("kmeans"))
        first = [tree.unflatten(models[labels == j].mean(axis=0, dtype=np.float64), state.w0) for j in range(k)]
        rest = [tree.row(state.bank, j) for j in range(k, self.clusters)]
        return dataclasses.replace(after, bank=tree.stack([*first, *rest]), warmed=True)
