"""FedGroup: cluster the directions in which a few clients move, once; everyone joins the group that moves alike.

Duan, Liu, Ji, Liu, Liang, Chen, Tan, "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based
Clustering", ISPA 2021, arXiv:2010.06870. Algorithms 2 and 3:

    Δ_i = LocalUpdate(w_0) - w_0                             client: pre-training, always from w_0
    labels = cluster({Δ_i}), α·m clients in m groups         server: by EDC (k-means) or MADC (complete linkage)
    d_j = mean of Δ_i over group j,   w_j = w_0 + d_j        server: every client counts 1; d_j is frozen from here on
    (9)  g_i = argmin_j (1 - cos(d_j, Δ_i)) / 2              client: which group am I in?
    w_j ← FedAvg (FedGrouProx: FedProx) on the cohort's members of j, weighted by their examples
    w_j ← (w_j + η_g Σ_{l≠j} w_l/‖w_l‖) / (1 + η_g Σ_{l≠j} 1/‖w_l‖)          server: mixing, `mix` for the printed form

w_0 is `w0`, w_j is row j of `bank`, d_j of `directions`, m is `groups`, α `alpha`, η_g `eta_g`, μ of FedGrouProx `mu`.
RCC is `centers="random"`, RAC is `assignment="random"`.

Departures. Line 16 of Algorithm 3 averages updates into models: we average models. Pre-training takes 50 steps, as in
both published codes, where the text speaks of one epoch; it starts at w_0 also for late clients, as in FlexCFL's code,
and has no proximal term, no decay of the rate, no stragglers. Ties in (9) go to the lowest j; a direction of zero (a
group that nobody founded, whose model is w_0) is never joined. Groups are numbered by their first founder, and a group
without replies keeps its model to the bit before mixing. Founders are sent the directions too, as the papers' ledger
has it: 2KT + mN + 2αm models, and w_0 for the others under the purpose `base`. Mixing stays within the server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.aggregation import mix_groups, uniform_mean
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.directions import choose_group, keep, update
from coterie.clustering import agglomerative, choose, edc_embedding, kmeans, madc
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cached, Cohort, Federation, Mean, PerClient
from coterie.methods.fedavg import distances_of, loss_of, move_groups
from coterie.methods.grouping import Grouping
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of FedGroup is.

    Attributes:
        w0: The common initial model.
        bank: The groups' models.
        directions: The groups' first updates, without running statistics; zeros before the groups are founded.
        lots: Of random assignments.
        assignment: The group of each client that has one; the others are cold.
        founders: On whom the groups were founded.
        prepared: Steps of preparing done.
    """

    w0: Params
    bank: Bank
    directions: Bank
    lots: Seed
    assignment: ClientMap[int] = field(default_factory=ClientMap)
    founders: tuple[ClientId, ...] = ()
    prepared: int = 0

    @property
    def auxiliary(self) -> Params:
        """The plain mean of the models of groups that have members: the papers' global model, never sent."""
        used = sorted(set(self.assignment.values())) or list(range(tree.rows(self.bank)))
        mean: Params = uniform_mean(tree.take(self.bank, used))
        return mean


@dataclass(frozen=True)
class FedGroup(Grouping):
    """m groups, founded once on directions; a client joins one for good.

    Attributes:
        redraw: With random assignment: anew in every round.
    """

    redraw: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        if self.redraw and self.assignment != "random":
            raise SpecError("method.redraw belongs to assignment='random'")

    def start(self, task: Task, seed: Seed) -> State:
        """w_0 in every group, and no direction yet."""
        w0 = task.init(seed.fold("init"))
        bank = tree.stack([w0] * (1 if self.clusters == "auto" else self.clusters))
        return State(w0, bank, tree.map(np.zeros_like, trainable(bank)), seed.fold("lots"))

    def stage(self, now: State) -> Stage:
        """Founding the groups is one step of preparing, giving everyone a group another."""
        return "prepare" if now.prepared < (2 if self.assign == "eager" else 1) else "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Cold clients join a group; then a round of averaging in each group."""
        if now.prepared == 0:
            return self._found(now, fed, cohort, seed)
        preparing = self.stage(now) == "prepare"
        active = cohort if self.mu or preparing else cohort.active()
        joined, evidence = self._join(now, fed, active, seed)
        now = dataclasses.replace(now, assignment=now.assignment.set(joined))
        if preparing:
            return Round(dataclasses.replace(now, prepared=now.prepared + 1), joined, evidence=evidence)
        row = {client: now.assignment[client] for client in active if client in now.assignment}
        local = self.local.at(cohort.t)
        local = dataclasses.replace(local, mu=self.mu) if self.mu else local
        # After mixing, a group's model is not the mean of its replies: distances to that would be wrong.
        how = Mean(groups=tree.rows(now.bank), by=row, weights=self.weights, spread=self.eta_g == 0)
        got = fed.ask(active.of(row), fit, seed, start=PerClient(now.bank, row), local=local, reduce=how)
        bank = move_groups(now.bank, got)
        bank = mix_groups(bank, self.eta_g, self.mix) if self.eta_g else bank
        took_part = joined | {client: row[client] for client in got.clients}
        return Round(dataclasses.replace(now, bank=bank), took_part, loss_of(got), distances_of(got), evidence)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its group; a newcomer the group that it would join, for which it has to pre-train."""
        everyone = list(clients)
        row = {client: now.assignment[client] for client in everyone if client in now.assignment}
        cold = [client for client in everyone if client not in row]
        if self.assignment == "random":
            row |= {client: self._lot(now, client) for client in cold}
        elif cold:
            row |= closest_groups(now, fed, cold, seed, self.pretraining)[0]
        return Placement(now.bank, row)

    def _found(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Algorithm 3: pre-train some, cluster their updates, found a group on each cluster."""
        most = self.max_clusters if self.clusters == "auto" else self.clusters
        size = most * (self.alpha if self.centers == "clustered" else 1)
        drawn = cohort.draw(cohort.available, size, name="fedgroup")
        got = fed.ask(drawn, update, seed, w0=Cached(now.w0), local=self.pretraining)
        labels, evidence = self._cluster(tree.flatten_rows(trainable(got["update"])), seed)
        zero = tree.map(np.zeros_like, now.w0)
        count = labels.max() + 1 if self.clusters == "auto" else self.clusters
        members = [np.flatnonzero(labels == j) for j in range(count)]
        moves = tree.stack(
            fed.average(tree.take(got["update"], m), np.ones(len(m))) if len(m) else zero for m in members
        )
        bank = tree.map(
            lambda w, d: (w + d.astype(np.float64)).astype(w.dtype), tree.stack([now.w0] * len(members)), moves
        )
        directions = trainable(moves)
        fed.ask(cohort.of(got.clients), keep, seed, directions=Cached(directions), min_replies=0)
        row = dict(zip(got.clients, labels.tolist(), strict=True))
        after = State(now.w0, bank, directions, now.lots, ClientMap(row), got.clients, now.prepared + 1)
        return Round(after, row, evidence={"clients": list(got.clients), "labels": labels, **evidence})

    def _cluster(self, updates: Array, seed: Seed) -> tuple[Array, dict[str, Any]]:
        """The group of each founder, and on what that was decided. Fewer founders than groups: the last stay empty."""
        if self.centers == "random":
            return np.arange(len(updates)), {}
        distances = madc(updates) if self.measure == "madc" else None
        if self.clusters == "auto":
            points = edc_embedding(updates, self.max_clusters) if distances is None else distances
            kind: Literal["embedding", "distances"] = "embedding" if distances is None else "distances"
            k, scores = choose(
                points, self.max_clusters, self.rule, seed=seed.fold("auto"), kind=kind, linkage="complete"
            )
            evidence: dict[str, Any] = {"scores": {str(number): score for number, score in scores.items()}}
        else:
            k, evidence = min(self.clusters, len(updates)), {}
        if distances is not None:
            return agglomerative(distances, k=k, linkage="complete"), {**evidence, "distances": distances}
        embedding = edc_embedding(updates, k)
        return kmeans(embedding, k, seed.fold("kmeans"))[0], {**evidence, "embedding": embedding}

    def _join(
        self, now: State, fed: Federation, cohort: Cohort, seed: Seed
    ) -> tuple[dict[ClientId, int], dict[str, Any]]:
        """The groups of those who have none yet, or draw a new one; and on what that was decided."""
        if self.redraw:
            drawn = set(cohort).difference(now.founders)
            return {client: self._lot(now, client, cohort.t) for client in sorted(drawn)}, {}
        cold = cohort.of(client for client in cohort if client not in now.assignment)
        if self.assignment == "random":
            return {client: self._lot(now, client) for client in cold}, {}
        # Who is not heard stays cold; the round is lost only where nobody else can train.
        min_replies = 0 if len(cold) < len(cohort) and self.stage(now) == "train" else None
        return closest_groups(now, fed, cold, seed, self.pretraining, min_replies) if len(cold) else ({}, {})

    def _lot(self, now: State, client: ClientId, *t: int) -> int:
        return int(now.lots.fold(client, *t).words(1)[0]) * tree.rows(now.bank) >> 64


def closest_groups(
    now: State,
    fed: Federation,
    clients: Cohort | Iterable[ClientId],
    seed: Seed,
    local: LocalSGD,
    min_replies: int | None = None,
) -> tuple[dict[ClientId, int], dict[str, Any]]:
    """(9): the groups of clients that pre-train for it, stragglers in full; and the cosines on which they decided."""
    asked = dataclasses.replace(clients, efforts={}) if isinstance(clients, Cohort) else clients
    sent: dict[str, Any] = {"w0": Cached(now.w0), "directions": Cached(now.directions)}
    got = fed.ask(asked, choose_group, seed, **sent, local=local, min_replies=min_replies)
    return got.by_client("choice"), {"clients": list(got.clients), "cosines": got["cosines"]}
