"""`Replies`: who answered an ask, and what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie import tree
from coterie.types import Array, Bank, ClientId


@dataclass(frozen=True)
class Replies:
    """The good replies to an ask, in the order of client ids.

    Attributes:
        clients: Who answered; index by these, never by whom you asked.
        samples: How many examples each of them worked on.
        answers: Name → stacked values, one row a reply; a list of lists for ragged values. What was reduced is not
            here.
        mean: With `reduce`: the mean of each group, a bank. A group that nobody is in has zeros.
        weight: With `reduce`: the sum of the weights in each group.
        spread: With `reduce=Mean(..., spread=True)`: each reply's distance to the mean of its group; None where the
            models were too many to be kept that long.
        lost: Who was asked and gave no good answer, with the reason.
    """

    clients: tuple[ClientId, ...]
    samples: Array
    answers: Mapping[str, Any]
    mean: Bank | None = None
    weight: Array | None = None
    spread: Array | None = None
    lost: Mapping[ClientId, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.answers[name]

    def __len__(self) -> int:
        return len(self.clients)

    def by_client(self, name: str) -> dict[ClientId, Any]:
        """Client → its own value; scalars as Python numbers."""
        values = self.answers[name]
        if isinstance(values, list):
            return dict(zip(self.clients, values, strict=True))
        if not isinstance(values, dict) and values.ndim == 1:
            return dict(zip(self.clients, values.tolist(), strict=True))
        return {client: tree.row(values, place) for place, client in enumerate(self.clients)}

    def means(self) -> tuple[Bank, Array]:
        """The group means and weights of an ask with `reduce`."""
        if self.mean is None or self.weight is None:
            raise ValueError("These replies were not reduced: ask with reduce=Mean(...)")
        return self.mean, self.weight
