"""`Ledger`: counts the noisy sums that a run has released, and turns the counts into (ε, δ) with dp-accounting.

What is protected is one client's updates: two runs are neighbors if they have the same clients, and the updates of one
client are replaced by zeros in every sum (the `REPLACE_SPECIAL` relation of dp-accounting; zero-out). Each sum of
clipped updates then differs by at most C, and has Gaussian noise of deviation z C. Groups of one request are disjoint,
so they are one release. Two bounds hold, and the smaller one is reported:

    participation   A client's updates are in at most T sums: T Gaussian mechanisms with multiplier z. Holds for any
                    choice of clients that does not look at the updates, even if it is public who took part.
    sampling        Rounds whose clients were drawn uniformly, as long as it stays secret who took part: the subsampled
                    Gaussian mechanism. With a fixed number of clients it is known for the replacement of a client by
                    another one, in which a sum differs by up to 2C: multiplier z/2. That relation includes zero-out.
                    Sums over other clients count as under participation. Not used if the method got individual
                    replies: its decisions may reveal who took part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from coterie.errors import SpecError
from coterie.federation.cohort import Sampling
from coterie.types import Array, ClientId

#: Orders of Rényi divergences. dp-accounting logs warnings about fractional ones that do not converge.
_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)


class SampledRounds(NamedTuple):
    """Rounds whose clients were drawn in the same way.

    Attributes:
        kind: `fixed` or `poisson`.
        size: Number of clients drawn, or its expectation.
        population: Number of clients to draw from.
        releases: Number of sums of one round in which a client's update may be.
        rounds: Number of these rounds.
    """

    kind: Literal["fixed", "poisson"]
    size: int
    population: int
    releases: int
    rounds: int


class Guarantee(NamedTuple):
    """(ε, δ)-differential privacy of the released sums.

    Attributes:
        epsilon: ε.
        delta: δ.
        by: The bound that gave ε.
    """

    epsilon: float
    delta: float
    by: Literal["participation", "sampling"]


@dataclass
class Ledger:
    """Counts of releases so far.

    Attributes:
        draws: Number of noise draws; it numbers the random streams of the noise.
        participations: Client → number of sums that may contain its update.
        unsampled: Client → number of these sums whose clients were not drawn uniformly by the sampler.
        rounds: (kind, size, population, releases) → number of sampled rounds.
        individual: Works whose individual replies the method received; what it decides from them is not covered.
    """

    draws: int = 0
    participations: dict[ClientId, int] = field(default_factory=dict)
    unsampled: dict[ClientId, int] = field(default_factory=dict)
    rounds: dict[tuple[Literal["fixed", "poisson"], int, int, int], int] = field(default_factory=dict)
    individual: set[str] = field(default_factory=set)
    _open: tuple[Sampling, int] | None = None

    def draw(self) -> int:
        """The number of the next noise draw."""
        self.draws += 1
        return self.draws

    def release(self, clients: Iterable[ClientId], sampling: Sampling | None, times: int = 1) -> None:
        """Count sums that may contain the updates of these clients, each client `times` times."""
        for client in clients:
            self.participations[client] = self.participations.get(client, 0) + times
            if sampling is None:
                self.unsampled[client] = self.unsampled.get(client, 0) + times
        if sampling is not None:
            before = 0 if self._open is None else self._open[1]
            self._open = sampling, before + times

    def end_round(self) -> None:
        """Close the round: its sums share one sample of clients."""
        if self._open is not None:
            sampling, releases = self._open
            key = sampling.kind, sampling.size, sampling.population, releases
            self.rounds[key] = self.rounds.get(key, 0) + 1
            self._open = None

    def guarantee(self, noise_multiplier: float, delta: float) -> Guarantee:
        """The (ε, δ) of everything released so far."""
        self.end_round()
        sampled = tuple(sorted(SampledRounds(*key, count) for key, count in self.rounds.items()))
        sampled = () if self.individual else sampled
        most, others = _most(self.participations.values()), _most(self.unsampled.values())
        return _guarantee(most, others, sampled, noise_multiplier, delta)

    def save(self) -> dict[str, Any]:
        """The counts as plain data."""
        self.end_round()
        return {
            "draws": self.draws,
            "participations": dict(self.participations),
            "unsampled": dict(self.unsampled),
            "rounds": [[*key, count] for key, count in self.rounds.items()],
            "individual": sorted(self.individual),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self.draws = saved["draws"]
        self.participations = dict(saved["participations"])
        self.unsampled = dict(saved["unsampled"])
        self.rounds = {(kind, size, population, n): count for kind, size, population, n, count in saved["rounds"]}
        self.individual = set(saved["individual"])
        self._open = None


def check_accountant() -> None:
    """Raise SpecError if dp-accounting is not installed."""
    try:
        import dp_accounting  # noqa: F401
    except ImportError as fault:
        raise SpecError("privacy.noise_multiplier needs an extra: pip install 'coterie[privacy]'") from fault


def default_delta(clients: int) -> float:
    """1 / N^1.1, but at most 0.1: δ should be smaller than one over the number of clients."""
    return min(0.1, math.pow(clients, -1.1))


@lru_cache(maxsize=256)
def _guarantee(
    participations: int,
    unsampled: int,
    sampled: tuple[SampledRounds, ...],
    noise_multiplier: float,
    delta: float,
) -> Guarantee:
    by_participation = _gaussian(participations, noise_multiplier, delta)
    if not sampled:
        return Guarantee(by_participation, delta, "participation")
    by_sampling = _subsampled(sampled, unsampled, noise_multiplier, delta)
    if by_sampling < by_participation:
        return Guarantee(by_sampling, delta, "sampling")
    return Guarantee(by_participation, delta, "participation")


def _gaussian(count: int, noise_multiplier: float, delta: float) -> float:
    """ε of `count` Gaussian mechanisms."""
    import dp_accounting as dp

    if not count:
        return 0.0
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(dp.GaussianDpEvent(noise_multiplier), count)
    return float(accountant.get_epsilon(delta))


def _subsampled(sampled: tuple[SampledRounds, ...], unsampled: int, noise_multiplier: float, delta: float) -> float:
    """ε of subsampled Gaussian mechanisms, and of `unsampled` plain ones."""
    import dp_accounting as dp

    poisson = all(each.kind == "poisson" for each in sampled)
    # Divergences of one round each, which add up.
    total = sum(each.rounds * _divergences(each._replace(rounds=1), noise_multiplier, poisson) for each in sampled)
    if unsampled:
        alone = SampledRounds("poisson", 1, 1, 1, 1)  # every client takes part: the plain Gaussian mechanism
        total = total + unsampled * _divergences(alone, noise_multiplier, poisson=True)
    epsilon, _ = dp.rdp.compute_epsilon(_ORDERS, total, delta)
    return float(epsilon)


@lru_cache(maxsize=64)
def _divergences(each: SampledRounds, noise_multiplier: float, poisson: bool) -> Array:
    """The Rényi divergence of one sampled round for each of `_ORDERS`; half a second for a fixed number of clients."""
    import dp_accounting as dp

    # Several sums over the same sample are one sum with less noise.
    multiplier = noise_multiplier / math.sqrt(each.releases)
    if poisson:
        relation = dp.NeighboringRelation.REPLACE_SPECIAL
        event = dp.PoissonSampledDpEvent(each.size / each.population, dp.GaussianDpEvent(multiplier))
    else:
        relation = dp.NeighboringRelation.REPLACE_ONE
        event = dp.SampledWithoutReplacementDpEvent(each.population, each.size, dp.GaussianDpEvent(multiplier / 2))
    accountant = dp.rdp.RdpAccountant(_ORDERS, neighboring_relation=relation)
    accountant.compose(event)
    divergences: Array = np.array(accountant._rdp)
    return divergences


def _most(counts: Collection[int]) -> int:
    return max(counts, default=0)
