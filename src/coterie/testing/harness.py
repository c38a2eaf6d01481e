"""`Harness`: runs a method on a small federation. All tests share its data and task, so that little is compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from coterie import codec
from coterie import data as datasets
from coterie.data.federated import FederatedData
from coterie.federation import Faults, FaultTransport, Sequential, Server, Vectorized
from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.transport import Transport, TransportWrapper
from coterie.methods.protocol import Method
from coterie.models import Normalize, Task, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session, Step
from coterie.seeds import Seed

#: Number of clients that are never sampled; they are placed at the end.
NEWCOMERS = 2

Backend = Literal["sequential", "vectorized", "recoded"]


@lru_cache(maxsize=1)
def tiny_data() -> FederatedData:
    """Ten clients in two true clusters, with forty small images each."""
    return datasets.load("blobs", clients=10, clusters=2, samples=40, side=4, classes=3, seed=0)


@lru_cache(maxsize=1)
def tiny_task() -> Task:
    """Logistic regression for `tiny_data`."""
    return mclr(tiny_data().shape, tiny_data().classes, normalize=Normalize(0.0, 255.0))


@dataclass(frozen=True)
class Harness:
    """A method to test.

    Attributes:
        make: Creates the method from a dict of what a run provides: truth, rounds, clients_per_round, clients.
        rounds: Number of rounds.
        cohort: Clients per round.
    """

    make: Callable[[Mapping[str, Any]], Method[Any]]
    rounds: int = 3
    cohort: int = 5

    def transport(self, kind: Backend = "vectorized") -> Transport:
        """Return a transport: `sequential`, `vectorized`, or `recoded`, where all values pass through the codec."""
        if kind == "sequential":
            return Sequential(tiny_data(), tiny_task())
        return Recoded(self.transport()) if kind == "recoded" else Vectorized(tiny_data(), tiny_task())

    def session(self, kind: Backend = "vectorized", *, seed: int = 0, faults: Faults | None = None) -> Session[Any]:
        """Return a session with the method, before its first step."""
        transport = self.transport(kind)
        if faults is not None:
            transport = FaultTransport(transport, faults, Seed(seed).fold("faults"))
        clients = transport.clients[:-NEWCOMERS]
        truth = {client: int(k) for client, k in zip(tiny_data().clients, tiny_data().truth, strict=True)}  # type: ignore[arg-type]
        given = {"truth": truth, "rounds": self.rounds, "clients_per_round": self.cohort, "clients": len(clients)}
        root = Seed(seed)
        return Session(self.make(given), Server(transport), root, Sampler(clients, self.cohort, root))

    def finish(self, session: Session[Any]) -> list[Step[Any]]:
        """Run a session to the end and return its steps."""
        return list(session.steps(self.rounds))


class Recoded(TransportWrapper):
    """A transport that encodes and decodes every request and reply, as a network does."""

    def __init__(self, transport: Transport) -> None:
        """Wrap a transport."""
        self._transport = transport

    def on(self, task: Task) -> Recoded:
        """Return the same transport with another task."""
        return Recoded(self._transport.on(task))

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send the recoded request, and recode the replies."""
        for batch in self._transport.send(_recoded(request)):
            yield dataclasses.replace(batch, answers=codec.decode(codec.encode(dict(batch.answers))))


def _recoded(request: Request) -> Request:
    sent = {
        "settings": dict(request.settings),
        "shared": dict(request.shared),
        "per_client": dict(request.per_client),
        "versions": dict(request.versions),
        "efforts": dict(request.efforts),
        "seed": request.seed,
    }
    received = codec.decode(codec.encode(sent))
    after = None if request.after is None else _recoded(request.after)
    return dataclasses.replace(request, **received, after=after)
