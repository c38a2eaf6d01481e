"""The stand on which a method is tested: one tiny federation and task, shared so that compiling takes little time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coterie import data as datasets
from coterie.data.federated import FederatedData
from coterie.federation import Faults, FaultTransport, Sequential, Server, Vectorized
from coterie.federation.transport import Transport
from coterie.methods.protocol import Method
from coterie.models import Normalize, Task, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed
from coterie.testing.recoded import Recoded

#: Clients that never take part, and are placed in the end.
NEWCOMERS = 2


@lru_cache(maxsize=1)
def tiny_data() -> FederatedData:
    """Ten clients of two kinds with forty small images each."""
    return datasets.load("blobs", clients=10, clusters=2, samples=40, side=4, classes=3, seed=0)


@lru_cache(maxsize=1)
def tiny_task() -> Task:
    """Logistic regression on those."""
    return mclr(tiny_data().shape, tiny_data().classes, normalize=Normalize(0.0, 255.0))


@dataclass(frozen=True)
class Harness:
    """A method on the stand.

    Attributes:
        make: What a run knows (truth, rounds, cohort, clients) → the method.
        rounds: How many rounds to play.
        cohort: Clients in each.
    """

    make: Callable[[Mapping[str, Any]], Method[Any]]
    rounds: int = 3
    cohort: int = 5

    def transport(self, kind: str = "vectorized") -> Transport:
        """One way to run the clients: `sequential`, `vectorized`, or `recoded`, all values through the codec."""
        if kind == "sequential":
            return Sequential(tiny_data(), tiny_task())
        return Recoded(self.transport()) if kind == "recoded" else Vectorized(tiny_data(), tiny_task())

    def session(self, kind: str = "vectorized", *, seed: int = 0, faults: Faults | None = None) -> Session[Any]:
        """The method before its first step."""
        transport = self.transport(kind)
        if faults is not None:
            transport = FaultTransport(transport, faults, Seed(seed).fold("faults"))
        clients = transport.clients[:-NEWCOMERS]
        truth = {client: int(k) for client, k in zip(tiny_data().clients, tiny_data().truth, strict=True)}  # type: ignore[arg-type]
        given = {"truth": truth, "rounds": self.rounds, "clients_per_round": self.cohort, "clients": len(clients)}
        root = Seed(seed)
        return Session(self.make(given), Server(transport), root, Sampler(clients, self.cohort, root))

    def finish(self, session: Session[Any], rounds: int | None = None) -> list[Any]:
        """Play until so many rounds are over, or the method is done."""
        steps = []
        limit = self.rounds if rounds is None else rounds
        while session.stage == "prepare" or (session.stage == "train" and session.t < limit):
            steps.append(session.step())
        return steps
