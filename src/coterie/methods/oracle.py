"""Oracle: FedAvg within the true clusters, the upper bound of every clustered method on planted data.

Any clustered method that is given the true partition must equal it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from coterie import tree
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient
from coterie.methods.fedavg import distances_of, loss_of, move_groups
from coterie.methods.protocol import Placement, Round, Stage, check_choices, from_run
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId


@dataclass(frozen=True)
class Oracle:
    """One model for each true cluster.

    Attributes:
        local: How clients train.
        weights: A client counts its examples, or 1.
        truth: Client → true cluster.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    weights: Literal["samples", "uniform"] = "samples"
    truth: Mapping[ClientId, int] = from_run("truth")

    def __post_init__(self) -> None:
        """Refuse data whose true clusters nobody knows."""
        check_choices(self)
        if not self.truth:
            raise SpecError("oracle needs data whose true clusters are known; the others do not")

    def start(self, task: Task, seed: Seed) -> Bank:
        """The common initial model, once for each true cluster."""
        return tree.stack([task.init(seed.fold("init"))] * (max(self.truth.values()) + 1))

    def stage(self, bank: Bank) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, bank: Bank, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Bank]:
        """A round of FedAvg in each true cluster."""
        how = Mean(groups=tree.rows(bank), by=self.truth, weights=self.weights, spread=True)
        local = self.local.at(cohort.t)
        got = fed.ask(cohort.active(), fit, seed, start=PerClient(bank, self.truth), local=local, reduce=how)
        assignment = {client: self.truth[client] for client in got.clients}
        return Round(move_groups(bank, got), assignment, loss_of(got), distances_of(got))

    def place(self, bank: Bank, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """The truth."""
        return Placement(bank, {client: self.truth[client] for client in clients})
