"""CFL: train one model; split its clients in two by their updates if it has converged but their updates remain large.

Sattler, Müller, Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization Under Privacy
Constraints", IEEE TNNLS 2021, arXiv:1910.01991. For each cluster c with model θ_c, in every round:

    Δ_i = LocalUpdate(θ_c) - θ_c                                        client: each member of c
    θ_c ← θ_c + Σ_i p_i Δ_i                                             server: p_i = n_i / Σ_{j∈c} n_j, or 1/|c|
    stationary, incongruent:  ‖Σ_i p_i Δ_i‖ < ε1  and  max_i ‖Δ_i‖ > ε2
    (16)  c1, c2 = argmin over c1 ∪ c2 = c of α_cross,                  α_cross = max_{i∈c1, j∈c2} cos(Δ_i, Δ_j)
    certified:  γ_max < √((1 - α_cross)/2),                             γ_i = ‖Δ_i - E Δ_i‖ / ‖E Δ_i‖
    separated:  B/W ≥ s,  B = n1 n2/n ‖Δ̄_1 - Δ̄_2‖²,  W = Σ_i ‖Δ_i - Δ̄_part(i)‖² / (n - 2)
    repeated:  corr(a, b) ≥ 0.65 and significant,  a_i = cos(Δ_i^A, Δ̄_1 - Δ̄_2),  b_i = cos(Δ_i^B, Δ̄_1 - Δ̄_2)
    newcomer:  descend from the root, see methods/cluster_tree.py

If γ_max is above all γ_i, two clients of the same distribution have cos(Δ_i, Δ_j) ≥ 1 - 2γ_max². In a certified split
α_cross is below that, so no such pair is separated. θ_c is a row of `bank`, ε1 `eps1`, ε2 `eps2`, γ_max `gamma_max`, s
`separation`; each of the last two is off if it is 0. For each cluster, the record holds the two norms and, if (16) was
solved, the cosines, α_cross, the bound on γ_max, B/W, and an estimate of the largest γ_i, with the means of the parts
as E Δ_i.

Departures from the paper. The authors' values of ε1 and ε2 fit only their model and learning rate; `units="relative"`
measures both norms relative to the largest ‖Σ p_i Δ_i‖ so far, with each Δ_i scaled to the learning rate of the first
round. The updates of a client with few examples stay large, so that ε2 cannot distinguish it from a client of another
true cluster, and its γ is above 1, where the theorem does not apply. "Separated" is our addition: the pseudo-F of
Caliński and Harabasz (1974), a rule of thumb without a guarantee; late in a run it may accept a split of one true
cluster. Defaults were tuned on rotated digits and MNIST. Both parts continue from the cluster's new model, as in the
paper; in the authors' code each part starts from the mean of its own members. That code also uses complete linkage
(`linkage="complete"`), which does not solve (16); and it uses positions within a cluster as client ids, so that from
the second split on it moves the wrong clients. (16) itself (`linkage="single"`) is decided by one pair of clients: with
few examples per client it separates the client with the noisiest update. By default the parts therefore minimize the
mean cosine, not the largest one (`bipartition` with average linkage). That finds two parts in noise, too, with a large
B/W. "Repeated" is our addition, and decides against noise: if all other conditions of a split hold, each member trains
on two halves A and B of its examples and replies with two numbers, the cosines of both updates with the difference of
the parts, which are computed without the client's own update (clients/noise_floor.py, clustering/repeated_splits.py).
In noise the halves of a client disagree, and the correlation over the members is near 0. After a disagreement the
members are not asked for five rounds. With `participation="cohort"` only the cohort trains, and a cluster may be split
only if every member has an update of this cluster's model that is at most `max_age` rounds old.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from coterie import tree
from coterie.aggregation import weighted_mean
from coterie.bounds import Bound, check
from coterie.clients import LocalSGD, fit
from coterie.clients.directions import update
from coterie.clients.noise_floor import project_halves
from coterie.clustering.repeated_splits import correlation, is_repeated
from coterie.clustering.split_statistics import SplitStatistics, split_statistics
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, PerClient, Replies
from coterie.methods.cluster_training import Clients, subset
from coterie.methods.cluster_tree import ROOT, LastUpdate, State
from coterie.methods.fedavg import global_model, loss_of
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

# Rounds after which members are asked again whether a split is repeated.
_PAUSE = 5

#: Cluster → client → the update used to decide about a split.
Basis = Mapping[int, Mapping[ClientId, LastUpdate]]


@dataclass(frozen=True)
class CFL:
    """A tree of clusters; a cluster is split in two when its model is stationary but its clients' updates are large.

    Attributes:
        local: Settings of local training.
        eps1: ε1: a cluster is stationary if the norm of its mean update is below it.
        eps2: ε2: a cluster is incongruent if the norm of some member's update is above it.
        units: Unit of ε1 and ε2: relative to the largest mean update so far, or absolute norms.
        warmup: Number of rounds before the first split.
        min_size: Only clusters with more clients than this are split.
        gamma_max: γ_max, an assumed bound on the relative noise of updates; only certified splits are made. 0: splits
            need no certificate.
        separation: s, minimum B/W of a split; 0: no minimum.
        repeated: Whether two halves of each client's examples must agree about a split.
        linkage: Bipartition by average linkage, which compares means; by single linkage, the exact solution of (16); or
            by complete linkage, as in the authors' code.
        weights: Client weight: number of samples, or uniform.
        participation: Every client trains in every round, as in the paper, or only the cohort.
        max_age: With participation `cohort`: maximum age, in rounds, of the updates used to decide about a split.
    """

    finds_clusters: ClassVar[bool] = True
    local: LocalSGD = field(default_factory=LocalSGD)
    eps1: Annotated[float, Bound(at_least=0, infinite=True)] = 0.6
    eps2: Annotated[float, Bound(at_least=0, infinite=True)] = 0.6
    units: Literal["relative", "absolute"] = "relative"
    warmup: Annotated[int, Bound(at_least=0)] = 20
    min_size: Annotated[int, Bound(at_least=1)] = 2
    gamma_max: Annotated[float, Bound(at_least=0, below=1)] = 0.0
    separation: Annotated[float, Bound(at_least=0, infinite=True)] = 3.0
    repeated: bool = True
    linkage: Literal["average", "single", "complete"] = "average"
    weights: Literal["samples", "uniform"] = "samples"
    participation: Literal["all", "cohort"] = "all"
    max_age: Annotated[int, Bound(at_least=0)] = 10

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")
        if self.local.in_turn:
            raise SpecError("cfl compares updates from the same model; it cannot run with local.in_turn = true")

    @property
    def asks_all(self) -> str:
        """Why all clients are asked in a round; empty if only the cohort is."""
        return "every client trains in every round, as in the paper" if self.participation == "all" else ""

    def start(self, task: Task, seed: Seed) -> State:
        """One cluster with the common initial model."""
        return State(tree.stack([task.init(seed.fold("init"))]))

    def stage(self, now: State) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Clients left at a split descend, clients train their cluster's model, and clusters may be split."""
        active = (cohort.of(cohort.available) if self.participation == "all" else cohort).active()
        min_replies = 0 if now.clusters(active) else None  # the others can train even if all of these are lost
        now = dataclasses.replace(now, nodes=now.nodes.set(self._descend(now, fed, active, seed, min_replies)))
        row = now.assignment(active)
        got = fed.ask(active.of(row), fit, seed, start=PerClient(now.bank, row), local=self.local.at(cohort.t))
        nodes = now.clusters(got.clients)
        new = self._last_updates(now, nodes, got, cohort.t)
        updates = now.updates.set(new) if self.participation == "cohort" else now.updates
        bank = self._averaged(now, fed, nodes, got)
        after = dataclasses.replace(now, bank=bank, nodes=now.nodes.set(nodes), updates=updates)
        after, evidence = self._split(now, after, self._basis(after, cohort, new), fed, active, seed)
        found = after.assignment(got.clients)
        served = [found.get(client, row[client]) for client in got.clients]
        distances = tree.row_distances(got["params"], after.bank, served).tolist()
        counts = {"splits": len(after.splits) - len(now.splits)}
        return Round(after, found, loss_of(got), dict(zip(got.clients, distances, strict=True)), evidence, counts)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Serve each client its cluster's model; newcomers and clients at a split descend, training at each split."""
        asked = list(clients)
        now = dataclasses.replace(now, nodes=now.nodes.set(self._descend(now, fed, asked, seed)))
        fallback = global_model(now.bank, now.assignment(now.nodes))
        return now, Placement(now.bank, now.assignment(asked), fallback=fallback)

    def _descend(
        self, now: State, fed: Federation, clients: Clients, seed: Seed, min_replies: int | None = None
    ) -> dict[ClientId, int]:
        """New nodes of the clients that are at a split: a cluster, or a lower split at which their reply was lost."""
        nodes = {client: now.nodes.get(client, ROOT) for client in clients}
        moved = {}
        for node in sorted(now.splits):  # the parts of a split have higher numbers
            waiting = [client for client in clients if nodes[client] == node]
            if not waiting:
                continue
            split, asked = now.splits[node], subset(clients, waiting)
            name, local = seed.fold("descend", node), self.local.at(split.t)
            got = fed.ask(asked, update, name, w0=split.model, local=local, min_replies=min_replies)
            sides = split.sides_of(got["update"]) if len(got) else []
            for client, side in zip(got.clients, sides, strict=True):
                nodes[client] = moved[client] = split.parts[side]
        return moved

    def _last_updates(
        self, now: State, nodes: Mapping[ClientId, int], got: Replies, t: int
    ) -> dict[ClientId, LastUpdate]:
        """Δ_i of the clients that replied and have examples."""
        starts = tree.take(now.bank, [now.rows[nodes[client]] for client in got.clients])
        updates = tree.flatten_rows(trainable(got["params"])) - tree.flatten_rows(trainable(starts))
        return {
            client: LastUpdate(nodes[client], t, updates[i].copy(), int(got.samples[i]))
            for i, client in enumerate(got.clients)
            if got.samples[i]
        }

    def _averaged(self, now: State, fed: Federation, nodes: Mapping[ClientId, int], got: Replies) -> Bank:
        """The mean of each cluster's replies; a cluster without replies or without examples keeps its model."""
        models = [tree.row(now.bank, row) for row in range(tree.rows(now.bank))]
        weights = self._weights(got.samples)
        for node in sorted(set(nodes.values())):
            members = [i for i, client in enumerate(got.clients) if nodes[client] == node]
            if weights[members].any():
                start, clients = models[now.rows[node]], [got.clients[i] for i in members]
                models[now.rows[node]] = fed.average(
                    tree.take(got["params"], members), weights[members], clients=clients, start=start
                )
        return tree.stack(models)

    def _weights(self, samples: npt.ArrayLike) -> Array:
        counts = np.asarray(samples, np.float64)
        return counts if self.weights == "samples" else (counts > 0).astype(np.float64)

    def _basis(self, after: State, cohort: Cohort, new: Mapping[ClientId, LastUpdate]) -> Basis:
        """The updates of each cluster that may be split: of members that replied or, with cohorts, of all members."""
        known: Mapping[ClientId, LastUpdate] = new if self.participation == "all" else after.updates
        basis: dict[int, dict[ClientId, LastUpdate]] = {}
        incomplete = set()
        for client, node in sorted(after.clusters({*cohort.available, *after.nodes}).items()):
            last = known.get(client)
            if last is not None and last.node == node and cohort.t - last.t <= self.max_age:
                basis.setdefault(node, {})[client] = last
            else:
                incomplete.add(node)
        return {n: basis[n] for n in sorted(basis) if self.participation == "all" or n not in incomplete}

    def _split(
        self, now: State, after: State, basis: Basis, fed: Federation, active: Cohort, seed: Seed
    ) -> tuple[State, dict[str, object]]:
        """The tree after this round, and the evidence for each cluster."""
        scaled = {node: self._scaled(members.values()) for node, members in basis.items()}
        norms = {node: self._norms(scaled[node], members.values()) for node, members in basis.items()}
        after = dataclasses.replace(after, largest=max([now.largest, *(mean for mean, _ in norms.values())]))
        unit = after.largest if self.units == "relative" else 1.0
        evidence: dict[str, object] = {}
        for node, members in basis.items():
            mean, largest = norms[node]
            shown: dict[str, object] = {"clients": list(members), "mean_norm": mean, "max_norm": largest}
            stationary, incongruent = mean < self.eps1 * unit, largest > self.eps2 * unit
            if active.t >= self.warmup and len(members) > self.min_size and stationary and incongruent:
                found = split_statistics(scaled[node], self.linkage)
                shown |= vars(found)
                accepted = self.is_separated(found)
                model = tree.row(now.bank, now.rows[node])
                if accepted and self.repeated and active.t < after.refused.get(node, -_PAUSE) + _PAUSE:
                    accepted = False
                elif accepted and self.repeated:
                    r = self._repeatability(scaled[node], found, model, members, fed, active, seed.fold("noise", node))
                    accepted = r is None or is_repeated(r, len(members))
                    shown["repeatability"] = r
                    if not accepted:
                        after = dataclasses.replace(after, refused={**after.refused, node: active.t})
                if accepted:
                    after = after.with_split(node, model, members, found.labels, active.t)
            evidence[str(now.rows[node])] = shown
        return after, evidence

    def is_separated(self, found: SplitStatistics) -> bool:
        """Whether a split is certified and separated."""
        certified = not self.gamma_max or self.gamma_max < found.bound
        return certified and found.separation >= self.separation

    def _repeatability(
        self,
        updates: Array,
        found: SplitStatistics,
        model: Params,
        members: Collection[ClientId],
        fed: Federation,
        active: Cohort,
        seed: Seed,
    ) -> float | None:
        """corr(a, b) over the members that train in this round and have two examples; None with fewer than four."""
        row = {client: i for i, client in enumerate(members)}
        asked = active.of(client for client in active if client in row)
        directions = (
            tree.unflatten(each, trainable(model)) for each in directions_without_oneself(updates, found.labels)
        )
        sent = PerClient(tree.stack(directions), {client: row[client] for client in asked})
        local = self.local.at(active.t)
        got = fed.ask(asked, project_halves, seed, start=model, direction=sent, local=local, min_replies=0)
        valid = got.samples >= 2
        return correlation(got["first"][valid], got["second"][valid]) if valid.sum() > 3 else None

    def _scaled(self, members: Collection[LastUpdate]) -> Array:
        """Δ_i; with relative units, scaled to the first round's learning rate: its decay is not convergence."""
        decay = self.local.lr_decay if self.units == "relative" else 1.0
        if decay == 1:
            return np.stack([last.update for last in members])
        return np.stack([last.update.astype(np.float64) / (decay**last.t or 1.0) for last in members])

    def _norms(self, updates: Array, members: Collection[LastUpdate]) -> tuple[float, float]:
        """‖Σ p_i Δ_i‖ and max ‖Δ_i‖."""
        mean: Array = weighted_mean(updates, self._weights([last.samples for last in members]))
        return tree.norm({"": mean}), max(tree.norm({"": each}) for each in updates)


def directions_without_oneself(updates: Array, sides: Array) -> Array:
    """For each client, the difference of the means of the two parts without its own update, (clients, parameters)."""
    sums = np.stack([updates[sides == side].sum(axis=0, dtype=np.float64) for side in (0, 1)])
    counts = np.bincount(sides, minlength=2).astype(np.float64)
    rows = []
    for update_, side in zip(updates, sides.tolist(), strict=True):
        own_sums, own_counts = sums.copy(), counts.copy()
        own_sums[side] -= update_
        own_counts[side] -= 1
        means = own_sums / np.maximum(own_counts, 1)[:, None]
        rows.append((means[0] - means[1]).astype(np.float32))
    return np.stack(rows)
