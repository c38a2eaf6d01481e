"""FLAG: cluster clients once, by what their classes look like and where they move; trial runs tell how many clusters.

"FLAG: Clustered Federated Learning Combining Data and Gradient Information in Heterogeneous Settings", submitted to
ICLR 2025, openreview.net/forum?id=8OrXrdPbef (not on arXiv). The text at hand lacks its three algorithm boxes; what
follows is put together from its equations and sentences:

    U_c^i = the first p left singular vectors of class c        client, once: p = max(1, round(0.01 n_ic))
    Δ^i = LocalUpdate(w_0, t_g epochs) - w_0                    client, once
    A = β V̂ + (1-β) Ĝ                                           server: (2) to (6), clustering/angles.py, proximity.py
    for α = 1, 1-s, …, 0: agglomerate while A ≤ α               server; of equal partitions the largest α is kept
        goodness = mean over Q of the validation accuracy       clients in Q: `trial_rounds` rounds of FedAvg in each
                   of their clusters' models                    cluster with a light model; the same Q, w_0 and batches
    choose the partition at the elbow of goodness               server: `clustering.elbow`
    (8)  w_z ← Σ_i n_i LocalUpdate_i(w_z) / Σ_i n_i             over those of the cohort that are in cluster z

n_ic are sent with U_c^i (`counts`), t_g is `update_epochs`, s `step`, |Q| = m' `judges`, w_z row z of `bank`; all
clusters start at the same w_0. Inputs are taken as the model is fed with them, normalized by the task, uncentred;
`inputs="raw"` takes them as they are stored. β = 1 asks for no updates, β = 0 for no directions. With `privacy`, or
δ = 0, all classes weigh alike and no counts leave a client; p still tells them to within 1/share, unless `vectors`
fixes it.

Departures, where the text says nothing or contradicts itself: t_g is 20 epochs (elsewhere 2 or 3 rounds of 10), m' 30
(25), s 0.1 (0.01). Linkage is average, as in PACFL. The last α is 0, where everyone is alone: the elbow measures a
number of clusters by the largest that was tried, and where clients of one kind are closer than s, the last α above 0
leaves hardly more clusters than there are kinds; of 5 kinds and at most 7 clusters it takes 2. `alone` off stops above
0. Trial runs train E = 10 epochs a round, as the paper's clients do, and all layers, whatever `local` says. Validation
takes a tenth of a client's training examples; those who have none to spare do not judge. Clusters of different
partitions with the same members in Q are trained once: with the same start and batches they would end at the same
model. (8) is over the cohort, not over all members. A newcomer, which the paper does not know, gets its row of A with
the bounds that were found for the founders, and joins the cluster with the smallest mean; it has to move from w_0 for
that.

What cannot work: a class that one of two clients lacks counts 180°, even if it lacks it by chance. With 36 images of
ten classes a client, a fifth of the clients lack one, and these absences drown the angle between two rotations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD
from coterie.clients.class_subspaces import Subspaces, class_subspaces, counted_subspaces
from coterie.clients.directions import update
from coterie.clustering import ElbowRule, Linkage, agglomerative, elbow
from coterie.clustering.proximity import Log, Scaling
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cached, Cohort, Federation
from coterie.methods.clusters import nearest_clusters, needs_classes, train_clusters
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.methods.sketches import Bounds, Nearness, Sketches
from coterie.methods.trials import Light, accuracies_of, mean_accuracies, validation_accuracies
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of FLAG is.

    Attributes:
        w0: The common initial model.
        bank: The clusters' models.
        trials: The seed of all trial runs.
        founders: What those told on whom the clusters are founded.
        bounds: Of their angles; None before they are founded.
        thresholds: α of each distinct partition, falling.
        partitions: The cluster of each founder, (partitions, founders).
        judges: Q.
        accuracies: Of each judge's validation, (partitions tried, judges); -1 where it is not known.
        labels: The cluster of each founder in the partition that was chosen; empty before that.
        assignment: The cluster of each client that has one.
    """

    w0: Params
    bank: Bank
    trials: Seed
    founders: Sketches = field(default_factory=Sketches)
    bounds: Bounds | None = None
    thresholds: tuple[float, ...] = ()
    partitions: Array = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    judges: tuple[ClientId, ...] = ()
    accuracies: Array = field(default_factory=lambda: np.zeros((0, 0)))
    labels: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    assignment: ClientMap[int] = field(default_factory=ClientMap)


@dataclass(frozen=True)
class FLAG:
    """Clusters by angles of data and of updates, as many as trial runs find best; a model for each.

    Attributes:
        local: How clients train.
        beta: β, the share of the data in the proximity; 1 for data alone, 0 for updates alone.
        delta: δ: classes weigh between 1 - δ and 1 + δ by the sizes of two clients.
        privacy: All classes weigh alike, and no counts leave a client.
        log: Of the sizes of classes.
        share: p by the size of a class.
        vectors: p, the same for all classes; 0 for a share.
        inputs: Directions of inputs as the model is fed with them, or as they are stored.
        update_epochs: t_g, epochs of the update that is compared.
        scale: Whether the zeros on the diagonals count when angles are scaled to [0, 1].
        linkage: The distance of clusters.
        step: s, from one threshold to the next.
        alone: Whether the last threshold is 0, at which everyone is alone; the paper's stay above it.
        judges: m', clients in trial runs.
        trial_rounds: Of each trial run.
        trial_epochs: Of local training in each of these rounds; E of the paper, whatever `local` says.
        light: The model of trial runs.
        rule: How the number of clusters is chosen: at the elbow of goodness, where it is best, or the fewest within
            0.01 of that.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    beta: float = 0.5
    delta: float = 0.5
    privacy: bool = False
    log: Log = "shifted"
    share: float = 0.01
    vectors: int = 0
    inputs: Literal["model", "raw"] = "model"
    update_epochs: int = 20
    scale: Scaling = "whole"
    linkage: Linkage = "average"
    step: float = 0.1
    alone: bool = True
    judges: int = 30
    trial_rounds: int = 5
    trial_epochs: int = 10
    light: Light = "mclr"
    rule: ElbowRule = "elbow"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name in ("beta", "delta"):
            if not 0 <= getattr(self, name) <= 1:
                raise SpecError(f"method.{name} must lie between 0 and 1, got {getattr(self, name)}")
        for name in ("share", "step"):
            if not 0 < getattr(self, name) <= 1:
                raise SpecError(f"method.{name} must be above 0 and at most 1, got {getattr(self, name)}")
        whole = (("vectors", 0), ("update_epochs", 1), ("judges", 1), ("trial_rounds", 1), ("trial_epochs", 1))
        for name, least in whole:
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")

    @property
    def nearness(self) -> Nearness:
        """How sketches are compared."""
        return Nearness(self.beta, self.delta, self.log, self.scale)

    @property
    def moving(self) -> LocalSGD:
        """How clients train for Δ^i: alike whenever they do, so that a newcomer is compared on the same base."""
        return dataclasses.replace(self.local, steps=0, epochs=self.update_epochs, mu=0.0, lr_decay=1.0)

    @property
    def trying(self) -> LocalSGD:
        """How clients train the light model, which has layers of its own; plain FedAvg, without a proximal term."""
        return dataclasses.replace(self.local, steps=0, epochs=self.trial_epochs, trainable_layers=(), mu=0.0)

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, and no cluster yet."""
        needs_classes("flag", task)
        w0 = task.init(seed.fold("init"))
        return State(w0, tree.stack([w0]), seed.fold("trials"))

    def stage(self, now: State) -> Stage:
        """One step of preparing finds the partitions, one more for each of them judges it."""
        return "train" if len(now.labels) else "prepare"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Find partitions, try them one by one; then newcomers join and each cluster averages."""
        if now.bounds is None:
            return self._found(now, fed, cohort, seed)
        if not len(now.labels):
            return self._try(now, fed, cohort)
        return train_clusters(now, fed, cohort, seed, self.local.at(cohort.t), self._join)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its cluster; a newcomer the one that it would join, for which it tells of itself as the founders did."""
        everyone = list(clients)
        row = {client: now.assignment[client] for client in everyone if client in now.assignment}
        if len(now.labels):
            row |= self._join(now, fed, [client for client in everyone if client not in row], seed)[0]
        return Placement(now.bank, row)

    def _sketch(
        self,
        now: State,
        fed: Federation,
        clients: Cohort | Iterable[ClientId],
        seed: Seed,
        min_replies: int | None = None,
    ) -> Sketches:
        """What clients tell, of those who answered all that was asked."""
        asked: Any = dataclasses.replace(clients, efforts={}) if isinstance(clients, Cohort) else list(clients)
        updates = bases = counts = None
        if self.beta < 1:  # first: to be scored nobody trains, and then nobody need look for directions either
            sent: dict[str, Any] = {"w0": Cached(now.w0), "local": self.moving}
            moved = fed.ask(asked, update, seed.fold("updates"), min_replies=min_replies, **sent)
            updates = {client: tree.flatten(trainable(each)) for client, each in moved.by_client("update").items()}
            asked = asked.of(updates) if isinstance(asked, Cohort) else list(updates)
        who: tuple[ClientId, ...] = tuple(asked)
        if self.beta > 0 and who:
            work = class_subspaces if self.privacy or not self.delta else counted_subspaces
            how = Subspaces(share=self.share, vectors=self.vectors, inputs=self.inputs)
            got = fed.ask(asked, work, seed.fold("subspaces"), how=how, min_replies=min_replies)
            who, bases = got.clients, tuple(got["bases"])
            counts = got["counts"] if work is counted_subspaces else None
        moves = None if updates is None or not who else np.stack([updates[client] for client in who])
        return Sketches(who, bases, counts, moves)

    def _found(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """The proximity of all clients, and the distinct partitions that it gives."""
        told = self._sketch(now, fed, cohort, seed)
        proximity, bounds, angles = self.nearness.among(told)
        thresholds, partitions = self._partitions(proximity)
        judges = cohort.draw(told.clients, self.judges, name="flag judges").clients
        after = dataclasses.replace(
            now,
            founders=told,
            bounds=bounds,
            thresholds=thresholds,
            partitions=partitions,
            judges=judges,
            accuracies=np.zeros((0, len(judges))),
        )
        evidence: dict[str, Any] = {"clients": list(told.clients), "proximity": proximity, **angles}
        if len(partitions) == 1:  # nothing to choose from
            return self._settled(after, 0, {**evidence, "thresholds": list(thresholds)}, "proximity")
        return Round(after, evidence=evidence, label="proximity")

    def _partitions(self, proximity: Array) -> tuple[tuple[float, ...], Array]:
        """The distinct partitions, each with its largest threshold, from one cluster on."""
        found: dict[int, tuple[float, Array]] = {}  # agglomeration is nested: as many clusters are the same clusters
        count = int(np.ceil(1 / self.step - 1e-9))
        above = [round(1 - k * self.step, 12) for k in range(count)]  # 0.3, not 0.30000000000000004
        for alpha in [*above, 0.0] if self.alone else above:
            labels = agglomerative(proximity, threshold=alpha, linkage=self.linkage)
            found.setdefault(int(labels.max()), (alpha, labels))
        kept = [found[number] for number in sorted(found)]
        return tuple(alpha for alpha, _ in kept), np.stack([labels for _, labels in kept])

    def _try(self, now: State, fed: Federation, cohort: Cohort) -> Round[State]:
        """Judge the next partition; after the last one, choose."""
        s, place = len(now.accuracies), {client: i for i, client in enumerate(now.founders.clients)}
        how: dict[str, Any] = {"light": self.light, "local": self.trying, "rounds": self.trial_rounds}
        accuracies = accuracies_of(
            now.partitions[:, [place[client] for client in now.judges]],
            now.accuracies,
            now.judges,
            lambda clusters: validation_accuracies(clusters, fed, cohort, now.trials, **how),
        )
        after = dataclasses.replace(now, accuracies=np.concatenate([now.accuracies, accuracies[None]]))
        goodness = mean_accuracies(after.accuracies)
        label = f"trial {s + 1} of {len(now.partitions)}"
        sizes = (after.partitions.max(axis=1) + 1).tolist()
        if s + 1 < len(now.partitions):
            evidence = {"threshold": now.thresholds[s], "clusters": sizes[s], "goodness": goodness[s]}
            return Round(after, evidence=evidence, label=label)
        chosen = sizes.index(elbow(sizes, goodness, self.rule))
        scores = {str(size): good for size, good in zip(sizes, goodness, strict=True)}
        return self._settled(after, chosen, {"scores": scores, "thresholds": list(now.thresholds)}, label)

    def _settled(self, now: State, chosen: int, evidence: dict[str, Any], label: str) -> Round[State]:
        """Found the clusters of the chosen partition."""
        labels = now.partitions[chosen]
        row = dict(zip(now.founders.clients, labels.tolist(), strict=True))
        bank = tree.stack([now.w0] * int(labels.max() + 1))
        after = dataclasses.replace(now, bank=bank, labels=labels, assignment=ClientMap(row))
        shown = {**evidence, "clients": list(row), "labels": labels, "threshold": now.thresholds[chosen]}
        return Round(after, row, evidence=shown, label=label)

    def _join(
        self, now: State, fed: Federation, cold: Cohort | list[ClientId], seed: Seed, min_replies: int | None = None
    ) -> tuple[dict[ClientId, int], dict[str, Any]]:
        """The clusters of those who have none yet, and on what that was decided; who is not heard stays without."""
        told = self._sketch(now, fed, cold, seed, min_replies) if len(cold) else Sketches()
        if not told.clients:
            return {}, {}
        assert now.bounds is not None
        row, means = nearest_clusters(self.nearness.towards(told, now.founders, now.bounds), now.labels)
        return dict(zip(told.clients, row, strict=True)), {"clients": list(told.clients), "mean_proximity": means}
