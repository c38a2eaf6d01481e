"""FedProx: FedAvg whose clients are pulled towards the model they received, and whose stragglers count.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020,
arXiv:1812.06127. Algorithm 2:

    w_k ≈ argmin_w F_k(w) + (μ/2) ||w - w_t||²        client k: SGD with g + μ (w - w_t)
    w   ← Σ_k a_k w_k                                 stragglers too, with the part of the work they did

μ is `mu`; μ = 0 without stragglers is FedAvg to the bit. Departure: clients are drawn uniformly and weighted by their
examples, as in the authors' code; their analysis draws by examples and averages uniformly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fedavg import average, everyone
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


@dataclass(frozen=True)
class FedProx:
    """One model, averaged over proximal clients.

    Attributes:
        local: How clients train; its own `mu` is not used.
        mu: The pull towards the model received.
        weights: A client counts its examples, or 1.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    mu: float = 1.0
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Refuse a pull that is none."""
        check_choices(self)
        if not 0 <= self.mu < float("inf"):
            raise SpecError(f"method.mu must be a finite number of at least 0, got {self.mu}")

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """The mean of what the cohort trained, stragglers with what they had time for."""
        local = dataclasses.replace(self.local.at(cohort.t), mu=self.mu)
        return average(w, fed, cohort, seed, local, self.weights)

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Everyone: w."""
        return everyone(w, clients)
