"""Where clients run: one seam, several federations behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.federation.attacked import Attack, Attacked
from coterie.federation.desk import Account, Desk
from coterie.federation.faulty import Faults, Faulty
from coterie.federation.protocol import Adapt, Cohort, Federation, Mean, Once, Replies, Rows, Traffic
from coterie.federation.sequential import Sequential
from coterie.federation.vectorised import Vectorised

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData
    from coterie.models import Task

__all__ = [
    "Account",
    "Adapt",
    "Attack",
    "Attacked",
    "Cohort",
    "Desk",
    "Faults",
    "Faulty",
    "Federation",
    "Mean",
    "Once",
    "Replies",
    "Rows",
    "Sequential",
    "Traffic",
    "Vectorised",
    "sequential",
    "vectorised",
]


def sequential(data: FederatedData, task: Task) -> Desk:
    """A federation that runs one client after another."""
    return Desk(Sequential(data, task))


def vectorised(data: FederatedData, task: Task, *, threads: int | None = None) -> Desk:
    """A federation that runs a whole cohort in a few compiled calls."""
    return Desk(Vectorised(data, task, threads=threads))
