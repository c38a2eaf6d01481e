"""FlexCFL: FedGroup whose clients notice that their data changed, and move to another group.

Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren, "Flexible Clustered Federated Learning for Client-Level Data Distribution
Shift", IEEE TPDS 2022, arXiv:2108.09749. Everything is FedGroup's, see there, with a lazy cold start, and before each
round:

    D(h, h_ref) = (1/L) Σ_c |h[c] - h_ref[c]|                client: h counts its training labels, L classes
    D > τ n / L:   h_ref ← h, and a cold start anew          client: n examples when the server first saw it
    (8)  g_i = argmin_j (1 - cos(d_j, Δ_i)) / 2              client: with w_0 and the d_j that it keeps

h_ref and n stay in the client's memory, τ is `tau`. All clients that have a group look, whether in the cohort or not.
w_0 and d_j are sent once, so that a migration downloads nothing. A round flags who shifted, and counts migrations.

Departures. The published code compares the sorted counts, `detector="sorted_counts"`, which cannot tell digit 1 from
digit 7; the default compares class by class, as the text means it. h_ref is taken when the client is first seen, again
at its first cold start, and after each shift; a drift below the threshold adds up until it is seen. A client whose
cold start was lost on the way has no group until it is in a cohort again. A migration is never random, also with RAC.
"FedGroup" in the paper's tables is `migration=False`. Its code scores clients with the model that they last received
instead of their group's, `run.eval_model="last_received"`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from coterie.client_map import ClientMap
from coterie.clients import Client, Settings, Values, Work
from coterie.clients.scores import label_counts
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, PerClient
from coterie.methods.fedgroup import FedGroup, State, closest_groups
from coterie.methods.grouping import Grouping
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


@state
@dataclass(frozen=True)
class Detector:
    """When a client's labels count as shifted: D > tau·n/L, class by class or between the sorted counts."""

    kind: str = "label"
    tau: float = 0.2

    def __post_init__(self) -> None:
        """Refuse a threshold that is none."""
        if not 0 <= self.tau < float("inf"):
            raise SpecError(f"method.tau must be a finite number of at least 0, got {self.tau}")
        object.__setattr__(self, "tau", float(self.tau))  # an int would be compiled in instead of traced


def blank(task: Task) -> Params:
    """The memory of a client that has not looked yet."""
    if task.classes is None:
        raise SpecError(
            "Shifts are noticed by label counts, and there are none in regression; use the method without migration"
        )
    return {
        "known": np.zeros((), np.int32),
        "n": np.zeros((), np.float32),
        "counts": np.zeros(task.classes, np.float32),
    }


def _watch(task: Task, client: Client, *, renew: Any, detector: Detector) -> dict[str, Any]:
    import jax.numpy as jnp

    counts, memory = client.sums["counts"], client.memory
    new = memory["known"] == 0
    n = jnp.where(new, client.n.astype(jnp.float32), memory["n"])
    ordered = jnp.sort if detector.kind == "sorted_counts" else jnp.asarray
    # Both sides times L: counts are whole numbers, and a change of exactly τ is none.
    change = jnp.abs(ordered(counts) - ordered(memory["counts"])).sum()
    shifted = ~new & (renew == 0) & (change > detector.tau * n)
    fresh = new | (renew > 0) | shifted
    kept = {"known": jnp.ones((), jnp.int32), "n": n, "counts": jnp.where(fresh, counts, memory["counts"])}
    return {"shifted": shifted.astype(jnp.int32), "memory": kept}


#: Whether a client's labels shifted since it last took its bearings; with `renew` it takes them now.
watch = Work(
    "flexcfl.watch",
    takes={"renew": Values("int32"), "detector": Settings(Detector)},
    gives={"shifted": Values("int32")},
    purpose="detect",
    each=lambda task, x, y, **_: label_counts.each(task, x, y),  # type: ignore[misc]
    body=_watch,
    memory="flexcfl.labels",
    blank=blank,
)


@dataclass(frozen=True)
class FlexCFL(Grouping):
    """FedGroup with migration.

    Attributes:
        assign: A client gets a group when first in a cohort, or everyone before round 0.
        migration: Whether clients look for shifts at all.
        detector: Labels are compared class by class, or as the published code does.
        tau: τ, the share of a client's examples.
    """

    assign: Literal["eager", "lazy"] = "lazy"
    migration: bool = True
    detector: Literal["label", "sorted_counts"] = "label"
    tau: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what FedGroup refuses, and a threshold that is none."""
        super().__post_init__()
        Detector(self.detector, self.tau)

    def _grouped(self) -> FedGroup:
        return FedGroup(**self.shared())

    def start(self, task: Task, seed: Seed) -> State:
        """As FedGroup."""
        if self.migration:
            blank(task)
        return self._grouped().start(task, seed)

    def stage(self, now: State) -> Stage:
        """As FedGroup."""
        return self._grouped().stage(now)

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Who shifted migrates; then a round of FedGroup."""
        grouped = self._grouped()
        if not self.migration:
            return grouped.round(now, fed, cohort, seed)
        detector = Detector(self.detector, self.tau)
        warm = [client for client in cohort.available if client in now.assignment]
        cold = [client for client in cohort if client not in now.assignment]
        if grouped.stage(now) == "prepare":
            shifted_clients(fed, cohort, [], cold, seed, detector)
            return grouped.round(now, fed, cohort, seed)
        shifted = shifted_clients(fed, cohort, warm, cold, seed, detector)
        moved: dict[ClientId, int] = {}
        migrated: list[ClientId] = []
        if shifted:
            moved, _ = closest_groups(
                now, fed, cohort.of(shifted), seed.fold("migrate"), grouped.pretraining, min_replies=0
            )
            migrated = [client for client in moved if moved[client] != now.assignment[client]]
            lost = set(shifted).difference(moved)
            stay = {client: group for client, group in now.assignment.items() if client not in lost}
            now = dataclasses.replace(now, assignment=ClientMap(stay).set(moved))
        out = grouped.round(now, fed, cohort, seed)
        counts = {"shifts": len(shifted), "migrations": len(migrated)}
        return dataclasses.replace(
            out, assignment=moved | dict(out.assignment), counts=counts, flagged=tuple(sorted(shifted))
        )

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """As FedGroup."""
        return self._grouped().place(now, fed, clients, seed)


def shifted_clients(
    fed: Federation, cohort: Cohort, warm: list[ClientId], cold: list[ClientId], seed: Seed, detector: Detector
) -> list[ClientId]:
    """Which of the warm clients shifted; the cold ones take their bearings."""
    if not warm and not cold:
        return []
    renew = PerClient(np.array([0, 1], np.int32), dict.fromkeys(warm, 0) | dict.fromkeys(cold, 1))
    got = fed.ask(cohort.of([*warm, *cold]), watch, seed, renew=renew, detector=detector, min_replies=0)
    return [client for client, shifted in got.by_client("shifted").items() if shifted]
