"""FeSEM-MIG: FeSEM that counts the shifts of its clients, and assigns those anew.

Duan and others, "Flexible Clustered Federated Learning for Client-Level Data Distribution Shift", IEEE TPDS 2022,
arXiv:2108.09749, a baseline there. A round of FeSEM, see there, and before it for every client that took part before:

    D(h, h_ref) > τ n / L:   z_i = argmin_k ||w_i - c_k||       FlexCFL's detector, then an E-step for this client

The E-step looks at the last local model alone, which no shift changes: models and placements are FeSEM's to the bit,
nothing more is sent than the detector's bit, and what differs is the assignment shown and the count of shifts. Only
with `recluster_every` above 1 does it do more: whoever shifted is assigned anew before the next E-step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from coterie.federation.protocol import Cohort, Federation
from coterie.methods.centering import Centering
from coterie.methods.fesem import FeSEM, State
from coterie.methods.flexcfl import Detector, blank, shifted_clients
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class FeSEMMig(Centering):
    """FeSEM with migration.

    Attributes:
        detector: Labels are compared class by class, or as FlexCFL's published code does.
        tau: τ, the share of a client's examples.
    """

    detector: Literal["label", "sorted_counts"] = "label"
    tau: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what FeSEM refuses, and a threshold that is none."""
        super().__post_init__()
        self._detector()

    def _fesem(self) -> FeSEM:
        return FeSEM(**self.shared())

    def _detector(self) -> Detector:
        return Detector(self.detector, self.tau)

    def start(self, task: Task, seed: Seed) -> State:
        """As FeSEM."""
        blank(task)
        return self._fesem().start(task, seed)

    def stage(self, now: State) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Who shifted is assigned again; then a round of FeSEM."""
        warm = [client for client in cohort.available if client in now.models]
        cold = [client for client in cohort if client not in now.models]
        shifted = shifted_clients(fed, cohort, warm, cold, seed, self._detector())
        moved = now.nearest(shifted)
        if self.recluster_every > 1:
            now = dataclasses.replace(now, assignment=now.assignment.set(moved))
        out = self._fesem().round(now, fed, cohort, seed)
        counts = {**out.counts, "shifts": len(shifted)}
        return dataclasses.replace(
            out, assignment=moved | dict(out.assignment), counts=counts, flagged=tuple(sorted(shifted))
        )

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """As FeSEM."""
        return self._fesem().place(now, fed, clients, seed)
