"""`Harness`: runs a method on a small federation. All tests share its data and task, so that little is compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from coterie import data as datasets
from coterie.data.federated import FederatedData
from coterie.federation import Cohort, Faults, FaultTransport, Sequential, Server, Vectorized
from coterie.federation.transport import Transport
from coterie.methods.protocol import Method
from coterie.models import Normalize, Task, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session, Step
from coterie.seeds import Seed
from coterie.testing.transports import Recoded
from coterie.types import ClientId

#: Number of clients that are never sampled; they are placed at the end.
NEWCOMERS = 2

#: Maximum number of preparation steps of a method.
MAX_PREPARATION = 100

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

    def session(
        self,
        kind: Backend = "vectorized",
        *,
        seed: int = 0,
        faults: Faults | None = None,
        stragglers: float = 0.0,
        wrap: Callable[[Transport], Transport] = lambda transport: transport,
        absent: Collection[ClientId] = (),
        truth: Literal["given", "hidden"] = "given",
        observe: Callable[[Method[Any]], Method[Any]] = lambda method: method,
    ) -> Session[Any]:
        """Return a session with the method, before its first step.

        Args:
            kind: The transport.
            seed: Random seed of the run.
            faults: Faults to simulate.
            stragglers: Fraction of stragglers in each cohort.
            wrap: Wraps the transport.
            absent: Clients that are left out of the cohorts of rounds.
            truth: `hidden`: a method without a field `from_run("truth")` gets wrong true clusters.
            observe: Wraps the method.
        """
        transport = wrap(self.transport(kind))
        if faults is not None:
            transport = FaultTransport(transport, faults, Seed(seed).fold("faults"))
        clients = transport.clients[:-NEWCOMERS]
        sampler = self.sampler(clients, seed=seed, stragglers=stragglers, absent=absent)
        return Session(observe(self._method(transport.clients, truth)), Server(transport), Seed(seed), sampler)

    def _method(self, clients: Sequence[ClientId], truth: Literal["given", "hidden"]) -> Method[Any]:
        known = tiny_data().truth
        assert known is not None
        given: dict[str, Any] = {
            "truth": dict(zip(clients, known.tolist(), strict=True)),
            "rounds": self.rounds,
            "clients_per_round": self.cohort,
            "clients": len(clients) - NEWCOMERS,
        }
        method = self.make(given)
        if truth == "given" or _declares_truth(method):
            return method
        return self.make({**given, "truth": dict.fromkeys(clients, 0)})

    def sampler(
        self,
        clients: Sequence[ClientId],
        *,
        seed: int = 0,
        stragglers: float = 0.0,
        absent: Collection[ClientId] = (),
    ) -> Sampler:
        """Return the sampler of a session; see `session`."""
        return SamplerWithout(clients, self.cohort, Seed(seed), stragglers=stragglers, absent=frozenset(absent))

    def finish(self, session: Session[Any]) -> list[Step[Any]]:
        """Run a session to the end and return its steps."""
        return list(self.steps(session))

    def steps(self, session: Session[Any]) -> Iterator[Step[Any]]:
        """Run a session to the end, step by step."""
        for step in session.steps(self.rounds):
            assert session.prepared <= MAX_PREPARATION, (
                f"after {MAX_PREPARATION} preparation steps `stage` still returns 'prepare'; it must become 'train' or "
                "'done'"
            )
            yield step


def _declares_truth(method: object) -> bool:
    fields = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    return any(field.metadata.get("run") == "truth" for field in fields)


@dataclass(frozen=True)
class SamplerWithout(Sampler):
    """A sampler that leaves some clients out of the cohorts of rounds; they stay available."""

    absent: frozenset[ClientId] = frozenset()

    def cohort(self, t: int) -> Cohort:
        """Return the cohort of round t, without the absent clients."""
        whole = super().cohort(t)
        return whole.of(client for client in whole if client not in self.absent)
