"""The `privacy` section, and what it changes in the sums of the server.

Central differential privacy for the models: clients clip their updates, the server adds Gaussian noise to the sum of
each group and divides by a number that does not depend on the updates:

    w_g ← w_g + (Σ_i clip(Δ_i) + N(0, (z C)² I)) / D_g

C is `max_update_norm`, z `noise_multiplier`. D_g, the denominator of group g, is clients_per_round / groups if the
clients are (members of) the cohort that the sampler drew uniformly; otherwise it is the number of clients that were
asked for the group. `ledger.py` counts these releases, `docs/decisions/0034` gives the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.clients.clipping import clipped_models, clipped_updates
from coterie.errors import SpecError
from coterie.federation.cohort import Sampling
from coterie.federation.messages import Answer, Request
from coterie.federation.protocol import Mean
from coterie.federation.reduce import LocalModels, Reduction
from coterie.federation.replies import GroupMeans
from coterie.federation.starts import repeated, reply_starts
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@dataclass(frozen=True)
class Privacy:
    """Settings of the `privacy` section.

    Attributes:
        max_update_norm: Maximum L2 norm of a client's update (C): clients clip before they send. 0: no clipping.
        noise_multiplier: Standard deviation of the Gaussian noise on each sum of updates, in units of max_update_norm
            (z). 0: no noise and no guarantee.
        delta: δ of the reported (ε, δ); 0: 1 / N^1.1 for N clients.
        min_cluster_size: Models of clusters with fewer clients are neither served nor exported: their clients get the
            fallback model. 0: no minimum.
    """

    max_update_norm: Annotated[float, Bound(at_least=0)] = 0.0
    noise_multiplier: Annotated[float, Bound(at_least=0)] = 0.0
    delta: Annotated[float, Bound(at_least=0, below=1)] = 0.0
    min_cluster_size: Annotated[int, Bound(at_least=0)] = 0

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "privacy")
        for name, low, high in (("max_update_norm", 1e-9, 1e9), ("noise_multiplier", 1e-9, 1e6)):
            value = getattr(self, name)
            if value and not low <= value <= high:
                raise SpecError(f"privacy.{name} must be 0 or between {low:g} and {high:g}, got {value:g}")
        if self.noise_multiplier and not self.max_update_norm:
            raise SpecError(
                f"privacy.noise_multiplier = {self.noise_multiplier:g} needs privacy.max_update_norm above 0, the norm "
                "to which each client's update is clipped, for example 1"
            )

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of the noise on a sum of updates."""
        return self.noise_multiplier * self.max_update_norm


class PrivateReduction(Reduction):
    """The sums of one `Mean` with noise: of clipped updates instead of models, divided by fixed numbers."""

    def __init__(
        self, how: Mean, template: Params, privacy: Privacy, starts: Bank | None, denominators: Array, seed: Seed
    ) -> None:
        """Start with sums of zero.

        Args:
            how: The mean.
            template: A model.
            privacy: Maximum norm and noise.
            starts: The layers of the model from which each group started; None: replies are updates or gradients.
            denominators: (groups,) numbers by which the sums are divided; 0: no client of the group was asked.
            seed: Seed of the noise.
        """
        super().__init__(how, template)
        if how.weights != "uniform":
            raise SpecError(
                f"privacy.noise_multiplier needs uniform client weights, but this mean uses {how.weights!r}; set "
                "method.weights = 'uniform'" + (" and method.agg = 'mean'" if how.weights == "first" else "")
            )
        self._privacy = privacy
        self._starts = starts
        self._denominators = np.asarray(denominators, np.float64)
        self._seed = seed

    def _add(self, bank: Bank, groups: Array, samples: Array, blocks: Array) -> None:
        starts = None if self._starts is None else tree.take(self._starts, groups)
        updates = clipped_updates(bank, starts, self._privacy.max_update_norm)
        self._sum(updates, groups, self._client_weights(groups, samples), blocks)
        if self._kept is not None:
            self._keep(LocalModels(bank, groups), tree.nbytes(bank))

    def result(self) -> GroupMeans:
        """The noisy means. Every group that could have replies gets noise: that it has none is not revealed."""
        self._end_block()
        draw = self._seed.generator()
        divisor = np.where(self._denominators > 0, self._denominators, 1.0)
        deviation = self._privacy.noise_deviation * (self._denominators > 0)

        def per_group(numbers: Array, leaf: Array) -> Array:
            return numbers.reshape(-1, *[1] * (leaf.ndim - 1))

        def noisy(total: Array) -> Array:
            noise = draw.standard_normal(total.shape) * per_group(deviation, total)
            return (total + noise) / per_group(divisor, total)

        moved: Bank = tree.map(noisy, self._sums)
        if self._starts is not None:
            moved = tree.map(lambda update, start: start + update, moved, self._starts)
        mean: Bank = tree.map(lambda leaf, like: leaf.astype(like.dtype), moved, self._template)
        self._weights = self._denominators  # for the distances, too
        return GroupMeans(mean, self._weights, self._spread(mean))


def denominators(mean: Mean, clients: Sequence[ClientId], sampling: Sampling | None) -> Array:
    """The number by which the sum of each group is divided; it does not depend on the replies."""
    if sampling is not None:
        return np.full(mean.groups, sampling.size / mean.groups)
    if isinstance(mean.by, Mapping):
        return np.bincount([mean.by[client] for client in clients], minlength=mean.groups).astype(np.float64)
    return np.full(mean.groups, len(clients) / mean.groups)


def clip_answers(request: Request, clients: Sequence[ClientId], answers: Mapping[str, Answer]) -> Mapping[str, Answer]:
    """The answers of some clients to a request, with each model that the request names clipped."""
    if not request.clipped:
        return answers
    changed: dict[str, Answer] = dict(answers)
    for name in request.clipped:
        bank = answers[name]
        assert isinstance(bank, dict)
        changed[name] = clipped_models(bank, reply_starts(request, name, clients, answers), request.max_update_norm)
    return changed


def clip_around(bank: Bank, start: Params | None, max_norm: float) -> Bank:
    """The models of a bank, clipped around one model; None: the bank holds updates or gradients."""
    return clipped_models(bank, None if start is None else repeated(start, tree.rows(bank)), max_norm)


def noisy_average(bank: Bank, weights: Array, start: Params | None, privacy: Privacy, seed: Seed) -> Params:
    """The noisy mean of the models of single clients.

    Args:
        bank: Models of clients.
        weights: Weight of each model: 0 or one other value.
        start: A model that does not depend on these clients' replies; None: the bank holds updates or gradients.
        privacy: Maximum norm and noise.
        seed: Seed of the noise.
    """
    if len(set(weights[weights > 0].tolist())) > 1:
        raise SpecError(
            "privacy.noise_multiplier needs uniform client weights, but these models have different weights; set "
            "method.weights = 'uniform', or choose a method with uniform weights"
        )
    starts = None if start is None else tree.stack([start])
    count = np.array([np.count_nonzero(weights)], np.float64)
    sums = PrivateReduction(Mean(weights="uniform"), tree.row(bank, 0), privacy, starts, count, seed)
    sums.add((ClientId(""),) * tree.rows(bank), {"params": bank}, weights)
    return tree.row(sums.result().mean, 0)
