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
RCC is `centres="random"`, RAC is `assignment="random"`.

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
from coterie.clients import Client, LocalSGD, Model, Settings, Values, Work, fit, train
from coterie.clients.local import lengths, plan
from coterie.clustering import ChoiceRule, agglomerative, choose, edc_embedding, kmeans, madc
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, Once, Rows
from coterie.kept import Kept
from coterie.methods.fedavg import distances_of, loss_of, move_groups
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


def _update(task: Task, client: Client, w0: Params, local: LocalSGD) -> Params:
    return tree.map(lambda after, before: after - before, train(task, w0, client, local)["params"], w0)


def _pretrain(task: Task, client: Client, *, w0: Params, local: LocalSGD) -> dict[str, Any]:
    return {"update": _update(task, client, w0, local)}


def _choose(task: Task, client: Client, *, w0: Params, directions: Bank, local: LocalSGD) -> dict[str, Any]:
    import jax.numpy as jnp

    delta = trainable(_update(task, client, w0, local))

    def over_all(one: Any, other: Any) -> Any:
        """Σ over all parameters; products and sums, since a dot product is split by core."""
        parts = tree.map(lambda a, b: (a * b).reshape(a.shape[0], -1).sum(axis=1), one, other)
        return sum(tree.leaves(parts))

    mine = tree.map(lambda leaf: leaf[None], delta)
    lengths_of = jnp.sqrt(over_all(directions, directions))  # (m,)
    product = lengths_of * jnp.sqrt(over_all(mine, mine))
    cosines = jnp.where(product > 0, over_all(directions, mine) / jnp.where(product > 0, product, 1.0), 0.0)
    choice = jnp.argmax(jnp.where(lengths_of > 0, cosines, -2.0))  # ties go to the lowest index
    return {"choice": choice.astype(jnp.int32), "cosines": cosines}


def _keep(task: Task, client: Client, *, directions: Bank) -> dict[str, Any]:
    import jax.numpy as jnp

    return {"kept": jnp.ones((), jnp.int32)}


_DIRECTIONS = Model(("m",), partial=True, purpose="directions")

#: Where a founder of the groups moves from w_0.
pretrain = Work(
    "fedgroup.pretrain",
    takes={"w0": Model(), "local": Settings(LocalSGD)},
    gives={"update": Model()},
    purpose="pretrain",
    stream="pretrain",
    plan=plan,
    lengths=lengths,
    body=_pretrain,
)

#: A client's cold start: move from w_0, and say which direction is the closest.
choose_group = Work(
    "fedgroup.choose",
    takes={"w0": Model(purpose="base"), "directions": _DIRECTIONS, "local": Settings(LocalSGD)},
    gives={"choice": Values("int32"), "cosines": Values("float32", ("m",), purpose="control")},
    stream="pretrain",
    plan=plan,
    lengths=lengths,
    body=_choose,
)

#: Directions for a founder to keep, who needs them no sooner than it migrates.
keep = Work("fedgroup.keep", takes={"directions": _DIRECTIONS}, gives={"kept": Values("int32")}, body=_keep)


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
    assignment: Kept[int] = field(default_factory=Kept)
    founders: tuple[ClientId, ...] = ()
    prepared: int = 0

    @property
    def auxiliary(self) -> Params:
        """The plain mean of the models of groups that have members: the papers' global model, never sent."""
        used = sorted(set(self.assignment.values())) or list(range(tree.rows(self.bank)))
        mean: Params = uniform_mean(tree.take(self.bank, used))
        return mean


@dataclass(frozen=True)
class FedGroup:
    """m groups, founded once on directions; a client joins one for good.

    Attributes:
        local: How clients train.
        groups: m; or `auto`, chosen on the founders, one where there are no groups.
        most: With `auto`: the largest m to consider, for which there are founders.
        rule: With `auto`: by which score.
        alpha: α: so many founders a group.
        measure: How directions are compared.
        pretrain_steps: Steps of pre-training; 0 for epochs.
        pretrain_epochs: Epochs of pre-training where no steps are given.
        assign: Everyone gets a group before round 0, or when first in a cohort.
        eta_g: η_g of mixing; 0 for none.
        mix: Divided by the sum of the weights, as in the authors' code, or as printed.
        centres: Groups are clustered, or each is founded on one random client (RCC).
        assignment: Clients that founded no group join the closest, or a random one (RAC).
        redraw: With random assignment: anew in every round.
        mu: The proximal pull of FedProx; above 0, stragglers count.
        weights: A client counts its examples, or 1.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    groups: int | Literal["auto"] = 3
    most: int = 6
    rule: ChoiceRule = "stability"
    alpha: int = 20
    measure: Literal["edc", "madc"] = "edc"
    pretrain_steps: int = 50
    pretrain_epochs: int = 1
    assign: Literal["eager", "lazy"] = "eager"
    eta_g: float = 0.0
    mix: Literal["normalised", "paper"] = "normalised"
    centres: Literal["clustered", "random"] = "clustered"
    assignment: Literal["nearest", "random"] = "nearest"
    redraw: bool = False
    mu: float = 0.0
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        if isinstance(self.groups, str) and (self.groups != "auto" or self.centres == "random"):
            raise SpecError(f"method.groups must be a whole number, or 'auto' to cluster, got {self.groups!r}")
        for name, least in (("groups", 1), ("most", 1), ("alpha", 1), ("pretrain_steps", 0), ("pretrain_epochs", 1)):
            if getattr(self, name) != "auto" and getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("eta_g", "mu"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SpecError(f"method.{name} must be a finite number of at least 0, got {getattr(self, name)}")
        if self.redraw and self.assignment != "random":
            raise SpecError("method.redraw belongs to assignment='random'")

    @property
    def pretraining(self) -> LocalSGD:
        """How clients pre-train: alike in all rounds, so that a late client is compared on the same base."""
        return dataclasses.replace(
            self.local, steps=self.pretrain_steps, epochs=self.pretrain_epochs, mu=0.0, rate_decay=1.0
        )

    def start(self, task: Task, seed: Seed) -> State:
        """w_0 in every group, and no direction yet."""
        w0 = task.init(seed.fold("init"))
        bank = tree.stack([w0] * (1 if self.groups == "auto" else self.groups))
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
        got = fed.ask(active.of(row), fit, seed, start=Rows(now.bank, row), local=local, reduce=how)
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
        most = self.most if self.groups == "auto" else self.groups
        size = most * (self.alpha if self.centres == "clustered" else 1)
        drawn = cohort.draw(cohort.available, size, name="fedgroup")
        got = fed.ask(drawn, pretrain, seed, w0=Once(now.w0), local=self.pretraining)
        labels, evidence = self._cluster(tree.flatten_rows(trainable(got["update"])), seed)
        zero = tree.map(np.zeros_like, now.w0)
        count = labels.max() + 1 if self.groups == "auto" else self.groups
        members = [np.flatnonzero(labels == j) for j in range(count)]
        moves = tree.stack(uniform_mean(tree.take(got["update"], m)) if len(m) else zero for m in members)
        bank = tree.map(
            lambda w, d: (w + d.astype(np.float64)).astype(w.dtype), tree.stack([now.w0] * len(members)), moves
        )
        directions = trainable(moves)
        fed.ask(cohort.of(got.clients), keep, seed, directions=Once(directions))
        row = dict(zip(got.clients, labels.tolist(), strict=True))
        after = State(now.w0, bank, directions, now.lots, Kept(row), got.clients, now.prepared + 1)
        return Round(after, row, evidence={"clients": list(got.clients), "labels": labels, **evidence})

    def _cluster(self, updates: Array, seed: Seed) -> tuple[Array, dict[str, Any]]:
        """The group of each founder, and on what that was decided. Fewer founders than groups: the last stay empty."""
        if self.centres == "random":
            return np.arange(len(updates)), {}
        distances = madc(updates) if self.measure == "madc" else None
        if self.groups == "auto":
            points = edc_embedding(updates, self.most) if distances is None else distances
            kind: Literal["embedding", "distances"] = "embedding" if distances is None else "distances"
            k, scores = choose(points, self.most, self.rule, seed=seed.fold("auto"), kind=kind, linkage="complete")
            evidence: dict[str, Any] = {"scores": {str(number): score for number, score in scores.items()}}
        else:
            k, evidence = min(self.groups, len(updates)), {}
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
        return closest_groups(now, fed, cold, seed, self.pretraining) if len(cold) else ({}, {})

    def _lot(self, now: State, client: ClientId, *t: int) -> int:
        return int(now.lots.fold(client, *t).words(1)[0]) * tree.rows(now.bank) >> 64


def closest_groups(
    now: State, fed: Federation, clients: Cohort | Iterable[ClientId], seed: Seed, local: LocalSGD
) -> tuple[dict[ClientId, int], dict[str, Any]]:
    """(9): the groups of clients that pre-train for it, stragglers in full; and the cosines on which they decided."""
    asked = dataclasses.replace(clients, efforts={}) if isinstance(clients, Cohort) else clients
    got = fed.ask(asked, choose_group, seed, w0=Once(now.w0), directions=Once(now.directions), local=local)
    return got.by_client("choice"), {"clients": list(got.clients), "cosines": got["cosines"]}
