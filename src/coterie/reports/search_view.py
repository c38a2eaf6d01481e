"""How a method chose its clusters: the scores of its candidates, and the variance of the clients' gradients.

Both are read from evidence that only some methods record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.errors import RecordError
from coterie.reports.view import RunView
from coterie.runs.record_files import EVIDENCE, step_files
from coterie.types import Array


@dataclass(frozen=True)
class Candidates:
    """Numbers of clusters that a method compared.

    Attributes:
        clusters: Number of clusters of each candidate.
        score: Its score: the accuracy of a trial run on validation clients (FLAG), or the quality of the clustering.
        threshold: Distance threshold that gives each candidate, ascending; None for methods without one.
        chosen: Position of the chosen candidate; None if it is not known.
    """

    clusters: Array
    score: Array
    threshold: Array | None
    chosen: int | None


def candidates_of(view: RunView) -> Candidates:
    """The last search of a run for its number of clusters.

    Raises:
        RecordError: If its method did not search.
    """
    for evidence in _evidence(view):
        scores = evidence.get("scores")
        if not isinstance(scores, dict) or len(scores) < 2:
            continue
        counts = sorted(map(int, scores))
        thresholds = np.sort(np.asarray(evidence.get("thresholds", ()), np.float64))
        chosen = None if "labels" not in evidence else int(np.max(evidence["labels"])) + 1
        if len(thresholds) == len(counts):
            counts = counts[::-1]  # a larger threshold gives fewer clusters
        return Candidates(
            np.array(counts, np.int64),
            np.array([float(scores[str(count)]) for count in counts]),
            thresholds if len(thresholds) == len(counts) else None,
            counts.index(chosen) if chosen in counts else None,
        )
    raise RecordError(
        f"{view.path} has no search for the number of clusters. Draw a run of flag, or of a method with clusters = "
        '"auto" (--clusters auto): fedgroup, pacfl, flhc'
    )


def explained_variance_of(view: RunView) -> Array:
    """Share of the variance of the clients' gradients in the first 1, 2, … principal components, the mean over rounds.

    Raises:
        RecordError: If the run has no principal components, or not all of them.
    """
    if view.method != "fedsim":
        raise RecordError(f"{view.path} has no principal components of gradients; draw a run of fedsim")
    if float(view.spec["method"].get("variance", 0)) < 1:
        raise RecordError(
            f"{view.path} has only the principal components that were used for clustering; "
            "run it with --set method.variance=1 to record all of them"
        )
    shares = []
    for evidence in _evidence(view):
        scores = evidence.get("scores")
        if (
            isinstance(scores, np.ndarray)
            and scores.ndim == 2
            and (variance := (scores.astype(np.float64) ** 2).sum(axis=0)).sum() > 0
        ):
            shares.append(np.cumsum(variance) / variance.sum())
    if not shares:
        raise RecordError(f"{view.path} has no principal components of gradients: no round clustered clients")
    table = np.ones((len(shares), max(map(len, shares))))  # after the last component nothing is left to explain
    for row, share in zip(table, shares, strict=True):
        row[: len(share)] = share
    mean: Array = table.mean(axis=0)
    return mean


def _evidence(view: RunView) -> Iterator[dict[str, Any]]:
    """The evidence of a run, the latest step first."""
    for step in reversed(step_files(view.path / EVIDENCE)):
        if step < len(view.rounds):
            yield view.record.evidence(step)
