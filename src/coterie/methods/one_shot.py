"""ONE_SHOT: every client trains alone, and clients whose models are close are a cluster. The start of SR-FCA.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538, Algorithm 1:

    w_i ← T_init batches of local training from w_0                        client; its model goes to the server
    an edge between i and j where dist(w_i, w_j) ≤ λ                       server
    C_0 ← connected components of at least t clients                       server; the others have no cluster yet

    dist(w_i, w_j) = ‖w_i - w_j‖₂   or, for neural networks,   ½ (f_i(w_j) + f_j(w_i)), f_i the mean training loss of i

For the cross loss every client is sent all models and gives their losses. w_0 is `w0`, T_init `init_steps`, λ
`threshold`, t `min_size`, f_i(w_j) is `losses[i, j]`.

Departures. λ may be found from the distances: in the widest gap (`clustering.widest_gap` says of what), or as a
quantile, as in the published code. That code groups around random pivots and keeps clusters of more than t clients,
which is `grouping="pivot"`. A client is sent its own model along with the others: m² transfers where the paper has
m (m - 1). Whoever trained but did not answer with losses takes part with the half of each distance that others know.
For distances to clusters, where the halves are not alike, `to_centres` says which of them count.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.clients import LocalSGD, fit, losses_of
from coterie.clustering import components, cross, l2, losses_by_cluster, pairwise_quantile, pivots, widest_gap
from coterie.codec import state
from coterie.errors import SpecError, TooFewReplies
from coterie.federation.protocol import Cohort, Federation, Replies
from coterie.methods.protocol import check_choices
from coterie.models import trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@dataclass(frozen=True)
class OneShot:
    """How clients train alone and are clustered.

    Attributes:
        local: How clients train.
        distance: Between models: the loss of each on the other's examples, or l2.
        threshold: λ, the largest distance within a cluster, in units of the mean loss or of l2; or found from the
            distances: `gap`, in the widest gap between those at which clusters join; `quantile` of all pairs.
        quantile: With threshold `quantile`: which.
        min_size: t, the fewest clients of a cluster.
        grouping: Connected components; or random pivots with their neighbors, of which more than t are a cluster.
        init_steps: T_init, batches of every client's training alone.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    distance: Literal["cross", "l2"] = "cross"
    threshold: float | Literal["gap", "quantile"] = "gap"
    quantile: float = 0.25
    min_size: int = 2
    grouping: Literal["components", "pivot"] = "components"
    init_steps: int = 250

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        found = self.threshold in ("gap", "quantile")
        if not found and (isinstance(self.threshold, str) or math.isnan(self.threshold) or self.threshold <= 0):
            raise SpecError(f"method.threshold must be a number above 0, 'gap' or 'quantile', got {self.threshold!r}")
        if not 0 < self.quantile <= 1:
            raise SpecError(f"method.quantile must be a share above 0 and up to 1, got {self.quantile}")
        for name in ("min_size", "init_steps"):
            if getattr(self, name) < 1:
                raise SpecError(f"method.{name} must be at least 1, got {getattr(self, name)}")

    @property
    def alone(self) -> LocalSGD:
        """How clients train alone: alike whenever they do, so that a late client is compared on the same base."""
        return dataclasses.replace(self.local, steps=self.init_steps, mu=0.0, lr_decay=1.0)

    @property
    def smallest(self) -> int:
        """The fewest clients of a cluster of C_0."""
        return self.min_size + (self.grouping == "pivot")


@state
@dataclass(frozen=True)
class Locals:
    """Clients that have trained alone.

    Attributes:
        clients: Who.
        models: Their models; empty once nothing needs them.
        losses: With cross losses: f_i(w_j), a row for each client and a column for each model.
        known: Which of those losses are known.
    """

    clients: tuple[ClientId, ...]
    models: Bank
    losses: Array
    known: Array

    @property
    def table(self) -> Array:
        """The losses, NaN where nobody knows."""
        return np.where(self.known, self.losses, np.nan)


def train_alone(how: OneShot, w0: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Locals:
    """Everyone's own model, and what each says of the others' where distances are cross losses."""
    got = fed.ask(cohort, fit, seed, start=w0, local=how.alone)
    nobody = Locals((), {}, np.zeros((0, 0), np.float32), np.zeros((0, 0), bool))
    return joined(how, nobody, got, fed, cohort, seed)


def joined(how: OneShot, before: Locals, got: Replies, fed: Federation, cohort: Cohort, seed: Seed) -> Locals:
    """Those who trained before and those who have trained now; the latter's models are scored by everyone."""
    clients = (*before.clients, *got.clients)
    models = tree.concatenate([before.models, got["params"]]) if before.models else got["params"]
    if how.distance == "l2":
        return Locals(clients, models, before.losses, before.known)
    many, old = len(clients), len(before.clients)
    losses, known = np.zeros((many, many), np.float32), np.zeros((many, many), bool)
    losses[:old, :old], known[:old, :old] = before.losses, before.known
    heard = fed.ask(cohort.of(set(clients).intersection(cohort)), losses_of, seed.fold("cross"), centers=got["params"])
    rows = places(clients, heard.clients)
    losses[rows, old:], known[rows, old:] = heard["losses"], True
    return Locals(clients, models if before.models or not old else {}, losses, known)


def pairwise(how: OneShot, trained: Locals) -> Array:
    """The distances of all pairs of clients."""
    return (
        l2(tree.flatten_rows(trainable(trained.models)))
        if how.distance == "l2"
        else cross(trained.table, trained.table)
    )


def to_centres(how: OneShot, bank: Bank, models: Bank, losses: Array, labels: Array, own: Array) -> Array:
    """The distances of clients to clusters, (clients, clusters).

    A cross loss ½ (f_c(w_j) + f_j(ω_c)) has halves of two kinds: the model w_j of a client alone does worse on others'
    examples than the model ω_c of a cluster does on the client's. So for a client j of which some f_c(w_j) are not
    known, all clusters are compared by f_j(ω_c) alone; only where it did not say these either, by the f_c(w_j) there
    are.

    Args:
        how: By which distance.
        bank: The clusters' models.
        models: With l2: the clients' models.
        losses: With cross losses: f_i(w_j) of members i of clusters and these clients j, NaN where nobody knows.
        labels: With cross losses: the cluster of each member i, -1 for none.
        own: With cross losses: f_j(ω_c), (clients, clusters), NaN where nobody knows.
    """
    if how.distance == "l2":
        return l2_to(trainable(models), trainable(bank))
    theirs = losses_by_cluster(losses, labels, tree.rows(bank))
    partly = np.isnan(theirs).any(axis=0) & ~np.isnan(own).any(axis=1)
    return cross(own, np.where(partly, np.nan, theirs))


def l2_to(models: Bank, centers: Bank) -> Array:
    """The l2 distance of each model to each center, (models, centers)."""
    # One center at a time: all at once would take models × centers × parameters.
    return np.stack([tree.row_distances(models, tree.take(centers, [c])) for c in range(tree.rows(centers))], axis=1)


def between_centres(how: OneShot, bank: Bank, labels: Array, own: Array) -> Array:
    """The distances of all pairs of clusters; `labels` are the clients' clusters, `own` their losses f_j(ω_c)."""
    if how.distance == "l2":
        return l2(tree.flatten_rows(trainable(bank)))
    losses = losses_by_cluster(own, labels, tree.rows(bank))
    return cross(losses, losses)


def cluster(how: OneShot, distances: Array, seed: Seed) -> tuple[Array, float]:
    """C_0, the cluster of each client or -1, and λ."""
    if how.threshold == "gap":
        threshold = widest_gap(distances, how.min_size).threshold
    elif how.threshold == "quantile":
        threshold = pairwise_quantile(distances, how.quantile)
    else:
        threshold = float(how.threshold)
    if how.grouping == "pivot":
        return pivots(distances, threshold, seed, how.smallest), threshold
    return components(distances, threshold, how.smallest), threshold


def one_shot(
    how: OneShot, w0: Params, fed: Federation, cohort: Cohort, seed: Seed
) -> tuple[Locals, dict[ClientId, int], float, dict[str, Any]]:
    """ONE_SHOT: who trained, C_0 without those that have no cluster, λ, and on what it was decided.

    Raises:
        SpecError: If there are too few clients to compare, or no cluster is large enough.
        TooFewReplies: If there are enough clients, but too few of them answered.
    """
    needed = _needed(how, len(cohort.available))
    trained = train_alone(how, w0, fed, cohort, seed)
    if len(trained.clients) < needed:
        raise TooFewReplies(f"{len(trained.clients)} clients have trained alone, {needed} are needed to compare them")
    distances = pairwise(how, trained)
    labels, threshold = cluster(how, distances, seed)
    if labels.max() < 0:
        apart = distances[np.triu_indices(len(distances), k=1)]
        raise SpecError(
            f"No {how.smallest} clients are a cluster at method.threshold = {threshold:.4g}: their distances go from "
            f"{apart.min():.4g} to {apart.max():.4g}. {_advice(how)}"
        )
    row = {c: int(label) for c, label in zip(trained.clients, labels, strict=True) if label >= 0}
    evidence = {"clients": list(trained.clients), "labels": labels, "distances": distances, "threshold": threshold}
    return trained, row, threshold, evidence


def _needed(how: OneShot, clients: int) -> int:
    """How many must have trained alone; refuses fewer clients than that before anybody is asked."""
    if clients < 2:
        raise SpecError(f"Clients are compared with each other, for which at least 2 are needed, got {clients}")
    if clients < how.smallest:
        raise SpecError(
            f"method.min_size = {how.min_size} asks for clusters of {how.smallest} clients where method.grouping is "
            f"{how.grouping!r}, but there are {clients}; take {clients - how.smallest + how.min_size} or less"
        )
    return max(2, how.smallest)


def _advice(how: OneShot) -> str:
    """What to do where no cluster is large enough."""
    if how.threshold == "gap":
        return "Take a smaller method.min_size, or more method.init_steps"
    if how.threshold == "quantile":
        return "Take a larger method.quantile, a smaller method.min_size, or more method.init_steps"
    return "Take a larger one; coterie suggest-threshold proposes one"


def places(clients: Sequence[ClientId], some: Sequence[ClientId]) -> list[int]:
    """Where each of some clients stands among all of them."""
    place = {client: i for i, client in enumerate(clients)}
    return [place[client] for client in some]
