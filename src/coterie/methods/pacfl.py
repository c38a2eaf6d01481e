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
Fashion-MNIST and 10 for MNIST with two labels per client. By default the clusters are therefore found: clients are
divided in two again and again, as long as two halves of their examples, whose directions they send, too, agree about
the division (clustering/repeated_splits.py); there is one cluster if they never do. Other values of `rule` choose the
number of clusters by a score of D against data without clusters (`choose_n_clusters`). The paper takes p = 3 to 5
directions per class. The smallest angle between two subspaces is near 0 once their dimensions come near the number of
inputs, regardless of the data: with p = 3, ten classes of 8×8 images span 30 + 30 of 64 dimensions, and rotations
cannot be told apart. So p is by default at most 3, and small enough for the directions of all classes to span at most
an eighth of the inputs, but at least 1. `budget` distributes a total number of vectors over the classes, as the code
does for Dirichlet partitions, and always uses all of them; the code rounds for each class separately and leaves a
client with many classes of equal size without any vector. The published accuracies are those after further local
training of each client: `finetuned`.

Limitation: if one direction per class already spans more than a quarter of the inputs, angles are small for any data;
the run then shows a warning.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.class_subspaces import Subspaces, class_subspaces, halved_subspaces
from coterie.clustering import Linkage, PairAngle, agglomerative, choose_n_clusters, pacfl_angles, repeated_splits
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cohort, Federation, PerClient
from coterie.methods import cluster_training
from coterie.methods.cluster_training import Clients, Joined
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

log = logging.getLogger(__name__)

# Directions per class at most; and the inputs divided by the dimensions of a client's subspace, at least.
_MOST, _PART = 3, 8


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
        vectors: p, number of directions per class; `auto`: at most 3, and at most an eighth of the inputs for all
            classes together.
        budget: Total number of directions, distributed over the classes by their sizes; 0: p per class.
        inputs: Directions of inputs as stored, or as the model receives them.
        angle: Angle between two clients: the smallest principal angle, the sum of all principal angles, or the smallest
            angle between two of their vectors, without or with signs.
        threshold: β: clusters up to this angle in degrees are merged; `auto`: the clusters are found by `rule`.
        max_clusters: With a score as `rule`: the largest number of clusters to consider.
        rule: With threshold `auto`: `halves`: divide clients as long as two halves of their examples agree; or the
            score that chooses the number of clusters.
        linkage: Distance between clusters; `halves` uses average linkage.
        finetuned: Whether a client is served its cluster's model after further local training on its own examples.
        weights: Client weight: number of samples, or uniform.
    """

    finds_clusters: ClassVar[bool] = True
    local: LocalSGD = field(default_factory=LocalSGD)
    vectors: Annotated[int, Bound(at_least=1)] | Literal["auto"] = "auto"
    budget: Annotated[int, Bound(at_least=0)] = 0
    inputs: Literal["raw", "model"] = "raw"
    angle: PairAngle = "subspace"
    threshold: Annotated[float, Bound(at_least=0)] | Literal["auto"] = "auto"
    max_clusters: Annotated[int, Bound(at_least=1)] = 10
    rule: Literal["halves", "silhouette", "eigengap", "stability"] = "halves"
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
        how = self.subspaces(fed.task)
        got = self._subspaces(fed, cohort, seed, how)
        bases = tuple(got.values())
        angles = pacfl_angles([each.T for each in bases], self.angle)
        evidence: dict[str, object] = {"clients": list(got), "angles": angles}
        if self.threshold != "auto":
            labels = agglomerative(angles, threshold=self.threshold, linkage=self.linkage)
        elif self.rule == "halves":
            found = repeated_splits(angles, *self._angles_of_halves(fed, cohort, seed, how, got))
            labels, evidence["tried"] = found.labels, [list(each) for each in found.tried]
        else:
            choice = choose_n_clusters(
                angles, self.max_clusters, self.rule, seed=seed.fold("auto"), kind="distances", linkage=self.linkage
            )
            labels = agglomerative(angles, k=choice.k, linkage=self.linkage)
            evidence["scores"] = {str(k): score for k, score in choice.scores.items()}
        row = dict(zip(got, labels.tolist(), strict=True))
        bank = cluster_training.equal_models(now.w0, labels)
        after = State(now.w0, bank, tuple(got), bases, labels, ClientMap(row))
        return Round(after, row, evidence={**evidence, "labels": labels})

    def subspaces(self, task: Task) -> Subspaces:
        """Number of directions, and their inputs."""
        if self.budget:
            return Subspaces(vectors=0, budget=self.budget, inputs=self.inputs)
        if self.vectors != "auto":
            return Subspaces(vectors=self.vectors, inputs=self.inputs)
        inputs, classes = math.prod(task.shape), task.classes or 1
        if 4 * classes > inputs:
            log.warning(
                "pacfl: one direction for each of %d classes spans more than a quarter of the %d inputs. Angles "
                "between such subspaces are small for any data, so that clusters may be missed; fedgroup compares no "
                "inputs",
                classes,
                inputs,
            )
        return Subspaces(vectors=max(1, min(_MOST, inputs // (_PART * classes))), inputs=self.inputs)

    def _subspaces(
        self, fed: Federation, clients: Clients, seed: Seed, how: Subspaces, min_replies: int | None = None
    ) -> dict[ClientId, Array]:
        """U_i as rows, of the clients that reply."""
        got = fed.ask(clients, class_subspaces, seed.fold("subspaces"), how=how, min_replies=min_replies)
        return {client: np.concatenate(bases) for client, bases in got.by_client("bases").items()}

    def _angles_of_halves(
        self, fed: Federation, cohort: Cohort, seed: Seed, how: Subspaces, known: dict[ClientId, Array]
    ) -> tuple[Array, Array]:
        """Angles of the halves of each client to all clients; a client that does not reply stands for its halves."""
        got = fed.ask(cohort.of(known), halved_subspaces, seed.fold("halves"), how=how, min_replies=0)
        columns = [each.T for each in known.values()]
        found = []
        for name in ("first", "second"):
            halves = dict(known)
            if len(got):
                halves |= {client: np.concatenate(bases) for client, bases in got.by_client(name).items()}
            found.append(pacfl_angles([each.T for each in halves.values()], self.angle, others=columns))
        return found[0], found[1]

    def _join(
        self, now: State, fed: Federation, newcomers: Clients, seed: Seed, min_replies: int | None = None
    ) -> Joined:
        """Newcomers send their directions and join by mean angle."""
        got = self._subspaces(fed, newcomers, seed, self.subspaces(fed.task), min_replies)
        if not got:
            return Joined({}, {})
        angles = pacfl_angles([each.T for each in got.values()], self.angle, others=[each.T for each in now.bases])
        return cluster_training.join_nearest(list(got), angles, now.labels, name="mean_angles")
