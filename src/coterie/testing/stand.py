"""The stand on which a method is tested: one tiny federation and task, shared so that compiling takes little time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coterie import data as datasets
from coterie.data.federated import FederatedData
from coterie.federation import Desk, Faults, Faulty, Sequential, Vectorised
from coterie.federation.order import Carrier
from coterie.methods.protocol import Method
from coterie.models import Normalise, Task, mclr
from coterie.runs.play import Play
from coterie.runs.sampling import Sampler
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
    return mclr(tiny_data().shape, tiny_data().classes, normalise=Normalise(0.0, 255.0))


@dataclass(frozen=True)
class Stand:
    """A method on the stand.

    Attributes:
        make: What a run knows (truth, rounds, cohort, clients) → the method.
        rounds: How many rounds to play.
        cohort: Clients in each.
    """

    make: Callable[[Mapping[str, Any]], Method[Any]]
    rounds: int = 3
    cohort: int = 5

    def carrier(self, kind: str = "vectorised") -> Carrier:
        """One way to run the clients: `sequential`, `vectorised`, or `recoded`, all values through the codec."""
        if kind == "sequential":
            return Sequential(tiny_data(), tiny_task())
        return Recoded(self.carrier()) if kind == "recoded" else Vectorised(tiny_data(), tiny_task())

    def play(self, kind: str = "vectorised", *, seed: int = 0, faults: Faults | None = None) -> Play[Any]:
        """The method before its first step."""
        carrier = self.carrier(kind)
        if faults is not None:
            carrier = Faulty(carrier, faults, Seed(seed).fold("faults"))
        clients = carrier.clients[:-NEWCOMERS]
        truth = {client: int(k) for client, k in zip(tiny_data().clients, tiny_data().truth, strict=True)}  # type: ignore[arg-type]
        given = {"truth": truth, "rounds": self.rounds, "cohort": self.cohort, "clients": len(clients)}
        root = Seed(seed)
        return Play(self.make(given), Desk(carrier), root, Sampler(clients, self.cohort, root))

    def finish(self, play: Play[Any], rounds: int | None = None) -> list[Any]:
        """Play until so many rounds are over, or the method is done."""
        steps = []
        limit = self.rounds if rounds is None else rounds
        while play.stage == "prepare" or (play.stage == "train" and play.t < limit):
            steps.append(play.step())
        return steps
