"""What a method does in a run: `Observed` wraps a method and notes every request that it makes.

The observed method gets a federation that has the functions of the `Federation` protocol and no others, and a cohort
that notes the clients drawn from it. Replies are read-only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from coterie.clients.work import Work
from coterie.federation.protocol import Cohort, Federation, Replies, Traffic
from coterie.methods.protocol import Method, Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.testing.states import freeze
from coterie.types import Array, Bank, ClientId, Params, Part

State: TypeAlias = Any


@dataclass(frozen=True)
class Ask:
    """One request of the method.

    Attributes:
        work: The work.
        part: The part of the examples.
        seed: The seed.
        clients: The clients that were asked.
        efforts: Straggler → fraction of the local training, as sent with the request.
    """

    work: Work
    part: Part
    seed: Seed
    clients: tuple[ClientId, ...]
    efforts: dict[ClientId, float]


@dataclass(frozen=True)
class Call:
    """One call of `round` or `place`.

    Attributes:
        stage: `prepare`, `train` or `place`.
        cohort: The cohort that the method got; None for `place`.
        drawn: Clients that the method drew with `cohort.draw`.
        asks: The requests, in order.
    """

    stage: Literal["prepare", "train", "place"]
    cohort: Cohort | None = None
    drawn: set[ClientId] = field(default_factory=set)
    asks: list[Ask] = field(default_factory=list)


class Observed:
    """A method whose calls are noted in `calls`."""

    def __init__(self, method: Method[Any]) -> None:
        """Observe a method."""
        self.method = method
        self.calls: list[Call] = []

    def start(self, task: Task, seed: Seed) -> State:
        """The initial state."""
        return self.method.start(task, seed)

    def stage(self, state: State) -> Stage:
        """The stage of the next step."""
        return self.method.stage(state)

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """One round, with everything observed."""
        call = Call("prepare" if self.method.stage(state) == "prepare" else "train", cohort)
        self.calls.append(call)
        parts = {each.name: getattr(cohort, each.name) for each in dataclasses.fields(cohort)}
        given = ObservedCohort(**parts, drawn=call.drawn)
        return self.method.round(state, ObservedFederation(fed, call), given, seed)

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """The placement, with everything observed."""
        call = Call("place")
        self.calls.append(call)
        return self.method.place(state, ObservedFederation(fed, call), clients, seed)


@dataclass(frozen=True)
class ObservedCohort(Cohort):
    """A cohort that notes the clients drawn from it in `drawn`."""

    drawn: set[ClientId] = field(default_factory=set)

    def draw(self, *args: Any, **options: Any) -> Cohort:
        """Draw clients; see `Cohort.draw`."""
        found = super().draw(*args, **options)
        self.drawn.update(found.clients)
        return found


class ObservedFederation:
    """A federation that notes every request. It has no attributes besides those of the protocol."""

    def __init__(self, fed: Federation, call: Call) -> None:
        """Note the requests to a federation in `call`."""
        self.__fed = fed
        self.__call = call

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"The method uses the attribute {name!r} of the federation; a federation has clients, task, traffic, "
            "robust, ask, average and on"
        )

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""
        return self.__fed.clients

    @property
    def task(self) -> Task:
        """The task that the clients learn."""
        return self.__fed.task

    @property
    def traffic(self) -> Traffic:
        """Bytes sent down and up."""
        return self.__fed.traffic

    @property
    def robust(self) -> bool:
        """Whether models are averaged by a robust rule."""
        return self.__fed.robust

    def average(
        self,
        bank: Bank,
        weights: Sequence[float] | Array,
        *,
        clients: Sequence[ClientId] | None = None,
        start: Params | None = None,
    ) -> Params:
        """Average a bank of models."""
        return self.__fed.average(bank, weights, clients=clients, start=start)

    def on(self, task: Task) -> ObservedFederation:
        """The same clients with another task."""
        return ObservedFederation(self.__fed.on(task), self.__call)

    def ask(
        self, cohort: Cohort | Iterable[ClientId], work: Work, seed: Seed, /, *, part: Part = "fit", **given: Any
    ) -> Replies:
        """Ask clients; see `Federation.ask`."""
        asked = cohort if isinstance(cohort, Cohort) else tuple(cohort)
        efforts = dict(asked.efforts) if isinstance(asked, Cohort) else {}
        if len(asked):
            self.__call.asks.append(Ask(work, part, seed, tuple(asked), efforts))
        then = given.get("then")
        if then is not None and len(then.cohort):
            self.__call.asks.append(Ask(then.work, part, seed, tuple(then.cohort), dict(then.cohort.efforts)))
        got = self.__fed.ask(asked, work, seed, part=part, **given)
        for each in (got, got.then):
            if each is not None:
                freeze([dict(each.answers), each.samples, [list(means) for means in each.reduced]])
        return got
