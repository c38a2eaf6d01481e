"""Oracle: FedAvg within the true clusters, the upper bound for clustered methods on data with known clusters.

A clustered method that finds the true clusters gives the same models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from coterie import tree
from coterie.bounds import check
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient
from coterie.methods.fedavg import distances_of, global_model, loss_of, move_groups
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId


@dataclass(frozen=True)
class Oracle:
    """One model for each true cluster.

    Attributes:
        local: Settings of local training.
        weights: Client weight: number of samples, or uniform.
        truth: Client → true cluster.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    weights: Literal["samples", "uniform"] = "samples"
    truth: Mapping[ClientId, int] = from_run("truth")

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")
        if not self.truth:
            raise SpecError("oracle needs data with known true clusters; choose another data set or method")

    def start(self, task: Task, seed: Seed) -> Bank:
        """The common initial model, once for each true cluster."""
        return tree.stack([task.init(seed.fold("init"))] * (max(self.truth.values()) + 1))

    def stage(self, bank: Bank) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, bank: Bank, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Bank]:
        """A round of FedAvg in each true cluster."""
        mean = Mean(groups=tree.rows(bank), by=self.truth, weights=self.weights, spread=True)
        local = self.local.at(cohort.t)
        got = fed.ask(cohort.active(), fit, seed, start=PerClient(bank, self.truth), local=local, reduce=mean)
        assignment = {client: self.truth[client] for client in got.clients}
        return Round(move_groups(bank, got), assignment, loss_of(got), distances_of(got))

    def place(self, bank: Bank, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[Bank, Placement]:
        """The model of each client's true cluster."""
        row = {client: self.truth[client] for client in clients}
        return bank, Placement(bank, row, fallback=global_model(bank, self.truth))
