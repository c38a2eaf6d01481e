"""What a method costs and reveals: not what it says of itself, but what it is seen to ask.

`card` lets a method play a short run with its default settings on a tiny federation, behind a witness that notes every
ask: which work, what was sent and what came back, by the schemas that the work declares, and whether the server was
handed each reply or only sums. Bytes are those of the ledger, told in models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie import data as datasets
from coterie import tree
from coterie.clients import LocalSGD
from coterie.clients.schema import Model, Ragged, Schema, Settings
from coterie.clients.work import Work
from coterie.data.federated import FederatedData
from coterie.federation import Adapt, Cohort, Desk, Mean, Replies, Sequential, Traffic
from coterie.methods import build
from coterie.models import Task
from coterie.models.library import build as build_model
from coterie.runs.sampling import Sampler
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

When = Literal["preparing", "round", "newcomer"]

#: A run that is long enough for the defaults of every method to show what it does.
ROUNDS, CLIENTS, COHORT = 25, 16, 8


@dataclass(frozen=True)
class Asked:
    """A kind of ask, as it was seen.

    Attributes:
        when: While preparing, in a round, or to place a newcomer.
        work: Its name.
        sent: What clients were sent, by name, in words.
        single: What the server got of each single client, by name, in words.
        summed: What it got as a sum over a group only.
        keeps: The memory that stays with the client, or None.
    """

    when: When
    work: str
    sent: Mapping[str, str]
    single: Mapping[str, str]
    summed: Mapping[str, str]
    keeps: str | None


@dataclass(frozen=True)
class Card:
    """What a method costs and reveals.

    Attributes:
        asks: Every kind of ask.
        round: Purpose → models sent down and up in a round, for each client of the cohort, on the mean.
        preparing: Purpose → models down and up before the first round, for each client of the federation.
        sums_are_enough: Whether models of single clients never reach the server, so that secure sums would do.
        grouped: Whether sums are over groups, which may have one member.
    """

    asks: tuple[Asked, ...]
    round: Mapping[str, tuple[float, float]]
    preparing: Mapping[str, tuple[float, float]]
    sums_are_enough: bool
    grouped: bool

    def sentences(self) -> list[str]:
        """The same in words."""
        single = sorted({name for ask in self.asks for name in ask.single if ask.single[name] != _SCALAR})
        numbers = sorted({name for ask in self.asks for name in ask.single if ask.single[name] == _SCALAR})
        kept = sorted({ask.keeps for ask in self.asks if ask.keeps})
        lines = [_cost("A round", self.round, "client of the cohort")]
        if self.preparing:
            lines.append(_cost("Preparing", self.preparing, "client of the federation"))
        lines.append(f"Of each single client the server sees {_and([*single, *numbers, 'its number of examples'])}.")
        if not self.sums_are_enough:
            lines.append("It compares or averages these itself: sums would not be enough.")
        elif any(ask.summed for ask in self.asks):
            lines.append("It sees models only as sums: secure aggregation would do.")
            if self.grouped:
                lines.append("The sum over a group of one client is that client's model.")
        else:
            lines.append("No model leaves the client.")
        if kept:
            lines.append(f"In the client's memory, and nowhere else, stays {_and(kept)}.")
        return lines


@dataclass
class _Notes:
    """What the witness has seen."""

    when: When = "preparing"
    asks: dict[tuple[When, str, bool], Asked] = field(default_factory=dict)
    grouped: bool = False
    handed_over: bool = False


class _Witness:
    """A federation that notes what is asked of it."""

    def __init__(self, desk: Desk, notes: _Notes) -> None:
        self._desk = desk
        self._notes = notes

    @property
    def clients(self) -> Sequence[ClientId]:
        return self._desk.clients

    @property
    def task(self) -> Task:
        return self._desk.task

    @property
    def traffic(self) -> Traffic:
        return self._desk.traffic

    def average(self, bank: Bank, weights: Sequence[float] | Array) -> Params:
        return self._desk.average(bank, weights)

    def on(self, task: Task) -> _Witness:
        return _Witness(self._desk.on(task), self._notes)

    def ask(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        /,
        *,
        reduce: Mean | None = None,
        after: Adapt | None = None,
        **given: Any,
    ) -> Replies:
        clients = cohort if isinstance(cohort, Cohort) else tuple(cohort)
        if len(clients):
            self._note(work, reduce, after)
        return self._desk.ask(clients, work, seed, reduce=reduce, after=after, **given)

    def _note(self, work: Work, reduce: Mean | None, after: Adapt | None) -> None:
        notes = self._notes
        summed = {} if reduce is None else {reduce.of: in_words(work.gives[reduce.of])}
        single = {name: in_words(schema) for name, schema in work.gives.items() if name not in summed}
        sent = {name: in_words(schema) for name, schema in work.takes.items()}
        keeps = work.memory or (after.work.memory if after else None)
        asked = Asked(notes.when, work.name, sent, single, summed, keeps)
        notes.asks[notes.when, work.name, reduce is not None] = asked
        notes.grouped |= reduce is not None and reduce.groups > 1
        notes.handed_over |= any(isinstance(work.gives[name], Model | Ragged) for name in single)


def card(name: str, options: Mapping[str, Any] | None = None) -> Card:
    """What the method of this name costs and reveals.

    Args:
        name: Of the method.
        options: Its settings; the defaults for what is not there.
    """
    data = _tiny()
    task = build_model("mclr", data.shape, data.classes)
    desk, notes, seed = Desk(Sequential(data, task)), _Notes(), Seed(0)
    fed = _Witness(desk, notes)
    here, stranger = data.clients[:-1], data.clients[-1]
    assert data.truth is not None
    truth = dict(zip(data.clients, data.truth.tolist(), strict=True))
    given = {"truth": truth, "rounds": ROUNDS, "cohort": COHORT, "clients": len(here)}
    method = build(name, LocalSGD(epochs=1, batch=8, rate=0.1), given, **dict(options or {}))
    sampler, state, t, step = Sampler(here, COHORT, seed), method.start(task, seed), 0, 0
    while (stage := method.stage(state)) != "done" and t < ROUNDS:
        notes.when = "preparing" if stage == "prepare" else "round"
        if stage == "prepare":
            cohort, name_of_step = sampler.everyone(step, t), seed.fold("prepare", step)
            step += 1
        else:
            cohort, name_of_step = sampler.cohort(t), seed.fold("round", t)
            t += 1
        state = method.round(state, fed, cohort, name_of_step).state
    rounds = _models(desk.traffic, range(t), COHORT * max(t, 1), tree.nbytes(task.init(seed)))
    before = _models(desk.traffic, [-1], len(here), tree.nbytes(task.init(seed)))
    notes.when = "newcomer"
    method.place(state, fed, [stranger], seed.fold("place"))
    return Card(tuple(notes.asks.values()), rounds, before, not notes.handed_over, notes.grouped)


def in_words(schema: Schema) -> str:
    """What a declared value is."""
    if isinstance(schema, Settings):
        return "settings"
    if isinstance(schema, Model):
        one = "layers of a model" if schema.partial else "a model"
        return f"{' × '.join(map(str, schema.stack))} of {one}" if schema.stack else one
    if isinstance(schema, Ragged):
        return f"up to {schema.most} arrays of {' × '.join(map(str, schema.shape))} numbers"
    return f"{' × '.join(map(str, schema.shape))} numbers" if schema.shape else _SCALAR


_SCALAR = "a number"
_UNTOLD = ("control", "evaluate")


def _tiny() -> FederatedData:
    return datasets.load("blobs", clients=CLIENTS, clusters=4, samples=24, side=8, classes=4, seed=0)


def _models(traffic: Traffic, rounds: Iterable[int], clients: int, size: int) -> dict[str, tuple[float, float]]:
    """Purpose → models down and up for each client."""
    sums: dict[str, list[float]] = {}
    for t in rounds:
        for purpose, ways in traffic.by_purpose(t).items():
            if purpose not in _UNTOLD:
                both = sums.setdefault(purpose, [0.0, 0.0])
                both[0] += ways.get("down", 0) / (size * clients)
                both[1] += ways.get("up", 0) / (size * clients)
    return {purpose: (round(down, 2), round(up, 2)) for purpose, (down, up) in sorted(sums.items())}


def _cost(what: str, models: Mapping[str, tuple[float, float]], whom: str) -> str:
    down, up = (sum(ways[side] for ways in models.values()) for side in (0, 1))
    parts = ", ".join(f"{purpose} {down:g} down and {up:g} up" for purpose, (down, up) in models.items())
    return f"{what} costs, in models, {down:.3g} down and {up:.3g} up for each {whom} ({parts or 'nothing'})."


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"
