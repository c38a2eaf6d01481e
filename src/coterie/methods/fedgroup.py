"""FedGroup: cluster the updates of some pre-trained clients once; other clients join the group with the closest update.

Duan, Liu, Ji, Liu, Liang, Chen, Tan, "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based
Clustering", ISPA 2021, arXiv:2010.06870. Algorithms 2 and 3:

    Δ_i = LocalUpdate(w_0) - w_0                             client: pre-training, always from w_0
    labels = cluster({Δ_i}), α·m clients in m groups         server: by EDC (k-means) or MADC (complete linkage)
    d_j = mean of Δ_i over group j,   w_j = w_0 + d_j        server: uniform weights; d_j does not change afterwards
    (9)  g_i = argmin_j (1 - cos(d_j, Δ_i)) / 2              client: the group that it joins
    w_j ← FedAvg (FedGrouProx: FedProx) on the cohort's members of group j, weighted by samples
    w_j ← (w_j + η_g Σ_{l≠j} w_l/‖w_l‖) / (1 + η_g Σ_{l≠j} 1/‖w_l‖)          server: mixing; `mix` selects the form

w_0 is `w0`, w_j row j of `bank`, d_j row j of `directions`, m `clusters`, α `alpha`, η_g `eta_g`, μ of FedGrouProx
`mu`. RCC is `centers="random"`, RAC is `assignment="random"`. The α·m pre-trained clients are the initial clients.

Departures from the paper. Line 16 of Algorithm 3 averages updates where models are meant; here models are averaged.
Pre-training takes 50 steps, as in both published implementations; the text says one epoch. It starts from w_0 for late
clients too, as in FlexCFL's code, and has no proximal term, no learning rate decay and no stragglers. Ties in (9) go to
the lowest j. A group without initial clients has model w_0 and direction zero, and is never joined. Groups are numbered
by their first initial client. A group without replies keeps its model to the bit before mixing. Initial clients are
sent the directions too, as in the papers' cost formula for T rounds with K of N clients: 2KT + mN + 2αm models. w_0 for
the other clients is counted in addition, as traffic `base`. Mixing happens on the server and sends nothing. The papers
give m for each data set; by default it is chosen here from the updates of α·`max_clusters` initial clients
(`choose_n_clusters`), and is one if these show no clusters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from coterie import tree
from coterie.aggregation import mix_groups
from coterie.bounds import Bound
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.directions import choose_group, keep, update
from coterie.clustering import agglomerative, choose_n_clusters, edc_embedding, kmeans, madc
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cached, Cohort, Federation, Mean, PerClient
from coterie.methods.cluster_training import placed
from coterie.methods.fedavg import distances_of, global_model, loss_of, moved
from coterie.methods.fedgroup_settings import FedGroupSettings
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a run of FedGroup.

    Attributes:
        w0: The common initial model.
        bank: The models of the groups.
        directions: d_j of each group, without running statistics; zeros before the groups are formed.
        assignment_seed: Seed of random assignments.
        assignment: Client → group, for clients that have one.
        initial_clients: The clients whose updates formed the groups.
        prepared: Number of preparation steps done.
    """

    w0: Params
    bank: Bank
    directions: Bank
    assignment_seed: Seed
    assignment: ClientMap[int] = field(default_factory=ClientMap)
    initial_clients: tuple[ClientId, ...] = ()
    prepared: int = 0

    @property
    def auxiliary(self) -> Params:
        """The papers' global model: the uniform mean of the models of groups with members."""
        return global_model(self.bank, self.assignment)


@dataclass(frozen=True)
class FedGroup(FedGroupSettings):
    """m groups, formed once from update directions; a client stays in its group.

    Attributes:
        redraw: With random assignment: draw a new group in every round.
    """

    redraw: bool = False

    def __post_init__(self) -> None:
        """Validate the settings."""
        super().__post_init__()
        if self.redraw and self.assignment != "random":
            raise SpecError("method.redraw needs assignment='random', got 'nearest'")

    def start(self, task: Task, seed: Seed) -> State:
        """w_0 in every group; directions are zero."""
        w0 = task.init(seed.fold("init"))
        bank = tree.stack([w0] * (1 if self.clusters == "auto" else self.clusters))
        return State(w0, bank, tree.map(np.zeros_like, trainable(bank)), seed.fold("lots"))

    def stage(self, state: State) -> Stage:
        """Forming the groups is one step of preparation; with `assign="eager"` assigning all clients is another."""
        return "prepare" if state.prepared < (2 if self.assign == "eager" else 1) else "train"

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Clients without a group join one; then a round of FedAvg in each group."""
        if state.prepared == 0:
            return self._form_groups(state, fed, cohort, seed)
        preparing = self.stage(state) == "prepare"
        active = self._active(state, cohort)
        joined, evidence = self._join(state, fed, active, seed)
        state = dataclasses.replace(state, assignment=state.assignment.set(joined))
        if preparing:
            return Round(dataclasses.replace(state, prepared=state.prepared + 1), joined, evidence=evidence)
        row = {client: state.assignment[client] for client in active if client in state.assignment}
        local = self.local.at(cohort.t)
        local = dataclasses.replace(local, mu=self.mu) if self.mu else local

        def mixed(means: Bank, weights: Array) -> Bank:
            bank = moved(state.bank, means, weights)
            return mix_groups(bank, self.eta_g, self.mix) if self.eta_g else bank

        # After mixing, the model of a group is not the mean of its replies: distances are those to the mixed model.
        reference = mixed if self.eta_g else None
        mean = Mean(groups=tree.rows(state.bank), by=row, weights=self.weights, spread=True, reference=reference)
        got = fed.ask(active.of(row), fit, seed, start=PerClient(state.bank, row), local=local, reduce=mean)
        bank = mixed(*got.means())
        chosen = joined if self.assignment == "nearest" else {}  # random groups need no reply
        took_part = chosen | {client: row[client] for client in got.clients}
        return Round(dataclasses.replace(state, bank=bank), took_part, loss_of(got), distances_of(got), evidence)

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """The model of each client's group. Newcomers pre-train to join a group; others get the auxiliary model."""
        asked = list(clients)
        known = state.assignment.among(asked)
        new = [client for client in asked if client not in known]
        if not new:
            return state, Placement(state.bank, known, fallback=state.auxiliary)
        evidence: dict[str, object] = {}
        if self.assignment == "random":
            joined = {client: self._random_group(state, client) for client in new}
        else:
            joined, evidence = closest_groups(state, fed, new, seed, self.pretraining)
        state = dataclasses.replace(state, assignment=state.assignment.set(joined))
        return state, dataclasses.replace(placed(state, asked), evidence=evidence)

    def _form_groups(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Algorithm 3: pre-train the initial clients, cluster their updates, form a group from each cluster."""
        max_groups = self.max_clusters if self.clusters == "auto" else self.clusters
        size = max_groups * (self.alpha if self.centers == "clustered" else 1)
        drawn = cohort.draw(cohort.available, size, name="fedgroup")
        got = fed.ask(drawn, update, seed, w0=Cached(state.w0), local=self.pretraining)
        labels, evidence = self._cluster(tree.flatten_rows(trainable(got["update"])), seed)
        zero = tree.map(np.zeros_like, state.w0)
        count = labels.max() + 1 if self.clusters == "auto" else self.clusters
        members = [np.flatnonzero(labels == j) for j in range(count)]
        updates = tree.stack(
            fed.average(tree.take(got["update"], m), np.ones(len(m)), clients=[got.clients[i] for i in m])
            if len(m)
            else zero
            for m in members
        )
        bank = tree.map(
            lambda w, d: (w + d.astype(np.float64)).astype(w.dtype), tree.stack([state.w0] * len(members)), updates
        )
        directions = trainable(updates)
        fed.ask(cohort.of(got.clients), keep, seed, directions=Cached(directions), min_replies=0)
        row = dict(zip(got.clients, labels.tolist(), strict=True))
        after = State(
            state.w0, bank, directions, state.assignment_seed, ClientMap(row), got.clients, state.prepared + 1
        )
        return Round(after, row, evidence={"clients": list(got.clients), "labels": labels, **evidence})

    def _cluster(self, updates: Array, seed: Seed) -> tuple[Array, dict[str, object]]:
        """The group of each initial client, and the evidence. With too few clients the last groups stay empty."""
        if self.centers == "random":
            return np.arange(len(updates)), {}
        distances = madc(updates) if self.measure == "madc" else None
        if self.clusters == "auto":
            points = edc_embedding(updates, self.max_clusters) if distances is None else distances
            kind: Literal["embedding", "distances"] = "embedding" if distances is None else "distances"
            k, scores = choose_n_clusters(
                points, self.max_clusters, self.rule, seed=seed.fold("auto"), kind=kind, linkage="complete"
            )
            evidence: dict[str, object] = {"scores": {str(number): score for number, score in scores.items()}}
        else:
            k, evidence = min(self.clusters, len(updates)), {}
        if distances is not None:
            return agglomerative(distances, k=k, linkage="complete"), {**evidence, "distances": distances}
        embedding = edc_embedding(updates, k)
        return kmeans(embedding, k, seed.fold("kmeans"))[0], {**evidence, "embedding": embedding}

    def _active(self, state: State, cohort: Cohort) -> Cohort:
        """The clients that train in a round: without a proximal term stragglers do not."""
        return cohort if self.mu or self.stage(state) == "prepare" else cohort.active()

    def joining(self, state: State, cohort: Cohort) -> list[ClientId]:
        """The clients of a cohort that choose their first group by the direction of their update."""
        if self.redraw or self.assignment == "random":
            return []
        return [client for client in self._active(state, cohort) if client not in state.assignment]

    def _join(
        self, state: State, fed: Federation, cohort: Cohort, seed: Seed
    ) -> tuple[dict[ClientId, int], dict[str, object]]:
        """Groups of the clients that have none or draw a new one, and the evidence."""
        if self.redraw:
            drawn = set(cohort).difference(state.initial_clients)
            return {client: self._random_group(state, client, cohort.t) for client in sorted(drawn)}, {}
        new = cohort.of(client for client in cohort if client not in state.assignment)
        if self.assignment == "random":
            return {client: self._random_group(state, client) for client in new}, {}
        # Clients whose reply is lost stay without a group. The round is skipped only if no other client can train.
        min_replies = 0 if len(new) < len(cohort) and self.stage(state) == "train" else None
        return closest_groups(state, fed, new, seed, self.pretraining, min_replies) if len(new) else ({}, {})

    def _random_group(self, state: State, client: ClientId, *t: int) -> int:
        return state.assignment_seed.fold(client, *t).integer(tree.rows(state.bank))


@dataclass(frozen=True)
class FedGrouProx(FedGroup):
    """FedGrouProx: FedGroup with a proximal term in the local loss of the groups.

    Duan, Liu, Ji, Liu, Liang, Chen, Tan, "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based
    Clustering", ISPA 2021, arXiv:2010.06870. Identical to FedGroup except for the local objective of a member i of
    group j:

        w_i ≈ argmin_w F_i(w) + (μ/2) ||w - w_j||²          stragglers contribute the steps they completed

    μ is `mu`. This is a preset: FedGroup with another default for `mu`; μ = 0 is FedGroup to the bit.
    """

    mu: Annotated[float, Bound(at_least=0)] = 1.0


def closest_groups(
    state: State,
    fed: Federation,
    clients: Cohort | Iterable[ClientId],
    seed: Seed,
    local: LocalSGD,
    min_replies: int | None = None,
) -> tuple[dict[ClientId, int], dict[str, object]]:
    """(9): clients pre-train, stragglers completely, and choose a group. Returns their groups, and the cosines."""
    asked = dataclasses.replace(clients, efforts={}) if isinstance(clients, Cohort) else clients
    w0, directions = Cached(state.w0), Cached(state.directions)
    got = fed.ask(asked, choose_group, seed, w0=w0, directions=directions, local=local, min_replies=min_replies)
    return got.by_client("choice"), {"clients": list(got.clients), "cosines": got["cosines"]}
