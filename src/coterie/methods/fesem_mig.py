"""FeSEM-MIG: FeSEM that detects drifted clients and assigns them again.

Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren, "Flexible Clustered Federated Learning for Client-Level Data Distribution
Shift", IEEE TPDS 2022, arXiv:2108.09749, where it is a baseline. A round of FeSEM (methods/fesem.py), and before it,
for every client that has taken part before:

    D(h, h_ref) > τ n / L:   z_i = argmin_k ||w_i - c_k||       FlexCFL's detector, then an E-step for this client

The E-step uses the last local model only, which does not change when the data drift. Models and placements therefore
equal those of FeSEM to the bit, and only the detector's decision is sent in addition; the reported assignment and the
number of drifts differ. With `recluster_every` above 1, drifted clients are assigned again before the next E-step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from coterie.bounds import Bound
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fesem import FeSEM, FeSEMSettings, State
from coterie.methods.migration import Detector, empty_memory, migrate
from coterie.methods.protocol import Placement, Round, Stage, with_settings_of
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class FeSEMMig(FeSEMSettings):
    """FeSEM with migration.

    Attributes:
        detector: Drift detection by label counts class by class, or sorted, as in FlexCFL's published code.
        tau: Drift threshold (τ), as a fraction of the client's samples.
    """

    asks_all: ClassVar[str] = "all clients that have trained check for drift"
    detector: Literal["label", "sorted_counts"] = "label"
    tau: Annotated[float, Bound(at_least=0)] = 0.2

    @property
    def _fesem(self) -> FeSEM:
        return with_settings_of(self, FeSEM)

    def start(self, task: Task, seed: Seed) -> State:
        """As FeSEM; the task must have classes."""
        empty_memory(task)
        return self._fesem.start(task, seed)

    def stage(self, state: State) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Drifted clients are assigned again; then a round of FeSEM."""
        migration = migrate(fed, cohort, seed, Detector(self.detector, self.tau), state.models, state.nearest)
        if self.recluster_every > 1:
            state = dataclasses.replace(state, assignment=state.assignment.set(migration.chosen))
        return migration.added_to(self._fesem.round(state, fed, cohort, seed))

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """As FeSEM."""
        return self._fesem.place(state, fed, clients, seed)
