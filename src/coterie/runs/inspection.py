"""Who is in which cluster, since when, with which score, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.errors import RecordError, unknown
from coterie.runs.evidence import Reason, reasons
from coterie.runs.record import RunRecord
from coterie.runs.record_files import EVIDENCE, step_files


@dataclass(frozen=True)
class ClientInspection:
    """A client in the record of a run.

    Attributes:
        client: Its id.
        cluster: Its cluster, a row of `RunRecord.models`; None: it is served the fallback model.
        since: Round in which it came to this cluster, -1 for the preparation; None: no round assigned it, or the last
            evaluation found another cluster than the last round.
        examples: Number of its test examples.
        accuracy: Test accuracy; None for regression or without test examples.
        loss: Mean test loss; None without test examples.
        reason: The values on which its cluster was last decided; None if the record has none.
        decided: Round of that decision, -1 for the preparation.
    """

    client: str
    cluster: int | None
    since: int | None
    examples: int | None = None
    accuracy: float | None = None
    loss: float | None = None
    reason: Reason | None = None
    decided: int | None = None

    @property
    def own_value(self) -> float | None:
        """The value of its own cluster."""
        return None if self.reason is None else self.reason.values.get(self._key)

    @property
    def nearest_other(self) -> str | None:
        """The nearest other cluster."""
        return None if self.reason is None else self.reason.nearest_other(self._key)

    @property
    def other_value(self) -> float | None:
        """The value of the nearest other cluster."""
        other = self.nearest_other
        return None if self.reason is None or other is None else self.reason.values[other]

    @property
    def _key(self) -> str:
        """The name of its cluster among the values."""
        assert self.reason is not None
        return "its part" if "its part" in self.reason.values else str(self.cluster)

    def row(self) -> dict[str, Any]:
        """One line of a table: the decision with its own and the nearest other cluster."""
        return {
            "client": self.client,
            "cluster": self.cluster,
            "since": self.since,
            "examples": self.examples,
            "accuracy": self.accuracy,
            "loss": self.loss,
            "decided_by": None if self.reason is None else self.reason.what,
            "decided_in": self.decided,
            "value": self.own_value,
            "nearest_other": self.nearest_other,
            "other_value": self.other_value,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the values of all clusters."""
        return {**self.row(), "values": None if self.reason is None else self.reason.to_dict()}


def inspect(record: RunRecord, client: str | None = None) -> list[ClientInspection]:
    """Inspect the clients of a record; see `RunRecord.inspect`."""
    record.models()  # raises if the run is not finished
    row: Mapping[str, int] = record.served["row"]
    known = sorted({*row, *record.served.get("unassigned", ())})
    if client is not None and client not in known:
        raise RecordError(unknown("client", client, known[:1000]))
    wanted = known if client is None else [client]
    since, scores = _since(record, row), _scores(record)
    why = _reasons(record, wanted)
    return [
        ClientInspection(each, row.get(each), since.get(each), *scores.get(each, ()), *why.get(each, ()))
        for each in wanted
    ]


def _since(record: RunRecord, row: Mapping[str, int]) -> dict[str, int]:
    """Client → round in which its cluster last changed, if that is the cluster that it is served."""
    last: dict[str, int] = {}
    changed: dict[str, int] = {}
    for line in record.rounds[: _end(record)]:
        for client, cluster in (line.get("assignment") or {}).items():
            if last.get(client) != cluster:
                last[client], changed[client] = cluster, line["t"]
    return {client: t for client, t in changed.items() if last[client] == row.get(client)}


def _scores(record: RunRecord) -> dict[str, tuple[int, float | None, float | None]]:
    """Client → number of test examples, accuracy and loss in the evaluation of the models that are served."""
    try:
        results = record.client_results()
    except RecordError:  # the record has no evaluation
        return {}
    found: dict[str, tuple[int, float | None, float | None]] = {}
    for place, client in enumerate(results.clients):
        total = int(results.total[place])
        accuracy = None if results.correct is None or not total else float(results.accuracy[place])
        found[client] = total, accuracy, float(results.loss[place]) if total else None
    return found


def _reasons(record: RunRecord, clients: Iterable[str]) -> dict[str, tuple[Reason, int]]:
    """Client → the last reason for its cluster, and the round of that decision."""
    missing = set(clients)
    found: dict[str, tuple[Reason, int]] = {}
    if record.path is None:
        return found
    for step in reversed(step_files(record.path / EVIDENCE)):
        if not missing:
            break
        if (end := _end(record)) is not None and step >= end:
            continue
        for client, reason in reasons(record.evidence(step)).items():
            if client in missing and reason.values:
                found[client] = reason, record.rounds[step]["t"]
                missing.discard(client)
    return found


def _end(record: RunRecord) -> int | None:
    """Number of steps until the models that are served; None: all."""
    return None if record.served_step is None else record.served_step + 1
