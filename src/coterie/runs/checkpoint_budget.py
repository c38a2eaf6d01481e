"""How often a run may write checkpoints that take long: methods that keep many models have large ones."""

from __future__ import annotations

from dataclasses import dataclass

#: Checkpoints that take less than this many seconds are written whenever they are due.
SHORT = 0.1
#: Fraction of a run's time that longer ones may take.
FRACTION = 0.05


@dataclass
class CheckpointBudget:
    """Puts off checkpoints that would take much of the time of a run.

    Attributes:
        seconds: Duration of the last checkpoint.
        ended: When it was written.
    """

    seconds: float = 0.0
    ended: float = 0.0

    def allows(self, now: float) -> bool:
        """Whether a checkpoint that takes as long as the last one may be written now."""
        return self.seconds < SHORT or self.seconds <= FRACTION * (now - self.ended + self.seconds)

    def spend(self, began: float, ended: float) -> None:
        """Note when a checkpoint was written."""
        self.seconds, self.ended = ended - began, ended
