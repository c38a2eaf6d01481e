"""Who takes part in a round: the same cohorts and stragglers for every method of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from coterie.errors import SpecError
from coterie.federation.cohort import Cohort
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class Sampler:
    """Draws cohorts.

    Attributes:
        clients: Who can be drawn, sorted.
        size: Clients in a cohort.
        seed: Of the run.
        kind: `uniform`; `sweep`: all clients once in the order of their ids, then uniform; `availability`: each client
            is there with a probability of its own, and the cohort is drawn from those.
        stragglers: The share of each cohort that has no time for all of the work.
        late: Newcomer → the round from which it takes part; it waits until then.
    """

    clients: Sequence[ClientId]
    size: int
    seed: Seed
    kind: Literal["uniform", "sweep", "availability"] = "uniform"
    stragglers: float = 0.0
    late: Mapping[ClientId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a cohort that cannot be drawn."""
        many = len(self.clients) - len(self.late)
        if not 1 <= self.size <= many:
            raise SpecError(
                f"run.clients_per_round must lie between 1 and the {many} clients that have training examples"
                f"{' and do not join later' if self.late else ''}, got {self.size}"
            )
        if not 0 <= self.stragglers <= 1:
            raise SpecError(f"run.stragglers must be a share between 0 and 1, got {self.stragglers}")

    def cohort(self, t: int) -> Cohort:
        """Round t's."""
        seed = self.seed.fold("cohort", t)
        available = self._available(t)
        size = min(self.size, len(available))
        first = self.present(self.clients, 0) if self.late else self.clients
        if self.kind == "sweep" and t * self.size < len(first):
            drawn = [first[place % len(first)] for place in range(t * self.size, (t + 1) * self.size)]
        else:
            drawn = [available[place] for place in seed.sample(len(available), size)]
        clients = tuple(sorted(set(drawn)))
        late = round(len(clients) * self.stragglers)
        slow = self.seed.fold("stragglers", t)
        who = [clients[place] for place in slow.fold("who").sample(len(clients), late)]
        efforts = dict(zip(who, slow.fold("share").uniform(late).tolist(), strict=True))
        return Cohort(t, clients, seed, available, efforts)

    def everyone(self, step: int, t: int = 0) -> Cohort:
        """All clients that have joined by round t, for a step of preparing before it."""
        here = self.present(self.clients, t)
        return Cohort(-1, here, self.seed.fold("prepare", step), here)

    def present(self, clients: Sequence[ClientId], t: int) -> tuple[ClientId, ...]:
        """Those of these clients that have joined by round t."""
        if not self.late:
            return tuple(clients)
        return tuple(client for client in clients if self.late.get(client, 0) <= t)

    def joining(self, t: int, *, last: bool = False) -> tuple[ClientId, ...]:
        """The newcomers of round t; of this one and of those that will not come, where it is the last."""
        return tuple(sorted(client for client, joins in self.late.items() if joins == t or (last and joins > t)))

    def _available(self, t: int) -> Sequence[ClientId]:
        if self.kind != "availability":
            return self.present(self.clients, t) if self.late else self.clients
        # A client's own rate is fixed for the run; whether it is there is drawn anew in each round.
        rates = self.seed.fold("rates").uniform(len(self.clients))
        here = self.seed.fold("available", t).uniform(len(self.clients)) < 0.1 + 0.9 * rates
        there = tuple(client for client, there in zip(self.clients, here, strict=True) if there)
        return self.present(there, t) or self.present(self.clients, t)
