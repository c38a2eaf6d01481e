"""The `Federation` protocol, through which methods reach the clients, and the types of its arguments.

Methods do not know where the clients run, and never see a client's examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from coterie.clients.work import Work
from coterie.federation.cohort import Cohort
from coterie.federation.replies import Replies
from coterie.federation.traffic import Traffic
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params, Part

__all__ = ["Adapt", "Cached", "Cohort", "Federation", "Mean", "PerClient", "Replies", "Then", "Traffic"]


@dataclass(frozen=True)
class PerClient:
    """Send a different value to each client: its own row of a stack.

    Attributes:
        bank: A bank of models, or any array with a leading axis.
        row: Client → row of the bank.
    """

    bank: Bank | Array
    row: Mapping[ClientId, int]


@dataclass(frozen=True)
class Cached:
    """Send a value that clients store: in full the first time, later only its hash."""

    value: object


@dataclass(frozen=True)
class Mean:
    """Average a model over the replies, per group.

    Replies are added in the order of client ids as they arrive, in fixed blocks of 32 clients.

    Attributes:
        of: Name of the answer to average; it must be a model.
        groups: Number of groups.
        by: Client → group, or the name of the answer that contains the group; None: one group.
        weights: Client weight: number of samples, or uniform (0 for a client without samples). `first`: only the
            first client of each group counts, in the order of client ids.
        spread: Also return the distance of each reply to the mean of its group.
        reference: With `spread`: (means, group weights) → the models of the groups to which distances are measured,
            for methods whose models are not the means themselves. None: the means.
        layers: Names of the layers to average; means and distances are restricted to these layers.
            None: all layers.
        released: Whether a model that is served depends on the mean. False for means that are only compared to find
            clusters: [privacy] adds no noise to them and does not cover them.
    """

    of: str = "params"
    groups: int = 1
    by: Mapping[ClientId, int] | str | None = None
    weights: Literal["samples", "uniform", "first"] = "samples"
    spread: bool = False
    reference: Callable[[Bank, Array], Bank] | None = None
    layers: tuple[str, ...] | None = None
    released: bool = True


def means_of(reduce: Mean | Sequence[Mean] | None) -> tuple[Mean, ...]:
    """The `reduce` argument of `ask` as a tuple."""
    return () if reduce is None else (reduce,) if isinstance(reduce, Mean) else tuple(reduce)


@dataclass(frozen=True)
class Adapt:
    """A work that the client runs first; the model it returns is the `params` of the second work and is not sent."""

    work: Work
    sent: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Then:
    """A second work that some clients run right after the first one, in the same exchange.

    It may not use the memory that the first work writes.

    Attributes:
        cohort: The clients that may run it; they must be asked for the first work, too.
        work: The second work.
        when: Name of an answer of the first work, one number per client: clients run the second work if it is not 0.
        always: Clients that run it in any case.
        sent: The values that it takes, as for `ask`.
    """

    cohort: Cohort
    work: Work
    when: str
    always: frozenset[ClientId] = frozenset()
    sent: Mapping[str, object] = field(default_factory=dict)


class Federation(Protocol):
    """A set of clients that can run a `Work`."""

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""

    @property
    def task(self) -> Task:
        """The task that the clients learn."""

    @property
    def traffic(self) -> Traffic:
        """Bytes sent down and up, counted the same way in simulation and on the network."""

    @property
    def robust(self) -> bool:
        """Whether models are averaged by a robust rule, which ignores weights other than 0."""

    def ask(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        /,
        *,
        part: Part = "fit",
        reduce: Mean | Sequence[Mean] | None = None,
        deadline: float | None = None,
        after: Adapt | None = None,
        then: Then | None = None,
        min_replies: int | None = None,
        **sent: object,
    ) -> Replies:
        """Ask each client of a cohort to run a `Work`, and collect the valid replies.

        Args:
            cohort: The clients to ask.
            work: The work to run.
            seed: Seed of the round. Each client's seed is folded from it by the work's stream and the client id.
            part: The part of each client's examples to use.
            reduce: Average the models instead of returning each of them; several means may average different layers.
            deadline: Seconds after which a reply is late; ignored in simulation.
            after: A work that runs first on the client; its model replaces the sent `params`.
            then: A second work, which clients run if an answer of the first one asks for it. Its replies are
                `Replies.then`; there is no minimum for them.
            min_replies: Minimum number of valid replies; with fewer, the round is skipped. 0: no minimum. None: the
                federation's default.
            sent: The values that the work takes: one value for all clients, `PerClient` or `Cached`.
        """

    def average(
        self,
        bank: Bank,
        weights: Sequence[float] | Array,
        *,
        clients: Sequence[ClientId] | None = None,
        start: Params | None = None,
    ) -> Params:
        """Average a bank of models by the federation's aggregation rule, and with the clipping and noise of [privacy].

        Args:
            bank: The models.
            weights: Weight of each model. Models with weight 0 are left out; robust rules treat all others equally.
            clients: The client of each model; empty for models that are already means. Required with [privacy].
            start: The model around which [privacy] clips; it must not depend on these clients' replies. None: the bank
                holds updates or gradients.
        """

    def on(self, task: Task) -> Federation:
        """The same clients with another task."""
