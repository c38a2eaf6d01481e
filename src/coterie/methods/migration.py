"""Migration: clients whose label distribution has drifted choose their cluster again, before a round.

Shared by FlexCFL, IFCA-MIG and FeSEM-MIG. Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren, "Flexible Clustered Federated
Learning for Client-Level Data Distribution Shift", IEEE TPDS 2022, arXiv:2108.09749, section on client migration:

    D(h, h_ref) = (1/L) Σ_c |h[c] - h_ref[c]|                client: h counts its training labels, L classes
    D > τ n / L:   h_ref ← h, and the client drifted         client: n samples when it was first asked

h_ref and n are kept in the client's memory; only the decision is sent. τ is `tau`. All clients that have a cluster are
asked, also those outside the cohort. h_ref is set when the client is first asked and after each drift; clients that are
about to get their first cluster set it again. Drifts below the threshold accumulate until they exceed it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import numpy as np

from coterie.bounds import Bound, check
from coterie.clients import Client, Settings, Values, Work
from coterie.clients.scores import label_counts
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, PerClient, Replies, Then
from coterie.methods.protocol import Round
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params

if TYPE_CHECKING:
    import jax

State = TypeVar("State")


@state
@dataclass(frozen=True)
class Detector:
    """Drift detection by label counts.

    Attributes:
        kind: Counts compared class by class, or sorted, as in FlexCFL's published code.
        tau: Threshold τ, as a fraction of the client's samples.
    """

    kind: Literal["label", "sorted_counts"] = "label"
    tau: Annotated[float, Bound(at_least=0)] = 0.2

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")
        object.__setattr__(self, "tau", float(self.tau))  # an int would be compiled in instead of traced


def empty_memory(task: Task, **_: object) -> Params:
    """The memory of a client that has no reference counts yet."""
    if task.classes is None:
        raise SpecError(
            "Drift is detected by label counts, but this task is a regression; use the method without migration"
        )
    return {
        "known": np.zeros((), np.int32),
        "n": np.zeros((), np.float32),
        "counts": np.zeros(task.classes, np.float32),
    }


def _watch(task: Task, client: Client, *, renew: jax.Array, detector: Detector) -> dict[str, object]:
    import jax.numpy as jnp

    counts, memory = client.sums["counts"], client.memory
    new = memory["known"] == 0
    n = jnp.where(new, client.n.astype(jnp.float32), memory["n"])
    ordered = jnp.sort if detector.kind == "sorted_counts" else jnp.asarray
    # Both sides times L: counts are whole numbers, and a change of exactly τ is not a drift.
    change = jnp.abs(ordered(counts) - ordered(memory["counts"])).sum()
    drifted = ~new & (renew == 0) & (change > detector.tau * n)
    reset = new | (renew > 0) | drifted
    kept = {"known": jnp.ones((), jnp.int32), "n": n, "counts": jnp.where(reset, counts, memory["counts"])}
    return {"shifted": drifted.astype(jnp.int32), "memory": kept}


#: Whether the labels of a client have drifted from its reference counts; `renew` sets these to the current counts.
watch = Work(
    "flexcfl.watch",
    takes={"renew": Values("int32"), "detector": Settings(Detector)},
    gives={"shifted": Values("int32", below=2)},
    purpose="detect",
    each=lambda task, x, y, **_: label_counts.each(task, x, y),  # type: ignore[misc]
    body=_watch,
    memory="flexcfl.labels",
    blank=empty_memory,
    trains=False,
    of_examples=True,
)


@dataclass(frozen=True)
class Migration:
    """The result of drift detection before a round.

    Attributes:
        drifted: Clients whose data have drifted.
        chosen: Client → new cluster, for the drifted clients that replied, and for clients that joined a first one.
    """

    drifted: tuple[ClientId, ...]
    chosen: dict[ClientId, int]

    @property
    def drifted_and_chosen(self) -> tuple[ClientId, ...]:
        """Drifted clients that have chosen a cluster."""
        return tuple(client for client in self.drifted if client in self.chosen)

    def added_to(self, round: Round[State], before: Mapping[ClientId, int] | None = None) -> Round[State]:
        """The round, with the drifted clients, their new clusters and the event counts added.

        Args:
            round: The round that followed.
            before: Client → cluster before the migration; if given, migrations are counted.
        """
        counts = {**round.counts, "shifts": len(self.drifted)}
        if before is not None:
            counts["migrations"] = sum(before[client] != self.chosen[client] for client in self.drifted_and_chosen)
        assignment = self.chosen | dict(round.assignment)
        return dataclasses.replace(round, assignment=assignment, counts=counts, flagged=tuple(sorted(self.drifted)))


def migrate(
    fed: Federation,
    cohort: Cohort,
    seed: Seed,
    detector: Detector,
    assigned: Container[ClientId],
    choose: Callable[[Cohort], dict[ClientId, int]],
) -> Migration:
    """Detect drift at all clients that have a cluster, and let the drifted ones choose again.

    Args:
        fed: The federation.
        cohort: The cohort of the round.
        seed: Seed of the round.
        detector: Settings of drift detection.
        assigned: Clients that have a cluster. The others in the cohort set their reference counts.
        choose: Drifted clients → their new clusters; clients whose reply is lost are missing.
    """
    known = [client for client in cohort.available if client in assigned]
    new = [client for client in cohort if client not in assigned]
    drifted, _ = drifted_clients(fed, cohort, seed, detector, known, new)
    return Migration(drifted, choose(cohort.of(drifted)) if drifted else {})


def drifted_clients(
    fed: Federation,
    cohort: Cohort,
    seed: Seed,
    detector: Detector,
    known: Sequence[ClientId],
    new: Sequence[ClientId],
    then: Then | None = None,
) -> tuple[tuple[ClientId, ...], Replies | None]:
    """The known clients whose data have drifted; the new ones set their reference counts.

    Args:
        fed: The federation.
        cohort: The cohort of the round.
        seed: Seed of the round.
        detector: Settings of drift detection.
        known: Clients that have a cluster.
        new: Clients that have none.
        then: A work that drifted clients run in the same exchange.

    Returns:
        The drifted clients, and the replies to `then`.
    """
    if not known and not new:
        return (), None
    renew = PerClient(np.array([0, 1], np.int32), dict.fromkeys(known, 0) | dict.fromkeys(new, 1))
    asked = cohort.of([*known, *new])
    got = fed.ask(asked, watch, seed, renew=renew, detector=detector, min_replies=0, then=then)
    return tuple(client for client, drifted in got.by_client("shifted").items() if drifted), got.then
