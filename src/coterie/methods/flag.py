"""FLAG: cluster clients once, by their class subspaces and updates; trial runs choose the number of clusters.

"FLAG: Clustered Federated Learning Combining Data and Gradient Information in Heterogeneous Settings", submitted to
ICLR 2025, openreview.net/forum?id=8OrXrdPbef (not on arXiv). The available text lacks its three algorithm boxes; this
is reconstructed from its equations and sentences:

    U_c^i = the first p left singular vectors of class c        client, once: p = max(1, round(0.01 n_ic))
    Δ^i = LocalUpdate(w_0, t_g epochs) - w_0                    client, once
    A = β V̂ + (1-β) Ĝ                                           server: (2) to (6), clustering/angles.py, proximity.py
    for α = 1, 1-s, …, 0: agglomerate while A ≤ α               server; of equal partitions the largest α is kept
        goodness = mean over Q of the validation accuracy       clients in Q: `trial_rounds` rounds of FedAvg in each
                   of their clusters' models                    cluster with a small model; the same Q, w_0 and batches
    choose the partition at the elbow of goodness               server: `rule`
    (8)  w_z ← Σ_i n_i LocalUpdate_i(w_z) / Σ_i n_i             over the members of cluster z in the cohort

n_ic are sent with U_c^i (`counts`), t_g is `update_epochs`, s `threshold_step`, |Q| = m' `validation_clients`, w_z row
z of `bank`; all clusters start at the same w_0. Inputs are taken as the model receives them, normalized by the task,
uncentered; `inputs="raw"` takes them as stored. β = 1 asks for no updates, β = 0 for no subspaces. With `privacy`, or
δ = 0, all classes have the same weight and no counts leave a client; p still reveals the class sizes to within 1/share,
unless `vectors` fixes it.

Departures, where the text says nothing or contradicts itself. t_g is 20 epochs (elsewhere in the text 2 or 3 rounds of
10 epochs), m' is 30 (elsewhere 25), s is 0.1 (elsewhere 0.01); linkage is average, as in PACFL. The last α is 0, where
every client is a cluster of its own: the elbow scales the number of clusters by the largest one tried, and if clients
of one true cluster are closer than s, the last α above 0 leaves hardly more clusters than there are true ones (with 5
true clusters and at most 7 clusters tried, the elbow is at 2); `singletons=False` stops above 0. Trial runs train
E = 10 epochs a round, as the paper's clients do, and all layers, regardless of `local`. Validation takes a tenth of a
client's training examples; clients with none to spare do not validate. Clusters with the same members in Q in several
partitions are trained once: they would end at the same model. (8) is over the cohort, not over all members. A newcomer,
which the paper does not consider, gets its row of A with the ranges of the initial clients, and joins the cluster with
the smallest mean; it has to train from w_0 for that.

A class that only one of two clients has counts as 180° in the paper, even if it is missing by chance. With 36 images of
ten classes per client, a fifth of the clients lack a class, and these angles outweigh the angle between two rotations.
By default a class that a client lacks by chance counts like the mean of the classes that both have
(clustering/absent_classes.py). Class counts are needed for that: without them (`privacy`, δ = 0) it counts as 180°, and
the run shows a warning if many clients lack a class.

The elbow of goodness is often within its noise: with 18 images per client, Q validates on 60 images. By default fewer
clusters than at the elbow are chosen if neither the accuracies nor the losses of Q show that they are worse
(`clustering.guarded_elbow`); `rule="elbow"` is the paper's rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD
from coterie.clients.class_subspaces import Subspaces
from coterie.clustering import Linkage, elbow, guarded_elbow
from coterie.clustering.proximity import Log, Scaling
from coterie.clustering.threshold_sweep import threshold_partitions
from coterie.codec import state
from coterie.federation.protocol import Cohort, Federation
from coterie.methods import cluster_training
from coterie.methods.cluster_training import Clients, Joined
from coterie.methods.flag_sketches import Proximity, Ranges, Sketches, SketchRequest, warn_about_absent_classes
from coterie.methods.protocol import Placement, Round, Stage
from coterie.methods.trial_runs import TrialModel, TrialRun, mean_accuracies, next_scores
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a FLAG run.

    Attributes:
        w0: The common initial model.
        bank: The clusters' models.
        trials: The seed of all trial runs.
        initial: The sketches of the initial clients, which are clustered.
        ranges: The ranges of their angles; None before the sketches are known.
        thresholds: α of each distinct partition, decreasing.
        partitions: The cluster of each initial client, (partitions, initial clients).
        validation: Q, the validation clients.
        accuracies: Their validation accuracies, (partitions tried, validation clients); -1 where unknown.
        losses: Their mean validation losses, likewise.
        labels: The cluster of each initial client in the chosen partition; empty before the choice.
        assignment: Client → cluster.
    """

    w0: Params
    bank: Bank
    trials: Seed
    initial: Sketches = field(default_factory=Sketches)
    ranges: Ranges | None = None
    thresholds: tuple[float, ...] = ()
    partitions: Array = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    validation: tuple[ClientId, ...] = ()
    accuracies: Array = field(default_factory=lambda: np.zeros((0, 0)))
    losses: Array = field(default_factory=lambda: np.zeros((0, 0)))
    labels: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    assignment: ClientMap[int] = field(default_factory=ClientMap)


@dataclass(frozen=True)
class FLAG:
    """Clusters from the angles between data and between updates, their number from trial runs; one model per cluster.

    Attributes:
        local: Settings of local training.
        beta: β, the share of the data angles in the proximity; 1: data only, 0: updates only.
        delta: δ: class weights lie between 1 - δ and 1 + δ, by the class sizes of two clients.
        privacy: Give all classes the same weight, so that no class counts leave a client.
        absent: Angle of a class that only one of two clients has: `chance`: 180°, but the mean of the classes that both
            have if the other lacks it by chance, which class counts show; `180`: always 180°, as in the paper.
        log: Logarithm of class sizes: ln(n + e), or ln(max(n, 2)).
        share: Subspace dimension p as a share of the class size.
        vectors: Subspace dimension p, the same for all classes; 0: use `share`.
        inputs: Subspaces of inputs as the model receives them, or as stored.
        update_epochs: t_g, epochs of the update that is compared.
        scale: Entries whose minimum and maximum scale the angles to [0, 1]: the whole matrix with the zeros on its
            diagonal, or only those off the diagonal.
        linkage: Distance between clusters.
        threshold_step: s, the step from one threshold to the next.
        singletons: Whether to try the threshold 0, where every client is a cluster of its own; the paper does not.
        validation_clients: m', number of clients in trial runs.
        trial_rounds: Rounds of each trial run.
        trial_epochs: Epochs of local training in each trial round; E of the paper.
        trial_model: Model of trial runs: logistic regression, or LeNet-5 with half the filters.
        rule: Choice of the number of clusters: `guarded`: the elbow of the mean validation accuracy or loss, that with
            more clusters, or the fewest clusters that are not worse in either beyond noise (two standard errors);
            `elbow`: the elbow of the mean validation accuracy, as in the paper; `best`: its maximum; `tolerance`: the
            fewest clusters within 0.01 of the maximum.
        weights: Client weight in the rounds: number of samples, or uniform.
    """

    finds_clusters: ClassVar[bool] = True
    local: LocalSGD = field(default_factory=LocalSGD)
    beta: Annotated[float, Bound(at_least=0, at_most=1)] = 0.5
    delta: Annotated[float, Bound(at_least=0, at_most=1)] = 0.5
    privacy: bool = False
    absent: Literal["chance", "180"] = "chance"
    log: Log = "shifted"
    share: Annotated[float, Bound(above=0, at_most=1)] = 0.01
    vectors: Annotated[int, Bound(at_least=0)] = 0
    inputs: Literal["model", "raw"] = "model"
    update_epochs: Annotated[int, Bound(at_least=1)] = 20
    scale: Scaling = "whole"
    linkage: Linkage = "average"
    threshold_step: Annotated[float, Bound(above=0, at_most=1)] = 0.1
    singletons: bool = True
    validation_clients: Annotated[int, Bound(at_least=1)] = 30
    trial_rounds: Annotated[int, Bound(at_least=1)] = 5
    trial_epochs: Annotated[int, Bound(at_least=1)] = 10
    trial_model: TrialModel = "mclr"
    rule: Literal["guarded", "elbow", "best", "tolerance"] = "guarded"
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    @property
    def proximity(self) -> Proximity:
        """How sketches are compared."""
        return Proximity(self.beta, self.delta, self.log, self.scale, self.absent == "chance")

    @property
    def request(self) -> SketchRequest:
        """What clients are asked for; they train for Δ^i the same way at any time, so that newcomers are comparable."""
        local = dataclasses.replace(self.local, steps=0, epochs=self.update_epochs, mu=0.0, lr_decay=1.0)
        subspaces = Subspaces(share=self.share, vectors=self.vectors, inputs=self.inputs)
        counted = not self.privacy and self.delta > 0
        return SketchRequest(local if self.beta < 1 else None, subspaces if self.beta > 0 else None, counted)

    @property
    def trial_run(self) -> TrialRun:
        """Trial runs train all layers of their model, without a proximal term."""
        local = dataclasses.replace(self.local, steps=0, epochs=self.trial_epochs, trainable_layers=(), mu=0.0)
        return TrialRun(self.trial_model, local, self.trial_rounds)

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, without clusters."""
        cluster_training.needs_classes("flag", task)
        w0 = task.init(seed.fold("init"))
        return State(w0, tree.stack([w0]), seed.fold("trials"))

    def stage(self, now: State) -> Stage:
        """One preparation step computes the proximity, and one step for each partition tries it."""
        return "train" if len(now.labels) else "prepare"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Compute the partitions; try them one by one; then newcomers join and each cluster trains."""
        if now.ranges is None:
            return self._compute_partitions(now, fed, cohort, seed)
        if not len(now.labels):
            return self._try_next(now, fed, cohort)
        local = self.local.at(cohort.t)
        return cluster_training.train_clusters(now, fed, cohort, seed, local, self._join, self.weights)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Serve each client its cluster's model; a newcomer sends its sketch to join a cluster."""
        if not len(now.labels):
            return now, cluster_training.placed(now, clients)
        return cluster_training.place_in_clusters(now, fed, clients, seed, self._join)

    def _compute_partitions(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """The proximity of all clients, its distinct partitions, and Q."""
        sketches = self.request.ask(now.w0, fed, cohort, seed)
        proximity, ranges, angles = self.proximity.all_pairs(sketches)
        if ranges.shares is None:
            warn_about_absent_classes(sketches)
        thresholds, partitions = threshold_partitions(
            proximity, self.threshold_step, self.linkage, singletons=self.singletons
        )
        validation = cohort.draw(sketches.clients, self.validation_clients, name="flag judges").clients
        after = dataclasses.replace(
            now,
            initial=sketches,
            ranges=ranges,
            thresholds=thresholds,
            partitions=partitions,
            validation=validation,
            accuracies=np.zeros((0, len(validation))),
            losses=np.zeros((0, len(validation))),
        )
        evidence = {"clients": list(sketches.clients), "proximity": proximity, **angles}
        if len(partitions) == 1:  # no trial runs are needed
            return self._choose(after, 0, {**evidence, "thresholds": list(thresholds)}, "proximity")
        return Round(after, evidence=evidence, label="proximity")

    def _try_next(self, now: State, fed: Federation, cohort: Cohort) -> Round[State]:
        """A trial run of the next partition; after the last one, choose."""
        s, position = len(now.accuracies), {client: i for i, client in enumerate(now.initial.clients)}
        labels = now.partitions[:, [position[client] for client in now.validation]]
        known = np.stack([now.accuracies, now.losses], axis=-1)  # (partitions tried, validation clients, 2)
        scores = next_scores(
            labels, known, now.validation, lambda new: self.trial_run.validate(new, fed, cohort, now.trials)
        )
        accuracies, losses = np.moveaxis(np.concatenate([known, scores[None]]), -1, 0)
        after = dataclasses.replace(now, accuracies=accuracies, losses=losses)
        goodness = mean_accuracies(after.accuracies)
        label = f"trial {s + 1} of {len(now.partitions)}"
        numbers = (after.partitions.max(axis=1) + 1).tolist()  # of clusters
        if s + 1 < len(now.partitions):
            evidence = {"threshold": now.thresholds[s], "clusters": numbers[s], "goodness": goodness[s]}
            return Round(after, evidence=evidence, label=label)
        if self.rule == "guarded":
            both = (np.where(accuracies >= 0, each, np.nan) for each in (accuracies, -losses))
            number = guarded_elbow(numbers, *both)
        else:
            number = elbow(numbers, goodness, self.rule)
        evidence = {
            "scores": {str(size): good for size, good in zip(numbers, goodness, strict=True)},
            "mean_losses": np.mean(losses, axis=1, where=accuracies >= 0),
            "thresholds": list(now.thresholds),
        }
        return self._choose(after, numbers.index(number), evidence, label)

    def _choose(self, now: State, chosen: int, evidence: dict[str, object], label: str) -> Round[State]:
        """The clusters of the chosen partition, all at w_0."""
        labels = now.partitions[chosen]
        row = dict(zip(now.initial.clients, labels.tolist(), strict=True))
        bank = cluster_training.equal_models(now.w0, labels)
        after = dataclasses.replace(now, bank=bank, labels=labels, assignment=ClientMap(row))
        shown = {**evidence, "clients": list(row), "labels": labels, "threshold": now.thresholds[chosen]}
        return Round(after, row, evidence=shown, label=label)

    def _join(
        self, now: State, fed: Federation, newcomers: Clients, seed: Seed, min_replies: int | None = None
    ) -> Joined:
        """Newcomers send their sketches and join by mean proximity."""
        sketches = self.request.ask(now.w0, fed, newcomers, seed, min_replies)
        if not sketches.clients or now.ranges is None:
            return Joined({}, {})
        rows = self.proximity.of_newcomers(sketches, now.initial, now.ranges)
        return cluster_training.join_nearest(sketches.clients, rows, now.labels, name="mean_proximity")
