"""Client sampling: the clients and stragglers of each round, the same for every method of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from coterie.errors import SpecError
from coterie.federation.cohort import Cohort, Sampling
from coterie.seeds import Seed
from coterie.types import ClientId

#: How the clients of a round are drawn; see `Sampler.kind`.
Kind = Literal["uniform", "poisson", "sweep", "availability", "round_plus_seed"]


class ClientSampler(Protocol):
    """Draws the clients of each step: `Sampler` in simulation, `LiveSampler` among clients that come and go."""

    def cohort(self, t: int) -> Cohort:
        """Return the cohort of round t."""

    def all_clients(self, step: int, t: int = 0) -> Cohort:
        """Return all clients that have joined by round t, for a preparation step before it."""

    def present(self, clients: Sequence[ClientId], t: int) -> tuple[ClientId, ...]:
        """Return the subset of clients that have joined by round t."""

    def joining(self, t: int, *, last: bool = False) -> tuple[ClientId, ...]:
        """Return the newcomers of round t; with `last`, also those of all later rounds."""

    def reachable(self, clients: Sequence[ClientId]) -> tuple[ClientId, ...]:
        """Return the subset of clients that can be asked now."""


@dataclass(frozen=True)
class Sampler:
    """Draws cohorts.

    Attributes:
        clients: Clients to draw from, sorted.
        size: Clients per round.
        seed: Random seed of the run.
        kind: `uniform`; `poisson`: each client independently with probability size / number of clients, so that the
            number of clients varies; `sweep`: every client once in the order of ids, the last of these cohorts filled
            up from the beginning, then uniform; `availability`: each client is available with its own probability, and
            the cohort is drawn from the available ones, or from all if none is available; `round_plus_seed`: the
            clients that NumPy's `RandomState(round + seed)` draws, as in FedSim's published program (and, with seed 0,
            in those of FedProx and FedGroup), so that seed 1 has in round t the cohort of seed 0 in round t + 1.
        stragglers: Fraction of each cohort that does only part of its local training.
        late: Newcomer → first round in which it may take part.
    """

    clients: Sequence[ClientId]
    size: int
    seed: Seed
    kind: Kind = "uniform"
    stragglers: float = 0.0
    late: Mapping[ClientId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the settings."""
        available = len(self.clients) - len(self.late)
        if not available:
            raise SpecError("run.newcomers leaves no client for the first round; lower it")
        if not 1 <= self.size <= available:
            raise SpecError(
                f"run.clients_per_round must be at most {available}, the number of clients that have training examples"
                f"{' and do not join later' if self.late else ''}, got {self.size}; 0: 10, or all clients if fewer"
            )
        if not 0 <= self.stragglers <= 1:
            raise SpecError(f"run.stragglers must be between 0 and 1, got {self.stragglers}")

    def cohort(self, t: int) -> Cohort:
        """Return the cohort of round t."""
        seed = self.seed.fold("cohort", t)
        available = self._available(t)
        size = min(self.size, len(available))
        first = self.present(self.clients, 0) if self.late else self.clients
        sampling = None
        if self.kind == "sweep" and t * self.size < len(first):
            drawn = [first[place % len(first)] for place in range(t * self.size, (t + 1) * self.size)]
        elif self.kind == "poisson":
            joins = seed.fold("poisson").uniform(len(self.clients)) < self.size / len(self.clients)
            joining = {client for client, there in zip(self.clients, joins, strict=True) if there}
            drawn = [client for client in available if client in joining]
            sampling = Sampling("poisson", self.size, len(self.clients))
        elif self.kind == "round_plus_seed":
            # NumPy does not change the streams of this generator any more (NEP 19).
            published = np.random.RandomState((t + self.seed.value) % 2**32)
            drawn = [available[place] for place in published.choice(len(available), size, replace=False)]
        else:
            drawn = [available[place] for place in seed.sample(len(available), size)]
            sampling = None if self.kind == "availability" else Sampling("fixed", size, len(available))
        clients = tuple(sorted(set(drawn)))
        count = round(len(clients) * self.stragglers)
        straggling = self.seed.fold("stragglers", t)
        stragglers = [clients[place] for place in straggling.fold("who").sample(len(clients), count)]
        efforts = dict(zip(stragglers, straggling.fold("share").uniform(count).tolist(), strict=True))
        # With stragglers it depends on the other clients of the cohort who trains.
        return Cohort(t, clients, seed, available, efforts, None if self.stragglers else sampling)

    def all_clients(self, step: int, t: int = 0) -> Cohort:
        """Return all clients that have joined by round t, for a preparation step before it."""
        joined = self.present(self.clients, t)
        return Cohort(-1, joined, self.seed.fold("prepare", step), joined)

    def present(self, clients: Sequence[ClientId], t: int) -> tuple[ClientId, ...]:
        """Return the subset of clients that have joined by round t."""
        if not self.late:
            return tuple(clients)
        return tuple(client for client in clients if self.late.get(client, 0) <= t)

    def joining(self, t: int, *, last: bool = False) -> tuple[ClientId, ...]:
        """Return the newcomers of round t; with `last`, also those of all later rounds."""
        return tuple(sorted(client for client, joins in self.late.items() if joins == t or (last and joins > t)))

    def reachable(self, clients: Sequence[ClientId]) -> tuple[ClientId, ...]:
        """Return all clients: simulated ones can always be asked."""
        return tuple(clients)

    def _available(self, t: int) -> Sequence[ClientId]:
        if self.kind != "availability":
            return self.present(self.clients, t) if self.late else self.clients
        # A client's probability is fixed for the run; its availability is drawn in each round.
        rates = self.seed.fold("rates").uniform(len(self.clients))
        drawn = self.seed.fold("available", t).uniform(len(self.clients)) < 0.1 + 0.9 * rates
        available = tuple(client for client, there in zip(self.clients, drawn, strict=True) if there)
        return self.present(available, t) or self.present(self.clients, t)


class Population(Protocol):
    """Clients that come and go; the roster of a server implements it."""

    @property
    def present(self) -> Sequence[ClientId]:
        """The clients that can be asked now, sorted."""

    def trainable(self) -> tuple[ClientId, ...]:
        """The clients that are present and have training examples, sorted; waits until there are enough."""

    def newcomers(self) -> tuple[ClientId, ...]:
        """The clients that have joined since the run began and were not returned before, sorted."""

    def introduce(self, clients: Sequence[ClientId]) -> None:
        """Record that these clients take part: they are not newcomers."""


@dataclass(frozen=True)
class LiveSampler:
    """Draws cohorts among the clients that are present. With the same clients it draws what `Sampler` draws.

    Attributes:
        population: The clients.
        size: Clients per round; all, if fewer are present.
        seed: Random seed of the run.
        kind: As for `Sampler`.
        stragglers: As for `Sampler`.
    """

    population: Population
    size: int
    seed: Seed
    kind: Kind = "uniform"
    stragglers: float = 0.0

    def cohort(self, t: int) -> Cohort:
        """Return the cohort of round t."""
        present = self.population.trainable()
        self.population.introduce(present)
        size = min(self.size, len(present))
        return Sampler(present, size, self.seed, self.kind, self.stragglers).cohort(t)

    def all_clients(self, step: int, t: int = 0) -> Cohort:
        """Return all clients that are present, for a preparation step."""
        present = self.population.trainable()
        self.population.introduce(present)
        return Cohort(-1, present, self.seed.fold("prepare", step), present)

    def present(self, clients: Sequence[ClientId], t: int) -> tuple[ClientId, ...]:
        """Return all clients that have joined, also those that are away."""
        return tuple(clients)

    def joining(self, t: int, *, last: bool = False) -> tuple[ClientId, ...]:
        """Return the clients that have joined since the last step."""
        return self.population.newcomers()

    def reachable(self, clients: Sequence[ClientId]) -> tuple[ClientId, ...]:
        """Return the clients that are present."""
        present = set(self.population.present)
        return tuple(client for client in clients if client in present)
