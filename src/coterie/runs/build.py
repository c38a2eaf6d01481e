"""Where concrete classes meet: from a spec to data, task, federation, method and sampler."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from coterie import data as datasets
from coterie import models
from coterie.data.federated import FederatedData
from coterie.errors import SpecError
from coterie.federation import AttackTransport, FaultTransport, Sequential, Server, Vectorized
from coterie.federation.transport import Transport
from coterie.methods import build as build_method
from coterie.methods.protocol import Method
from coterie.models import Normalize, Task
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.runs.spec import Named, RunSettings, Spec, model_defaults, resolve
from coterie.seeds import Seed
from coterie.shift import DriftingData
from coterie.types import ClientId

log = logging.getLogger(__name__)

#: How stored inputs are scaled: whole numbers by the largest, and nothing else; not; all by the largest; to mean 0.
Scaling = Literal["auto", "none", "unit", "standard"]

#: Clients in a cohort where nobody says how many.
USUAL_COHORT = 10


@dataclass(frozen=True)
class Built:
    """A run, ready to be played.

    Attributes:
        spec: Resolved: every default visible.
        data: The clients' examples.
        task: What is learned.
        session: Method and federation, before the first step.
        truth: Client → true cluster as the world is now; empty where nobody knows.
        idle: Clients without training examples, which are kept and never drawn.
        attackers: Clients that do harm, sorted.
    """

    spec: Spec
    data: FederatedData
    task: Task
    session: Session[Any]
    truth: Mapping[ClientId, int]
    idle: tuple[ClientId, ...]
    attackers: tuple[ClientId, ...] = ()


def build(
    spec: Spec, *, method: Method[Any] | None = None, task: Task | None = None, data: FederatedData | None = None
) -> Built:
    """Put a run together.

    Args:
        spec: What to run.
        method: A method object instead of the one that the spec names.
        task: A task instead of the model that the spec names.
        data: Data instead of those that the spec names.
    """
    objects = {"method": method, "model": task, "data": data}
    spec = resolve(
        _with_objects(spec, method, task, data), given=[key for key, each in objects.items() if each is not None]
    )
    if data is None:
        data = datasets.load(spec.data.name, **dict(spec.data.options))
    if task is None:
        spec, task = _task(spec, data)
    sizes = data.sizes("fit")
    able = tuple(sorted(client for client, n in zip(data.clients, sizes, strict=True) if n))
    idle = tuple(sorted(set(data.clients) - set(able)))
    if not able:
        raise SpecError(f"No client of {data.name} has a training example; there is nothing to learn from")
    if idle:
        log.warning("%d clients have no training examples; they are kept, scored, and never drawn", len(idle))
    run = spec.run
    if run.clients_per_round == 0:
        held_back = round(run.newcomers * len(able))
        run = dataclasses.replace(run, clients_per_round=max(1, min(USUAL_COHORT, len(able) - held_back)))
        spec = dataclasses.replace(spec, run=run)
    seed = Seed(run.seed)
    sampler = Sampler(able, run.clients_per_round, seed, run.sampler, run.stragglers, _newcomers(run, able, seed))
    known = {} if data.truth is None else dict(zip(data.clients, data.truth.tolist(), strict=True))
    liars = spec.attack.attackers(able, known, seed.fold("attack"))
    if spec.attack.name == "label-flip":
        data = _mislabelled(data, spec, liars)
    drifting = DriftingData(data, spec.shift, seed)
    truth = Truth(drifting)
    if method is None:
        given = {"truth": truth, "rounds": run.rounds, "clients_per_round": run.clients_per_round, "clients": len(able)}
        method = build_method(spec.method.name, spec.local, given, **_tuples(spec.method))
    own_mean = getattr(method, "own_mean", "")
    if own_mean and spec.aggregation.rule != "mean":
        log.warning(
            "aggregation.rule = %r does not take all means of %s: %s", spec.aggregation.rule, spec.method.name, own_mean
        )
    transport: Transport = _transport(run, drifting.data, task)
    if spec.attack.name not in ("none", "label-flip"):
        transport = AttackTransport(transport, spec.attack, liars, seed.fold("attack"))
    if any(dataclasses.asdict(spec.faults).values()):
        transport = FaultTransport(transport, spec.faults, seed.fold("faults"))
    moving = drifting if spec.shift.name != "none" else None
    server = Server(transport, aggregation=spec.aggregation)
    session = Session(method, server, seed, sampler, moving, eval_model=run.eval_model)
    return Built(spec, data, task, session, truth, idle, tuple(sorted(liars)))


def _mislabelled(data: FederatedData, spec: Spec, liars: Collection[ClientId]) -> FederatedData:
    """The data with the training labels y of some clients turned into C - 1 - y."""
    if data.classes is None or spec.shift.name != "none":
        why = (
            "the data have none" if data.classes is None else "examples that move between clients would take them along"
        )
        raise SpecError(f"attack.name = 'label-flip' turns labels round, but {why}; use sign-flip, scale or noise")
    bad = np.isin(data.fit.owners(), [data.position(client) for client in liars])
    turned = np.unique(data.fit.order[bad])
    if np.isin(data.fit.order[~bad], turned).any() or np.isin(data.test.order, turned).any():
        raise SpecError(
            f"Clients of {data.name} share examples: attack.name = 'label-flip' would reach honest ones too"
        )
    y = data.y.copy()
    y[turned] = data.classes - 1 - y[turned]
    return dataclasses.replace(data, y=y)


class Truth(Mapping[ClientId, int]):
    """Client → true cluster, as the world is now; empty where nobody knows."""

    def __init__(self, drifting: DriftingData) -> None:
        """The truth of this world."""
        self._drifting = drifting

    def __getitem__(self, client: ClientId) -> int:
        data = self._drifting.data
        if data.truth is None:
            raise KeyError(client)
        return int(data.truth[data.position(client)])

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._drifting.data.clients if len(self) else ())

    def __len__(self) -> int:
        return 0 if self._drifting.data.truth is None else len(self._drifting.data.clients)


def _newcomers(run: RunSettings, able: Sequence[ClientId], seed: Seed) -> dict[ClientId, int]:
    """Who is held back, and when they join: drawn by seed, the same for every method."""
    count = round(run.newcomers * len(able))
    if not count:
        return {}
    joins = run.newcomers_join or (max(1, run.rounds // 2),)
    drawn = seed.fold("newcomers").sample(len(able), count)
    return {able[place]: joins[i * len(joins) // count] for i, place in enumerate(drawn)}


def _with_objects(spec: Spec, method: Any, task: Any, data: Any) -> Spec:
    """The spec as a record shows it where objects were given."""
    if method is not None:
        spec = dataclasses.replace(spec, method=Named(type(method).__name__))
    if task is not None:
        spec = dataclasses.replace(spec, model=Named(task.name))
    if data is not None:
        spec = dataclasses.replace(spec, data=Named(data.name))
    return spec


def _transport(run: RunSettings, data: FederatedData, task: Task) -> Transport:
    if run.backend == "sequential":
        return Sequential(data, task)
    return Vectorized(data, task, threads=run.threads or None)


def _task(spec: Spec, data: FederatedData) -> tuple[Spec, Task]:
    name = spec.model.name
    if name == "auto":
        name = "mclr" if data.classes is not None else "linear-regression"
        name = name if data.ids is None else "char-lstm"
    options = {**model_defaults(name), **spec.model.options}
    shown = Named(name, options)
    made = {**options, "normalize": _normalise(str(options["normalize"]), data)}
    task = models.build(name, data.shape, data.classes, **made)
    return dataclasses.replace(spec, model=shown), task


def _normalise(rule: str, data: FederatedData) -> Normalize | None:
    """As the data's publishers do; otherwise whole numbers are divided by the largest magnitude among them."""
    if data.tokens is not None and rule in ("unit", "standard"):
        raise SpecError(
            f"model.normalize must be 'auto' or 'none', since {data.name} holds ids of tokens, got {rule!r}"
        )
    if rule == "auto" and data.normalize is not None:
        return Normalize(*data.normalize)
    if rule == "none" or (rule == "auto" and (data.x.dtype.kind == "f" or data.tokens is not None)):
        return None
    if rule in ("auto", "unit"):
        return Normalize(0.0, max(abs(float(data.x.min())), abs(float(data.x.max()))) or 1.0)
    if rule == "standard":
        pool = data.x[np.unique(data.fit.order)]
        return Normalize(pool.mean(axis=0), pool.std(axis=0) + 0.001)
    raise SpecError(f"model.normalize must be one of {', '.join(map(repr, get_args(Scaling)))}, got {rule!r}")


def _tuples(part: Named) -> dict[str, Any]:
    """Lists of a spec as the tuples that frozen settings hold."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in part.options.items()}
