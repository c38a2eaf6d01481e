"""`Averaging`: how the server averages models: the aggregation rule, clipping, noise, and the count of releases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from coterie import tree
from coterie.aggregation import Aggregation
from coterie.clients.schema import Model, Ragged, Values
from coterie.clients.work import Work
from coterie.errors import SpecError
from coterie.federation.cohort import Sampling
from coterie.federation.ledger import Guarantee, Ledger
from coterie.federation.messages import Request
from coterie.federation.privacy import Privacy, PrivateReduction, clip_around, denominators, noisy_average
from coterie.federation.protocol import Mean
from coterie.federation.reduce import Reduction, reduction
from coterie.federation.starts import group_starts
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@dataclass(frozen=True)
class Averaging:
    """How models are averaged.

    Attributes:
        aggregation: The aggregation rule; with noise it must be the plain mean.
        privacy: Clipping and noise.
        seed: Seed of the noise.
        ledger: Releases of noisy sums so far; it belongs to the checkpoint.
        observes: Whether works whose individual replies a method gets are noted. Not while clients are placed: this
            decides which model they are served, not the models.
    """

    aggregation: Aggregation = field(default_factory=Aggregation)
    privacy: Privacy = field(default_factory=Privacy)
    seed: Seed = field(default_factory=lambda: Seed(0))
    ledger: Ledger = field(default_factory=Ledger)
    observes: bool = True

    def placing(self) -> Averaging:
        """The same with the same ledger, while clients are placed or evaluated."""
        return dataclasses.replace(self, observes=False)

    def guarantee(self) -> Guarantee | None:
        """The (ε, δ) of all sums released so far; None without noise."""
        if not self.privacy.noise_multiplier:
            return None
        return self.ledger.guarantee(self.privacy.noise_multiplier, self.privacy.delta)

    def average(self, bank: Bank, weights: Array, clients: Sequence[ClientId] | None, start: Params | None) -> Params:
        """Average a bank of models; see `Federation.average`."""
        norm = self.privacy.max_update_norm
        if not norm or (clients is not None and not len(clients)):
            return self.aggregation.of(bank, weights)
        if clients is None or len(clients) != tree.rows(bank):
            raise SpecError(
                "With privacy.max_update_norm, fed.average needs clients=, the client of each model, and start=, the "
                "model from which they started; for models that are already means use clients=()"
            )
        if not self.privacy.noise_multiplier:
            return self.aggregation.of(clip_around(bank, start, norm), weights)
        # Not counted as sampled: which models are in the bank was decided from individual replies.
        self.ledger.release([client for client, weight in zip(clients, weights, strict=True) if weight], None)
        return noisy_average(bank, weights, start, self.privacy, self.seed.fold("noise", self.ledger.draw()))

    def sums(
        self, request: Request, means: Sequence[Mean], sampling: Sampling | None, template: Params
    ) -> tuple[Request, Callable[[Mean], Reduction]]:
        """The request with the names of the models to clip, and a function that creates the sums of a mean.

        Sums with noise count as released, even if their round is skipped later.
        """
        released = [mean for mean in means if mean.released]
        norm, names = self.privacy.max_update_norm, tuple(sorted({mean.of for mean in released}))
        if norm and names:
            request = dataclasses.replace(request, clipped=names, max_update_norm=norm)
        if not self.privacy.noise_multiplier:
            return request, lambda mean: reduction(mean, template, self.aggregation)
        if self.observes and request.clients and reveals_individuals(request.work, released):
            self.ledger.individual.add(request.work.name)
        if released:
            self.ledger.release(request.clients, sampling, releases(released))

        def new_sums(mean: Mean) -> Reduction:
            if not mean.released:
                return reduction(mean, template, self.aggregation)
            starts, divisors = group_starts(request, mean), denominators(mean, request.clients, sampling)
            seed = self.seed.fold("noise", self.ledger.draw())
            return PrivateReduction(mean, template, self.privacy, starts, divisors, seed)

        return request, new_sums


def releases(means: Sequence[Mean]) -> int:
    """The number of sums of one request that contain the same number of a client's reply, at most."""
    count = 0
    for name in {mean.of for mean in means}:
        layers = [layer for mean in means if mean.of == name for layer in mean.layers or ()]
        whole = sum(1 for mean in means if mean.of == name and mean.layers is None)
        count += whole + int(max(np.unique(layers, return_counts=True)[1], default=0))
    return count


def reveals_individuals(work: Work, means: Sequence[Mean]) -> bool:
    """Whether a method gets more than sums from a work.

    Without `reduce`, it gets every reply. With it, replies may also have losses, counts and the group of a client, by
    which the sums are formed; models and arrays count as more.
    """
    averaged = {mean.of for mean in means}
    rest = [schema for name, schema in work.gives.items() if name not in averaged]
    return not means or any(
        isinstance(each, Model | Ragged)
        or (isinstance(each, Values) and bool(each.shape) and each.purpose != "control")
        for each in rest
    )
