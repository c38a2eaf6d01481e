"""Method cards: the traffic of a method, and what the server sees of each client, measured in a short run.

`measure_card` runs a method on a small simulated federation and observes every `ask`: the work, the values sent and
returned (according to the schemas that the work declares), and whether the server got individual replies or only sums.
Traffic is counted in bytes and reported in multiples of the model size. A card may list values that the method does not
use, but never omits any.

The cards for default settings are stored in `methods/cards.json` by `make cards`; `shipped_card` reads them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from coterie import data as datasets
from coterie import tree
from coterie.clients import LocalSGD
from coterie.clients.schema import Model, Ragged, Schema, Settings
from coterie.clients.work import Work
from coterie.data.federated import FederatedData
from coterie.federation import Adapt, Cached, Cohort, Mean, Replies, Sequential, Server, Traffic
from coterie.federation.averaging import reveals_individuals
from coterie.federation.protocol import Federation, Then, means_of
from coterie.methods import build
from coterie.models import Normalize, Task
from coterie.models.library import build as build_model
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

When = Literal["preparation", "round", "newcomer"]

#: Number of rounds: enough for every method to reach all of its stages with default settings.
ROUNDS, CLIENTS, COHORT = 25, 16, 8


@dataclass(frozen=True)
class Exchange:
    """One kind of request to clients, as it was observed.

    Attributes:
        when: `preparation`, `round` or `newcomer` (to place a new client).
        work: Name of the work.
        sent: Values sent to the clients: name → description.
        received: Values that the server receives from each client: name → description.
        aggregated: Values that the server receives only as sums: name → description.
        client_memory: Name of the state that stays on the client, or None.
        outside_cohort: Whether clients outside of the cohort also get this request in a round.
    """

    when: When
    work: str
    sent: Mapping[str, str]
    received: Mapping[str, str]
    aggregated: Mapping[str, str]
    client_memory: str | None
    outside_cohort: bool = False


@dataclass(frozen=True)
class Card:
    """Traffic of a method, and what the server sees.

    Attributes:
        exchanges: All kinds of requests.
        round: Purpose → mean number of models sent down and up per round, for each client in the cohort.
        preparation: Purpose → models down and up before the first round, for each client of the federation.
        newcomer: Purpose → models down and up to place a new client after the last round.
        individual: When the server receives models of individual clients, or arrays computed from their examples; if
            never, secure aggregation is possible with the plain mean.
        per_cluster: Whether sums are per cluster; a cluster may have one member.
        averages: Whether the server averages models of clients.
        not_covered: Works of preparation and rounds whose individual replies the method uses; noise ([privacy]) covers
            the sums of updates, not what is decided from these replies.
    """

    exchanges: tuple[Exchange, ...]
    round: Mapping[str, tuple[float, float]]
    preparation: Mapping[str, tuple[float, float]]
    newcomer: Mapping[str, tuple[float, float]]
    individual: tuple[When, ...]
    per_cluster: bool
    averages: bool = True
    not_covered: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """The card as sentences, for the terminal and the docs."""
        lines = [_traffic("per round, for each client in the cohort", self.round)]
        if outside := sorted({ask.work for ask in self.exchanges if ask.outside_cohort}):
            lines.append(f"Clients outside the cohort also work in a round: {_and(outside)}.")
        if self.preparation:
            lines.append(_traffic("of the preparation, for each client", self.preparation))
        if self.newcomer:
            lines.append(_traffic("to place a new client", self.newcomer))
        return [*lines, *self.seen_by_server(), self._about_noise(), *self._about_memory()]

    def seen_by_server(self) -> list[str]:
        """What the server receives of individual clients, as sentences."""
        received = _and([*self._received(), "its number of samples"])
        return [f"The server receives from each client: {received}.", *self._about_models()]

    def _received(self) -> list[str]:
        """The values that each client sends, with what they are; numbers, of which only the name is needed, last."""
        found = {name: what for ask in self.exchanges for name, what in ask.received.items()}
        names = sorted(found, key=lambda name: (found[name] == _SCALAR, name))
        return [name if found[name] == _SCALAR else f"{name} ({found[name]})" for name in names]

    def _about_models(self) -> list[str]:
        lines = []
        if self.individual:
            when = _and([_WHEN[each] for each in self.individual])
            lines.append(
                f"The server receives models, or arrays computed from examples, of individual clients {when}; "
                "secure aggregation is not possible there."
            )
        if any(ask.aggregated for ask in self.exchanges):
            if "round" not in self.individual:
                where = "In rounds the" if self.individual else "The"
                lines.append(
                    f"{where} server needs only sums of models: secure aggregation is possible with the plain mean."
                )
                lines.append("Robust rules need individual models on the server.")
            if any(_DISTANCE in ask.received for ask in self.exchanges):
                lines.append(
                    "Distances to the mean are recorded for reports; secure aggregation could not provide them."
                )
            if self.per_cluster:
                lines.append("If a cluster has one client in a round, the sum for the cluster is that client's model.")
        elif not self.individual:
            lines.append("No model leaves the client.")
        return lines

    def _about_noise(self) -> str:
        """What is covered by the (ε, δ) of a run with noise."""
        if not self.averages:
            return "Nothing is averaged: noise ([privacy]) is refused."
        if not self.not_covered:
            return "With noise ([privacy]) the models are differentially private: they depend on noisy sums only."
        return (
            "With noise ([privacy]) the sums of updates are differentially private. What the method decides from "
            f"individual replies ({', '.join(self.not_covered)}), such as who is in which cluster, is NOT covered."
        )

    def _about_memory(self) -> list[str]:
        kept = sorted({ask.client_memory for ask in self.exchanges if ask.client_memory})
        return [f"Stored on the client only: {_and(kept)}."] if kept else []


def shipped_card(name: str) -> Card | None:
    """The card of a method with default settings, as `make cards` stored it; None for methods of other packages."""
    stored = json.loads(resources.files("coterie.methods").joinpath("cards.json").read_text(encoding="utf-8"))
    return _from_json(stored[name]) if name in stored else None


def to_json(cards: Mapping[str, Card]) -> str:
    """The text of `methods/cards.json`: name → card."""
    plain = {name: dataclasses.asdict(each) for name, each in sorted(cards.items())}
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def _from_json(plain: Mapping[str, Any]) -> Card:
    traffic: dict[str, dict[str, tuple[float, float]]] = {
        key: {purpose: (down, up) for purpose, (down, up) in plain[key].items()}
        for key in ("round", "preparation", "newcomer")
    }
    return Card(
        exchanges=tuple(Exchange(**ask) for ask in plain["exchanges"]),
        individual=tuple(plain["individual"]),
        per_cluster=plain["per_cluster"],
        averages=plain["averages"],
        not_covered=tuple(plain["not_covered"]),
        **traffic,
    )


@dataclass
class _Observations:
    """Everything observed so far."""

    when: When = "preparation"
    cohort: frozenset[ClientId] = frozenset()
    exchanges: dict[tuple[When, str, bool], Exchange] = field(default_factory=dict)
    per_cluster: bool = False
    individual: set[When] = field(default_factory=set)
    averages: bool = False
    not_covered: set[str] = field(default_factory=set)


class _ObservedFederation:
    """A federation that records every request."""

    def __init__(self, fed: Federation, seen: _Observations) -> None:
        self._fed = fed
        self._seen = seen

    @property
    def clients(self) -> Sequence[ClientId]:
        return self._fed.clients

    @property
    def task(self) -> Task:
        return self._fed.task

    @property
    def traffic(self) -> Traffic:
        return self._fed.traffic

    @property
    def robust(self) -> bool:
        return self._fed.robust

    def average(self, bank: Bank, weights: Sequence[float] | Array, **about: Any) -> Params:
        self._seen.averages = True
        return self._fed.average(bank, weights, **about)

    def on(self, task: Task) -> _ObservedFederation:
        return _ObservedFederation(self._fed.on(task), self._seen)

    def ask(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        /,
        *,
        reduce: Mean | Sequence[Mean] | None = None,
        after: Adapt | None = None,
        then: Then | None = None,
        **given: Any,
    ) -> Replies:
        clients = cohort if isinstance(cohort, Cohort) else tuple(cohort)
        if len(clients):
            self._observe(clients, work, reduce, after, given)
        if then is not None and len(then.cohort):
            self._observe(then.cohort, then.work, None, None, then.sent)
        return self._fed.ask(clients, work, seed, reduce=reduce, after=after, then=then, **given)

    def _observe(
        self,
        clients: Iterable[ClientId],
        work: Work,
        reduce: Mean | Sequence[Mean] | None,
        after: Adapt | None,
        given: Mapping[str, Any],
    ) -> None:
        seen = self._seen
        means = means_of(reduce)
        aggregated = {mean.of: in_words(work.gives[mean.of]) for mean in means}
        received = {name: in_words(schema) for name, schema in work.gives.items() if name not in aggregated}
        if any(isinstance(work.gives[name], Model | Ragged) for name in received):
            seen.individual.add(seen.when)
        released = [mean for mean in means if mean.released]
        seen.averages |= bool(released)
        if seen.when != "newcomer" and reveals_individuals(work, released):
            seen.not_covered.add(work.name)
        if any(mean.spread for mean in means):
            received[_DISTANCE] = _SCALAR
        once = {name: ", once" if isinstance(given.get(name), Cached) else "" for name in work.takes}
        sent = {name: in_words(schema) + once[name] for name, schema in work.takes.items()}
        client_memory = work.memory or (after.work.memory if after else None)
        key = seen.when, work.name, reduce is not None
        outside_cohort = seen.when == "round" and not seen.cohort.issuperset(clients)
        outside_cohort |= key in seen.exchanges and seen.exchanges[key].outside_cohort
        seen.exchanges[key] = Exchange(seen.when, work.name, sent, received, aggregated, client_memory, outside_cohort)
        seen.per_cluster |= any(mean.groups > 1 for mean in means)


def measure_card(name: str, options: Mapping[str, Any] | None = None) -> Card:
    """Measure the card of a method in a short run.

    Args:
        name: Method name.
        options: Settings of the method; defaults for the others.
    """
    data = _tiny()
    task = build_model("mclr", data.shape, data.classes, normalize=Normalize(0.0, 255.0))
    server, seen, seed = Server(Sequential(data, task)), _Observations(), Seed(0)
    members, newcomer = data.clients[:-1], data.clients[-1]
    assert data.truth is not None
    truth = dict(zip(data.clients, data.truth.tolist(), strict=True))
    given = {"truth": truth, "rounds": ROUNDS, "clients_per_round": COHORT, "clients": len(members)}
    method = build(name, LocalSGD(epochs=1, batch_size=8, learning_rate=0.5), given, **dict(options or {}))

    def observe(
        fed: Federation, stage: Literal["prepare", "train", "place"], clients: Iterable[ClientId]
    ) -> _ObservedFederation:
        seen.when, seen.cohort = _STAGES[stage], frozenset(clients)
        return _ObservedFederation(fed, seen)

    session = Session(method, server, seed, Sampler(members, COHORT, seed), observer=observe)
    for _ in session.steps(ROUNDS):
        pass
    size = tree.nbytes(task.init(seed))
    rounds = _models(server.traffic, range(session.t), COHORT * max(session.t, 1), size)
    before = _models(server.traffic, [-1], 1, size)
    session.place([newcomer])
    new = {
        purpose: (down - before.get(purpose, (0.0, 0.0))[0], up - before.get(purpose, (0.0, 0.0))[1])
        for purpose, (down, up) in _models(server.traffic, [-1], 1, size).items()
    }
    return Card(
        tuple(seen.exchanges.values()),
        _rounded(rounds),
        _rounded({purpose: (down / len(members), up / len(members)) for purpose, (down, up) in before.items()}),
        _rounded({purpose: ways for purpose, ways in new.items() if any(ways)}),
        tuple(when for when in _WHEN if when in seen.individual),
        seen.per_cluster,
        seen.averages,
        tuple(sorted(seen.not_covered)),
    )


def in_words(schema: Schema) -> str:
    """Describe a declared value in words."""
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
_NOT_COUNTED = ("control", "evaluate")
_STAGES: dict[Literal["prepare", "train", "place"], When] = {
    "prepare": "preparation",
    "train": "round",
    "place": "newcomer",
}
_WHEN: dict[When, str] = {
    "preparation": "during preparation",
    "round": "in rounds",
    "newcomer": "to place a new client",
}


def _tiny() -> FederatedData:
    """Four clusters that a single model of this size cannot fit, so that methods that search for clusters find them."""
    return datasets.load("blobs", clients=CLIENTS, clusters=4, samples=48, side=5, classes=4, seed=0)


def _models(traffic: Traffic, rounds: Iterable[int], clients: int, size: int) -> dict[str, tuple[float, float]]:
    """Purpose → models down and up, for each client."""
    sums: dict[str, list[float]] = {}
    for t in rounds:
        for purpose, ways in traffic.by_purpose(t).items():
            if purpose not in _NOT_COUNTED:
                both = sums.setdefault(purpose, [0.0, 0.0])
                both[0] += ways.get("down", 0) / (size * clients)
                both[1] += ways.get("up", 0) / (size * clients)
    return {purpose: (down, up) for purpose, (down, up) in sorted(sums.items())}


def _rounded(models: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {purpose: (round(down, 2), round(up, 2)) for purpose, (down, up) in models.items()}


def _traffic(what: str, models: Mapping[str, tuple[float, float]]) -> str:
    down, up = (sum(ways[side] for ways in models.values()) for side in (0, 1))
    parts = "; ".join(f"{purpose}: {down:g} down, {up:g} up" for purpose, (down, up) in models.items())
    return f"Traffic {what}, in models: {down:.3g} down, {up:.3g} up ({parts or 'none'})."


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"
