"""Group means, summed as replies arrive: they need memory for (groups × d) numbers, not (cohort × d).

Robust rules need individual models, so all models are kept until the last reply.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coterie import tree
from coterie.aggregation import Aggregation
from coterie.federation.messages import Answer
from coterie.federation.protocol import Mean
from coterie.federation.replies import GroupMeans
from coterie.types import Array, Bank, ClientId, Params

#: Maximum number of bytes of models that are kept to measure their distances to the means.
KEPT_BYTES = 64 * 2**20


class Reduction:
    """The running sums of one `Mean`. Models must be added in the order of client ids, so that all backends agree."""

    def __init__(self, how: Mean, template: Params) -> None:
        """Start with sums of zero."""
        self.how = how
        self._template = self._layers(template)
        self._sums = tree.map(lambda leaf: np.zeros((how.groups, *leaf.shape)), self._template)
        self._weights = np.zeros(how.groups)
        self._kept: list[tuple[Bank, Array]] | None = [] if how.spread else None
        self._kept_bytes = 0

    def add(self, clients: tuple[ClientId, ...], answers: Mapping[str, Answer], samples: Array) -> None:
        """Add the models of some clients, each to its group."""
        bank = answers[self.how.of]
        assert isinstance(bank, dict)
        self._add(self._layers(bank), self._groups(clients, answers), np.asarray(samples, np.float64))

    def _layers(self, model: Params) -> Params:
        """Select the layers to average from a model or a bank."""
        return model if self.how.layers is None else {layer: model[layer] for layer in self.how.layers}

    def _groups(self, clients: tuple[ClientId, ...], answers: Mapping[str, Answer]) -> Array:
        """The group of each client."""
        by = self.how.by
        if by is None:
            return np.zeros(len(clients), np.int64)
        if isinstance(by, str):
            return np.asarray(answers[by], np.int64)
        return np.array([by[client] for client in clients], np.int64)

    def _add(self, bank: Bank, groups: Array, samples: Array) -> None:
        self._sum(bank, groups, self._client_weights(groups, samples))
        self._keep(bank, groups)

    def _sum(self, bank: Bank, groups: Array, weights: Array) -> None:
        def add_leaf(total: Array, leaf: Array) -> None:
            scaled = np.empty(leaf.shape[1:])
            for place, group in enumerate(groups):
                np.multiply(leaf[place], weights[place], out=scaled)
                total[group] += scaled

        tree.map(add_leaf, self._sums, bank)
        np.add.at(self._weights, groups, weights)

    def _keep(self, bank: Bank, groups: Array) -> None:
        """Keep the models to measure their distances to the means, as long as they fit."""
        if self._kept is not None:
            self._kept_bytes += tree.nbytes(bank)
            self._kept = [*self._kept, (bank, groups)] if self._kept_bytes <= KEPT_BYTES else None

    def _client_weights(self, groups: Array, samples: Array) -> Array:
        if self.how.weights == "samples":
            return samples
        # A client without examples returns the model that it was sent, so its weight is 0.
        weights: Array = (samples > 0).astype(np.float64)
        if self.how.weights == "first":
            has_client = self._weights > 0
            for place, group in enumerate(groups):
                weights[place] *= not has_client[group]
                has_client[group] |= weights[place] > 0
        return weights

    def result(self) -> GroupMeans:
        """The means so far."""
        divisor = np.where(self._weights > 0, self._weights, 1.0)
        mean: Bank = tree.map(
            lambda total, leaf: (total / divisor.reshape(-1, *[1] * leaf.ndim)).astype(leaf.dtype),
            self._sums,
            self._template,
        )
        return GroupMeans(mean, self._weights, self._spread(mean))

    def _spread(self, mean: Bank) -> Array | None:
        """The distance of each kept model to the mean of its group."""
        if self._kept is None:
            return None
        return self._distances(mean, self._kept)

    def _distances(self, mean: Bank, kept: list[tuple[Bank, Array]]) -> Array:
        """The distance of each of these models, given with their groups, to the mean or the reference of its group."""
        reference = mean if self.how.reference is None else self.how.reference(mean, self._weights)
        # The mean of a group without weight is not defined: its clients have not trained, and their distance is 0.
        defined = self._weights > 0 if self.how.reference is None else np.ones(self.how.groups, bool)
        distances = [
            np.where(defined[groups], tree.row_distances(bank, tree.take(reference, groups)), 0.0)
            for bank, groups in kept
        ]
        return np.concatenate([np.zeros(0), *distances])


class RobustReduction(Reduction):
    """Keeps the models of one `Mean` until all replies have arrived, then averages them by a robust rule."""

    def __init__(self, how: Mean, template: Params, aggregation: Aggregation) -> None:
        """Start without models."""
        super().__init__(how, template)
        self._aggregation = aggregation
        self._models: list[tuple[Bank, Array, Array]] = []

    def _add(self, bank: Bank, groups: Array, samples: Array) -> None:
        weights = self._client_weights(groups, samples)
        np.add.at(self._weights, groups, weights)
        self._models.append((bank, groups, weights))

    def result(self) -> GroupMeans:
        """The robust means so far."""
        means: Bank = tree.map(lambda leaf: np.zeros((self.how.groups, *leaf.shape), leaf.dtype), self._template)
        if not self._models:
            return GroupMeans(means, self._weights, np.zeros(0) if self.how.spread else None)
        bank = tree.concatenate([bank for bank, _, _ in self._models])
        groups, weights = (np.concatenate([part[place] for part in self._models]) for place in (1, 2))
        for group in np.flatnonzero(self._weights > 0):
            members = np.flatnonzero(groups == group)
            mean = self._aggregation.of(tree.take(bank, members), weights[members])

            def put(into: Array, leaf: Array, at: int = int(group)) -> None:
                into[at] = leaf

            tree.map(put, means, mean)
        if not self.how.spread:
            return GroupMeans(means, self._weights, None)
        return GroupMeans(means, self._weights, self._distances(means, [(bank, groups)]))


def reduction(how: Mean, template: Params, aggregation: Aggregation) -> Reduction:
    """Create a reduction for the aggregation rule of a federation."""
    return Reduction(how, template) if aggregation.rule == "mean" else RobustReduction(how, template, aggregation)
