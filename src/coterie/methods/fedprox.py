"""FedProx: FedAvg with a proximal term in the local loss; stragglers contribute partial work.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020,
arXiv:1812.06127. Algorithm 2:

    w_k ≈ argmin_w F_k(w) + (μ/2) ||w - w_t||²        client k: SGD with g + μ (w - w_t)
    w   ← Σ_k a_k w_k                                 server: including stragglers, with the steps they completed

μ is `mu`; μ = 0 without stragglers is FedAvg to the bit.

Departures from the paper: clients are drawn uniformly and weighted by their number of samples, as in the authors' code;
their analysis draws clients in proportion to their samples and averages uniformly. The best μ depends on the data: the
authors try 0.001, 0.01, 0.1, 0.5 and 1, and use 1 for MNIST, FEMNIST and their synthetic data. The default is 0.1: with
digits, rotated or two classes per client, μ = 1 learns more slowly, with stragglers and without.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from coterie.bounds import Bound, check
from coterie.clients import LocalSGD
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fedavg import average, one_model
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


@dataclass(frozen=True)
class FedProx:
    """One model, averaged over clients with a proximal term.

    Attributes:
        local: Settings of local training; its `mu` is not used.
        mu: Weight of the proximal term (μ).
        weights: Client weight: number of samples, or uniform.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    mu: Annotated[float, Bound(at_least=0)] = 0.1
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
        """The mean of the cohort's models, including the partially trained models of stragglers."""
        local = dataclasses.replace(self.local.at(cohort.t), mu=self.mu)
        return average(w, fed, cohort, seed, local, self.weights)

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[Params, Placement]:
        """The same model for all clients."""
        return w, one_model(w, clients)
