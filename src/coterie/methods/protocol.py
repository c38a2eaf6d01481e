"""Method: what an algorithm is here. Share by calling functions; there is no base class."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

from coterie.errors import SpecError
from coterie.federation.protocol import Adapt, Cohort, Federation
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId

State = TypeVar("State")

#: `prepare`: all available clients, not counted as a round; `train`: a round; `done`: the run is over.
Stage = Literal["prepare", "train", "done"]


@dataclass(frozen=True)
class Round(Generic[State]):
    """What a round gave.

    Attributes:
        state: The new state: plain data.
        assignment: Client → cluster, of those who took part.
        loss: The mean training loss of the cohort, weighted by examples.
        distances: Client → distance of its local model to its cluster's model after the round.
        evidence: What clustering was decided on, where it happened: embeddings, distances, scores.
        counts: Things to count: shifts, migrations.
        flagged: The clients whose data the method takes to have drifted; None where it does not look for that.
        label: Which of its parts this step belongs to, where a method has parts: `one shot`, `refine 1`.
        closes: Whether that part ends with this step; then all clients are scored, while preparing, too.
        skipped: Why nobody trained in it, where a method counts a round that too few answered.
    """

    state: State
    assignment: Mapping[ClientId, int] = field(default_factory=dict)
    loss: float | None = None
    distances: Mapping[ClientId, float] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    flagged: tuple[ClientId, ...] | None = None
    label: str = ""
    closes: bool = False
    skipped: str | None = None


@dataclass(frozen=True)
class Placement:
    """Which model each client is served.

    Attributes:
        bank: The models.
        row: Client → its row; a client that cannot be placed without training is missing.
        adapt: A work that a client runs first, and whose model it is served instead.
    """

    bank: Bank
    row: Mapping[ClientId, int]
    adapt: Adapt | None = None


class Method(Protocol[State]):
    """Settings only; the state is passed in and handed back. No round loop, sampling, evaluation or logging.

    A method that averages by a rule of its own has a text `own_mean` beside these, which says of which means that is
    so: a run with [aggregation] tells it to the user.
    """

    def start(self, task: Task, seed: Seed) -> State:
        """The state before anything happened."""

    def stage(self, state: State) -> Stage:
        """What comes next."""

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """One round, or one step of preparing."""

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Serve each of these clients, newcomers too, a model."""


def check_choices(method: Any) -> None:
    """Refuse a setting that is none of those it can be; for the `__post_init__` of a method."""
    for name, kind in get_type_hints(type(method)).items():
        allowed = get_args(kind)
        if get_origin(kind) is Literal and getattr(method, name) not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise SpecError(f"method.{name} must be one of {choices}, got {getattr(method, name)!r}")


def from_run(what: Literal["truth", "rounds", "clients_per_round", "clients"]) -> Any:
    """A field that is filled in when a run is built.

    Args:
        what: `truth`: client → true cluster; `rounds`, `clients_per_round`, `clients`: how many there are.
    """
    return dataclasses.field(kw_only=True, metadata={"run": what})
