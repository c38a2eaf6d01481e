"""What can be set about a shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.errors import SpecError

#: Name → what happens.
SHIFTS: dict[str, str] = {
    "none": "the data stay as they are",
    "swap_all": "pairs of clients exchange all their examples",
    "swap_part": "pairs of clients exchange the examples of one class each",
    "incremental": "training examples are released a quarter at a time",
    "new_class": "the examples of one class appear in the middle of the run",
    "rotate": "the images of some clients turn by 90°",
}


@dataclass(frozen=True)
class ShiftSettings:
    """How the data drift.

    Attributes:
        name: What happens.
        probability: With which a pair swaps, or a client's images turn, in a round.
        rounds: The only rounds in which something happens. Empty for the usual ones: all; for `incremental`
            0, 50, 100, 150; for `new_class` 50.
        candidates: Whom it can happen to: all clients, or those that the method has assigned to a cluster.
        form: Of `incremental`: of each client's examples the first 25, 50, 75, 100 %, or what FlexCFL's published
            code does, 25, 50, 75, 100 % of those released before.
        label: Of `new_class`: which; -1 for the last one.
    """

    name: Literal["none", "swap_all", "swap_part", "incremental", "new_class", "rotate"] = "none"
    probability: float = 0.05
    rounds: tuple[int, ...] = ()
    candidates: Literal["all", "assigned"] = "all"
    form: Literal["paper", "code"] = "paper"
    label: int = -1

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not 0 <= self.probability <= 1:
            raise SpecError(f"shift.probability must lie between 0 and 1, got {self.probability}")
        if any(t < 0 for t in self.rounds) or list(self.rounds) != sorted(set(self.rounds)):
            raise SpecError(f"shift.rounds must be rounds from 0 on in rising order, got {list(self.rounds)}")

    def at(self, t: int) -> bool:
        """Whether something may happen in round t."""
        return t in self.rounds if self.rounds else True
