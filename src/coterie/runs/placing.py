"""Place a newcomer with a recorded run: which cluster, how sure, what score to expect, what it costs.

The decision is the method's own (`Method.place`) with the recorded state, on a federation of the newcomer alone. The
record does not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.clients import LocalSGD
from coterie.data.federated import FederatedData, Index
from coterie.data.partition.assembling import split
from coterie.errors import DataError, RecordError, SpecError
from coterie.federation import Sequential, Server, Vectorized
from coterie.federation.transport import Transport
from coterie.methods import build as build_method
from coterie.methods import method_class
from coterie.methods.checks import checked_placement
from coterie.methods.protocol import Method, Placement
from coterie.models import Task
from coterie.runs.evidence import Reason, reasons
from coterie.runs.method_settings import check_same_method, spec_of
from coterie.runs.model_inputs import labels_of, model_inputs
from coterie.runs.newcomer_federation import NewcomerFederation
from coterie.runs.predict import rebuilt
from coterie.runs.record import RunRecord
from coterie.runs.record_files import LATEST, SPEC, read_checked
from coterie.runs.scoring import evaluated
from coterie.runs.spec import Spec, read_toml
from coterie.seeds import Seed
from coterie.types import Array, ClientId

#: How often the decision is repeated: on resampled examples, or with other seeds if the newcomer has to train.
RESAMPLES, SEEDS = 100, 20


@dataclass(frozen=True)
class NewcomerPlacement:
    """Where a newcomer belongs.

    Attributes:
        client: Name of the newcomer.
        cluster: Its cluster, the row of `RunRecord.models`; None: it is served the fallback model.
        clusters: Number of models of the run.
        reason: The values on which the cluster was decided; None if nothing was compared.
        margin: How much better the cluster is than the second best; None without a second one.
        agreement: Share of the repetitions that gave the same cluster; None if the decision cannot vary.
        repetitions: Number of repetitions.
        repeated_by: `examples` (bootstrap: examples drawn with replacement), or `seed` if the newcomer has to train.
        cluster_score: Test results of the clients in the cluster: `accuracy` (None for regression), `loss`, `examples`.
        own_score: The same for the newcomer's own examples that did not take part in the decision; None without any.
        bytes: Direction → bytes that placing it sends.
        notes: What else there is to know, in sentences.
    """

    client: str
    cluster: int | None
    clusters: int
    reason: Reason | None
    margin: float | None
    agreement: float | None
    repetitions: int
    repeated_by: Literal["examples", "seed"] | None
    cluster_score: Mapping[str, Any] | None
    own_score: Mapping[str, Any] | None
    bytes: Mapping[str, int]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {**found, "reason": self.reason and self.reason.to_dict(), "notes": list(self.notes)}


def place_newcomer(
    record: RunRecord,
    x: Any,
    y: Any = None,
    *,
    client: str = "newcomer",
    test_share: float = 0.2,
    seed: int = 0,
    method: Method[Any] | None = None,
    task: Task | None = None,
) -> NewcomerPlacement:
    """Place a newcomer; see `RunRecord.place`."""
    if client in record.served.get("row", ()) or client in record.served.get("unassigned", ()):
        raise SpecError(f"Client {client!r} took part in the run; coterie inspect shows its cluster. Choose a new name")
    record.models()
    task = rebuilt(record.served, task)
    spec, method = _method(record, method)
    saved = _checkpoint(record)  # after the method: its module defines the classes of the state
    data = _data(task, model_inputs(x, record.served), labels_of(y, record.served), client, test_share, seed)
    fed = NewcomerFederation(Server(_transport(spec, data, task), compression=spec.compression), labeled=y is not None)
    session = saved.get("best", saved)["session"]  # of the round whose models are served
    run = _Run(record, method, session["state"], Seed(spec.run.seed).fold("place", session["t"]))
    placement = run.place(fed, [data.clients[0]])
    sent: dict[str, int] = {"down": fed.traffic.total("down"), "up": fed.traffic.total("up")}
    cluster = placement.row.get(data.clients[0])
    reason = reasons(placement.evidence).get(client)
    repeated = _repeated(run, fed, placement, data, cluster) if tree.rows(placement.bank) > 1 and fed.asked else None
    return NewcomerPlacement(
        client,
        cluster,
        tree.rows(placement.bank),
        reason,
        None if reason is None or cluster is None else reason.margin(str(cluster)),
        None if repeated is None else repeated[1],
        0 if repeated is None else repeated[0],
        None if repeated is None else "seed" if fed.trained else "examples",
        None if cluster is None else _cluster_score(record, cluster),
        _own_score(fed.server, placement, data, task) if y is not None else None,
        sent,
        tuple(_notes(spec, fed, placement, cluster, labeled=y is not None)),
    )


@dataclass(frozen=True)
class _Run:
    """A method with the state that belongs to the models of a run."""

    record: RunRecord
    method: Method[Any]
    state: Any
    seed: Seed

    def place(self, fed: NewcomerFederation, clients: Sequence[ClientId]) -> Placement:
        """The placement of these clients, without the models of clusters that are too small to be served."""
        result = self.method.place(self.state, fed, clients, self.seed)
        placement = checked_placement(self.method, result, fed.clients)[1]
        served = set(self.record.clusters())
        if tree.rows(placement.bank) != tree.rows(self.record.models()):
            return placement
        return dataclasses.replace(placement, row={c: row for c, row in placement.row.items() if row in served})


def _method(record: RunRecord, method: Method[Any] | None) -> tuple[Spec, Method[Any]]:
    """The spec and the method of a record, built as at the beginning of the run."""
    if record.path is None:
        raise RecordError("Only a run with a folder keeps the state that placing needs; run with out=")
    plain = read_toml(record.path / SPEC)
    if method is None and "class" in plain.get("method", {}):
        raise SpecError(
            f"This run used a method object of class {plain['method']['class']}; give an equal one: "
            "record.place(x, y, method=…)"
        )
    check_same_method(plain, method)
    for section in ("model", "data"):  # may be names of objects
        plain.pop(section, None)
    spec = spec_of(plain, method)
    if method is not None:
        return spec, method
    check_finds_clusters(spec.method.name)
    given = {
        "rounds": spec.run.rounds,
        "clients_per_round": spec.run.clients_per_round,
        "clients": record.summary["clients"] - record.summary["clients_without_examples"],
    }
    return spec, build_method(spec.method.name, spec.local or LocalSGD(), given, **spec.method.options)


def check_finds_clusters(name: str) -> None:
    """Raise SpecError for a method that is told the true clusters, which are not known for a newcomer."""
    if any(field.metadata.get("run") == "truth" for field in dataclasses.fields(method_class(name))):
        raise SpecError(
            f"{name} serves clients the model of their true cluster, and that of a newcomer is not known; choose a "
            "method that finds clusters"
        )


def _checkpoint(record: RunRecord) -> dict[str, Any]:
    assert record.path is not None
    if not (record.path / LATEST).is_file():
        raise RecordError(f"{record.path / LATEST} is missing: it has the state that placing needs; run it again")
    return read_checked(record.path / LATEST, LATEST.parent)


def _data(task: Task, x: Array, y: Array | None, client: str, test_share: float, seed: int) -> FederatedData:
    """The newcomer, and after it its repetitions: clients with its examples resampled, or with all of them."""
    if not len(x):
        raise DataError("The newcomer has no examples; give at least one")
    if y is not None and len(y) != len(x):
        raise DataError(f"y must have one label for each of the {len(x)} examples, got {len(y)}")
    if not 0 <= test_share < 1:
        raise SpecError(f"test_share must be at least 0 and less than 1, got {test_share}")
    labels = np.zeros(len(x), np.int32 if task.classes is not None else np.float32) if y is None else y
    task.check(x, labels if task.classes is not None else labels.astype(np.float32))
    root = Seed(seed).fold("newcomer")
    fit, test = split(np.arange(len(x)), 0.0 if y is None else test_share, root.fold("split"))
    drawn = [fit[(root.fold("resample", r).uniform(len(fit)) * len(fit)).astype(np.int64)] for r in range(RESAMPLES)]
    lists = [fit, *drawn, *([fit] * SEEDS)]
    names = [client, *(f"{client} resampled {r:03d}" for r in range(RESAMPLES))]
    names += [f"{client} seed {r:03d}" for r in range(SEEDS)]
    return FederatedData(
        name="newcomer",
        x=x,
        y=labels,
        clients=tuple(map(ClientId, names)),
        fit=Index.from_lists(lists),
        test=Index.from_lists([test, *([test[:0]] * (len(lists) - 1))]),
        classes=task.classes,
        held_seed=root,
        tokens=task.tokens,
    )


def _transport(spec: Spec, data: FederatedData, task: Task) -> Transport:
    return Sequential(data, task) if spec.run.backend == "sequential" else Vectorized(data, task)


def _repeated(
    run: _Run, fed: NewcomerFederation, placement: Placement, data: FederatedData, cluster: int | None
) -> tuple[int, float]:
    """The number of repetitions, and the share of them with the same cluster."""
    some = data.clients[1 + RESAMPLES :] if fed.trained else data.clients[1 : 1 + RESAMPLES]
    row = run.place(fed, some).row
    return len(some), float(np.mean([row.get(client) == cluster for client in some]))


def _cluster_score(record: RunRecord, cluster: int) -> dict[str, Any] | None:
    """Test results of the clients that are served a cluster's model."""
    results = record.client_results()
    members = (results.cluster == cluster) & (results.total > 0)
    examples = int(results.total[members].sum())
    if not examples:
        return None
    correct = None if results.correct is None else float(results.correct[members].sum() / examples)
    loss = float(np.dot(results.loss[members].astype(np.float64), results.total[members]) / examples)
    return {"accuracy": correct, "loss": loss, "examples": examples}


def _own_score(server: Server, placement: Placement, data: FederatedData, task: Task) -> dict[str, Any] | None:
    """Test results on the newcomer's own examples that did not take part in the decision."""
    scores = evaluated(server.scoring(), Seed(0), (data.clients[0],), placement)
    examples = int(scores.total.sum())
    if not examples:
        return None
    accuracy = None if task.classes is None else float(scores.correct.sum()) / examples
    return {"accuracy": accuracy, "loss": float(scores.loss.sum()) / examples, "examples": examples}


def _notes(
    spec: Spec, fed: NewcomerFederation, placement: Placement, cluster: int | None, *, labeled: bool
) -> Iterable[str]:
    name = spec.method.name
    if placement.adapt is not None:
        yield f"{name}: each client adapts the model that it is served to its own examples."
    if tree.rows(placement.bank) == 1:
        yield f"{name} serves one model to all clients: there is nothing to decide."
    elif cluster is None:
        yield f"{name} has no cluster for it yet: it is served the fallback model."
    elif not fed.asked:
        yield f"{name} places newcomers without looking at their examples."
    if fed.others:
        yield "The clients of the run were not asked; the method decided without their replies."
    if labeled and fed.asked:
        yield f"{name} used the labels; it cannot place a newcomer without them."
