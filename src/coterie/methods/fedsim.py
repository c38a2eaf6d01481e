"""FedSim: one model for everybody, averaged twice, so that many clients who are alike do not outvote the others.

Palihawadana, Wiratunga, Wijekoon, Kalutarage, "FedSim: Similarity guided model aggregation for Federated Learning",
Neurocomputing 483, 2022, doi:10.1016/j.neucom.2021.08.141. Algorithms 1 and 2:

    g_k = ∇F_k(w_t)                                 client k: over all its training examples, data loss only
    w_k = LocalUpdate(w_t)                          client k
    𝒞   = kmeans++(PCA({g_k}))                      server: C clusters of the cohort, for this round only
    (13)  w̄_c = Σ_{k∈c} (n_k / n_c) w_k             server: n_c = Σ_{k∈c} n_k
    (14)  w_{t+1} = (1/|𝒞|) Σ_c w̄_c                 server: each cluster counts the same

C is `clusters`, the share of variance that PCA keeps is `variance`. The paper's random clustering, and the first round
of its code, deal the shuffled cohort out in turns: `clustering` and `first_round`. A client sends its gradient beside
its model, in one exchange: 1 model down, 2 up (1 up where nothing is clustered by gradients). One cluster is FedAvg to
the bit.

A federation with a robust rule takes both means by it. Bad clients whose gradients are alike make a cluster of their
own, whose w̄_c nobody inside contradicts; in a plain mean it would have 1/|𝒞| of the model, however few they are. The
rule leaves out whole clusters then, and cannot tell a bad one from a rare kind: it withstands its share of |𝒞|
clusters, and of two it cannot tell which is bad.

Departures. Equation (13) is printed with the n of all clients, which would make w̄_c a fraction of a model: we divide
within the cluster, as the authors' code does. (14) divides by the clusters that came out, and not by C. Algorithm 2
clusters the gradients themselves in its line 6: we cluster their scores, as text and code do. Gradients are taken at
w_t; the code takes them at the last cluster's model of the round before. It deals a cohort out as it stands; ours
stands in the order of ids, which may follow kinds, and is shuffled first. Fewer than C distinct gradients make as many
clusters, and no more than two replies one. Stragglers are dropped, as in FedAvg, and clients without examples are in no
cluster; where no reply is left, the model stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.clients import TRAINED, Client, LocalSGD, Model, Settings, Steps, Work, fit, train
from coterie.clients.local import lengths, plan
from coterie.clients.scores import full_gradient, whole_pass, whole_pass_lengths
from coterie.clustering import kmeans, principal_scores
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Replies
from coterie.methods.fedavg import everyone, loss_of
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

#: How the cohort is clustered: by the gradients of its clients, or shuffled and dealt out in turns.
Clustering = Literal["gradients", "round_robin"]


def _plan(n: int, seed: Seed, effort: float, *, local: LocalSGD) -> dict[str, Steps]:
    return {**plan(n, seed, effort, local=local), **whole_pass(n, seed, effort)}


def _lengths(n: int, *, local: LocalSGD) -> dict[str, int]:
    return {**lengths(n, local=local), **whole_pass_lengths(n)}


def _fit(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, Any]:
    gradient, _ = full_gradient(task, client, start)
    return {"gradient": trainable(gradient), **train(task, start, client, local)}


#: The gradient at the model received, and the model after local training from there.
fit_with_gradient = Work(
    "fedsim.fit",
    takes={"start": Model(), "local": Settings(LocalSGD)},
    gives={"gradient": Model(partial=True, purpose="gradients"), **TRAINED},
    stream="batches",
    plan=_plan,
    lengths=_lengths,
    body=_fit,
)


@dataclass(frozen=True)
class FedSim:
    """One model, the mean of the means of clusters of the cohort.

    Attributes:
        local: How clients train.
        clusters: C, of each round's cohort; 1 for FedAvg.
        variance: The share of the gradients' variance that is kept for clustering.
        clustering: By gradients; or shuffled and dealt out in turns, the ablation called random.
        first_round: The same for round 0; the authors' code has no gradients yet and deals it out.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int = 5
    variance: float = 0.95
    clustering: Clustering = "gradients"
    first_round: Clustering = "gradients"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        if self.clusters < 1:
            raise SpecError(f"method.clusters must be at least 1, got {self.clusters}")
        if not 0 < self.variance <= 1:
            raise SpecError(f"method.variance must be greater than 0 and at most 1, got {self.variance}")

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """One exchange: the model down; model and gradient up."""
        dealt = self.clustering == "round_robin" or (cohort.t == 0 and self.first_round == "round_robin")
        work = fit if dealt else fit_with_gradient
        got = fed.ask(cohort.active(), work, seed, start=w, local=self.local.at(cohort.t))
        useful = np.flatnonzero(got.samples)
        if not len(useful):
            return Round(w)
        labels, evidence = self._deal(len(useful), seed) if dealt else self._cluster(got, useful, seed)
        w = mean_of_means(fed, tree.take(got["params"], useful), labels, got.samples[useful])
        assignment = {got.clients[place]: int(label) for place, label in zip(useful, labels, strict=True)}
        distances = tree.row_distances(got["params"], tree.stack([w])).tolist()
        counts = {"empty_clusters": self.clusters - len(set(assignment.values()))}
        return Round(w, assignment, loss_of(got), dict(zip(got.clients, distances, strict=True)), evidence, counts)

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Everyone: w."""
        return everyone(w, clients)

    def _deal(self, replies: int, seed: Seed) -> tuple[Array, dict[str, Any]]:
        """The cluster of each reply, all of one size as far as they go; decided on nothing."""
        labels = np.zeros(replies, np.int64)
        labels[seed.fold("deal").permutation(replies)] = np.arange(replies) % self.clusters
        return labels, {}

    def _cluster(self, got: Replies, useful: Array, seed: Seed) -> tuple[Array, dict[str, Any]]:
        """The cluster of each useful reply, and on what that was decided."""
        gradients = tree.flatten_rows(tree.take(got["gradient"], useful))  # (replies, parameters)
        # Counted here: the scores of equal gradients may differ in their last bits.
        k = min(self.clusters, len({row.tobytes() for row in gradients}))
        if k == 1 or len(gradients) <= 2:
            return np.zeros(len(gradients), np.int64), {}
        scores = principal_scores(gradients, self.variance)
        labels, _ = kmeans(scores, k, seed.fold("kmeans"))
        return labels, {"clients": [got.clients[place] for place in useful], "scores": scores}


def mean_of_means(fed: Federation, bank: Bank, labels: Array, samples: Array) -> Params:
    """(13) and (14), by the rule of the federation; the mean of one is itself, so that one cluster is FedAvg."""
    clusters = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
    means = tree.stack(fed.average(tree.take(bank, members), samples[members]) for members in clusters)
    return fed.average(means, np.ones(len(clusters)))
