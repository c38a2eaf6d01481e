"""The `Federation` protocol, the server that implements it, and the transports to simulated clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.federation.attacks import Attack, AttackTransport
from coterie.federation.averaging import Averaging
from coterie.federation.compression import Compression
from coterie.federation.faults import Faults, FaultTransport
from coterie.federation.privacy import Privacy
from coterie.federation.protocol import Adapt, Cached, Cohort, Federation, Mean, PerClient, Replies, Traffic
from coterie.federation.sequential import Sequential
from coterie.federation.server import Server
from coterie.federation.server_state import ServerState
from coterie.federation.transport import Transport, TransportWrapper
from coterie.federation.vectorized import Vectorized

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData
    from coterie.models import Task

__all__ = [
    "Adapt",
    "Attack",
    "AttackTransport",
    "Averaging",
    "Cached",
    "Cohort",
    "Compression",
    "FaultTransport",
    "Faults",
    "Federation",
    "Mean",
    "PerClient",
    "Privacy",
    "Replies",
    "Sequential",
    "Server",
    "ServerState",
    "Traffic",
    "Transport",
    "TransportWrapper",
    "Vectorized",
    "sequential",
    "vectorized",
]


def sequential(data: FederatedData, task: Task) -> Server:
    """Create a federation that runs one client after another."""
    return Server(Sequential(data, task))


def vectorized(data: FederatedData, task: Task, *, threads: int | None = None) -> Server:
    """Create a federation that runs a whole cohort in a few compiled calls."""
    return Server(Vectorized(data, task, threads=threads))
