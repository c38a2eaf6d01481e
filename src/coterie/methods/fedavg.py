"""FedAvg: one model for all clients, the weighted mean of the local models of the cohort.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, arXiv:1602.05629. Algorithm 1:

    w_k ← LocalUpdate(w)                        client k of the cohort S
    w   ← Σ_k a_k w_k                           a_k = n_k / Σ_{j∈S} n_j, or 1/|S|

w is the state; a_k is set by `weights` and normalized over the cohort, not over the federation.

Departures from the paper: stragglers are dropped, as in the FedProx paper's description of FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coterie import tree
from coterie.aggregation import uniform_mean
from coterie.bounds import check
from coterie.clients import LocalSGD, fit
from coterie.federation.protocol import Cohort, Federation, Mean, Replies
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@dataclass(frozen=True)
class FedAvg:
    """One model, averaged over the cohort.

    Attributes:
        local: Settings of local training.
        weights: Client weight: number of samples, or uniform.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
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
        """The mean of the cohort's models. If no client has an example, the model is kept."""
        return average(w, fed, cohort.active(), seed, self.local.at(cohort.t), self.weights)

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[Params, Placement]:
        """The same model for all clients."""
        return w, one_model(w, clients)


def average(
    w: Params, fed: Federation, cohort: Cohort, seed: Seed, local: LocalSGD, weights: Literal["samples", "uniform"]
) -> Round[Params]:
    """One round of FedAvg for one model."""
    got = fed.ask(cohort, fit, seed, start=w, local=local, reduce=Mean(weights=weights, spread=True))
    mean, weight = got.means()
    w = tree.row(tree.where_rows(weight > 0, mean, tree.stack([w])), 0)
    return Round(w, dict.fromkeys(got.clients, 0), loss_of(got), distances_of(got))


def one_model(w: Params, clients: Iterable[ClientId]) -> Placement:
    """The same model for all of these clients."""
    return Placement(tree.stack([w]), dict.fromkeys(clients, 0), fallback=w)


def global_model(bank: Bank, assignment: Mapping[ClientId, int]) -> Params:
    """The uniform mean of the models of clusters with members: what a client without a cluster is served.

    Args:
        bank: The clusters' models.
        assignment: Client → cluster. Empty: the first model, which is the initial model of all methods.
    """
    used = sorted(set(assignment.values()))
    mean: Params = uniform_mean(tree.take(bank, used)) if used else tree.row(bank, 0)
    return mean


def move_groups(bank: Bank, got: Replies) -> Bank:
    """The mean of the replies for each group; a group without replies keeps its model to the bit."""
    return moved(bank, *got.means())


def moved(bank: Bank, mean: Bank, weight: Array) -> Bank:
    """The mean of each group with weight, and the model of each other group to the bit."""
    return tree.where_rows(weight > 0, mean, bank)


def loss_of(got: Replies) -> float | None:
    """The mean training loss of the replies, weighted by the number of samples; None without samples."""
    total = float(got.samples.sum())
    return float(np.dot(np.asarray(got["loss"], np.float64), got.samples) / total) if total else None


def distances_of(got: Replies) -> Mapping[ClientId, float]:
    """Client → distance of its model to its group's model; empty if the distances were not measured.

    If several means average different layers, the distance is over all these layers.
    """
    spreads = [each.spread for each in got.reduced if each.spread is not None]
    if not spreads or len(spreads) < len(got.reduced):
        return {}
    distances = spreads[0] if len(spreads) == 1 else np.sqrt(sum(np.square(each) for each in spreads))
    return dict(zip(got.clients, distances.tolist(), strict=True))
