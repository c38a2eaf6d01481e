"""FedSim: one model, averaged within and then across clusters of the cohort, so that similar clients do not dominate.

Palihawadana, Wiratunga, Wijekoon, Kalutarage, "FedSim: Similarity guided model aggregation for Federated Learning",
Neurocomputing 483, 2022, doi:10.1016/j.neucom.2021.08.141. Algorithms 1 and 2:

    g_k = ∇F_k(w_t)                                 client k: over all its training examples, data loss only
    w_k = LocalUpdate(w_t)                          client k
    𝒞   = kmeans++(PCA({g_k}))                      server: C clusters of the cohort, for this round only
    (13)  w̄_c = Σ_{k∈c} (n_k / n_c) w_k             server: n_c = Σ_{k∈c} n_k
    (14)  w_{t+1} = (1/|𝒞|) Σ_c w̄_c                 server: equal weight for each cluster

C is `clusters`, the share of variance that PCA keeps is `variance`. The paper's random clustering, and the first round
of its code, assign a shuffled cohort to the clusters in turn (round robin): `clustering` and `first_round`. A client
sends its gradient along with its model, in one exchange: 1 model down, 2 up (1 up in round-robin rounds). With one
cluster it is FedAvg to the bit.

With a robust aggregation rule, both means use that rule. Malicious clients with similar gradients form a cluster of
their own, in which there are no other models to outvote them; in a plain mean of clusters it would have weight 1/|𝒞|,
however few clients it has. The robust mean of clusters leaves out whole clusters. It cannot distinguish a malicious
cluster from a rare true one, it tolerates only `byzantine_fraction` of the |𝒞| clusters, and of two clusters it cannot
tell which one is malicious.

Departures from the paper. Equation (13) is printed with the n of all clients, which would make w̄_c a fraction of a
model: we divide within the cluster, as the authors' code does. (14) divides by the number of non-empty clusters, not by
C. Line 6 of Algorithm 2 clusters the gradients themselves: we cluster their PCA scores, as text and code do. Gradients
are taken at w_t; the code takes them at the last cluster's model of the previous round. The code's round robin takes
the cohort in its given order; here cohorts are ordered by client id, which may follow the true clusters, so the cohort
is shuffled first. With fewer than C distinct gradients, each distinct gradient is a cluster; one or two replies are one
cluster. Stragglers are dropped, as in FedAvg, and clients without examples are in no cluster; if no reply is left, the
model is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.clients import TRAINED, Client, LocalSGD, Model, Settings, Steps, Work, fit, train
from coterie.clients.local_training import lengths, plan
from coterie.clients.scores import full_gradient, whole_pass, whole_pass_lengths
from coterie.clustering import kmeans, principal_scores
from coterie.federation.protocol import Cohort, Federation, Replies
from coterie.methods.fedavg import loss_of, one_model
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

#: How the cohort is clustered: by the gradients of its clients, or shuffled and assigned in turn.
Clustering = Literal["gradients", "round_robin"]


def _plan(n: int, seed: Seed, effort: float, *, local: LocalSGD) -> dict[str, Steps]:
    return {**plan(n, seed, effort, local=local), **whole_pass(n, seed, effort)}


def _lengths(n: int, *, local: LocalSGD) -> dict[str, int]:
    return {**lengths(n, local=local), **whole_pass_lengths(n)}


def _fit(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, object]:
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
    trains=True,
)


@dataclass(frozen=True)
class FedSim:
    """One model: the mean of the means of clusters of the cohort.

    Attributes:
        local: Settings of local training.
        clusters: C, number of clusters of each round's cohort; 1: FedAvg.
        variance: Share of the gradients' variance that PCA keeps for clustering.
        clustering: Clustering of the cohort: by gradients, or by a shuffled round robin, the ablation that the paper
            calls random.
        first_round: Clustering in round 0, where the authors' code has no gradients yet and uses a round robin.
        weights: Client weight within a cluster: number of samples, or uniform.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: Annotated[int, Bound(at_least=1)] = 5
    variance: Annotated[float, Bound(above=0, at_most=1)] = 0.95
    clustering: Clustering = "gradients"
    first_round: Clustering = "gradients"
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """One exchange: the model down, model and gradient up."""
        round_robin = self.clustering == "round_robin" or (cohort.t == 0 and self.first_round == "round_robin")
        work = fit if round_robin else fit_with_gradient
        got = fed.ask(cohort.active(), work, seed, start=w, local=self.local.at(cohort.t))
        valid = np.flatnonzero(got.samples)
        if not len(valid):
            return Round(w)
        labels, evidence = self._round_robin(len(valid), seed) if round_robin else self._cluster(got, valid, seed)
        weights = got.samples[valid] if self.weights == "samples" else np.ones(len(valid))
        clients = [got.clients[i] for i in valid]
        w = mean_of_means(fed, tree.take(got["params"], valid), labels, weights, clients, w)
        assignment = {got.clients[i]: int(label) for i, label in zip(valid, labels, strict=True)}
        distances = tree.row_distances(got["params"], tree.stack([w])).tolist()
        counts = {"empty_clusters": self.clusters - len(set(assignment.values()))}
        return Round(w, assignment, loss_of(got), dict(zip(got.clients, distances, strict=True)), evidence, counts)

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[Params, Placement]:
        """Serve w to every client."""
        return w, one_model(w, clients)

    def _round_robin(self, replies: int, seed: Seed) -> tuple[Array, dict[str, object]]:
        """A random cluster for each reply, in clusters of equal size, and no evidence."""
        labels = np.zeros(replies, np.int64)
        labels[seed.fold("deal").permutation(replies)] = np.arange(replies) % self.clusters
        return labels, {}

    def _cluster(self, got: Replies, valid: Array, seed: Seed) -> tuple[Array, dict[str, object]]:
        """The cluster of each valid reply, and the evidence for the record."""
        gradients = tree.flatten_rows(tree.take(got["gradient"], valid))  # (replies, parameters)
        # Count distinct gradients before PCA: the scores of equal gradients may differ in their last bits.
        k = min(self.clusters, len({row.tobytes() for row in gradients}))
        if k == 1 or len(gradients) <= 2:
            return np.zeros(len(gradients), np.int64), {}
        scores = principal_scores(gradients, self.variance)
        labels, _ = kmeans(scores, k, seed.fold("kmeans"))
        return labels, {"clients": [got.clients[i] for i in valid], "scores": scores}


def mean_of_means(
    fed: Federation, bank: Bank, labels: Array, weights: Array, clients: Sequence[ClientId], w: Params
) -> Params:
    """(13) and (14), by the federation's rule; the mean of one model is itself, so that one cluster is FedAvg."""
    clusters = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
    means = tree.stack(
        fed.average(tree.take(bank, members), weights[members], clients=[clients[i] for i in members.tolist()], start=w)
        for members in clusters
    )
    return fed.average(means, np.ones(len(clusters)), clients=())
