"""The map of clients: what they were clustered on, in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.reports.evidence_view import Evidence, Features, Pairs
from coterie.types import Array

#: Distances of more clients are not projected: their matrix has too many eigenvalues to wait for.
_MAX_PAIRS = 3000


@dataclass(frozen=True)
class Projection:
    """Clients as points in the plane.

    Attributes:
        clients: Client ids.
        x: First coordinate.
        y: Second coordinate.
        how: How the coordinates were made, for a caption.
        labels: Names of both axes.
        explained: Fraction of the variance that each axis has; None if the axes are values as recorded.
    """

    clients: tuple[str, ...]
    x: Array
    y: Array
    how: str
    labels: tuple[str, str]
    explained: tuple[float, float] | None


def project(evidence: Evidence) -> Projection | None:
    """The map of the clients in the evidence; None if the record has none.

    Rows of numbers are projected by principal components; two numbers per client are shown as they are. Without rows,
    or if more clients have distances, classical scaling of the distances is used.
    """
    features, pairs = evidence.features, evidence.pairs
    counted = 0 if pairs is None or pairs.derived else len(pairs.clients)
    if features is not None and len(features.clients) >= counted:
        return _of_rows(features)
    return None if pairs is None or len(pairs.clients) > _MAX_PAIRS else _of_pairs(pairs)


def _of_rows(features: Features) -> Projection:
    values = _finite(features.values)
    if values.shape[1] == 2:
        how = f"For each client: {features.what}."
        return Projection(features.clients, values[:, 0], values[:, 1], how, _pair(features.columns), None)
    points, explained = principal_components(values)
    how = f"Principal components of the {values.shape[1]} numbers of each client: {features.what}."
    labels = ("first principal component", "second principal component")
    return Projection(features.clients, points[:, 0], points[:, 1], how, labels, explained)


def _of_pairs(pairs: Pairs) -> Projection:
    points, explained = classical_scaling(pairs.distances())
    how = f"Classical multidimensional scaling: nearby clients have a small distance ({pairs.what})."
    if pairs.alike:
        how = f"Classical multidimensional scaling: nearby clients are similar ({pairs.what})."
    return Projection(pairs.clients, points[:, 0], points[:, 1], how, ("first axis", "second axis"), explained)


def principal_components(values: Array) -> tuple[Array, tuple[float, float]]:
    """(rows, 2) coordinates on the first two principal components, and their fractions of the variance."""
    centered = values - values.mean(axis=0)
    left, spread, _ = np.linalg.svd(centered, full_matrices=False)
    points = np.zeros((len(values), 2))
    kept = min(2, len(spread))
    points[:, :kept] = _signed(left[:, :kept] * spread[:kept])
    return points, _fractions(spread**2)


def classical_scaling(distances: Array) -> tuple[Array, tuple[float, float]]:
    """(points, 2) coordinates whose distances are close to the given ones, and their fractions of the variance."""
    squared = distances**2
    centered = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1, keepdims=True) + squared.mean())
    values, vectors = np.linalg.eigh(centered)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    points = np.zeros((len(distances), 2))
    kept = min(2, len(values))
    points[:, :kept] = _signed(vectors[:, :kept] * np.sqrt(values[:kept]))
    return points, _fractions(values)


def _fractions(variance: Array) -> tuple[float, float]:
    total = float(variance.sum())
    first, second = ([*variance[:2].tolist(), 0.0, 0.0])[:2]
    return (first / total, second / total) if total > 0 else (0.0, 0.0)


def _signed(points: Array) -> Array:
    """The points with axes turned so that the largest coordinate is positive: the sign of an axis is arbitrary."""
    largest = np.take_along_axis(points, np.abs(points).argmax(axis=0)[None, :], axis=0)
    turned: Array = points * np.where(largest < 0, -1.0, 1.0)
    return turned


def _finite(values: Array) -> Array:
    """The values with NaN and infinity replaced by the largest value of their column."""
    known = np.where(np.isfinite(values), values, -np.inf).max(axis=0)
    found: Array = np.where(np.isfinite(values), values, np.where(np.isfinite(known), known, 0.0))
    return found


def _pair(columns: tuple[str, ...]) -> tuple[str, str]:
    return columns[0], columns[1]
