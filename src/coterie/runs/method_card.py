"""What a method costs and reveals: not what it says of itself, but what it is seen to ask.

`card` lets a method play a short run with its default settings on a tiny federation, behind a witness that notes every
ask: which work, what was sent and what came back, by the schemas that the work declares, and whether the server was
handed each reply or only sums. Bytes are those of the ledger, told in models. What an ask hands over is no less than
what the method looks at: of that run, a card may say more than the server needs to know, never less.
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
from coterie.federation import Adapt, Cached, Cohort, Mean, Replies, Sequential, Server, Traffic
from coterie.federation.protocol import means_of
from coterie.methods import build
from coterie.models import Normalize, Task
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
        beyond: Whether, in a round, clients outside of the cohort were asked, too.
    """

    when: When
    work: str
    sent: Mapping[str, str]
    single: Mapping[str, str]
    summed: Mapping[str, str]
    keeps: str | None
    beyond: bool = False


@dataclass(frozen=True)
class Card:
    """What a method costs and reveals.

    Attributes:
        asks: Every kind of ask.
        round: Purpose → models sent down and up in a round, for each client of the cohort, on the mean.
        preparing: Purpose → models down and up before the first round, for each client of the federation.
        newcomer: Purpose → models down and up to place a newcomer after the last round.
        handed_over: When models, or arrays made of the examples, of single clients reach the server; if never, secure
            sums would do under the plain mean.
        grouped: Whether sums are over groups, which may have one member.
    """

    asks: tuple[Asked, ...]
    round: Mapping[str, tuple[float, float]]
    preparing: Mapping[str, tuple[float, float]]
    newcomer: Mapping[str, tuple[float, float]]
    handed_over: tuple[When, ...]
    grouped: bool

    def sentences(self) -> list[str]:
        """The same in words."""
        lines = [_cost("A round", self.round, " for each client of the cohort")]
        if beyond := sorted({ask.work for ask in self.asks if ask.beyond}):
            lines.append(f"In a round, clients outside of the cohort are asked, too: {_and(beyond)}.")
        if self.preparing:
            lines.append(_cost("Preparing", self.preparing, " for each client of the federation"))
        if self.newcomer:
            lines.append(_cost("A newcomer", self.newcomer, ""))
        lines.append(f"Of each single client the server sees {_and([*self._seen(), 'its number of examples'])}.")
        return [*lines, *self._about_models(), *self._about_memory()]

    def _seen(self) -> list[str]:
        """The names of what single clients give, numbers last."""
        found = {name: what for ask in self.asks for name, what in ask.single.items()}
        return sorted(found, key=lambda name: (found[name] == _SCALAR, name))

    def _about_models(self) -> list[str]:
        lines = []
        if self.handed_over:
            when = _and([_WHEN[each] for each in self.handed_over])
            lines.append(f"Models or arrays of single clients reach it {when}: there, sums would not be enough.")
        if any(ask.summed for ask in self.asks):
            if "round" not in self.handed_over:
                where = "In rounds it" if self.handed_over else "It"
                lines.append(f"{where} sees models only as sums: under the plain mean, secure aggregation would do.")
                lines.append("A robust rule has the server see single models.")
            if any(_DISTANCE in ask.single for ask in self.asks):
                lines.append("Distances to the mean are for the record; with secure sums there would be none.")
            if self.grouped:
                lines.append("The sum over a group of one client is that client's model.")
        elif not self.handed_over:
            lines.append("No model leaves the client.")
        return lines

    def _about_memory(self) -> list[str]:
        kept = sorted({ask.keeps for ask in self.asks if ask.keeps})
        return [f"In the client's memory, and nowhere else, stays {_and(kept)}."] if kept else []


@dataclass
class _Notes:
    """What the witness has seen, and when it is."""

    when: When = "preparing"
    cohort: frozenset[ClientId] = frozenset()
    asks: dict[tuple[When, str, bool], Asked] = field(default_factory=dict)
    grouped: bool = False
    handed_over: set[When] = field(default_factory=set)


class _Witness:
    """A federation that notes what is asked of it."""

    def __init__(self, server: Server, notes: _Notes) -> None:
        self._server = server
        self._notes = notes

    @property
    def clients(self) -> Sequence[ClientId]:
        return self._server.clients

    @property
    def task(self) -> Task:
        return self._server.task

    @property
    def traffic(self) -> Traffic:
        return self._server.traffic

    @property
    def robust(self) -> bool:
        return self._server.robust

    def average(self, bank: Bank, weights: Sequence[float] | Array) -> Params:
        return self._server.average(bank, weights)

    def on(self, task: Task) -> _Witness:
        return _Witness(self._server.on(task), self._notes)

    def ask(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        /,
        *,
        reduce: Mean | Sequence[Mean] | None = None,
        after: Adapt | None = None,
        **given: Any,
    ) -> Replies:
        clients = cohort if isinstance(cohort, Cohort) else tuple(cohort)
        if len(clients):
            self._note(clients, work, reduce, after, given)
        return self._server.ask(clients, work, seed, reduce=reduce, after=after, **given)

    def _note(
        self,
        clients: Iterable[ClientId],
        work: Work,
        reduce: Mean | Sequence[Mean] | None,
        after: Adapt | None,
        given: Mapping[str, Any],
    ) -> None:
        notes = self._notes
        means = means_of(reduce)
        summed = {mean.of: in_words(work.gives[mean.of]) for mean in means}
        single = {name: in_words(schema) for name, schema in work.gives.items() if name not in summed}
        if any(isinstance(work.gives[name], Model | Ragged) for name in single):
            notes.handed_over.add(notes.when)
        if any(mean.spread for mean in means):
            single[_DISTANCE] = _SCALAR
        once = {name: ", once" if isinstance(given.get(name), Cached) else "" for name in work.takes}
        sent = {name: in_words(schema) + once[name] for name, schema in work.takes.items()}
        keeps = work.memory or (after.work.memory if after else None)
        key = notes.when, work.name, reduce is not None
        beyond = notes.when == "round" and not notes.cohort.issuperset(clients)
        beyond |= key in notes.asks and notes.asks[key].beyond
        notes.asks[key] = Asked(notes.when, work.name, sent, single, summed, keeps, beyond)
        notes.grouped |= any(mean.groups > 1 for mean in means)


def card(name: str, options: Mapping[str, Any] | None = None) -> Card:
    """What the method of this name costs and reveals.

    Args:
        name: Of the method.
        options: Its settings; the defaults for what is not there.
    """
    data = _tiny()
    task = build_model("mclr", data.shape, data.classes, normalize=Normalize(0.0, 255.0))
    server, notes, seed = Server(Sequential(data, task)), _Notes(), Seed(0)
    fed = _Witness(server, notes)
    here, stranger = data.clients[:-1], data.clients[-1]
    assert data.truth is not None
    truth = dict(zip(data.clients, data.truth.tolist(), strict=True))
    given = {"truth": truth, "rounds": ROUNDS, "clients_per_round": COHORT, "clients": len(here)}
    method = build(name, LocalSGD(epochs=1, batch_size=8, learning_rate=0.5), given, **dict(options or {}))
    sampler, state, t, step = Sampler(here, COHORT, seed), method.start(task, seed), 0, 0
    while (stage := method.stage(state)) != "done" and t < ROUNDS:
        notes.when = "preparing" if stage == "prepare" else "round"
        if stage == "prepare":
            cohort, name_of_step = sampler.everyone(step, t), seed.fold("prepare", step)
            step += 1
        else:
            cohort, name_of_step = sampler.cohort(t), seed.fold("round", t)
            t += 1
        notes.cohort = frozenset(cohort)
        state = method.round(state, fed, cohort, name_of_step).state
    size = tree.nbytes(task.init(seed))
    rounds = _models(server.traffic, range(t), COHORT * max(t, 1), size)
    before = _models(server.traffic, [-1], 1, size)
    notes.when = "newcomer"
    method.place(state, fed, [stranger], seed.fold("place"))
    new = {
        purpose: (down - before.get(purpose, (0.0, 0.0))[0], up - before.get(purpose, (0.0, 0.0))[1])
        for purpose, (down, up) in _models(server.traffic, [-1], 1, size).items()
    }
    return Card(
        tuple(notes.asks.values()),
        _rounded(rounds),
        _rounded({purpose: (down / len(here), up / len(here)) for purpose, (down, up) in before.items()}),
        _rounded({purpose: ways for purpose, ways in new.items() if any(ways)}),
        tuple(when for when in _WHEN if when in notes.handed_over),
        notes.grouped,
    )


def in_words(schema: Schema) -> str:
    """What a declared value is."""
    if isinstance(schema, Settings):
        return "settings"
    if isinstance(schema, Model):
        one = "layers of a model" if schema.partial else "a model"
        return f"{' × '.join(map(str, schema.stack))} of {one}" if schema.stack else one
    if isinstance(schema, Ragged):
        return f"up to {schema.max_items} arrays of {' × '.join(map(str, schema.shape))} numbers"
    return f"{' × '.join(map(str, schema.shape))} numbers" if schema.shape else _SCALAR


_SCALAR = "a number"
_DISTANCE = "distance to the mean"
_UNTOLD = ("control", "evaluate")
_WHEN: dict[When, str] = {"preparing": "while preparing", "round": "in rounds", "newcomer": "for a newcomer"}


def _tiny() -> FederatedData:
    """Four kinds that no one model of this size fits, so that methods which look for them find them."""
    return datasets.load("blobs", clients=CLIENTS, clusters=4, samples=24, side=5, classes=4, seed=0)


def _models(traffic: Traffic, rounds: Iterable[int], clients: int, size: int) -> dict[str, tuple[float, float]]:
    """Purpose → models down and up for each client."""
    sums: dict[str, list[float]] = {}
    for t in rounds:
        for purpose, ways in traffic.by_purpose(t).items():
            if purpose not in _UNTOLD:
                both = sums.setdefault(purpose, [0.0, 0.0])
                both[0] += ways.get("down", 0) / (size * clients)
                both[1] += ways.get("up", 0) / (size * clients)
    return {purpose: (down, up) for purpose, (down, up) in sorted(sums.items())}


def _rounded(models: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {purpose: (round(down, 2), round(up, 2)) for purpose, (down, up) in models.items()}


def _cost(what: str, models: Mapping[str, tuple[float, float]], whom: str) -> str:
    down, up = (sum(ways[side] for ways in models.values()) for side in (0, 1))
    parts = ", ".join(f"{purpose} {down:g} down and {up:g} up" for purpose, (down, up) in models.items())
    return f"{what} costs, in models, {down:.3g} down and {up:.3g} up{whom} ({parts or 'nothing'})."


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"
