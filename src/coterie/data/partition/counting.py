"""Small steps that several partitions share: checked counts, examples by class, whole numbers in given proportions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.data.checks import classes_of
from coterie.data.federated import Integers
from coterie.errors import DataError, SpecError
from coterie.types import Array


def at_least(name: str, value: float, least: float, why: str = "") -> None:
    """Refuse a setting that is too small, and say why."""
    if not value >= least:
        raise SpecError(f"{name} must be at least {least}{why and f', {why}'}, got {value}")


def a_client_each(clients: int, clusters: int) -> None:
    """Refuse clusters without a client."""
    if clients < clusters:
        raise SpecError(f"data.clients must be at least data.clusters ({clusters}), got {clients}")


def above(name: str, value: float, bound: float) -> None:
    """Refuse a setting that is not larger than a bound."""
    if not value > bound:
        raise SpecError(f"{name} must be more than {bound}, got {value}")


def at_most(name: str, value: float, most: float, why: str) -> None:
    """Refuse a setting that is too large, and say why."""
    if not value <= most:
        raise SpecError(f"{name} must be at most {most}, {why}, got {value}")


def labels_of(labels: Array) -> tuple[Integers, int]:
    """The labels as whole numbers, and the number of classes: one more than the largest."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0 or labels.min() < 0:
        raise DataError("Labels must be a list of whole numbers from 0 on, at least one. Number the classes from 0")
    return labels.astype(np.int64), classes_of(labels)


def by_label(labels: Integers, classes: int) -> list[npt.NDArray[np.int64]]:
    """The example numbers of each class, in their order."""
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=classes))
    return np.split(order, ends[:-1])


def apportion(total: int, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Whole numbers in these proportions that add up to the total, by largest remainders; ties go to the first."""
    sum_of_shares = shares.sum()
    if not sum_of_shares > 0:
        shares, sum_of_shares = np.ones_like(shares), np.float64(len(shares))
    quotas = total * (shares / sum_of_shares)
    counts: npt.NDArray[np.int64] = np.floor(quotas).astype(np.int64)
    left = total - int(counts.sum())
    counts[np.argsort(counts - quotas, kind="stable")[:left]] += 1
    return counts
