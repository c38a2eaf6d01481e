"""A method of your own in one file: clients draw lots, and each of k groups trains a model by FedAvg.

It is a poor method, and a whole one: it runs in every federation, is saved and resumed, places newcomers, and its bytes
are counted. The contract suite says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import coterie
from coterie import tree
from coterie.clients import LocalSGD, fit
from coterie.federation.protocol import Mean, PerClient
from coterie.methods.fedavg import move_groups
from coterie.methods.protocol import Placement, Round
from coterie.testing import CHECKS, Harness


@dataclass(frozen=True)
class Lots:
    """Random groups, fixed by name."""

    clusters: int = 2
    local: LocalSGD = field(default_factory=LocalSGD)

    def start(self, task, seed):
        return tree.stack([task.init(seed.fold("init"))] * self.clusters)

    def stage(self, bank):
        return "train"

    def round(self, bank, fed, cohort, seed):
        row = self.lots(cohort)
        how = Mean(groups=self.clusters, by=row)
        got = fed.ask(cohort, fit, seed, start=PerClient(bank, row), local=self.local.at(cohort.t), reduce=how)
        return Round(move_groups(bank, got), {client: row[client] for client in got.clients})

    def place(self, bank, fed, clients, seed):
        return Placement(bank, self.lots(clients))

    def lots(self, clients):
        return {client: sum(client.encode()) % self.clusters for client in clients}


def main(rounds=10):
    for check in CHECKS:
        check(Harness(lambda given: Lots(2)))
    record = coterie.run({"data": "digits", "run": {"rounds": rounds}}, method=Lots(4, LocalSGD()))
    print(f"{len(CHECKS)} checks passed; drawing lots reaches {100 * record.summary['accuracy']['weighted']:.0f} %")
    return record.summary


if __name__ == "__main__":
    main()
