"""`RunView`: everything that pages and figures show of one run, read from its record.

Rounds are counted from 1 here, as people count them; 0 is the time before the first round. Parts are read when they are
first used, so that a comparison of many runs reads no evidence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coterie.errors import RecordError
from coterie.reports.client_table import ClientTable, client_table
from coterie.reports.costs import Faults, Traffic, faults_of, traffic_of
from coterie.reports.evidence_view import Evidence, read_evidence
from coterie.reports.movements import Movements, movements_of
from coterie.reports.score_curves import Curves, PrimaryMetric, Sizes, curves_of, primary_metric, sizes_of
from coterie.reports.status import status_of
from coterie.runs.client_facts import RecordedFacts
from coterie.runs.client_results import ClientResults
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.record_files import CLIENTS, SPEC, step_files
from coterie.runs.spec import read_toml
from coterie.runs.summary import evaluated_rounds, final
from coterie.types import Array


@dataclass(frozen=True)
class RunView:
    """A run as its record shows it.

    Attributes:
        record: The record.
        path: Its folder.
        spec: The resolved spec: section → setting → value.
        status: `done`, `failed`, `diverged`, `running` or `interrupted`.
        summary: The keys of `summary.json`; of a run without one, those that follow from the lines so far.
        facts: What is known about the clients' data; None if the record does not have it.
    """

    record: RunRecord
    path: Path
    spec: Mapping[str, Mapping[str, Any]]
    status: str
    summary: JsonObject
    facts: RecordedFacts | None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RunView:
        """Read the record in a folder; an unfinished or failed run is read as far as it went."""
        record = RunRecord.read(path)
        folder = Path(path)
        spec = read_toml(folder / SPEC)
        status = status_of(folder, record.summary)
        ended = record.summary and status != "running"  # a resumed run has the summary of its failure until it ends
        summary = record.summary if ended else _summary_so_far(record, spec)
        return cls(record, folder, spec, status, summary, RecordedFacts.read(folder))

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.spec["method"]["name"])

    @property
    def rounds(self) -> list[JsonObject]:
        """The lines of the record: one dict per step."""
        return self.record.rounds

    @property
    def served(self) -> bool:
        """Whether its clients are on other machines (`coterie serve`)."""
        return bool(self.rounds) and "network" in self.rounds[0]

    @property
    def reason(self) -> str | None:
        """Why the run failed; None if it did not."""
        found = self.summary.get("reason")
        return None if found is None else str(found)

    @cached_property
    def metric(self) -> PrimaryMetric:
        """The primary metric."""
        return primary_metric(self.spec, self.rounds)

    @cached_property
    def evaluations(self) -> dict[int, ClientResults]:
        """Round → results of each client in the last evaluation of that round."""
        files = step_files(self.path / CLIENTS)
        places = evaluated_rounds(self.rounds)
        found = {t + 1: place for t, place in places.items() if place in files}
        results = ClientResults.read_steps(self.path, found.values()) if found else {}
        return {t: results[place] for t, place in found.items()}

    @cached_property
    def last_evaluation(self) -> ClientResults | None:
        """Results of each client in the last evaluation; None if there was none."""
        try:
            return self.record.client_results()
        except RecordError:
            return None

    @property
    def n_clients(self) -> int:
        """Number of clients in the last evaluation."""
        return 0 if self.last_evaluation is None else len(self.last_evaluation.clients)

    @cached_property
    def curves(self) -> Curves:
        """Scores over rounds: of all clients, their band, and of each cluster."""
        return curves_of(self.rounds, self.evaluations, self.metric)

    @cached_property
    def sizes(self) -> Sizes:
        """Number of clients in each cluster over rounds."""
        return sizes_of(self.rounds)

    @cached_property
    def true_clusters(self) -> dict[str, int]:
        """Client → true cluster after the last step; empty if true clusters are not known."""
        found = self._true_clusters_at_start()
        for row in self.rounds if found else ():
            found |= row.get("true_clusters") or {}
        return found

    def _true_clusters_at_start(self) -> dict[str, int]:
        if self.facts is None or self.facts.true_cluster is None:
            return {}
        return dict(zip(self.facts.clients, self.facts.true_cluster.tolist(), strict=True))

    @cached_property
    def movements(self) -> Movements:
        """Which clients were in which cluster over rounds, and which of them moved."""
        return movements_of(self.rounds, self.evaluations, self._true_clusters_at_start())

    @cached_property
    def evidence(self) -> Evidence:
        """What the latest clustering of each client was based on."""
        return read_evidence(self.record)

    @cached_property
    def clients(self) -> ClientTable:
        """One row per client: cluster, score, samples, nearest other cluster."""
        return client_table(self)

    @cached_property
    def labels_per_cluster(self) -> dict[int, Array] | None:
        """Cluster → number of training examples of each class, at the start of the run; None if not recorded."""
        if self.facts is None or self.facts.labels is None or self.last_evaluation is None:
            return None
        position = {client: place for place, client in enumerate(self.facts.clients)}
        rows = [position[client] for client in self.last_evaluation.clients]
        counts, cluster = self.facts.labels[rows], self.last_evaluation.cluster
        return {int(each): counts[cluster == each].sum(axis=0) for each in sorted(set(cluster.tolist()))}

    @property
    def class_names(self) -> list[str] | None:
        """Name of each class; their numbers if they have no names, None for regression."""
        if names := self.record.served.get("class_names"):
            return [str(each) for each in names]
        if self.facts is None or self.facts.labels is None:
            return None
        return [str(each) for each in range(self.facts.labels.shape[1])]

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes by purpose, and over rounds."""
        return traffic_of(self.rounds, self.summary)

    @cached_property
    def faults(self) -> Faults:
        """Lost and rejected replies, and skipped rounds."""
        return faults_of(self.rounds, self.record.summary)


def _summary_so_far(record: RunRecord, spec: Mapping[str, Mapping[str, Any]]) -> JsonObject:
    """The part of a summary that follows from the lines, for a run that has none."""
    metric = primary_metric(spec, record.rounds)
    done = [row["t"] for row in record.rounds if row["stage"] == "train"]
    names = {section: spec[section]["name"] for section in ("method", "data", "model")}
    rounds = max(done, default=-1) + 1
    target = float(spec["run"].get("target", 0.0))
    found = final(record.rounds, target, metric.name, higher=metric.greater_is_better)
    return {**names, "seed": spec["run"]["seed"], "rounds": rounds, **found}
