"""Records that are written by hand, so that every number of a report can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.runs.client_facts import RecordedFacts
from coterie.runs.client_results import ClientResults
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec
from coterie.runs.summary import final
from coterie.runs.writer import Writer

#: Round → client → (cluster, number of correct predictions of ten).
Answers = Sequence[Mapping[str, tuple[int, int]]]


def line(t: int, clients: Mapping[str, tuple[int, int]], **more: Any) -> dict[str, Any]:
    """The line of an evaluated round in which all clients took part; each has ten test examples."""
    clusters = sorted({cluster for cluster, _ in clients.values()})
    right = {each: [n for cluster, n in clients.values() if cluster == each] for each in clusters}
    rates = sorted(n / 10 for _, n in clients.values())
    sizes = [len(right.get(each, ())) for each in range(max(clusters) + 1)]
    return {
        "t": t,
        "stage": "train",
        "cohort_size": len(clients),
        "skipped": None,
        "seconds": 1.0,
        "loss": 2.0 - 0.5 * t,
        "discrepancy": 0.1,
        "assignment": {client: cluster for client, (cluster, _) in clients.items()},
        "counts": {},
        "traffic": {"train": {"down": 100, "up": 50}, "evaluate": {"down": 7, "up": 3}},
        "accuracy": {
            "weighted": float(np.mean(rates)),
            "mean": float(np.mean(rates)),
            "worst_tenth": rates[0],
            "per_cluster": {str(each): float(np.mean(right[each])) / 10 for each in clusters},
        },
        "test_loss": 1.0 - 0.1 * t,
        "coverage": 1.0,
        "clusters": {
            "count": len(clusters),
            "sizes": sizes,
            "empty": sizes.count(0),
            "unassigned": 0,
            "collapsed": False,
            "adapted": False,
        },
        "truth": None,
        **more,
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a record: `answers` in each round, and what the arguments add to it."""

    def write(
        answers: Answers,
        *,
        name: str = "run",
        spec: Mapping[str, Mapping[str, Any]] | None = None,
        lines: Sequence[Mapping[str, Any]] = (),
        evidence: Mapping[int, Mapping[str, Any]] | None = None,
        facts: RecordedFacts | None = None,
        summary: Mapping[str, Any] | None = None,
        status: str | None = "done",
    ) -> Path:
        settings = {"data": {"name": "blobs"}, "model": {"name": "mclr"}, "method": {"name": "ifca"}, **(spec or {})}
        settings["run"] = {"primary_metric": "accuracy", "score_with": "current", **settings.get("run", {})}
        resolved = fill_defaults(Spec.from_dict(settings))
        folder = tmp_path / name
        rows = [line(t, each, **(lines[t] if t < len(lines) else {})) for t, each in enumerate(answers)]
        with Writer.create(folder, resolved.to_toml()) as writer:
            if facts is not None:
                writer.client_facts(facts)
            everyone = list(dict.fromkeys(client for each in answers for client in each))
            for t, (row, each) in enumerate(zip(rows, answers, strict=True)):
                writer.client_results(_results(t, each), everyone)
                if evidence and t in evidence:
                    writer.evidence(t, evidence[t])
                writer.append(row)
            if status is not None:
                writer.end({**_summary(resolved, rows, status), **(summary or {})}, _served(resolved, answers))
        return folder

    return write


def _results(step: int, clients: Mapping[str, tuple[int, int]]) -> ClientResults:
    right = np.array([n for _, n in clients.values()])
    cluster = np.array([cluster for cluster, _ in clients.values()])
    loss = (1 - right / 10).astype(np.float32)
    return ClientResults(step, tuple(clients), cluster, np.full(len(right), 10), loss, right)


def _summary(spec: Spec, rows: Sequence[dict[str, Any]], status: str) -> dict[str, Any]:
    return {
        "format": 2,
        "status": status,
        "method": spec.method.name,
        "data": spec.data.name,
        "model": spec.model.name,
        "seed": spec.run.seed,
        "rounds": len(rows),
        "clients": len(rows[-1]["assignment"]) if rows else 0,
        **final(rows, spec.run.target),
        "drift": None,
        "privacy": None,
        "traffic": {"by_purpose": {"train": {"down": 100 * len(rows), "up": 50 * len(rows)}}},
        "rejected_replies": {},
        "lost_replies": 0,
        "seconds": {"total": 5.0},
        "versions": {"python": "3.11"},
    }


def _served(spec: Spec, answers: Answers) -> dict[str, Any]:
    last = answers[-1] if answers else {}
    row = {client: cluster for client, (cluster, _) in last.items()}
    count = max(row.values(), default=0) + 1
    return {"bank": {"w": np.zeros((count, 1))}, "row": row, "fallback": {"w": np.zeros(1)}, "spec": spec.to_dict()}
