"""FedGrouProx: FedGroup whose groups train by FedProx.

Duan and others, "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering", ISPA 2021,
arXiv:2010.06870. Everything is FedGroup's, see there, but for the local objective of a member i of group j,

    w_i ≈ argmin_w F_i(w) + (μ/2) ||w - w_j||²          stragglers count with the part of the work they did

μ is `mu`; μ = 0 is FedGroup to the bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fedgroup import FedGroup, State
from coterie.methods.grouping import Grouping
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class FedGrouProx(Grouping):
    """FedGroup with a proximal pull.

    Attributes:
        redraw: With random assignment: anew in every round.
        mu: The pull towards the model received; that of `local` is not used.
    """

    redraw: bool = False
    mu: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what FedGroup refuses."""
        self._grouped()

    def _grouped(self) -> FedGroup:
        local = dataclasses.replace(self.local, mu=0.0)
        return FedGroup(**self.shared() | {"local": local}, redraw=self.redraw)

    def start(self, task: Task, seed: Seed) -> State:
        """As FedGroup."""
        return self._grouped().start(task, seed)

    def stage(self, now: State) -> Stage:
        """As FedGroup."""
        return self._grouped().stage(now)

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """As FedGroup, with proximal members."""
        return self._grouped().round(now, fed, cohort, seed)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """As FedGroup."""
        return self._grouped().place(now, fed, clients, seed)
