"""What methods share that cluster clients once, and then train a model for each cluster.

    cold client:  z = argmin_z mean_{i∈z} D(new, i)         over the founders i of cluster z
    w_z ← Σ_i n_i LocalUpdate_i(w_z) / Σ_i n_i              over those of the cohort that are in cluster z

D is a method's own distance between clients, w_z is row z of `bank`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient
from coterie.methods.fedavg import distances_of, loss_of, move_groups
from coterie.methods.protocol import Round
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId


class Clustered(Protocol):
    """A state that says who is in which cluster; a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def bank(self) -> Bank:
        """The clusters' models."""

    @property
    def assignment(self) -> ClientMap[int]:
        """The cluster of each client that has one."""


State = TypeVar("State", bound=Clustered)

#: (state, federation, cold clients, seed, how many must answer) → their clusters, and on what that was decided.
Join = Callable[[State, Federation, Cohort, Seed, int | None], tuple[dict[ClientId, int], dict[str, Any]]]


def needs_classes(name: str, task: Task) -> None:
    """Refuse a task without classes."""
    if task.classes is None:
        raise SpecError(f"{name} compares classes, but model {task.name} predicts numbers; choose another method")


def nearest_clusters(distances: Array, labels: Array) -> tuple[list[int], Array]:
    """For each row of distances to founders, the cluster with the smallest mean, and the means; ties: the lowest."""
    members = np.eye(int(labels.max()) + 1)[labels]  # (founders, clusters)
    means: Array = distances @ members / members.sum(axis=0)
    return means.argmin(axis=1).tolist(), means


def train_clusters(
    now: State,
    fed: Federation,
    cohort: Cohort,
    seed: Seed,
    local: LocalSGD,
    join: Join[State],
    weights: Literal["samples", "uniform"] = "samples",
) -> Round[State]:
    """A round: cold clients of the cohort join a cluster, then a round of FedAvg in each, without stragglers.

    A cluster without replies keeps its model to the bit, and who has no cluster does not train.

    Args:
        now: The state before.
        fed: The clients.
        cohort: Who takes part.
        seed: Of the round.
        local: How they train.
        join: The clusters of cold clients; who is not heard stays without.
        weights: A client counts its examples, or 1.
    """
    active = cohort.active()
    cold = active.of(client for client in active if client not in now.assignment)
    min_replies = 0 if len(cold) < len(active) else None  # where others can train, the cold may all be lost
    joined, evidence = join(now, fed, cold, seed, min_replies) if len(cold) else ({}, {})
    assignment = now.assignment.set(joined)
    row = {client: assignment[client] for client in active if client in assignment}
    how = Mean(groups=tree.rows(now.bank), by=row, weights=weights, spread=True)
    got = fed.ask(active.of(row), fit, seed, start=PerClient(now.bank, row), local=local, reduce=how)
    after = dataclasses.replace(now, bank=move_groups(now.bank, got), assignment=assignment)
    took_part = joined | {client: row[client] for client in got.clients}
    return Round(after, took_part, loss_of(got), distances_of(got), evidence)
