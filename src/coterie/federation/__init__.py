"""Where clients run: one seam, several federations behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.federation.attacks import Attack, Attacked
from coterie.federation.faults import Faults, Faulty
from coterie.federation.protocol import Adapt, Cached, Cohort, Federation, Mean, PerClient, Replies, Traffic
from coterie.federation.sequential import Sequential
from coterie.federation.server import Account, Server
from coterie.federation.vectorized import Vectorized

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData
    from coterie.models import Task

__all__ = [
    "Account",
    "Adapt",
    "Attack",
    "Attacked",
    "Cached",
    "Cohort",
    "Faults",
    "Faulty",
    "Federation",
    "Mean",
    "PerClient",
    "Replies",
    "Sequential",
    "Server",
    "Traffic",
    "Vectorized",
    "sequential",
    "vectorized",
]


def sequential(data: FederatedData, task: Task) -> Server:
    """A federation that runs one client after another."""
    return Server(Sequential(data, task))


def vectorized(data: FederatedData, task: Task, *, threads: int | None = None) -> Server:
    """A federation that runs a whole cohort in a few compiled calls."""
    return Server(Vectorized(data, task, threads=threads))
