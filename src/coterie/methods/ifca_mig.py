"""IFCA-MIG: IFCA whose clients choose their cluster again as soon as their labels drift, even outside the cohort.

Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren, "Flexible Clustered Federated Learning for Client-Level Data Distribution
Shift", IEEE TPDS 2022, arXiv:2108.09749, where it is a baseline. A round of IFCA (methods/ifca.py), and before it, for
every client that has taken part before:

    D(h, h_ref) > τ n / L:   ĵ_i = argmin_j F_i(θ_j)        client: FlexCFL's detector, then all k models down

IFCA's clients choose their cluster whenever they train, so the models equal those of IFCA to the bit. The assignment
between two trainings differs, and each drift costs a download of k models. Weights within a cluster are uniform, as the
paper states; its code uses the first client of each cluster only, `agg="first_only"`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from coterie.bounds import Bound, check
from coterie.clients import LocalSGD
from coterie.clients.closest import closest
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.ifca import IFCA, State
from coterie.methods.migration import Detector, empty_memory, migrate
from coterie.methods.protocol import Placement, Round, Stage, with_settings_of
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class IFCAMig:
    """IFCA with migration.

    Attributes:
        local: Settings of local training.
        clusters: Number of clusters (k).
        weights: Client weight: uniform, or number of samples.
        agg: Model of a cluster: mean of its clients, or the first client only, as in the published code.
        detector: Drift detection by label counts class by class, or sorted, as in FlexCFL's published code.
        tau: Drift threshold (τ), as a fraction of the client's samples.
    """

    asks_all: ClassVar[str] = "all clients that have a cluster check for drift"
    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: Annotated[int, Bound(at_least=1)] = 4
    weights: Literal["uniform", "samples"] = "uniform"
    agg: Literal["mean", "first_only"] = "mean"
    detector: Literal["label", "sorted_counts"] = "label"
    tau: Annotated[float, Bound(at_least=0)] = 0.2

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    @property
    def _ifca(self) -> IFCA:
        return with_settings_of(self, IFCA)

    def start(self, task: Task, seed: Seed) -> State:
        """As IFCA; the task must have classes."""
        empty_memory(task)
        return self._ifca.start(task, seed)

    def stage(self, state: State) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Drifted clients choose again; then a round of IFCA."""

        def choose(drifted: Cohort) -> dict[ClientId, int]:
            got = fed.ask(drifted, closest, seed.fold("migrate"), base={}, heads=state.banks[0], min_replies=0)
            return got.by_client("choice")

        migration = migrate(fed, cohort, seed, Detector(self.detector, self.tau), state.assignment, choose)
        after = state.with_choices(migration.chosen)
        return migration.added_to(self._ifca.round(after, fed, cohort, seed), before=state.assignment)

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """As IFCA."""
        return self._ifca.place(state, fed, clients, seed)
