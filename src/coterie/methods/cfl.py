"""CFL: train one model; where it stands still while its clients still pull, split them by the direction of their pull.

Sattler, Müller, Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization Under Privacy
Constraints", IEEE TNNLS 2021, arXiv:1910.01991. For each cluster c with model θ_c, in every round:

    Δ_i = LocalUpdate(θ_c) - θ_c                                        client: each member of c
    θ_c ← θ_c + Σ_i p_i Δ_i                                             server: p_i = n_i / Σ_{j∈c} n_j, or 1/|c|
    stationary, incongruent:  ‖Σ_i p_i Δ_i‖ < ε1  and  max_i ‖Δ_i‖ > ε2
    (16)  c1, c2 = argmin over c1 ∪ c2 = c of α_cross,                  α_cross = max_{i∈c1, j∈c2} cos(Δ_i, Δ_j)
    certified:  γ_max < √((1 - α_cross)/2),                             γ_i = ‖Δ_i - E Δ_i‖ / ‖E Δ_i‖
    separated:  B/W ≥ s,  B = n1 n2/n ‖Δ̄_1 - Δ̄_2‖²,  W = Σ_i ‖Δ_i - Δ̄_part(i)‖² / (n - 2)
    newcomer:  from the root, at each split: Δ from the model of that time, then to the side of the member most alike

With γ_max above all γ_i, clients of one distribution have α_ij ≥ 1 - 2γ_max²; certified, that is above α_cross, and no
two of them are separated. θ_c is a row of `bank`, ε1 `eps1`, ε2 `eps2`, γ_max `gamma_max`, s `separation`; 0 switches
either of the last two off. A round shows for each cluster its two norms and, where it came to (16), the cosines,
α_cross, the bound on γ, B/W, and the γ_max that the part means would suggest.

A split keeps what newcomers need: the model from which the updates came, the updates, and who went where. It is
decided on the members that answered in that round. Those that did not stay at the split, and go down like newcomers
as soon as they answer: before they train again, or when they are to be served.

Departures. The authors' ε1 and ε2 fit one model and one rate; `units="relative"` measures both norms in the largest ‖Σ
p_i Δ_i‖ so far, each Δ_i as at the first round's rate. A client with few examples pulls towards these for ever, so that
ε2 cannot tell it from one of another kind, and its γ is above 1, where the theorem is silent; "separated" is ours, the
pseudo-F of Caliński and Harabasz (1974), a rule of thumb and no certificate: late in a run it may pass a part of one
kind. Defaults were settled on rotated digits and MNIST. Both parts go on from the cluster's new model, as in the paper;
the authors' code gives each the mean of its own members at once. It also takes complete linkage, which does not solve
(16), for which there is `linkage`; and positions within a cluster for client ids, so that from the second split on it
moves the wrong clients. With `participation="cohort"` only the cohort trains, and a cluster may split when each member
has an update from its model that is at most `max_age` rounds old.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.aggregation import weighted_mean
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.directions import update
from coterie.clustering import bipartition, cosine
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, PerClient, Replies
from coterie.methods.fedavg import loss_of
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

#: The node of the tree that everyone is at who was never asked.
ROOT = 0


@state
@dataclass(frozen=True)
class Split:
    """What is left of a cluster that was split.

    Attributes:
        parts: The nodes of its two parts.
        model: From which the updates came.
        updates: Of the members on which it was decided, one a row.
        sides: To which part each of them went, 0 or 1.
        t: The round.
    """

    parts: tuple[int, int]
    model: Params
    updates: Array
    sides: Array
    t: int


@state
@dataclass(frozen=True)
class Heard:
    """A client's last update: from the model of which node, in which round, from how many examples."""

    node: int
    t: int
    update: Array
    samples: int


@state
@dataclass(frozen=True)
class State:
    """Where a run of CFL is.

    Attributes:
        bank: The clusters' models.
        rows: Node of the tree → row of its model; the first part of a split takes over the row.
        splits: Node → how it was split; the nodes that are not here are the clusters.
        at: The node of each client that was heard of.
        largest: The largest norm of a mean update so far.
        heard: With cohorts: the last update of each client.
    """

    bank: Bank
    rows: tuple[int, ...] = (0,)
    splits: Mapping[int, Split] = field(default_factory=dict)
    at: ClientMap[int] = field(default_factory=ClientMap)
    largest: float = 0.0
    heard: ClientMap[Heard] = field(default_factory=ClientMap)

    def clusters(self, clients: Iterable[ClientId]) -> dict[ClientId, int]:
        """Client → its node, of those that are at no split."""
        nodes = {client: self.at.get(client, ROOT) for client in clients}
        return {client: node for client, node in nodes.items() if node not in self.splits}


@dataclass(frozen=True)
class CFL:
    """A tree of clusters, split in two where clients of a stationary model disagree.

    Attributes:
        local: How clients train.
        eps1: ε1: below it a cluster's mean update is small.
        eps2: ε2: above it some member's update is large.
        units: ε1 and ε2 are shares of the largest mean update so far, or norms as they are.
        warmup: Rounds before the first split.
        min_size: Only clusters of more than so many clients are split.
        gamma_max: γ_max, a bound on the relative noise of updates: splits must be certified; 0 for no certificate.
        separation: s: by how much a split's parts must differ more than their members; 0 for any.
        linkage: The exact bipartition, or that of the authors' code.
        weights: A client counts its examples, or 1.
        participation: Every client trains in every round, as in the paper, or the cohort.
        max_age: With cohorts: how many rounds old an update may be on which a split is decided.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    eps1: float = 0.4
    eps2: float = 0.8
    units: Literal["relative", "absolute"] = "relative"
    warmup: int = 20
    min_size: int = 2
    gamma_max: float = 0.0
    separation: float = 4.5
    linkage: Literal["single", "complete"] = "single"
    weights: Literal["samples", "uniform"] = "samples"
    participation: Literal["all", "cohort"] = "all"
    max_age: int = 10

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name in ("eps1", "eps2", "separation"):
            if not getattr(self, name) >= 0:  # infinite ones may be meant: never to split; NaN may not
                raise SpecError(f"method.{name} must be a number of at least 0, got {getattr(self, name)}")
        if not 0 <= self.gamma_max < 1:
            raise SpecError(f"method.gamma_max must lie between 0 (no certificate) and 1, got {self.gamma_max}")
        for name, least in (("warmup", 0), ("min_size", 1), ("max_age", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")

    def start(self, task: Task, seed: Seed) -> State:
        """One cluster with the common initial model."""
        return State(tree.stack([task.init(seed.fold("init"))]))

    def stage(self, now: State) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Who was left at a split goes down, all train their cluster's model, and clusters split that have to."""
        active = (cohort.of(cohort.available) if self.participation == "all" else cohort).active()
        min_replies = 0 if now.clusters(active) else None  # where others train, those who go down may all be lost
        now = dataclasses.replace(now, at=now.at.set(self._descend(now, fed, active, seed, min_replies)))
        row = {client: now.rows[node] for client, node in now.clusters(active).items()}
        got = fed.ask(active.of(row), fit, seed, start=PerClient(now.bank, row), local=self.local.at(cohort.t))
        before = tree.take(now.bank, [row[client] for client in got.clients])
        updates = tree.flatten_rows(trainable(got["params"])) - tree.flatten_rows(trainable(before))
        node = now.clusters(got.clients)
        new = {
            client: Heard(node[client], cohort.t, updates[place].copy(), int(got.samples[place]))
            for place, client in enumerate(got.clients)
            if got.samples[place]
        }
        heard = now.heard.set(new) if self.participation == "cohort" else now.heard
        after = dataclasses.replace(now, bank=self._averaged(now, fed, node, got), at=now.at.set(node), heard=heard)
        after, evidence = self._split(now, after, self._basis(after, cohort, new), cohort.t)
        found = {client: after.rows[node] for client, node in after.clusters(got.clients).items()}
        apart = tree.row_distances(got["params"], tree.take(after.bank, [found.get(c, row[c]) for c in got.clients]))
        distances = dict(zip(got.clients, apart.tolist(), strict=True))
        counts = {"splits": len(after.splits) - len(now.splits)}
        return Round(after, found, loss_of(got), distances, evidence, counts)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its cluster; who is at a split or new goes down the tree, for which it has to train at each split."""
        everyone = list(clients)
        found = now.clusters(everyone) | self._descend(now, fed, everyone, seed)
        return Placement(now.bank, {client: now.rows[node] for client, node in found.items() if node not in now.splits})

    def _descend(
        self, now: State, fed: Federation, clients: Cohort | list[ClientId], seed: Seed, min_replies: int | None = None
    ) -> dict[ClientId, int]:
        """Where those who are at a split go: down to a cluster, or to the split after which they did not answer."""
        at = {client: now.at.get(client, ROOT) for client in clients}
        moved = {}
        for node in sorted(now.splits):  # parts come after what they are parts of
            here = [client for client in clients if at[client] == node]
            if not here:
                continue
            split = now.splits[node]
            asked = clients.of(here) if isinstance(clients, Cohort) else here
            name, local = seed.fold("descend", node), self.local.at(split.t)
            got = fed.ask(asked, update, name, w0=split.model, local=local, min_replies=min_replies)
            for client, side in zip(got.clients, _sides(split, got), strict=True):
                at[client] = moved[client] = split.parts[side]
        return moved

    def _averaged(self, now: State, fed: Federation, node: Mapping[ClientId, int], got: Replies) -> Bank:
        """Each cluster at the mean of its replies; one without any, or without an example, keeps its model."""
        models = [tree.row(now.bank, row) for row in range(tree.rows(now.bank))]
        weights = self._weights(got.samples)
        for each in sorted(set(node.values())):
            places = [place for place, client in enumerate(got.clients) if node[client] == each]
            if weights[places].any():
                models[now.rows[each]] = fed.average(tree.take(got["params"], places), weights[places])
        return tree.stack(models)

    def _weights(self, samples: Any) -> Array:
        counts = np.asarray(samples, np.float64)
        return counts if self.weights == "samples" else (counts > 0).astype(np.float64)

    def _basis(self, after: State, cohort: Cohort, new: Mapping[ClientId, Heard]) -> dict[int, dict[ClientId, Heard]]:
        """Cluster → the updates on which it may be split: of members that answered; with cohorts, of every member."""
        known: Mapping[ClientId, Heard] = new if self.participation == "all" else after.heard
        basis: dict[int, dict[ClientId, Heard]] = {}
        incomplete = set()
        for client, node in sorted(after.clusters({*cohort.available, *after.at}).items()):
            last = known.get(client)
            if last is not None and last.node == node and cohort.t - last.t <= self.max_age:
                basis.setdefault(node, {})[client] = last
            else:
                incomplete.add(node)
        return {n: basis[n] for n in sorted(basis) if self.participation == "all" or n not in incomplete}

    def _split(
        self, now: State, after: State, basis: Mapping[int, Mapping[ClientId, Heard]], t: int
    ) -> tuple[State, dict[str, Any]]:
        """The tree after this round, and for each cluster on what that was decided."""
        scaled = {node: self._scaled(heard.values()) for node, heard in basis.items()}
        norms = {node: self._norms(scaled[node], heard.values()) for node, heard in basis.items()}
        after = dataclasses.replace(after, largest=max([now.largest, *(mean for mean, _ in norms.values())]))
        unit = after.largest if self.units == "relative" else 1.0
        evidence: dict[str, Any] = {}
        for node, heard in basis.items():
            mean, most = norms[node]
            shown: dict[str, Any] = {"clients": list(heard), "mean_norm": mean, "max_norm": most}
            if t >= self.warmup and len(heard) > self.min_size and mean < self.eps1 * unit and most > self.eps2 * unit:
                shown |= weigh(scaled[node], self.linkage)
                certified = not self.gamma_max or self.gamma_max < shown["bound"]
                if certified and shown["separation"] >= self.separation:
                    after = _with_split(now, after, node, heard, shown["labels"], t)
            evidence[str(now.rows[node])] = shown
        return after, evidence

    def _scaled(self, heard: Collection[Heard]) -> Array:
        """Δ_i; where norms are relative, as at the first round's rate, whose decay since then is no standing still."""
        decay = self.local.lr_decay if self.units == "relative" else 1.0
        if decay == 1:
            return np.stack([last.update for last in heard])
        return np.stack([last.update.astype(np.float64) / (decay**last.t or 1.0) for last in heard])

    def _norms(self, updates: Array, heard: Collection[Heard]) -> tuple[float, float]:
        """‖Σ p_i Δ_i‖ and max ‖Δ_i‖."""
        mean: Array = weighted_mean(updates, self._weights([last.samples for last in heard]))
        return tree.norm({"": mean}), max(tree.norm({"": each}) for each in updates)


def weigh(updates: Array, linkage: Literal["single", "complete"] = "single") -> dict[str, Any]:
    """The bipartition of clients by their updates, and what speaks for it.

    Gives `similarities`, `labels` and `alpha_cross`; `bound`, below which the relative noise γ of all clients has to
    be for no two of one distribution to be separated; `gamma`, the largest γ with part means for expectations; and
    `separation`, B/W.
    """
    similarities = cosine(updates)
    labels = bipartition(similarities, linkage)
    cross = float(similarities[labels == 0][:, labels == 1].max())
    parts = [updates[labels == side].astype(np.float64) for side in (0, 1)]
    centers = [part.mean(axis=0) for part in parts]
    noise = [np.linalg.norm(part - center, axis=1) for part, center in zip(parts, centers, strict=True)]
    lengths = [float(np.linalg.norm(center)) for center in centers]
    gammas = [far.max() / length if length else np.inf for far, length in zip(noise, lengths, strict=True)]
    n1, n2 = map(len, parts)
    between = n1 * n2 / (n1 + n2) * float(np.square(centers[0] - centers[1]).sum())
    within = sum(float(np.square(far).sum()) for far in noise) / max(n1 + n2 - 2, 1)
    return {
        "similarities": similarities,
        "labels": labels,
        "alpha_cross": cross,
        "bound": float(np.sqrt((1 - cross) / 2)),
        "gamma": float(max(gammas)),
        "separation": between / within if within else np.inf,
    }


def _with_split(now: State, after: State, node: int, heard: Mapping[ClientId, Heard], sides: Array, t: int) -> State:
    """The tree with this cluster in two parts: the first takes over its row, the second gets one of its own."""
    row, parts = after.rows[node], (len(after.rows), len(after.rows) + 1)
    updates = np.stack([last.update for last in heard.values()])
    split = Split(parts, tree.row(now.bank, row), updates, sides, t)
    return dataclasses.replace(
        after,
        bank=tree.concatenate([after.bank, tree.take(after.bank, [row])]),
        rows=(*after.rows, row, tree.rows(after.bank)),
        splits={**after.splits, node: split},
        at=after.at.set({client: parts[side] for client, side in zip(heard, sides.tolist(), strict=True)}),
    )


def _sides(split: Split, got: Replies) -> list[int]:
    """To which part the one member belongs that each of these clients is most alike; ties go to the first."""
    if not len(got):
        return []
    both = np.concatenate([split.updates, tree.flatten_rows(trainable(got["update"]))])
    alike = cosine(both)[len(split.updates) :, : len(split.updates)]  # (replies, members)
    first, second = (alike[:, split.sides == side].max(axis=1) for side in (0, 1))
    sides: list[int] = (second > first).astype(int).tolist()
    return sides
