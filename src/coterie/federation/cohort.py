"""`Cohort`: the clients of a round. Methods draw further clients with `Cohort.draw` only."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class Sampling:
    """How a sampler drew the clients of a round, if it did so uniformly: sampling may then amplify privacy.

    Attributes:
        kind: `fixed`: a fixed number of distinct clients; `poisson`: each client independently.
        size: Number of clients, or its expectation.
        population: Number of clients to draw from.
    """

    kind: Literal["fixed", "poisson"]
    size: int
    population: int


@dataclass(frozen=True)
class Cohort:
    """The clients of round t, sorted by id; the same for every method of a comparison.

    Attributes:
        t: Round number from 0; -1 during preparation.
        clients: The clients of the cohort.
        seed: Seed of random draws in this round, the same for all methods.
        available: All clients that can take part, sorted.
        efforts: Straggler → fraction of the local training that it does, in [0, 1).
        sampling: How the clients were drawn; None if not uniformly by the sampler of the run. Kept by `of` for clients
            of the cohort, not by `draw`.
    """

    t: int
    clients: tuple[ClientId, ...]
    seed: Seed
    available: Sequence[ClientId]
    efforts: Mapping[ClientId, float] = field(default_factory=dict)
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        """Sort the clients and remove duplicates."""
        if not all(map(operator.lt, self.clients, self.clients[1:])):
            object.__setattr__(self, "clients", tuple(sorted(set(self.clients))))

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)

    def active(self) -> Cohort:
        """Return the cohort without its stragglers."""
        return self.of(client for client in self.clients if client not in self.efforts)

    def of(self, clients: Iterable[ClientId]) -> Cohort:
        """Return a cohort of the same round with these clients."""
        chosen = tuple(sorted(set(clients)))
        sampling = self.sampling if self.sampling is not None and set(chosen) <= set(self.clients) else None
        return replace(self, clients=chosen, sampling=sampling)

    def draw(
        self, pool: Iterable[ClientId], size: int, *, weights: Mapping[ClientId, float] | None = None, name: str
    ) -> Cohort:
        """Draw at most `size` distinct clients from a pool.

        Args:
            pool: The clients to draw from.
            size: Number of clients; all of the pool if it is smaller.
            weights: Clients are drawn one after another with probability proportional to their weight; None: uniform.
            name: Name of the draw; draws of a round with the same name are equal.
        """
        members = self.available if pool is self.available else sorted(set(pool))
        seed = self.seed.fold("draw", name)
        if weights is None:
            drawn = seed.sample(len(members), min(size, len(members)))
        else:
            drawn = seed.weighted_sample([weights.get(client, 0.0) for client in members], size)
        return replace(self.of(members[place] for place in drawn), sampling=None)
