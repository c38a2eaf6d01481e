"""Group means, summed as replies arrive: they need memory for (groups × d) numbers, not (cohort × d).

Models are summed in fixed blocks of `BLOCK` clients in the order of the request, and the sums of the blocks are added
in order. Another process can therefore return the sum of a whole block instead of its models (`BlockSums`), with the
same bytes.

Robust rules need individual models, so all models are kept until the last reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from coterie import tree
from coterie.aggregation import Aggregation
from coterie.aggregation.means import BLOCK
from coterie.federation.messages import Answer
from coterie.federation.protocol import Mean
from coterie.federation.replies import GroupMeans
from coterie.types import Array, Bank, ClientId, Params

#: Maximum number of bytes of models that are kept to measure their distances to the means.
KEPT_BYTES = 64 * 2**20


class KeptModels(Protocol):
    """Models that are kept to measure their distances, here or in another process."""

    @property
    def groups(self) -> Array:
        """The group of each model."""

    def distances(self, reference: Bank) -> Array:
        """The distance of each model to the row of its group."""


@dataclass(frozen=True)
class LocalModels:
    """Models that are kept in this process, with their groups."""

    bank: Bank
    groups: Array

    def distances(self, reference: Bank) -> Array:
        """The distance of each model to the row of its group."""
        return tree.row_distances(self.bank, reference, self.groups)


@dataclass(frozen=True)
class BlockSum:
    """The sums of the models of one block of clients.

    Attributes:
        groups: The groups that have clients in the block.
        weights: Sum of the weights of each of these groups.
        sums: For each array of a model, in path order: (groups, ...) weighted sums in float64.
    """

    groups: Array
    weights: Array
    sums: list[Array]


@dataclass(frozen=True)
class BlockSums:
    """The sums of consecutive whole blocks of one `Mean`, which another process returns instead of the models.

    Attributes:
        blocks: The blocks, in order.
        kept: The models, if their distances are measured later; None also if they needed too much memory.
        kept_bytes: Number of bytes of these models.
    """

    blocks: list[BlockSum]
    kept: KeptModels | None = None
    kept_bytes: int = 0


@dataclass
class _Block:
    """The running sums of one block.

    Attributes:
        number: Number of the block in the request.
        sums: Group → sum of each array of a model, in path order.
        weights: Group → sum of weights.
    """

    number: int = -1
    sums: dict[int, list[Array]] = field(default_factory=dict)
    weights: dict[int, float] = field(default_factory=dict)

    def done(self) -> BlockSum:
        groups = sorted(self.sums)
        return BlockSum(
            np.array(groups, np.int64),
            np.array([self.weights[group] for group in groups]),
            [np.stack(leaves) for leaves in zip(*(self.sums[group] for group in groups), strict=True)],
        )


class Reduction:
    """The running sums of one `Mean`. Models must be added in the order of client ids, so that all backends agree."""

    def __init__(self, how: Mean, template: Params) -> None:
        """Start with sums of zero."""
        self.how = how
        self._template = self._layers(template)
        self._sums: Bank = tree.map(lambda leaf: np.zeros((how.groups, *leaf.shape)), self._template)
        self._weights = np.zeros(how.groups)
        self._has_client = np.zeros(how.groups, bool)
        self._block = _Block()
        self._count = 0
        self._kept: list[KeptModels] | None = [] if how.spread else None
        self._kept_bytes = 0

    def add(
        self,
        clients: tuple[ClientId, ...],
        answers: Mapping[str, Answer],
        samples: Array,
        places: Sequence[int] | None = None,
    ) -> None:
        """Add the models of some clients, each to its group.

        Args:
            clients: The clients.
            answers: Their answers.
            samples: Their numbers of examples.
            places: Positions of the clients in the request; None: they follow those that were added before.
        """
        bank = answers[self.how.of]
        assert isinstance(bank, dict)
        numbers = range(self._count, self._count + len(clients)) if places is None else places
        self._count = numbers[-1] + 1 if len(numbers) else self._count
        blocks = np.asarray(numbers, np.int64) // BLOCK
        self._add(self._layers(bank), self._groups(clients, answers), np.asarray(samples, np.float64), blocks)

    def add_sums(self, sums: BlockSums) -> None:
        """Add whole blocks of clients that another process has summed."""
        self._end_block()
        for block in sums.blocks:
            self._add_block(block)
        if sums.kept is not None or sums.kept_bytes:
            self._keep(sums.kept, sums.kept_bytes)

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

    def _add(self, bank: Bank, groups: Array, samples: Array, blocks: Array) -> None:
        self._sum(bank, groups, self._client_weights(groups, samples), blocks)
        if self._kept is not None:
            self._keep(LocalModels(bank, groups), tree.nbytes(bank))

    def _sum(self, bank: Bank, groups: Array, weights: Array, blocks: Array) -> None:
        leaves = tree.leaves(bank)
        scaled = [np.empty(leaf.shape[1:]) for leaf in leaves]
        for place, group in enumerate(groups.tolist()):
            if blocks[place] != self._block.number:
                self._end_block()
                self._block = _Block(int(blocks[place]))
            sums = self._block.sums.get(group)
            if sums is None:
                # `out` keeps the sums of parameters without axes arrays, to which the next models are added in place.
                self._block.sums[group] = [
                    np.multiply(leaf[place], weights[place], out=np.empty(leaf.shape[1:])) for leaf in leaves
                ]
            else:
                for total, leaf, out in zip(sums, leaves, scaled, strict=True):
                    np.multiply(leaf[place], weights[place], out=out)
                    total += out
            self._block.weights[group] = self._block.weights.get(group, 0.0) + float(weights[place])

    def _end_block(self) -> None:
        """Add the sums of the current block to those before it."""
        block, self._block = self._block, _Block()
        if block.sums:
            self._add_block(block.done())

    def _add_block(self, block: BlockSum) -> None:
        self._weights[block.groups] += block.weights
        for total, sums in zip(tree.leaves(self._sums), block.sums, strict=True):
            for group, leaf in zip(block.groups.tolist(), sums, strict=True):
                total[group] += leaf

    def _keep(self, models: KeptModels | None, count: int) -> None:
        """Keep models to measure their distances to the means, as long as they fit."""
        if self._kept is not None:
            self._kept_bytes += count
            fits = self._kept_bytes <= KEPT_BYTES
            self._kept = [*self._kept, models] if models is not None and fits else None

    def _client_weights(self, groups: Array, samples: Array) -> Array:
        if self.how.weights == "samples":
            return samples
        # A client without examples returns the model that it was sent, so its weight is 0.
        weights: Array = (samples > 0).astype(np.float64)
        if self.how.weights == "first":
            for place, group in enumerate(groups):
                weights[place] *= not self._has_client[group]
                self._has_client[group] |= weights[place] > 0
        return weights

    def result(self) -> GroupMeans:
        """The means so far."""
        self._end_block()
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

    def _distances(self, mean: Bank, kept: Sequence[KeptModels]) -> Array:
        """The distance of each of these models to the mean or the reference of its group."""
        reference = mean if self.how.reference is None else self.how.reference(mean, self._weights)
        # The mean of a group without weight is not defined: its clients have not trained, and their distance is 0.
        defined = self._weights > 0 if self.how.reference is None else np.ones(self.how.groups, bool)
        distances = [np.where(defined[models.groups], models.distances(reference), 0.0) for models in kept]
        return np.concatenate([np.zeros(0), *distances])


class BlockReduction(Reduction):
    """Collects the sums of whole blocks for another process, which adds them up."""

    def __init__(self, how: Mean, template: Params) -> None:
        """Start without blocks."""
        super().__init__(how, template)
        self._blocks: list[BlockSum] = []

    def _add_block(self, block: BlockSum) -> None:
        self._blocks.append(block)

    def sums(self) -> BlockSums:
        """The sums so far, and the models if they are kept: None if they needed too much memory."""
        self._end_block()
        if self._kept is None:
            return BlockSums(self._blocks, None, self._kept_bytes)
        here = [each for each in self._kept if isinstance(each, LocalModels)]
        bank = tree.concatenate([each.bank for each in here]) if here else {}
        groups = np.concatenate([np.zeros(0, np.int64), *(each.groups for each in here)])
        return BlockSums(self._blocks, LocalModels(bank, groups), self._kept_bytes)


class RobustReduction(Reduction):
    """Keeps the models of one `Mean` until all replies have arrived, then averages them by a robust rule."""

    def __init__(self, how: Mean, template: Params, aggregation: Aggregation) -> None:
        """Start without models."""
        super().__init__(how, template)
        self._aggregation = aggregation
        self._models: list[tuple[Bank, Array, Array]] = []

    def _add(self, bank: Bank, groups: Array, samples: Array, blocks: Array) -> None:
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
        return GroupMeans(means, self._weights, self._distances(means, [LocalModels(bank, groups)]))


def reduction(how: Mean, template: Params, aggregation: Aggregation) -> Reduction:
    """Create a reduction for the aggregation rule of a federation."""
    return Reduction(how, template) if aggregation.rule == "mean" else RobustReduction(how, template, aggregation)
