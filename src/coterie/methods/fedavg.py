"""FedAvg: one model for everybody, the mean of what the cohort trained.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, arXiv:1602.05629. Algorithm 1:

    w_k ← LocalUpdate(w)                        client k of the cohort S
    w   ← Σ_k a_k w_k                           a_k = n_k / Σ_{j∈S} n_j, or 1/|S|

The weights are normalized over the cohort, not the federation. Stragglers are dropped, as FedProx's paper has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coterie import tree
from coterie.clients import LocalSGD, fit
from coterie.federation.protocol import Cohort, Federation, Mean, Replies
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@dataclass(frozen=True)
class FedAvg:
    """One model, averaged over the cohort.

    Attributes:
        local: How clients train.
        weights: A client counts its examples, or 1.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """The mean of what the cohort trained; the model is kept where nobody has an example."""
        return average(w, fed, cohort.active(), seed, self.local.at(cohort.t), self.weights)

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Everyone: w."""
        return everyone(w, clients)


def average(
    w: Params, fed: Federation, cohort: Cohort, seed: Seed, local: LocalSGD, weights: Literal["samples", "uniform"]
) -> Round[Params]:
    """One round of averaging for one model, which others of one model share."""
    got = fed.ask(cohort, fit, seed, start=w, local=local, reduce=Mean(weights=weights, spread=True))
    mean, weight = got.means()
    w = tree.row(tree.where_rows(weight > 0, mean, tree.stack([w])), 0)
    return Round(w, dict.fromkeys(got.clients, 0), loss_of(got), distances_of(got))


def everyone(w: Params, clients: Iterable[ClientId]) -> Placement:
    """One model for all of these clients."""
    return Placement(tree.stack([w]), dict.fromkeys(clients, 0))


def move_groups(bank: Bank, got: Replies) -> Bank:
    """Each group at the mean of its replies; a group without any keeps its model to the bit."""
    mean, weight = got.means()
    return tree.where_rows(weight > 0, mean, bank)


def loss_of(got: Replies) -> float | None:
    """The replies' training losses, weighted by examples."""
    total = float(got.samples.sum())
    return float(np.dot(np.asarray(got["loss"], np.float64), got.samples) / total) if total else None


def distances_of(got: Replies) -> Mapping[ClientId, float]:
    """Each reply's distance to the mean of its group, where it was measured."""
    spread: Array | None = got.spread
    return {} if spread is None else dict(zip(got.clients, spread.tolist(), strict=True))
