"""Means per group, added up as replies come: the memory is (groups × d), not (cohort × d).

A robust rule has to see the models side by side: it keeps them until all are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie import tree
from coterie.aggregation import Aggregation
from coterie.federation.protocol import Mean
from coterie.types import Array, Bank, ClientId, Params

#: Models are kept to measure their distances to the means while they take less than this.
KEPT_BYTES = 64 * 2**20


class Reduction:
    """The sums of one ask. Clients must be added in the order of their ids: the result is then the same everywhere."""

    def __init__(self, how: Mean, template: Params) -> None:
        """Sums of zero."""
        self._how = how
        self._template = template
        self._sums = tree.map(lambda leaf: np.zeros((how.groups, *leaf.shape)), template)
        self._weights = np.zeros(how.groups)
        self._kept: list[tuple[Bank, Array]] | None = [] if how.spread else None
        self._kept_bytes = 0

    def groups_of(self, clients: tuple[ClientId, ...], answers: Any) -> Array:
        """The group of each of these clients."""
        by = self._how.by
        if by is None:
            return np.zeros(len(clients), np.int64)
        if isinstance(by, str):
            return np.asarray(answers[by], np.int64)
        return np.array([by[client] for client in clients], np.int64)

    def add(self, bank: Bank, groups: Array, samples: Array) -> None:
        """Add some models, each to its group."""
        weights = self._weights_of(groups, np.asarray(samples, np.float64))

        def add_leaf(total: Array, leaf: Array) -> None:
            scaled = np.empty(leaf.shape[1:])
            for place, group in enumerate(groups):
                np.multiply(leaf[place], weights[place], out=scaled)
                total[group] += scaled

        tree.map(add_leaf, self._sums, bank)
        np.add.at(self._weights, groups, weights)
        if self._kept is not None:
            self._kept_bytes += tree.nbytes(bank)
            self._kept = [*self._kept, (bank, groups)] if self._kept_bytes <= KEPT_BYTES else None

    def _weights_of(self, groups: Array, counts: Array) -> Array:
        if self._how.weights == "samples":
            return counts
        # A client without examples gives back what it was sent, and counts for nothing.
        weights: Array = (counts > 0).astype(np.float64)
        if self._how.weights == "first":
            begun = self._weights > 0
            for place, group in enumerate(groups):
                weights[place] *= not begun[group]
                begun[group] |= weights[place] > 0
        return weights

    def result(self) -> tuple[Bank, Array, Array | None]:
        """The means, the weights of the groups, and the distances of the models to their means if they were kept."""
        divisor = np.where(self._weights > 0, self._weights, 1.0)
        mean: Bank = tree.map(
            lambda total, leaf: (total / divisor.reshape(-1, *[1] * leaf.ndim)).astype(leaf.dtype),
            self._sums,
            self._template,
        )
        if self._kept is None:
            return mean, self._weights, None
        # In a group without weight nobody has moved, nor has its model.
        distances = [
            np.where(self._weights[groups] > 0, tree.row_distances(bank, tree.take(mean, groups)), 0.0)
            for bank, groups in self._kept
        ]
        return mean, self._weights, np.concatenate([np.zeros(0), *distances])


class Selection(Reduction):
    """The models of one ask, kept to be averaged by a rule that withstands some bad ones."""

    def __init__(self, how: Mean, template: Params, aggregation: Aggregation) -> None:
        """No models yet."""
        super().__init__(how, template)
        self._aggregation = aggregation
        self._all: list[tuple[Bank, Array, Array]] = []

    def add(self, bank: Bank, groups: Array, samples: Array) -> None:
        """Keep some models, each in its group."""
        weights = self._weights_of(groups, np.asarray(samples, np.float64))
        np.add.at(self._weights, groups, weights)
        self._all.append((bank, groups, weights))

    def result(self) -> tuple[Bank, Array, Array | None]:
        """The robust means, the weights of the groups, and the distances of the models to their means."""
        means: Bank = tree.map(lambda leaf: np.zeros((self._how.groups, *leaf.shape), leaf.dtype), self._template)
        if not self._all:
            return means, self._weights, np.zeros(0) if self._how.spread else None
        bank = tree.concatenate([bank for bank, _, _ in self._all])
        groups, weights = (np.concatenate([part[place] for part in self._all]) for place in (1, 2))
        for group in np.flatnonzero(self._weights > 0):
            members = np.flatnonzero(groups == group)
            mean = self._aggregation.of(tree.take(bank, members), weights[members])

            def put(into: Array, leaf: Array, at: int = int(group)) -> None:
                into[at] = leaf

            tree.map(put, means, mean)
        if not self._how.spread:
            return means, self._weights, None
        away = tree.row_distances(bank, tree.take(means, groups))
        return means, self._weights, np.where(self._weights[groups] > 0, away, 0.0)
