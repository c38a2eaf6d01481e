"""PACFL: cluster clients once, by the angles between the subspaces of their examples; then FedAvg in each cluster.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin, "Efficient Distribution Similarity Identification in Clustered
Federated Learning via Principal Angles Between Client Data Subspaces", AAAI 2023, arXiv:2209.10526:

    U_i = [U_i,c for all classes c of i]                    client, once: p left singular vectors of each class
    D_ij = an angle between U_i and U_j, in degrees         server: `angle`, see clustering/angles.py
    agglomerate while the nearest two clusters have D ≤ β   server, once
    w_z ← Σ_i n_i LocalUpdate_i(w_z) / Σ_i n_i              over those of the cohort that are in cluster z

p is `vectors`, β `threshold`, w_z row z of `bank`; all clusters start at the same w_0. A newcomer sends U_new and joins
the cluster to whose members its mean angle is the smallest; nothing is trained for that.

Inputs are taken as they are stored (raw pixels, as in the published code), uncentred; `inputs="model"` takes them as
the model is fed with them. The server learns the directions, and from their number how many classes a client has.

Departures. The default angle is the paper's smallest principal angle; the code's is `pairwise_signed`, and its
"average" linkage is `weighted` here. β is in degrees of data that nobody has seen: 4.9 for CIFAR-10, about 4.5 for
Fashion-MNIST and 10 for MNIST with two labels a client. By default the number of clusters is therefore chosen by the
silhouette of D against data without clusters (`clustering.choose`), one where there are none. `budget` deals so many
vectors in all to the classes, as the code does for Dirichlet partitions; but to the last one, where the code rounds for
each class by itself and leaves a client of many even classes without any. The published accuracies are those after each
client's own further training: `finetuned`.

What cannot work: the smallest angle between two subspaces is near 0 once their dimensions come near the number of
inputs, whatever the data are. With three vectors of each of ten classes of 8×8 images, 30 + 30 of 64 dimensions, it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.class_subspaces import Subspaces, class_subspaces
from coterie.clustering import ChoiceRule, Linkage, PairAngle, agglomerative, choose, pacfl_angles
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Adapt, Cohort, Federation, PerClient
from coterie.methods.clusters import nearest_clusters, needs_classes, train_clusters
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of PACFL is.

    Attributes:
        w0: The common initial model.
        bank: The clusters' models.
        founders: On whom the clusters were founded; nobody before that.
        bases: U_i of each of them, as rows.
        labels: The cluster of each of them.
        assignment: The cluster of each client that has one.
    """

    w0: Params
    bank: Bank
    founders: tuple[ClientId, ...] = ()
    bases: tuple[Array, ...] = ()
    labels: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    assignment: ClientMap[int] = field(default_factory=ClientMap)


@dataclass(frozen=True)
class PACFL:
    """Clusters by principal angles, founded once; a model for each.

    Attributes:
        local: How clients train.
        vectors: p, directions of each class.
        budget: Directions of all classes together, dealt out by their sizes; 0 for p of each.
        inputs: Directions of inputs as they are stored, or as the model is fed with them.
        angle: Between two clients: the smallest principal angle, the sum of all, or that of two vectors.
        threshold: β in degrees, up to which clusters merge; or `auto`, the number of clusters chosen from the angles.
        max_clusters: With `auto`: the largest number of clusters to consider.
        rule: With `auto`: by which score.
        linkage: The distance of clusters.
        finetuned: Serve each client its cluster's model after local training of its own.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    vectors: int = 3
    budget: int = 0
    inputs: Literal["raw", "model"] = "raw"
    angle: PairAngle = "subspace"
    threshold: float | Literal["auto"] = "auto"
    max_clusters: int = 10
    rule: ChoiceRule = "silhouette"
    linkage: Linkage = "average"
    finetuned: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name, least in (("vectors", 1), ("budget", 0), ("max_clusters", 1)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")
        chosen = self.threshold == "auto"
        if not chosen and (isinstance(self.threshold, str) or not 0 <= self.threshold < math.inf):
            raise SpecError(f"method.threshold must be degrees of at least 0, or 'auto', got {self.threshold!r}")

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, and no cluster yet."""
        needs_classes("pacfl", task)
        w0 = task.init(seed.fold("init"))
        return State(w0, tree.stack([w0]))

    def stage(self, now: State) -> Stage:
        """Founding the clusters is one step of preparing."""
        return "train" if now.founders else "prepare"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Found the clusters; then, in each round, newcomers join and each cluster averages."""
        if not now.founders:
            return self._found(now, fed, cohort, seed)
        return train_clusters(now, fed, cohort, seed, self.local.at(cohort.t), self._join)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its cluster; a newcomer the one that it would join, for which it sends its directions."""
        everyone = list(clients)
        row = {client: now.assignment[client] for client in everyone if client in now.assignment}
        if now.founders:
            row |= self._join(now, fed, [client for client in everyone if client not in row], seed)[0]
        adapt = Adapt(fit, {"start": PerClient(now.bank, row), "local": self.local}) if self.finetuned else None
        return Placement(now.bank, row, adapt)

    def _found(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        got = self._heard(fed, cohort, seed)
        bases = tuple(got.values())
        angles = pacfl_angles([each.T for each in bases], self.angle)
        evidence: dict[str, Any] = {"clients": list(got), "angles": angles}
        if self.threshold == "auto":
            choice = choose(
                angles, self.max_clusters, self.rule, seed=seed.fold("auto"), kind="distances", linkage=self.linkage
            )
            labels = agglomerative(angles, k=choice.k, linkage=self.linkage)
            evidence["scores"] = {str(k): score for k, score in choice.scores.items()}
        else:
            labels = agglomerative(angles, threshold=self.threshold, linkage=self.linkage)
        row = dict(zip(got, labels.tolist(), strict=True))
        bank = tree.stack([now.w0] * int(labels.max() + 1))
        after = State(now.w0, bank, tuple(got), bases, labels, ClientMap(row))
        return Round(after, row, evidence={**evidence, "labels": labels})

    def _heard(
        self, fed: Federation, clients: Cohort | Iterable[ClientId], seed: Seed, min_replies: int | None = None
    ) -> dict[ClientId, Array]:
        """U_i as rows, of those who answered."""
        how = Subspaces(vectors=0 if self.budget else self.vectors, budget=self.budget, inputs=self.inputs)
        got = fed.ask(clients, class_subspaces, seed.fold("subspaces"), how=how, min_replies=min_replies)
        return {client: np.concatenate(bases) for client, bases in got.by_client("bases").items()}

    def _join(
        self,
        now: State,
        fed: Federation,
        cold: Cohort | list[ClientId],
        seed: Seed,
        min_replies: int | None = None,
    ) -> tuple[dict[ClientId, int], dict[str, Any]]:
        """The clusters of those who have none yet, and on what that was decided; who is not heard stays without."""
        got = self._heard(fed, cold, seed, min_replies) if len(cold) else {}
        if not got:
            return {}, {}
        angles = pacfl_angles([each.T for each in got.values()], self.angle, others=[each.T for each in now.bases])
        row, means = nearest_clusters(angles, now.labels)
        return dict(zip(got, row, strict=True)), {"clients": list(got), "mean_angles": means}
