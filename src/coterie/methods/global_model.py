"""Global: one model for everybody with every client counting the same, the lower bound in SR-FCA's tables.

FedAvg with uniform weights (`local_global` in the papers' comparisons); stragglers are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coterie.clients import LocalSGD
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fedavg import average, everyone
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


@dataclass(frozen=True)
class Global:
    """One model, every client of the cohort counting 1.

    Attributes:
        local: How clients train.
    """

    local: LocalSGD = field(default_factory=LocalSGD)

    def start(self, task: Task, seed: Seed) -> Params:
        """The common initial model."""
        return task.init(seed.fold("init"))

    def stage(self, w: Params) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, w: Params, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Params]:
        """The plain mean of what the cohort trained."""
        return average(w, fed, cohort.active(), seed, self.local.at(cohort.t), "uniform")

    def place(self, w: Params, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Everyone: w."""
        return everyone(w, clients)
