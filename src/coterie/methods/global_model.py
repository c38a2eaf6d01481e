"""Global: one model for all clients, averaged with uniform weights; a baseline of SR-FCA.

This is FedAvg with uniform weights, as in the comparisons of SR-FCA (arXiv:2210.11538, section 5). Stragglers are
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coterie.clients import LocalSGD
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fedavg import average, one_model
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


@dataclass(frozen=True)
class Global:
    """One model, the uniform mean over the cohort.

    Attributes:
        local: Settings of local training.
    """

    local: LocalSGD = field(default_factory=LocalSGD)

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """The uniform mean of the cohort's models."""
        return average(w, fed, cohort.active(), seed, self.local.at(cohort.t), "uniform")

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[Params, Placement]:
        """The same model for all clients."""
        return w, one_model(w, clients)
