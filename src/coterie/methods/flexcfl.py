"""FlexCFL: FedGroup whose clients detect changes of their data and migrate to another group.

Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren, "Flexible Clustered Federated Learning for Client-Level Data Distribution
Shift", IEEE TPDS 2022, arXiv:2108.09749. FedGroup (methods/fedgroup.py) with a lazy cold start, and before each round:

    D(h, h_ref) = (1/L) Σ_c |h[c] - h_ref[c]|                client: h counts its training labels, L classes
    D > τ n / L:   h_ref ← h, and a new cold start           client: n samples when it was first asked
    (8)  g_i = argmin_j (1 - cos(d_j, Δ_i)) / 2              client: with its stored w_0 and d_j

h_ref and n are kept in the client's memory, τ is `tau`. All clients that have a group check for drift, also outside the
cohort. w_0 and d_j are sent once, so a migration downloads nothing. A round reports the drifted clients and counts
migrations.

Departures from the paper. The published code compares the sorted counts, `detector="sorted_counts"`, which cannot
distinguish a client with digit 1 from one with digit 7; the default compares class by class, as the text describes it.
h_ref is set when the client is first asked, again at its first cold start, and after each drift; drifts below the
threshold accumulate until they exceed it. A client whose reply to the new cold start is lost has no group until it is
in a cohort again. A migration is never random, not even with RAC. "FedGroup" in the paper's tables is
`migration=False`. The published code scores clients with the model that they last received instead of the model of
their group, `run.eval_model="last_received"`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from coterie.bounds import Bound
from coterie.client_map import ClientMap
from coterie.clients.directions import choose_group
from coterie.federation.protocol import Cached, Cohort, Federation, Then
from coterie.methods.fedgroup import FedGroup, State
from coterie.methods.fedgroup_settings import FedGroupSettings
from coterie.methods.migration import Detector, Migration, drifted_clients, empty_memory
from coterie.methods.protocol import Placement, Round, Stage, with_settings_of
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class FlexCFL(FedGroupSettings):
    """FedGroup with migration.

    Attributes:
        assign: When clients are assigned to groups: each in its first cohort, or all before the first round.
        migration: Whether clients check for drift and migrate.
        detector: Drift detection by label counts class by class, or sorted, as in the published code.
        tau: Drift threshold (τ), as a fraction of the client's samples.
    """

    asks_all: ClassVar[str] = "all clients that have a group check for drift"
    assign: Literal["eager", "lazy"] = "lazy"
    migration: bool = True
    detector: Literal["label", "sorted_counts"] = "label"
    tau: Annotated[float, Bound(at_least=0)] = 0.2

    @cached_property
    def _fedgroup(self) -> FedGroup:
        return with_settings_of(self, FedGroup)

    def start(self, task: Task, seed: Seed) -> State:
        """As FedGroup; the task must have classes."""
        if self.migration:
            empty_memory(task)
        return self._fedgroup.start(task, seed)

    def stage(self, state: State) -> Stage:
        """As FedGroup."""
        return self._fedgroup.stage(state)

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Drifted clients migrate; then a round of FedGroup."""
        fedgroup, detector = self._fedgroup, Detector(self.detector, self.tau)
        if not self.migration:
            return fedgroup.round(state, fed, cohort, seed)
        if self.stage(state) == "prepare":
            new = [client for client in cohort if client not in state.assignment]
            drifted_clients(fed, cohort, seed, detector, known=(), new=new)
            return fedgroup.round(state, fed, cohort, seed)

        known = list(state.assignment.among(cohort.available))
        new = [client for client in cohort if client not in state.assignment]
        # Drifted clients and those without a group choose one in the exchange in which they check for drift.
        joining = set(new).intersection(fedgroup.joining(state, cohort))
        choosing = dataclasses.replace(cohort.of([*known, *joining]), efforts={})
        sent = {"w0": Cached(state.w0), "directions": Cached(state.directions), "local": self.pretraining}
        then = Then(choosing, choose_group, "shifted", frozenset(joining), sent)
        drifted, got = drifted_clients(fed, cohort, seed, detector, known, new, then)
        migration = Migration(drifted, {} if got is None else got.by_client("choice"))
        after = dataclasses.replace(state, assignment=_reassigned(state.assignment, migration))
        out = migration.added_to(fedgroup.round(after, fed, cohort, seed), before=state.assignment)
        if got is None or not len(got):
            return out
        return dataclasses.replace(out, evidence={"clients": list(got.clients), "cosines": got["cosines"]})

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """As FedGroup."""
        return self._fedgroup.place(state, fed, clients, seed)


def _reassigned(assignment: ClientMap[int], migration: Migration) -> ClientMap[int]:
    """The assignment after a migration; drifted clients whose reply was lost have no group."""
    lost = set(migration.drifted).difference(migration.chosen)
    kept = ClientMap({client: group for client, group in assignment.items() if client not in lost})
    return (kept if lost else assignment).set(migration.chosen)
