"""The evidence of a clustering, read as reasons: for each client one value per cluster, and which value is best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.types import Array

#: Evidence with one value per client and cluster → what the values are, and whether the largest is best.
_PER_CLUSTER = {
    "losses": ("loss", False),
    "cosines": ("cosine", True),
    "weights": ("share of examples", True),
    "mean_distances": ("mean distance", False),
    "mean_proximity": ("mean proximity", False),
    "mean_angles": ("mean angle", False),
}

#: Evidence with one value per pair of clients → what the mean over the clients of a cluster is.
_PAIRS = {"distances": "mean distance", "angles": "mean angle", "proximity": "mean proximity"}


@dataclass(frozen=True)
class Reason:
    """The values on which the cluster of a client was decided.

    Attributes:
        what: What the values are, such as `loss` or `mean distance`.
        values: Cluster → value; clusters without a value are missing.
        largest: Whether the largest value is the best one; otherwise the smallest.
    """

    what: str
    values: Mapping[str, float]
    largest: bool = False

    def ranked(self) -> list[str]:
        """The clusters, the best first; ties in the order of clusters."""
        sign = -1.0 if self.largest else 1.0
        return sorted(self.values, key=lambda cluster: sign * self.values[cluster])

    def margin(self, cluster: str) -> float | None:
        """How much better a cluster is than the best of the others; negative if it is worse, None without others."""
        others = [other for other in self.ranked() if other != cluster]
        if cluster not in self.values or not others:
            return None
        own, other = self.values[cluster], self.values[others[0]]
        return own - other if self.largest else other - own

    def nearest_other(self, cluster: str) -> str | None:
        """The best of the other clusters; None without others."""
        return next((other for other in self.ranked() if other != cluster), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"what": self.what, "best": "largest" if self.largest else "smallest", "values": dict(self.values)}


def reasons(evidence: Mapping[str, Any]) -> dict[str, Reason]:
    """Client → reason, for the clients in the evidence of a step or of a placement.

    Evidence that has no value per cluster, such as the goodness of a trial run, gives none.
    """
    if "clients" not in evidence:  # CFL: cluster → evidence of its split
        parts = [each for each in evidence.values() if isinstance(each, Mapping) and "similarities" in each]
        return {client: reason for each in parts for client, reason in _of_split(each).items()}
    clients = list(evidence["clients"])
    for key, (what, largest) in _PER_CLUSTER.items():
        if key in evidence:
            return _rows(clients, np.asarray(evidence[key]), what, largest)
    labels = evidence.get("labels")
    if "merged" in evidence:  # SR-FCA: distances to the clusters before MERGE
        parts_of = [list(part) for part in evidence["merged"]]
        distances = np.asarray(evidence["distances"])
        nearest = np.stack([distances[:, part].min(axis=1) for part in parts_of], axis=1)
        return _rows(clients, nearest, "distance", largest=False)
    if labels is None:
        found = evidence.get("distances")
        return {} if found is None else _rows(clients, np.asarray(found), "distance", largest=False)
    if "embedding" in evidence:
        return _rows(clients, _to_centers(np.asarray(evidence["embedding"]), np.asarray(labels)), "distance", False)
    for key, what in _PAIRS.items():
        if key in evidence:
            return _rows(clients, _means(np.asarray(evidence[key]), np.asarray(labels)), what, largest=False)
    return {}


def _rows(clients: list[str], values: Array, what: str, largest: bool) -> dict[str, Reason]:
    if values.ndim != 2 or len(values) != len(clients):
        return {}
    return {
        client: Reason(what, {str(c): float(v) for c, v in enumerate(row) if not math.isnan(v)}, largest)
        for client, row in zip(clients, values, strict=True)
    }


def _means(pairs: Array, labels: Array) -> Array:
    """The mean over the clients of each cluster, without the client itself; NaN for no other client."""
    count = int(labels.max(initial=-1)) + 1
    members = (labels[:, None] == np.arange(count)).astype(np.float64)  # (clients, clusters)
    off_diagonal = np.where(np.eye(len(pairs), dtype=bool), 0.0, pairs)
    sizes = members.sum(axis=0) - members
    means: Array = np.divide(off_diagonal @ members, sizes, out=np.full(members.shape, np.nan), where=sizes > 0)
    return means


def _to_centers(points: Array, labels: Array) -> Array:
    """The distance of each point to the mean of each cluster; NaN for a cluster without points."""
    found = np.full((len(points), int(labels.max(initial=-1)) + 1), np.nan)
    for cluster in np.unique(labels[labels >= 0]):
        found[:, cluster] = np.linalg.norm(points - points[labels == cluster].mean(axis=0), axis=1)
    return found


def _of_split(evidence: Mapping[str, Any]) -> dict[str, Reason]:
    """The reasons of CFL: the mean cosine of a client's update to those of its part, and of the other part."""
    labels = np.asarray(evidence["labels"])
    means = _means(np.asarray(evidence["similarities"]), labels)
    named = {}
    for place, client in enumerate(evidence["clients"]):
        own = int(labels[place])
        values = {"its part": means[place, own], "other part": means[place, 1 - own]}
        known = {part: float(value) for part, value in values.items() if not math.isnan(value)}
        named[client] = Reason("mean cosine of updates", known, largest=True)
    return named
