"""A new method in one file: clients are split into k random clusters, and each cluster trains its own model by FedAvg.

It is a weak method but a complete one: it runs on every backend, can be saved and resumed, assigns new clients, and its
traffic is counted. The contract suite checks this.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import coterie
from coterie import tree
from coterie.clients import LocalSGD, fit
from coterie.federation.protocol import Mean, PerClient
from coterie.methods.fedavg import global_model, move_groups
from coterie.methods.protocol import Placement, Round
from coterie.testing import CHECKS, Harness


@dataclass(frozen=True)
class RandomClusters:
    """Random clusters, fixed by the names of the clients."""

    clusters: int = 2
    local: LocalSGD = field(default_factory=LocalSGD)

    def start(self, task, seed):
        """One initial model, copied to every cluster."""
        return tree.stack([task.init(seed.fold("init"))] * self.clusters)

    def stage(self, bank):
        """Every step is a training round; there is nothing to prepare."""
        return "train"

    def round(self, bank, fed, cohort, seed):
        """Each client trains the model of its cluster; the federation averages per cluster."""
        row = self.assign(cohort)
        mean = Mean(groups=self.clusters, by=row)
        got = fed.ask(cohort, fit, seed, start=PerClient(bank, row), local=self.local.at(cohort.t), reduce=mean)
        return Round(move_groups(bank, got), {client: row[client] for client in got.clients})

    def place(self, bank, fed, clients, seed):
        """Serve each client the model of its cluster."""
        row = self.assign(clients)
        return bank, Placement(bank, row, fallback=global_model(bank, row))

    def assign(self, clients):
        return {client: sum(client.encode()) % self.clusters for client in clients}


def main(rounds=10):
    for check in CHECKS:
        check(Harness(lambda given: RandomClusters(2)))
    record = coterie.run({"data": "digits", "run": {"rounds": rounds}}, method=RandomClusters(4))
    print(f"{len(CHECKS)} checks passed; accuracy {100 * record.summary['accuracy']['weighted']:.0f} %")
    return record.summary


if __name__ == "__main__":
    main()
