"""`Replies`: the result of `Federation.ask`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie import tree
from coterie.types import Array, Bank, ClientId


class GroupMeans(NamedTuple):
    """The result of one `Mean`.

    Attributes:
        mean: Bank with the mean of each group; zeros for a group without weight.
        weight: (groups,) sum of the weights of each group.
        spread: (replies,) distance of each reply to the mean, or the `Mean.reference`, of its group; None if not
            requested (`Mean.spread`), or if the models needed too much memory.
    """

    mean: Bank
    weight: Array
    spread: Array | None


@dataclass(frozen=True)
class Replies:
    """The valid replies to a request, in the order of client ids.

    Attributes:
        clients: The clients that replied. Rows of answers are in this order, not in that of the cohort.
        samples: Number of examples that each of these clients used.
        answers: Name → stacked values with one row per reply; for ragged values a list of arrays per reply. Answers
            that were averaged are not included.
        reduced: The result of each `Mean` in `reduce`.
        lost: Client without a valid reply → reason.
        then: The replies to the second work of the request, if it had one.
    """

    clients: tuple[ClientId, ...]
    samples: Array
    answers: Mapping[str, Any]  # the schema of the work says which type an answer has
    reduced: tuple[GroupMeans, ...] = ()
    lost: Mapping[ClientId, str] = field(default_factory=dict)
    then: Replies | None = None

    def __getitem__(self, name: str) -> Any:
        return self.answers[name]

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def mean(self) -> Bank | None:
        """Group means of the first `Mean`; None without `reduce`."""
        return self.reduced[0].mean if self.reduced else None

    @property
    def weight(self) -> Array | None:
        """Group weights of the first `Mean`; None without `reduce`."""
        return self.reduced[0].weight if self.reduced else None

    @property
    def spread(self) -> Array | None:
        """Distances of the replies to the mean of their group, for the first `Mean`."""
        return self.reduced[0].spread if self.reduced else None

    def by_client(self, name: str) -> dict[ClientId, Any]:
        """Client → its answer; scalars as Python numbers."""
        values = self.answers[name]
        if isinstance(values, list):
            return dict(zip(self.clients, values, strict=True))
        if not isinstance(values, dict) and values.ndim == 1:
            return dict(zip(self.clients, values.tolist(), strict=True))
        return {client: tree.row(values, place) for place, client in enumerate(self.clients)}

    def means(self, which: int = 0) -> tuple[Bank, Array]:
        """Group means and group weights; `which` selects one of several `Mean`s."""
        if not self.reduced:
            raise ValueError("These replies were not averaged: ask with reduce=Mean(...)")
        mean, weight, _ = self.reduced[which]
        return mean, weight
