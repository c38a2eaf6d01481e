"""`Cohort`: the clients of a round. Methods draw further clients with `Cohort.draw` only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class Cohort:
    """The clients of round t, sorted by id; the same for every method of a comparison.

    Attributes:
        t: Round number from 0; -1 during preparation.
        clients: The clients of the cohort.
        seed: Seed of random draws in this round, the same for all methods.
        available: All clients that can take part, sorted.
        efforts: Straggler → fraction of the local training that it does, in [0, 1).
    """

    t: int
    clients: tuple[ClientId, ...]
    seed: Seed
    available: Sequence[ClientId]
    efforts: Mapping[ClientId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the clients and remove duplicates."""
        if list(self.clients) != sorted(set(self.clients)):
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
        return replace(self, clients=tuple(sorted(set(clients))))

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
        return self.of(members[place] for place in drawn)
