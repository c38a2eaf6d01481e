"""`build` creates data, task, federation, method and sampler from a spec. No other module picks concrete classes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from coterie.bounds import Bound, check
from coterie.clients import LocalSGD
from coterie.data.description import DataDescription
from coterie.data.federated import FederatedData
from coterie.errors import SpecError
from coterie.federation import AttackTransport, Averaging, FaultTransport, Sequential, Server, Vectorized
from coterie.federation.device import find_device
from coterie.federation.merging import MergingTransport
from coterie.federation.network.remote import Remote
from coterie.federation.ray.actor_pool import RayPool
from coterie.federation.ray.cluster import check_installed
from coterie.federation.ray.transport import RayTransport
from coterie.federation.transport import Transport
from coterie.methods import METHODS
from coterie.methods import build as build_method
from coterie.methods.protocol import Method
from coterie.models import Task
from coterie.runs.metric_plan import MetricLike, MetricPlan, check_built_in, plan_metrics
from coterie.runs.privacy import check_privacy
from coterie.runs.resolve import fill_defaults, resolve
from coterie.runs.sampling import ClientSampler, Sampler
from coterie.runs.session import Session
from coterie.runs.spec import Named, RunSettings, Spec, method_options
from coterie.seeds import Seed
from coterie.shift import DriftingData
from coterie.types import ClientId

log = logging.getLogger(__name__)

_NO_VALIDATION = (
    "run.validate and run.patience need validation examples, and no client has any; set data.held_share above 0, or "
    "give clients more training examples"
)


@dataclass(frozen=True)
class Built:
    """Everything that a run needs, before its first step.

    Attributes:
        spec: The resolved spec.
        about: What is known about the clients' data.
        task: The model and its loss.
        session: Method and federation.
        truth: Client → true cluster, updated as the data drift; empty if true clusters are not known.
        data: The clients' data at the start of the run; None on a server, which has no examples.
        attackers: Malicious clients, sorted.
        merging: Lets the requests of evaluations travel with those of the next rounds; None: they travel alone.
        network: Returns what has been sent over the network so far; None in simulation.
        metrics: The metrics that evaluations compute.
        workers: The Ray workers that run the clients; None: this process does.
    """

    spec: Spec
    about: DataDescription
    task: Task
    session: Session[Any]
    truth: Mapping[ClientId, int]
    data: FederatedData | None = None
    attackers: tuple[ClientId, ...] = ()
    merging: MergingTransport | None = None
    network: Callable[[], Mapping[str, float]] | None = None
    metrics: MetricPlan = field(default_factory=MetricPlan)
    workers: RayTransport | None = None


def build(
    spec: Spec,
    *,
    method: Method[Any] | None = None,
    task: Task | None = None,
    data: Any = None,
    metrics: Mapping[str, MetricLike] | None = None,
) -> Built:
    """Resolve a spec and create everything that a run needs.

    Args:
        spec: The spec.
        method: A method object that replaces the method of the spec. It has its own settings: [method] and [local] of
            the spec must be absent or equal to them.
        task: A task that replaces the model of the spec.
        data: Data that replace those of the spec, or an object that `coterie.data.as_federated` takes.
        metrics: Metrics that are not built in, by name; they are computed in addition to run.metrics.
    """
    resolved = resolve(spec, method=method, task=task, data=data)
    spec, data, task, about = resolved.spec, resolved.data, resolved.task, resolved.about
    if about.idle:
        log.warning("%d clients have no training examples; they are evaluated but never sampled", len(about.idle))
    _check_clusters(spec, len(about.trainable))
    spec, plan = _with_metrics(spec, about, task, metrics)
    if spec.run.validate and not data.sizes("held").any():
        raise SpecError(_NO_VALIDATION)
    run, seed = spec.run, Seed(spec.run.seed)
    newcomers = _newcomers(run, about.trainable, seed)
    sampler = Sampler(about.trainable, run.clients_per_round, seed, run.sampler, run.stragglers, newcomers)
    attackers = spec.attack.attackers(about.trainable, about.truth, seed.fold("attack"))
    if spec.attack.name == "label-flip":
        data = _with_flipped_labels(data, spec, attackers)
    drifting = DriftingData(data, spec.shift, seed)
    truth = CurrentTruth(drifting)
    base = transport = _transport(spec, drifting.data, task)
    if spec.attack.name not in ("none", "label-flip"):
        transport = AttackTransport(transport, spec.attack, attackers, seed.fold("attack"))
    if any(dataclasses.asdict(spec.faults).values()):
        transport = FaultTransport(transport, spec.faults, seed.fold("faults"))
    drift = drifting if spec.shift.name != "none" else None
    session = _session(spec, about, task, method, transport, sampler, truth, plan, drift)
    workers = base if isinstance(base, RayTransport) else None
    return Built(spec, about, task, session, truth, data, tuple(sorted(attackers)), metrics=plan, workers=workers)


def _check_clusters(spec: Spec, clients: int) -> None:
    """Raise SpecError if a run has more clusters than clients that train; for the method's default, log a warning."""
    clusters = spec.method.options.get("clusters")
    if not isinstance(clusters, int) or clusters <= clients:
        return
    who = "the number of clients that have training examples"
    # The default does not know the federation: a comparison of many methods on three clients should not end with it.
    if spec.method.name in METHODS and clusters == method_options(spec.method.name)["clusters"]:
        log.warning(
            "%s has %d clusters by default, more than %d, %s; set method.clusters (--clusters)",
            spec.method.name,
            clusters,
            clients,
            who,
        )
        return
    raise SpecError(f"method.clusters must be at most {clients}, {who}, got {clusters}; give fewer (--clusters)")


def build_server(spec: Spec, about: DataDescription, task: Task, transport: Remote, sampler: ClientSampler) -> Built:
    """Create what a server needs whose clients are on other machines; it has no data.

    Args:
        spec: A spec that `server_spec` has accepted, completed with `coterie.runs.resolve.complete`.
        about: What the clients state about their data.
        task: The model and its loss.
        transport: Reaches the clients.
        sampler: Draws the clients of each round among those that are present.
    """
    spec, plan = _with_metrics(spec, about, task, simulated=False)
    if spec.run.validate and not spec.data.options["held_share"]:
        raise SpecError(_NO_VALIDATION)
    if spec.run.patience:  # whether the next round is run depends on the scores of this one
        spec = dataclasses.replace(spec, network=dataclasses.replace(spec.network, merge=False))
    merging = MergingTransport(transport) if spec.network.merge else None
    session = _session(spec, about, task, None, merging or transport, sampler, about.truth, plan)
    return Built(spec, about, task, session, about.truth, merging=merging, network=transport.sent.counts, metrics=plan)


def server_spec(spec: Spec) -> Spec:
    """The spec of a server, with the defaults that need no data; refuses settings that only a simulation has.

    A server saves a checkpoint after every round.

    Raises:
        SpecError: If a setting needs simulated clients.
    """
    simulated = {
        "shift.name": spec.shift.name != "none",
        "attack.name": spec.attack.name != "none",
        "faults": any(dataclasses.asdict(spec.faults).values()),
        "run.newcomers": bool(spec.run.newcomers),
        "run.device = 'gpu'": spec.run.device == "gpu",
        "local.in_turn": spec.local is not None and spec.local.in_turn,
        "run.final_model = 'best'": spec.run.final_model == "best",  # clients that join later would have no model
    }
    for setting, given in simulated.items():
        if given:
            raise SpecError(
                f"{setting} needs simulated clients and cannot be used with clients on other machines; remove it"
            )
    for name in {*spec.run.metrics, spec.run.primary_metric} - {"auto"}:
        check_built_in(name)
    try:
        options = NetworkData(**spec.data.options)
    except TypeError as fault:
        known = ", ".join(each.name for each in dataclasses.fields(NetworkData))
        raise SpecError(
            f"[data] of a server has the settings name, {known}: its clients have the data; {fault}"
        ) from fault
    data = Named(spec.data.name, dataclasses.asdict(options))
    # A checkpoint takes little beside the seconds of an exchange.
    run = dataclasses.replace(spec.run, checkpoint_every=1, final_model="last", device="cpu")
    return dataclasses.replace(fill_defaults(spec, given=["data"]), data=data, run=run)


@dataclass(frozen=True)
class NetworkData:
    """Settings of the `data` section of a server, whose clients have the data.

    Attributes:
        shape: Shape of one input; empty: as most clients that are there at the start state.
        classes: Number of classes; 0: as the clients that are there at the start state.
        held_share: Fraction of each client's training examples that is held out for validation.
    """

    shape: tuple[int, ...] = ()
    classes: Annotated[int, Bound(at_least=0)] = 0
    held_share: Annotated[float, Bound(at_least=0, below=1)] = 0.1

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "data")


def _session(
    spec: Spec,
    about: DataDescription,
    task: Task,
    method: Method[Any] | None,
    transport: Transport,
    sampler: ClientSampler,
    truth: Mapping[ClientId, int],
    metrics: MetricPlan,
    drifting: DriftingData | None = None,
) -> Session[Any]:
    """The method of a spec on a server that reaches its clients over a transport."""
    run, seed = spec.run, Seed(spec.run.seed)
    if method is None:
        given = {
            "truth": truth,
            "rounds": run.rounds,
            "clients_per_round": run.clients_per_round,
            "clients": len(about.trainable),
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
    if rounds_note := getattr(method, "rounds_note", ""):
        log.warning("%s", rounds_note)
    check_privacy(spec, method, task, len(about.trainable) + len(about.idle))
    _check_compression(spec)
    _check_in_turn(spec)
    averaging = Averaging(spec.aggregation, spec.privacy, seed.fold("privacy"))
    if not_covered := getattr(method, "not_covered", ""):
        averaging.ledger.individual.add(not_covered)
    return Session(
        method,
        Server(
            transport,
            averaging=averaging,
            compression=spec.compression,
            min_replies=spec.network.min_replies,
            fit_part="rest" if run.validate else "fit",  # scores of examples that were trained on choose nothing
        ),
        seed,
        sampler,
        drifting,
        eval_model=run.eval_model,
        score_with="assigned" if run.score_with == "assigned" else "current",
        metrics=metrics,
    )


def _with_metrics(
    spec: Spec,
    about: DataDescription,
    task: Task,
    own: Mapping[str, MetricLike] | None = None,
    *,
    simulated: bool = True,
) -> tuple[Spec, MetricPlan]:
    """How the metrics of a run are computed, and the spec with the names of all of them."""
    run = spec.run
    plan = plan_metrics(
        run.metrics, run.primary_metric, task.classes, own, weighted=about.weighted, simulated=simulated
    )
    names = tuple(dict.fromkeys([*run.metrics, *plan.names]))
    return dataclasses.replace(spec, run=dataclasses.replace(run, metrics=names)), plan


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


def _check_in_turn(spec: Spec) -> None:
    """Raise SpecError if clients should train one after another where this is not possible."""
    if spec.local is None or not spec.local.in_turn:
        return
    reasons = {
        "run.backend = 'ray': workers do not wait for each other": spec.run.backend == "ray",
        "[attack]: an update would contain those of other clients": spec.attack.name not in ("none", "label-flip"),
        "privacy.max_update_norm: an update would contain those of other clients": spec.privacy.max_update_norm > 0,
        "[compression]: the server does not know the model from which a client trained": spec.compression.updates
        != "none",
    }
    for reason, given in reasons.items():
        if given:
            raise SpecError(f"local.in_turn = true cannot be used with {reason}; remove one of them")


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


def _transport(spec: Spec, data: FederatedData, task: Task) -> Transport:
    run = spec.run
    if run.backend == "ray":
        check_installed()  # a missing extra is reported before anything else is done
        return RayTransport(data, task, RayPool(spec.ray))
    if run.backend == "sequential":
        return Sequential(data, task)
    return Vectorized(data, task, threads=run.threads or None, device=find_device(run.device))
