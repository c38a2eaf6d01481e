"""How often a run writes large checkpoints: methods that keep a model of every client have such."""

from __future__ import annotations

from dataclasses import dataclass

#: Checkpoints of less than this many bytes are written whenever they are due.
LARGE = 32 * 2**20
#: Fraction of a run's time that larger ones may take.
FRACTION = 0.05


@dataclass
class CheckpointBudget:
    """Puts off large checkpoints that would take much of the time of a run.

    Attributes:
        size: Number of bytes of the last checkpoint.
        seconds: How long it took to write.
        ended: When it was written.
    """

    size: int = 0
    seconds: float = 0.0
    ended: float = 0.0

    def allows(self, now: float) -> bool:
        """Whether a checkpoint like the last one may be written now."""
        return self.size < LARGE or self.seconds <= FRACTION * (now - self.ended + self.seconds)

    def spend(self, size: int, began: float, ended: float) -> None:
        """Note when a checkpoint was written, and its number of bytes."""
        self.size, self.seconds, self.ended = size, ended - began, ended
