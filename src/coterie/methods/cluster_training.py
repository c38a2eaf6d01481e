"""Shared by methods that cluster clients once and then train one model per cluster: FLAG, PACFL, FL+HC, Local-KMeans.

    joining:   z = argmin_z mean_{i∈z} D(j, i)              newcomer j; over the initial clients i of cluster z
    training:  w_z ← Σ_i n_i LocalUpdate_i(w_z) / Σ_i n_i   over the members of cluster z in the cohort
    serving:   each client gets its cluster's model; a newcomer joins a cluster first. A client without a cluster gets
               the uniform mean of the clusters' models

The initial clients are those that took part in the clustering; a newcomer is any client without a cluster. D is the
method's own distance between clients, w_z is row z of `bank`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient
from coterie.methods.fedavg import distances_of, global_model, loss_of, move_groups
from coterie.methods.protocol import Placement, Round
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

#: Clients of a round, or clients to be served outside of a round.
Clients: TypeAlias = Cohort | list[ClientId]


class Clustered(Protocol):
    """A state with clusters; a frozen dataclass."""

    # Every dataclass has this attribute; the type of dataclasses.replace requires it.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def bank(self) -> Bank:
        """The clusters' models."""

    @property
    def assignment(self) -> ClientMap[int]:
        """Client → cluster; newcomers are missing."""


State = TypeVar("State", bound=Clustered)
StateIn = TypeVar("StateIn", bound=Clustered, contravariant=True)


class Joined(NamedTuple):
    """Newcomers that joined a cluster.

    Attributes:
        assignment: Client → cluster; clients that did not reply are missing.
        evidence: The values behind the decision, for the record.
    """

    assignment: dict[ClientId, int]
    evidence: Mapping[str, object]


class Join(Protocol[StateIn]):
    """Finds the clusters of newcomers; each method has its own."""

    def __call__(
        self,
        now: StateIn,
        fed: Federation,
        newcomers: Clients,
        seed: Seed,
        min_replies: int | None = None,
        /,
    ) -> Joined:
        """The clusters of the newcomers that reply."""


def needs_classes(name: str, task: Task) -> None:
    """Raise SpecError for a task without classes."""
    if task.classes is None:
        raise SpecError(f"{name} compares classes, but model {task.name} predicts numbers; choose another method")


@overload
def subset(clients: Cohort, chosen: Iterable[ClientId]) -> Cohort: ...
@overload
def subset(clients: list[ClientId], chosen: Iterable[ClientId]) -> list[ClientId]: ...
@overload
def subset(clients: Clients, chosen: Iterable[ClientId]) -> Clients: ...
def subset(clients: Clients, chosen: Iterable[ClientId]) -> Clients:
    """The chosen clients, as a cohort of the same round if a cohort is given."""
    return clients.of(chosen) if isinstance(clients, Cohort) else list(chosen)


def draw_members(cohort: Cohort, assignment: Mapping[ClientId, int], clusters: int, size: int, *, name: str) -> Cohort:
    """Up to `size` random available members of each cluster (0: all); `name` is the name of the random stream."""
    pools: list[list[ClientId]] = [[] for _ in range(clusters)]
    for client in cohort.available:
        if client in assignment:
            pools[assignment[client]].append(client)
    drawn = [cohort.draw(pool, size or len(pool), name=f"{name} {c}") for c, pool in enumerate(pools)]
    return drawn[0].of(client for each in drawn for client in each)


def equal_models(w0: Params, labels: Array) -> Bank:
    """The first models of clusters: w_0 for each of them."""
    return tree.stack([w0] * int(labels.max() + 1))


def nearest_clusters(distances: Array, labels: Array) -> tuple[list[int], Array]:
    """For each newcomer the cluster with the smallest mean distance, and all mean distances, (newcomers, clusters).

    Args:
        distances: D, (newcomers, initial clients).
        labels: The cluster of each initial client.
    """
    members = np.eye(int(labels.max()) + 1)[labels]  # (initial clients, clusters)
    means: Array = distances @ members / members.sum(axis=0)
    return means.argmin(axis=1).tolist(), means  # ties go to the lowest index


def join_nearest(newcomers: Sequence[ClientId], distances: Array, labels: Array, *, name: str) -> Joined:
    """Each newcomer joins the cluster with the smallest mean distance; `name` is the record key of the means."""
    rows, means = nearest_clusters(distances, labels)
    return Joined(dict(zip(newcomers, rows, strict=True)), {"clients": list(newcomers), name: means})


def train_clusters(
    now: State,
    fed: Federation,
    cohort: Cohort,
    seed: Seed,
    local: LocalSGD,
    join: Join[State],
    weights: Literal["samples", "uniform"] = "samples",
) -> Round[State]:
    """One round: newcomers in the cohort join a cluster, then each cluster does a round of FedAvg.

    Stragglers do not train. A cluster without replies keeps its model to the bit. A newcomer whose reply is lost does
    not train.

    Args:
        now: The state before the round.
        fed: The federation.
        cohort: The clients of the round.
        seed: Seed of the round.
        local: Settings of local training.
        join: Finds the clusters of newcomers.
        weights: Client weight: number of samples, or uniform.
    """
    active = cohort.active()
    newcomers = active.of(client for client in active if client not in now.assignment)
    min_replies = 0 if len(newcomers) < len(active) else None  # others can train even if all newcomers are lost
    joined = join(now, fed, newcomers, seed, min_replies) if len(newcomers) else Joined({}, {})
    assignment = now.assignment.set(joined.assignment)
    row = {client: assignment[client] for client in active if client in assignment}
    mean = Mean(groups=tree.rows(now.bank), by=row, weights=weights, spread=True)
    got = fed.ask(active.of(row), fit, seed, start=PerClient(now.bank, row), local=local, reduce=mean)
    after = dataclasses.replace(now, bank=move_groups(now.bank, got), assignment=assignment)
    took_part = joined.assignment | {client: row[client] for client in got.clients}
    return Round(after, took_part, loss_of(got), distances_of(got), joined.evidence)


def place_in_clusters(
    now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed, join: Join[State]
) -> tuple[State, Placement]:
    """Serve each client its cluster's model; newcomers join a cluster first, and the state keeps it."""
    asked = list(clients)
    newcomers = [client for client in asked if client not in now.assignment]
    if not newcomers:
        return now, placed(now, asked)
    joined = join(now, fed, newcomers, seed)
    now = dataclasses.replace(now, assignment=now.assignment.set(joined.assignment))
    return now, dataclasses.replace(placed(now, asked), evidence=joined.evidence)


def placed(now: Clustered, clients: Iterable[ClientId]) -> Placement:
    """The model of each client's cluster."""
    row = now.assignment.among(clients)
    return Placement(now.bank, row, fallback=global_model(now.bank, now.assignment))
