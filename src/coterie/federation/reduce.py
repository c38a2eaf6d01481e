"""Means per group, added up as replies come: the memory is (groups × d), not (cohort × d)."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie import tree
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
        # A client without examples gives back what it was sent, and counts for nothing.
        counts = np.asarray(samples, np.float64)
        weights = counts if self._how.weights == "samples" else (counts > 0).astype(np.float64)

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
