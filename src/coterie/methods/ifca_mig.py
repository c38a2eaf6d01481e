"""IFCA-MIG: IFCA whose clients choose again at once when their labels shift, in the cohort or not.

Duan and others, "Flexible Clustered Federated Learning for Client-Level Data Distribution Shift", IEEE TPDS 2022,
arXiv:2108.09749, a baseline there. A round of IFCA, see there, and before it for every client that took part before:

    D(h, h_ref) > τ n / L:   ĵ_i = argmin_j F_i(θ_j)        client: FlexCFL's detector, then all m models down

Since IFCA's clients choose anew whenever they train, the models are IFCA's to the bit; what differs is the assignment
between two trainings, and m models for each shift in the ledger. Uniform weights within a cluster, as the paper states;
its code takes the first client of each cluster only, `agg="first_only"`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from coterie.clients import LocalSGD
from coterie.clients.closest import closest
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.flexcfl import Detector, blank, shifted_clients
from coterie.methods.ifca import IFCA, State
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class IFCAMig:
    """IFCA with migration.

    Attributes:
        local: How clients train.
        clusters: k.
        weights: A client counts 1, or its examples.
        agg: The mean of a cluster's clients, or, as the published code has it, the first of them.
        detector: Labels are compared class by class, or as FlexCFL's published code does.
        tau: τ, the share of a client's examples.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int = 4
    weights: Literal["uniform", "samples"] = "uniform"
    agg: Literal["mean", "first_only"] = "mean"
    detector: Literal["label", "sorted_counts"] = "label"
    tau: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        self._ifca()
        self._detector()

    def _ifca(self) -> IFCA:
        return IFCA(self.local, clusters=self.clusters, weights=self.weights, agg=self.agg)

    def _detector(self) -> Detector:
        return Detector(self.detector, self.tau)

    def start(self, task: Task, seed: Seed) -> State:
        """As IFCA."""
        blank(task)
        return self._ifca().start(task, seed)

    def stage(self, now: State) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Who shifted chooses again; then a round of IFCA."""
        warm = [client for client in cohort.available if client in now.assignment]
        cold = [client for client in cohort if client not in now.assignment]
        shifted = shifted_clients(fed, cohort, warm, cold, seed, self._detector())
        moved: dict[ClientId, int] = {}
        if shifted:
            got = fed.ask(cohort.of(shifted), closest, seed.fold("migrate"), base={}, heads=now.banks[0], min_replies=0)
            moved = got.by_client("choice")
        migrated = [client for client in moved if moved[client] != now.assignment[client]]
        now = dataclasses.replace(now, assignment=now.assignment.set(moved))
        out = self._ifca().round(now, fed, cohort, seed)
        counts = {**out.counts, "shifts": len(shifted), "migrations": len(migrated)}
        return dataclasses.replace(
            out, assignment=moved | dict(out.assignment), counts=counts, flagged=tuple(sorted(shifted))
        )

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """As IFCA."""
        return self._ifca().place(now, fed, clients, seed)
