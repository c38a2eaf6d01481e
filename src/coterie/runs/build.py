"""`build` creates data, task, federation, method and sampler from a spec. No other module picks concrete classes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.clients import LocalSGD
from coterie.data.federated import FederatedData
from coterie.errors import SpecError
from coterie.federation import AttackTransport, Averaging, FaultTransport, Sequential, Server, Vectorized
from coterie.federation.transport import Transport
from coterie.methods import build as build_method
from coterie.methods.protocol import Method
from coterie.models import Task
from coterie.runs.privacy import check_privacy
from coterie.runs.resolve import resolve
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.runs.spec import RunSettings, Spec
from coterie.seeds import Seed
from coterie.shift import DriftingData
from coterie.types import ClientId

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """Everything that a run needs, before its first step.

    Attributes:
        spec: The resolved spec.
        data: The clients' data at the start of the run.
        task: The model and its loss.
        session: Method and federation.
        truth: Client → true cluster, updated as the data drift; empty if true clusters are not known.
        idle: Clients without training examples; they are evaluated but never sampled.
        attackers: Malicious clients, sorted.
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
    """Resolve a spec and create everything that a run needs.

    Args:
        spec: The spec.
        method: A method object that replaces the method of the spec. It has its own settings: [method] and [local] of
            the spec must be absent or equal to them.
        task: A task that replaces the model of the spec.
        data: Data that replace those of the spec.
    """
    resolved = resolve(spec, method=method, task=task, data=data)
    spec, data, task, trainable = resolved.spec, resolved.data, resolved.task, resolved.trainable
    idle = tuple(sorted(set(data.clients) - set(trainable)))
    if idle:
        log.warning("%d clients have no training examples; they are evaluated but never sampled", len(idle))
    run, seed = spec.run, Seed(spec.run.seed)
    newcomers = _newcomers(run, trainable, seed)
    sampler = Sampler(trainable, run.clients_per_round, seed, run.sampler, run.stragglers, newcomers)
    known = {} if data.truth is None else dict(zip(data.clients, data.truth.tolist(), strict=True))
    attackers = spec.attack.attackers(trainable, known, seed.fold("attack"))
    if spec.attack.name == "label-flip":
        data = _with_flipped_labels(data, spec, attackers)
    drifting = DriftingData(data, spec.shift, seed)
    truth = CurrentTruth(drifting)
    if method is None:
        given = {
            "truth": truth,
            "rounds": run.rounds,
            "clients_per_round": run.clients_per_round,
            "clients": len(trainable),
        }
        method = build_method(spec.method.name, spec.local or LocalSGD(), given, **spec.method.options)
    own_mean = getattr(method, "own_mean", "")
    if own_mean and spec.aggregation.rule != "mean":
        log.warning(
            "aggregation.rule = %r does not apply to all means of %s: %s",
            spec.aggregation.rule,
            spec.method.name,
            own_mean,
        )
    check_privacy(spec, method, task, len(data.clients))
    _check_compression(spec)
    transport = _transport(run, drifting.data, task)
    if spec.attack.name not in ("none", "label-flip"):
        transport = AttackTransport(transport, spec.attack, attackers, seed.fold("attack"))
    if any(dataclasses.asdict(spec.faults).values()):
        transport = FaultTransport(transport, spec.faults, seed.fold("faults"))
    averaging = Averaging(spec.aggregation, spec.privacy, seed.fold("privacy"))
    if not_covered := getattr(method, "not_covered", ""):
        averaging.ledger.individual.add(not_covered)
    session = Session(
        method,
        Server(transport, averaging=averaging, compression=spec.compression),
        seed,
        sampler,
        drifting if spec.shift.name != "none" else None,
        eval_model=run.eval_model,
        score_with="assigned" if run.score_with == "assigned" else "current",
    )
    return Built(spec, data, task, session, truth, idle, tuple(sorted(attackers)))


class CurrentTruth(Mapping[ClientId, int]):
    """Client → current true cluster, for data that may drift; empty if true clusters are not known."""

    def __init__(self, drifting: DriftingData) -> None:
        """Look up the true clusters in these data."""
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


def _check_compression(spec: Spec) -> None:
    """Raise SpecError if updates cannot be compressed in this run, or if most of them would be lost."""
    updates, rule = spec.compression.updates, spec.aggregation.rule
    if updates != "none" and spec.attack.name == "noise":
        raise SpecError(
            f"attack.name = 'noise' changes models after compression.updates = {updates!r}, and a compressed reply "
            "cannot carry such a model; use sign-flip, scale or label-flip, or no compression"
        )
    if updates == "top-k" and rule in ("median", "trimmed-mean"):
        raise SpecError(
            f"aggregation.rule = {rule!r} drops the entries of an update that most clients do not send with "
            "compression.updates = 'top-k'; use geometric-median, multi-krum or norm-clip, or int8"
        )


def _with_flipped_labels(data: FederatedData, spec: Spec, attackers: Collection[ClientId]) -> FederatedData:
    """The data with the training labels y of the attackers replaced by C - 1 - y."""
    if data.classes is None or spec.shift.name != "none":
        why = "the data have none" if data.classes is None else "drift would move flipped labels to other clients"
        raise SpecError(f"attack.name = 'label-flip' flips labels, but {why}; use sign-flip, scale or noise")
    malicious = np.isin(data.fit.owners(), [data.position(client) for client in attackers])
    flipped = np.unique(data.fit.order[malicious])
    if np.isin(data.fit.order[~malicious], flipped).any() or np.isin(data.test.order, flipped).any():
        raise SpecError(
            f"Clients of {data.name} share examples: attack.name = 'label-flip' would affect honest clients, too; "
            "use sign-flip, scale or noise"
        )
    y = data.y.copy()
    y[flipped] = data.classes - 1 - y[flipped]
    return dataclasses.replace(data, y=y)


def _newcomers(run: RunSettings, clients: Sequence[ClientId], seed: Seed) -> dict[ClientId, int]:
    """Newcomer → round in which it joins; drawn by seed, the same for every method."""
    count = round(run.newcomers * len(clients))
    if not count:
        return {}
    joins = run.newcomers_join or (max(1, run.rounds // 2),)
    drawn = seed.fold("newcomers").sample(len(clients), count)
    return {clients[place]: joins[i * len(joins) // count] for i, place in enumerate(drawn)}


def _transport(run: RunSettings, data: FederatedData, task: Task) -> Transport:
    if run.backend == "sequential":
        return Sequential(data, task)
    return Vectorized(data, task, threads=run.threads or None)
