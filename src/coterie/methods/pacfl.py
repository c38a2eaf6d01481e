"""PACFL: cluster clients once, by principal angles between the subspaces of their data; then FedAvg in each cluster.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin, "Efficient Distribution Similarity Identification in Clustered
Federated Learning via Principal Angles Between Client Data Subspaces", AAAI 2023, arXiv:2209.10526:

    U_i = [U_i,c for all classes c of i]                    client, once: p left singular vectors of each class
    D_ij = an angle between U_i and U_j, in degrees         server: `angle`, see clustering/angles.py
    agglomerate while the nearest two clusters have D ≤ β   server, once
    w_z ← Σ_i n_i LocalUpdate_i(w_z) / Σ_i n_i              over the members of cluster z in the cohort

p is `vectors`, β `threshold`, w_z row z of `bank`; all clusters start at the same w_0. A newcomer sends U_new and joins
the cluster with the smallest mean angle to its members; it does not train for that.

Inputs are taken as stored (raw pixels, as in the published code), uncentered; `inputs="model"` takes them as the model
receives them. The server learns the directions, and from their number how many classes a client has.

Departures from the paper. The default angle is the paper's smallest principal angle; the code's is `pairwise_signed`,
and its "average" linkage is `weighted` here. β is in degrees and depends on the data: 4.9 for CIFAR-10, about 4.5 for
Fashion-MNIST and 10 for MNIST with two labels per client. By default the number of clusters is therefore chosen by the
silhouette of D against data without clusters (`choose_n_clusters`); it is one if there are no clusters. `budget`
distributes a total number of vectors over the classes, as the code does for Dirichlet partitions, and always uses all
of them; the code rounds for each class separately and leaves a client with many classes of equal size without any
vector. The published accuracies are those after further local training of each client: `finetuned`.

Limitation: the smallest angle between two subspaces is near 0 once their dimensions come near the number of inputs,
regardless of the data. For example, three vectors for each of ten classes of 8×8 images span 30 + 30 of 64 dimensions.
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
from coterie.clients import LocalSGD, fit
from coterie.clients.class_subspaces import Subspaces, class_subspaces
from coterie.clustering import ChoiceRule, Linkage, PairAngle, agglomerative, choose_n_clusters, pacfl_angles
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cohort, Federation, PerClient
from coterie.methods import cluster_training
from coterie.methods.cluster_training import Clients, Joined
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a PACFL run.

    Attributes:
        w0: The common initial model.
        bank: The clusters' models.
        initial_clients: The clients that were clustered; empty before that.
        bases: U_i of each of them, as rows.
        labels: The cluster of each of them.
        assignment: Client → cluster.
    """

    w0: Params
    bank: Bank
    initial_clients: tuple[ClientId, ...] = ()
    bases: tuple[Array, ...] = ()
    labels: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    assignment: ClientMap[int] = field(default_factory=ClientMap)


@dataclass(frozen=True)
class PACFL:
    """Clusters by principal angles, found once; one model per cluster.

    Attributes:
        local: Settings of local training.
        vectors: p, number of directions per class.
        budget: Total number of directions, distributed over the classes by their sizes; 0: p per class.
        inputs: Directions of inputs as stored, or as the model receives them.
        angle: Angle between two clients: the smallest principal angle, the sum of all principal angles, or the smallest
            angle between two of their vectors, without or with signs.
        threshold: β: clusters up to this angle in degrees are merged; `auto`: the number of clusters is chosen from the
            angles.
        max_clusters: With `auto`: the largest number of clusters to consider.
        rule: With `auto`: the score that chooses the number of clusters.
        linkage: Distance between clusters.
        finetuned: Whether a client is served its cluster's model after further local training on its own examples.
        weights: Client weight: number of samples, or uniform.
    """

    finds_clusters: ClassVar[bool] = True
    local: LocalSGD = field(default_factory=LocalSGD)
    vectors: Annotated[int, Bound(at_least=1)] = 3
    budget: Annotated[int, Bound(at_least=0)] = 0
    inputs: Literal["raw", "model"] = "raw"
    angle: PairAngle = "subspace"
    threshold: Annotated[float, Bound(at_least=0)] | Literal["auto"] = "auto"
    max_clusters: Annotated[int, Bound(at_least=1)] = 10
    rule: ChoiceRule = "silhouette"
    linkage: Linkage = "average"
    finetuned: bool = False
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, without clusters."""
        cluster_training.needs_classes("pacfl", task)
        w0 = task.init(seed.fold("init"))
        return State(w0, tree.stack([w0]))

    def stage(self, now: State) -> Stage:
        """Clustering is one preparation step."""
        return "train" if now.initial_clients else "prepare"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Cluster the clients; then, in each round, newcomers join and each cluster trains."""
        if not now.initial_clients:
            return self._cluster(now, fed, cohort, seed)
        local = self.local.at(cohort.t)
        return cluster_training.train_clusters(now, fed, cohort, seed, local, self._join, self.weights)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Serve each client its cluster's model; a newcomer sends its directions to join a cluster."""
        if not now.initial_clients:
            return now, cluster_training.placed(now, clients)
        now, placed = cluster_training.place_in_clusters(now, fed, clients, seed, self._join)
        if not self.finetuned:
            return now, placed
        start = PerClient(now.bank, placed.row)
        return now, dataclasses.replace(placed, adapt=Adapt(fit, {"start": start, "local": self.local}))

    def _cluster(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """D of all clients, and their clusters, all at w_0."""
        got = self._subspaces(fed, cohort, seed)
        bases = tuple(got.values())
        angles = pacfl_angles([each.T for each in bases], self.angle)
        evidence: dict[str, object] = {"clients": list(got), "angles": angles}
        if self.threshold == "auto":
            choice = choose_n_clusters(
                angles, self.max_clusters, self.rule, seed=seed.fold("auto"), kind="distances", linkage=self.linkage
            )
            labels = agglomerative(angles, k=choice.k, linkage=self.linkage)
            evidence["scores"] = {str(k): score for k, score in choice.scores.items()}
        else:
            labels = agglomerative(angles, threshold=self.threshold, linkage=self.linkage)
        row = dict(zip(got, labels.tolist(), strict=True))
        bank = cluster_training.equal_models(now.w0, labels)
        after = State(now.w0, bank, tuple(got), bases, labels, ClientMap(row))
        return Round(after, row, evidence={**evidence, "labels": labels})

    def _subspaces(
        self, fed: Federation, clients: Clients, seed: Seed, min_replies: int | None = None
    ) -> dict[ClientId, Array]:
        """U_i as rows, of the clients that reply."""
        how = Subspaces(vectors=0 if self.budget else self.vectors, budget=self.budget, inputs=self.inputs)
        got = fed.ask(clients, class_subspaces, seed.fold("subspaces"), how=how, min_replies=min_replies)
        return {client: np.concatenate(bases) for client, bases in got.by_client("bases").items()}

    def _join(
        self, now: State, fed: Federation, newcomers: Clients, seed: Seed, min_replies: int | None = None
    ) -> Joined:
        """Newcomers send their directions and join by mean angle."""
        got = self._subspaces(fed, newcomers, seed, min_replies)
        if not got:
            return Joined({}, {})
        angles = pacfl_angles([each.T for each in got.values()], self.angle, others=[each.T for each in now.bases])
        return cluster_training.join_nearest(list(got), angles, now.labels, name="mean_angles")
