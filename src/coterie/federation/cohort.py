"""`Cohort`: who takes part in a round, and the only sampler a method may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class Cohort:
    """The clients of round t, in the order of their ids, the same for every method of a comparison.

    Attributes:
        t: The round, from 0; -1 while preparing.
        clients: Who takes part.
        seed: Of the draws of this round, shared by all methods.
        available: All clients that could be asked, sorted.
        efforts: For each straggler, the share of the work that it has time for, in [0, 1).
    """

    t: int
    clients: tuple[ClientId, ...]
    seed: Seed
    available: Sequence[ClientId]
    efforts: Mapping[ClientId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """In the order of ids, whoever made it."""
        if list(self.clients) != sorted(set(self.clients)):
            object.__setattr__(self, "clients", tuple(sorted(set(self.clients))))

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)

    def active(self) -> Cohort:
        """Those who do all of the work: the cohort without its stragglers."""
        return self.of(client for client in self.clients if client not in self.efforts)

    def of(self, clients: Iterable[ClientId]) -> Cohort:
        """The same round with these clients."""
        return replace(self, clients=tuple(sorted(set(clients))))

    def draw(
        self, pool: Iterable[ClientId], size: int, *, weights: Mapping[ClientId, float] | None = None, name: str
    ) -> Cohort:
        """At most `size` distinct clients of a pool.

        Args:
            pool: From whom.
            size: How many; all of the pool where it is smaller.
            weights: Each next client is drawn with probability proportional to its weight; uniform without.
            name: What the draw is for; two draws of one round with one name are the same draw.
        """
        members = self.available if pool is self.available else sorted(set(pool))
        seed = self.seed.fold("draw", name)
        if weights is None:
            drawn = seed.sample(len(members), min(size, len(members)))
        else:
            drawn = seed.weighted_sample([weights.get(client, 0.0) for client in members], size)
        return self.of(members[place] for place in drawn)
