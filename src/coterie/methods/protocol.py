"""Method: the interface of every algorithm. Methods share code by calling functions; there is no base class."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from coterie.federation.protocol import Adapt, Cohort, Federation
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId, Params

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

State = TypeVar("State")
Built = TypeVar("Built", bound="DataclassInstance")

#: `prepare`: a step with all available clients that does not count as a round; `train`: a round; `done`: the run ends.
Stage = Literal["prepare", "train", "done"]


@dataclass(frozen=True)
class Round(Generic[State]):
    """The result of a round.

    Attributes:
        state: The new state: plain data.
        assignment: Client → cluster, for the clients that took part.
        loss: Mean training loss of the cohort, weighted by the number of samples.
        distances: Client → distance of its local model to its cluster's model after the round.
        evidence: The data on which clustering was based: embeddings, distances, scores. Empty if nothing was clustered.
        counts: Event counts, such as shifts and migrations.
        flagged: Clients whose data are considered drifted; None if the method does not detect drift.
        label: The phase of the method that this step belongs to, such as `one shot` or `refine 1`.
        closes: Whether that phase ends with this step. If so, all clients are scored, also after a preparation step.
        skipped: The reason why no client trained, for methods that count a round with too few replies.
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
    """The model that each client is served.

    Attributes:
        bank: The models.
        row: Client → row of `bank`. Clients without a model of their own are missing: those that would have to train
            to be assigned, and those that did not reply.
        adapt: A work that the client runs first; its result is served instead of the row.
        fallback: The model that the other clients are served: a global or an initial model.
        evidence: The values on which the clusters of newcomers were decided: `clients`, and one row for each of them
            with a value per cluster, such as `losses` or `cosines`. Empty if nothing was decided.
    """

    bank: Bank
    row: Mapping[ClientId, int]
    adapt: Adapt | None = None
    fallback: Params = dataclasses.field(kw_only=True)
    evidence: Mapping[str, Any] = dataclasses.field(default_factory=dict, kw_only=True)


class Method(Protocol[State]):
    """An object with settings only; the state is passed in and returned. No round loop, sampling, scoring or logging.

    A method that has no setting `clusters` because it finds the number of clusters itself has a class attribute
    `finds_clusters = True`. A method that computes some means by its own rule also has a text `own_mean` that names
    these means; a run with [aggregation] shows it to the user, and a run with noise is refused. A method that averages
    no models has a class attribute `averages = False`. One that may end before the last round has a text `rounds_note`
    that says why. A text `not_covered` names what a method decides from individual replies beside its clusters: noise
    does not cover it. In a round, a method asks the clients of the cohort or clients that it draws with `cohort.draw`;
    one that asks all available clients has a text `asks_all` that says why.
    """

    def start(self, task: Task, seed: Seed) -> State:
        """The initial state."""

    def stage(self, state: State) -> Stage:
        """The stage of the next step."""

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """One round, or one step of preparation."""

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """The model for each of these clients, including newcomers, and the state with what placing them has shown.

        For newcomers the run keeps the state, so that a placement is paid for once. After an evaluation it is dropped.
        In an evaluation, works that train get no reply, and with `run.score_with="assigned"` no work does: then `place`
        serves the models that the method already holds for the clients.
        """


def with_settings_of(method: DataclassInstance, method_type: type[Built]) -> Built:
    """A method of class `method_type`, with the values of the settings that it has in common with `method`."""
    shared = {field.name for field in dataclasses.fields(method_type)} & {
        field.name for field in dataclasses.fields(method)
    }
    return method_type(**{name: getattr(method, name) for name in shared})


def from_run(what: Literal["truth", "rounds", "clients_per_round", "clients"]) -> Any:
    """A field whose value comes from the run.

    Args:
        what: `truth`: client → true cluster; `rounds`, `clients_per_round`, `clients`: their number.
    """
    return dataclasses.field(kw_only=True, metadata={"run": what})
