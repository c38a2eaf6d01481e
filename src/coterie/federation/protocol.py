"""The seam: all that a method may ask of the clients. Signatures and the small values that go with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from coterie.clients.work import Work
from coterie.federation.cohort import Cohort
from coterie.federation.replies import Replies
from coterie.federation.traffic import Traffic
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params, Part

__all__ = ["Adapt", "Cached", "Cohort", "Federation", "Mean", "PerClient", "Replies", "Traffic"]


@dataclass(frozen=True)
class PerClient:
    """To each client its own row of a stack: of models, or of anything."""

    bank: Bank | Any
    row: Mapping[ClientId, int]


@dataclass(frozen=True)
class Cached:
    """A value that a client keeps: sent the first time, referred to by its hash afterwards."""

    value: Any


@dataclass(frozen=True)
class Mean:
    """Add replies up per group as they come, in the order of client ids, instead of handing over each of them.

    Attributes:
        of: Which answer, a model.
        groups: How many groups.
        by: Client → group; or the name of the answer that says it; None for one group.
        weights: Each reply counts its examples, or 1; without any examples, nothing. `first`: the first of each group
            in the order of client ids counts, the others do not.
        spread: Also give each reply's distance to its group's mean.
    """

    of: str = "params"
    groups: int = 1
    by: Mapping[ClientId, int] | str | None = None
    weights: Literal["samples", "uniform", "first"] = "samples"
    spread: bool = False


@dataclass(frozen=True)
class Adapt:
    """A work that a client runs before another one, which gets its `params`: they never leave the client."""

    work: Work
    sent: Mapping[str, Any] = field(default_factory=dict)


class Federation(Protocol):
    """Clients that can be asked; where they run is not the method's business."""

    @property
    def clients(self) -> Sequence[ClientId]:
        """Their names, sorted: there is no way from here to the examples."""

    @property
    def task(self) -> Task:
        """What they learn."""

    @property
    def traffic(self) -> Traffic:
        """Bytes down and up, counted alike in simulation and on the network."""

    @property
    def robust(self) -> bool:
        """Whether models are averaged by a rule that withstands bad ones, for which no weight counts but 0."""

    def ask(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        /,
        *,
        part: Part = "fit",
        reduce: Mean | None = None,
        deadline: float | None = None,
        after: Adapt | None = None,
        min_replies: int | None = None,
        **sent: Any,
    ) -> Replies:
        """Have each client of the cohort do a work, and gather the good replies.

        Args:
            cohort: Whom to ask.
            work: What to do.
            seed: The round's seed; each client's own is folded from it by the work's stream and the client's id.
            part: On which of its examples.
            reduce: How to add the replies up; without it, each of them is handed over.
            deadline: Seconds after which a reply is late, for a carrier that has a clock; simulators have none.
            after: A work whose model this one is to use instead of a sent one.
            min_replies: Minimum number of valid replies; with fewer, the round is skipped. 0: no minimum. None: the
                federation's own minimum.
            sent: What the work takes: the same for all, `PerClient`, or `Cached`.
        """

    def average(self, bank: Bank, weights: Sequence[float] | Array) -> Params:
        """One model of several that were handed over, by the rule with which this federation averages.

        Args:
            bank: The models.
            weights: What each counts; those of 0 are left out, and a robust rule counts the others alike.
        """

    def on(self, task: Task) -> Federation:
        """The same clients with another task."""
