"""ONE_SHOT: every client trains alone, and clients with close models form a cluster. The first stage of SR-FCA.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538, Algorithm 1:

    w_i ← T_init batches of local training from w_0                        client; its model goes to the server
    an edge between i and j where dist(w_i, w_j) ≤ λ                       server
    C_0 ← connected components of at least t clients                       server; the others have no cluster yet

    dist(w_i, w_j) = ‖w_i - w_j‖₂   or, for neural networks,   ½ (f_i(w_j) + f_j(w_i)), f_i the mean training loss of i

For the cross loss every client receives all models and replies with their losses. w_0 is `w0`, T_init `init_steps`, λ
`threshold`, t `min_size`, f_i(w_j) is `losses[i, j]`; dist is in methods/model_distances.py.

    φ = mean over i of the loss of i's model on examples that it was not trained on, or ‖w_A - w_B‖₂/√2 of two halves

Departures from the paper. By default λ is found: below the first join of components that differ by more than the noise
floor φ, which the clients measure on their own examples (clients/noise_floor.py, clustering/noise_floor.py); two halves
have half the examples, and their models twice the variance. If no client has two examples, λ is in the widest gap
(`clustering.widest_gap`). This gap can be asked for, too, as can a quantile, as in the published code. That code forms
clusters around random pivots and keeps those of more than t clients, which is `grouping="pivot"`. A client also
receives its own model: m² transfers where the paper has m (m - 1). A client that trained but did not reply with losses
takes part with the half of each distance that other clients know.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np

from coterie.bounds import Bound, check
from coterie.clients import LocalSGD, fit, losses_of
from coterie.clients.noise_floor import held_out_loss, split_half
from coterie.clustering import (
    Gap,
    components,
    first_gap_above_noise,
    pairwise_quantile,
    pivots,
    widest_gap,
)
from coterie.errors import SpecError, TooFewReplies
from coterie.federation.protocol import Cohort, Federation, Replies
from coterie.methods.model_distances import NO_MODELS, Distance, LocalModels, between_clients
from coterie.seeds import Seed
from coterie.types import Array, ClientId, Params


@dataclass(frozen=True)
class OneShot:
    """Settings of ONE_SHOT.

    Attributes:
        local: Settings of local training.
        distance: Distance between models: the loss of each on the other client's examples, or l2.
        threshold: λ, the longest edge within a cluster, a mean loss or an l2 distance; or found from the distances:
            `auto`: below the first join of clusters that differ by more than a noise floor, which clients measure;
            `gap`: the widest gap between distances at which clusters join; `quantile`: of all pairs.
        quantile: With threshold `quantile`: the quantile.
        min_size: t, minimum number of clients in a cluster.
        grouping: Clusters are connected components, or random pivots with their neighbors (more than t clients).
        init_steps: T_init, number of batches that every client trains alone.
    """

    finds_clusters: ClassVar[bool] = True
    local: LocalSGD = field(default_factory=LocalSGD)
    distance: Distance = "cross"
    threshold: Annotated[float, Bound(above=0, infinite=True)] | Literal["auto", "gap", "quantile"] = "auto"
    quantile: Annotated[float, Bound(above=0, at_most=1)] = 0.25
    min_size: Annotated[int, Bound(at_least=1)] = 2
    grouping: Literal["components", "pivot"] = "components"
    init_steps: Annotated[int, Bound(at_least=1)] = 250

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    @property
    def init_training(self) -> LocalSGD:
        """Settings of training alone: the same in all rounds, so that late clients are comparable."""
        return dataclasses.replace(self.local, steps=self.init_steps, mu=0.0, lr_decay=1.0, in_turn=False)

    @property
    def smallest(self) -> int:
        """Minimum number of clients in a cluster of C_0."""
        return self.min_size + (self.grouping == "pivot")


class Clusters(NamedTuple):
    """The result of ONE_SHOT.

    Attributes:
        trained: The clients' models and what is known of them.
        assignment: C_0: client → cluster; clients without a cluster are missing.
        threshold: λ.
        evidence: The values behind the decision, for the record.
    """

    trained: LocalModels
    assignment: dict[ClientId, int]
    threshold: float
    evidence: dict[str, object]


def one_shot(settings: OneShot, w0: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Clusters:
    """ONE_SHOT.

    Raises:
        SpecError: If there are too few clients to compare, or no cluster is large enough.
        TooFewReplies: If there are enough clients, but too few of them replied.
    """
    needed = _needed(settings, len(cohort.available))
    trained = train_alone(settings, w0, fed, cohort, seed)
    if len(trained.clients) < needed:
        raise TooFewReplies(f"{len(trained.clients)} clients have trained alone, {needed} are needed to compare them")
    distances = between_clients(settings.distance, trained)
    floor = noise_floor(settings, w0, fed, cohort, seed) if settings.threshold == "auto" else None
    gap = find_gap(settings, distances, floor)
    threshold = gap.threshold
    labels = cluster(settings, distances, threshold, seed)
    if labels.max() < 0:
        pairs = distances[np.triu_indices(len(distances), k=1)]
        raise SpecError(
            f"No {settings.smallest} clients form a cluster at method.threshold = {threshold:.4g}: their distances are "
            f"between {pairs.min():.4g} and {pairs.max():.4g}. {_advice(settings)}"
        )
    assignment = {c: int(label) for c, label in zip(trained.clients, labels, strict=True) if label >= 0}
    found = {"distances": distances, "threshold": threshold, "gap": {"low": gap.low, "high": gap.high}}
    evidence = {"clients": list(trained.clients), "labels": labels, **found}
    if floor is not None:
        evidence["noise_floor"] = floor
    return Clusters(trained, assignment, threshold, evidence)


def train_alone(settings: OneShot, w0: Params, fed: Federation, cohort: Cohort, seed: Seed) -> LocalModels:
    """w_i of all clients, with cross losses if these are the distance."""
    got = fed.ask(cohort, fit, seed, start=w0, local=settings.init_training)
    return add_models(settings, NO_MODELS, got, fed, cohort, seed)


def train_missing(
    settings: OneShot, w0: Params, trained: LocalModels, fed: Federation, cohort: Cohort, seed: Seed
) -> LocalModels:
    """The models so far and those of clients in the cohort that have none yet and train now."""
    missing = set(cohort).difference(trained.clients)
    if not missing:
        return trained
    got = fed.ask(cohort.of(missing), fit, seed, start=w0, local=settings.init_training, min_replies=0)
    return add_models(settings, trained, got, fed, cohort, seed) if len(got) else trained


def add_models(
    settings: OneShot, before: LocalModels, got: Replies, fed: Federation, cohort: Cohort, seed: Seed
) -> LocalModels:
    """The models before and those in these replies; with cross losses, all clients in the cohort score the new ones."""
    if settings.distance == "l2":
        return before.added("l2", got.clients, got["params"])
    asked = cohort.of({*before.clients, *got.clients}.intersection(cohort))
    scored = fed.ask(asked, losses_of, seed.fold("cross"), centers=got["params"])
    return before.added("cross", got.clients, got["params"], scored.clients, scored["losses"])


def noise_floor(settings: OneShot, w0: Params, fed: Federation, cohort: Cohort, seed: Seed) -> float | None:
    """φ, the mean over the clients that reply and have at least two examples; None if there are none."""
    work, name = (held_out_loss, "loss") if settings.distance == "cross" else (split_half, "l2")
    got = fed.ask(cohort, work, seed.fold("noise"), start=w0, local=settings.init_training, min_replies=0)
    valid = got.samples >= 2
    if not valid.any():
        return None
    mean = float(got[name][valid].mean())
    return mean if settings.distance == "cross" else mean / math.sqrt(2)


def find_gap(settings: OneShot, distances: Array, floor: float | None) -> Gap:
    """λ, and the gap that it lies in; for a λ that is not in a gap, three times λ."""
    if settings.threshold == "auto" and floor is not None:
        return first_gap_above_noise(distances, floor, settings.min_size)
    if settings.threshold in ("auto", "gap"):
        return widest_gap(distances, settings.min_size)
    if settings.threshold == "quantile":
        return Gap(*[pairwise_quantile(distances, settings.quantile)] * 3)
    return Gap(*[float(settings.threshold)] * 3)


def cluster(settings: OneShot, distances: Array, threshold: float, seed: Seed) -> Array:
    """C_0, the cluster of each client or -1."""
    if settings.grouping == "pivot":
        return pivots(distances, threshold, seed, settings.smallest)
    return components(distances, threshold, settings.smallest)


def _needed(settings: OneShot, clients: int) -> int:
    """Number of clients that must train; raises SpecError if there are fewer, before any client is asked."""
    if clients < 2:
        raise SpecError(f"ONE_SHOT compares clients with each other and needs at least 2, got {clients}")
    if clients < settings.smallest:
        raise SpecError(
            f"method.min_size = {settings.min_size} needs clusters of {settings.smallest} clients with "
            f"method.grouping = {settings.grouping!r}, but there are {clients}; use "
            f"{clients - settings.smallest + settings.min_size} or less"
        )
    return max(2, settings.smallest)


def _advice(settings: OneShot) -> str:
    """What to change if no cluster is large enough."""
    if settings.threshold in ("auto", "gap"):
        return "Use a smaller method.min_size, or more method.init_steps"
    if settings.threshold == "quantile":
        return "Use a larger method.quantile, a smaller method.min_size, or more method.init_steps"
    return "Use a larger one; coterie suggest-threshold proposes one"
