"""What clients were clustered on: one row of numbers per client, or one number per pair of clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.runs.evidence import Reason, reasons
from coterie.runs.record import RunRecord
from coterie.runs.record_files import EVIDENCE, step_files
from coterie.types import Array

#: Evidence with one row per client → what the row is.
_ROWS = {
    "embedding": "similarity of its update to the main directions of all updates",
    "losses": "loss with the model of each cluster",
    "cosines": "cosine similarity of its update to the direction of each cluster",
    "weights": "share of its examples for each cluster",
    "mean_distances": "mean distance to the clients of each cluster",
    "mean_proximity": "mean proximity to the clients of each cluster",
    "mean_angles": "mean angle to the clients of each cluster",
    "scores": "principal components of its gradient",
    "distances": "distance to the model of each cluster",
}

#: Of these, those whose numbers mean something else in another step: components of the updates of that step.
_ONE_STEP = ("embedding", "scores")

#: Evidence with one number per pair of clients → what it is, and whether a large number means that they are alike.
_PAIRS = {
    "distances": ("distance", False),
    "angles": ("angle between subspaces", False),
    "proximity": ("proximity", False),
    "similarities": ("cosine similarity of updates", True),
}


@dataclass(frozen=True)
class Features:
    """One row of numbers per client.

    Attributes:
        clients: Client ids.
        values: (clients, features).
        what: What a row is.
        key: Name in the evidence.
        columns: What each column is, such as `cluster 0`.
        rounds: Round of each client's row, from 1; 0 is the preparation.
    """

    clients: tuple[str, ...]
    values: Array
    what: str
    key: str
    columns: tuple[str, ...]
    rounds: Array


@dataclass(frozen=True)
class Pairs:
    """One number per pair of clients.

    Attributes:
        clients: Client ids.
        values: (clients, clients).
        what: What a number is.
        alike: Whether a large number means that two clients are alike.
        round: Round, from 1; 0 is the preparation.
        derived: Whether the numbers were computed from `Features`.
        sampled_from: Number of clients of which these are a sample; 0: all are here.
    """

    clients: tuple[str, ...]
    values: Array
    what: str
    alike: bool
    round: int
    derived: bool = False
    sampled_from: int = 0

    def distances(self) -> Array:
        """The numbers as distances: symmetric, zero on the diagonal, small where clients are alike."""
        values = np.nan_to_num(np.asarray(self.values, np.float64), nan=float(np.nanmax(self.values, initial=0.0)))
        found: Array = values.max(initial=0.0) - values if self.alike else values - values.min(initial=0.0)
        found = (found + found.T) / 2
        np.fill_diagonal(found, 0.0)
        return found


@dataclass(frozen=True)
class Evidence:
    """What the latest clustering of each client was based on.

    Attributes:
        features: One row per client; None if the record has none.
        pairs: One number per pair of clients, of the step with most clients; None if the record has none.
        reasons: Client → values of the clusters in its latest decision.
    """

    features: Features | None = None
    pairs: Pairs | None = None
    reasons: Mapping[str, Reason] = field(default_factory=dict)


@dataclass
class _Gathered:
    """Rows of one kind of evidence, the latest of each client."""

    width: int
    rows: dict[str, tuple[Array, int]] = field(default_factory=dict)


def read_evidence(record: RunRecord) -> Evidence:
    """Read the evidence of a record, the latest steps first, until it is complete."""
    if record.path is None:
        return Evidence()
    files = step_files(record.path / EVIDENCE)
    everyone = _clients(record)
    gathered: dict[str, _Gathered] = {}
    pairs: Pairs | None = None
    why: dict[str, Reason] = {}
    for step in reversed(files):
        if step >= len(record.rounds):
            continue  # a step that is being written
        evidence, t = record.evidence(step), record.rounds[step]["t"] + 1
        for part in _parts(evidence):
            _gather(gathered, part, t)
            found = _pairs_in(part, t)
            if found is not None and (pairs is None or len(found.clients) > len(pairs.clients)):
                pairs = found
        why = {**reasons(evidence), **why}
    features = _most_complete(gathered)
    if pairs is None and features is not None and len(features.clients) > 1:
        pairs = _derived(features)
    known = {client: reason for client, reason in why.items() if client in everyone and reason.values}
    return Evidence(features, pairs, known)


def _clients(record: RunRecord) -> set[str]:
    return {client for row in record.rounds for client in row.get("assignment") or ()} | {*record.served.get("row", ())}


def _parts(evidence: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The evidence, or that of each cluster (CFL)."""
    if "clients" in evidence:
        yield evidence
    else:
        yield from (each for each in evidence.values() if isinstance(each, Mapping) and "clients" in each)


def _gather(gathered: dict[str, _Gathered], part: Mapping[str, Any], t: int) -> None:
    """Add the rows of clients that have no later row."""
    clients = list(part["clients"])
    for key in _ROWS:
        values = _matrix(part.get(key))
        if values is None or len(values) != len(clients) or _is_pairs(part, key, values):
            continue
        if key in _ONE_STEP and key in gathered:
            continue
        kind = gathered.setdefault(key, _Gathered(values.shape[1]))
        if kind.width == values.shape[1]:  # the number of clusters was another one before: not comparable
            for client, row in zip(clients, values, strict=True):
                kind.rows.setdefault(client, (row, t))


def _pairs_in(part: Mapping[str, Any], t: int) -> Pairs | None:
    for key, (what, alike) in _PAIRS.items():
        values = _matrix(part.get(key))
        if values is not None and len(values) == len(part["clients"]) and _is_pairs(part, key, values):
            return Pairs(tuple(part["clients"]), values, what, alike, t)
    return None


def _is_pairs(part: Mapping[str, Any], key: str, values: Array) -> bool:
    """Whether an array has one column per client: symmetric, and named like one that has."""
    if key not in _PAIRS or "merged" in part or values.shape[0] != values.shape[1]:
        return False
    return bool(np.allclose(values, values.T, rtol=1e-3, atol=1e-5, equal_nan=True))


def _matrix(value: Any) -> Array | None:
    if not isinstance(value, np.ndarray) or value.ndim != 2 or 0 in value.shape:
        return None
    return value


def _most_complete(gathered: Mapping[str, _Gathered]) -> Features | None:
    """The latest kind of evidence, of those that cover nearly as many clients as the most complete one."""
    kinds = {key: kind for key, kind in gathered.items() if kind.width > 1}
    if not kinds:
        return None
    enough = 0.8 * max(len(kind.rows) for kind in kinds.values())
    latest = {key: max(t for _, t in kind.rows.values()) for key, kind in kinds.items() if len(kind.rows) >= enough}
    key = max(latest, key=lambda key: latest[key])
    kind = kinds[key]
    clients = tuple(sorted(kind.rows))
    numbered = "direction" if key in ("embedding", "scores") else "cluster"
    return Features(
        clients,
        np.stack([np.asarray(kind.rows[client][0], np.float64) for client in clients]),
        _ROWS[key],
        key,
        tuple(f"{numbered} {place}" for place in range(kind.width)),
        np.array([kind.rows[client][1] for client in clients], np.int64),
    )


#: With more clients, distances are computed for a sample of them: more cannot be looked at one by one.
MAX_DERIVED = 2000


def _derived(features: Features) -> Pairs:
    from scipy.spatial.distance import pdist, squareform

    total = len(features.clients)
    places = np.unique(np.linspace(0, total - 1, min(total, MAX_DERIVED)).astype(np.int64))
    values = squareform(pdist(np.nan_to_num(features.values[places])))
    clients = tuple(features.clients[place] for place in places.tolist())
    what = f"Euclidean distance between clients, of: {features.what}"
    sampled = total if len(places) < total else 0
    return Pairs(clients, values, what, False, int(features.rounds.max()), derived=True, sampled_from=sampled)
