"""Checks statements of a paper on measured values.

at_least, at_most, between      every value is within the limits
rising, falling                 no value is lower (higher) than the one before, along rows or columns
highest                         the row (column) `best` has the highest value of each column (row)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from coterie.reproduce.schema import Claim, Entry

#: Row and column of a cell.
Place: TypeAlias = tuple[str, str]

#: Cell → measured mean.
Means: TypeAlias = Mapping[Place, float]

#: Rules about the best row or column → the sign of its advantage.
_BEST = {"highest": 1, "lowest": -1}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim.

    Attributes:
        claim: The claim.
        how: How it was checked.
        holds: Whether it holds; None if values are missing, or if the runs are scaled down.
        evidence: The values.
        within_error: Whether a standard error of the values or differences would change the outcome.
        measured: Number of cells that were compared.
        cells: Number of cells that the claim is about.
    """

    claim: Claim
    how: str
    holds: bool | None
    evidence: str
    within_error: bool = False
    measured: int = 0
    cells: int = 0


def check(claim: Claim, means: Means, entry: Entry, errors: Means | None = None) -> Verdict:
    """Check a claim on the cells that have values; without enough of them it is not checked.

    A claim that does not hold for some cells does not hold for more. One that holds is only shown for those compared.

    Args:
        claim: The claim.
        means: The measured means.
        entry: The entry of the claim.
        errors: Standard errors of the means.
    """
    rows = claim.rows or tuple(row.name for row in entry.rows)
    columns = claim.columns or tuple(column.name for column in entry.columns)
    existing = {(row.name, column.name) for row, column in entry.pairs()}
    everything = [[place for place in group if place in existing] for group in _groups(claim, rows, columns, entry)]
    groups = [[place for place in group if place in means] for group in everything]
    least = 1 if claim.rule in ("at_least", "at_most", "between") else 2
    known = [group for group in groups if len(group) >= least]
    if claim.rule in _BEST:
        known = [group for group in known if any(claim.best in place for place in group)]
    errors = errors or {}
    holds = all(_holds(claim, group, means, {}) for group in known) if known else None
    slack = -1 if holds else 1  # one that holds must still hold with less favorable values
    within_error = known != [] and holds is not all(_holds(claim, group, means, errors, slack) for group in known)
    evidence = "; ".join(", ".join(_shown(place, means, errors) for place in group) for group in known)
    return Verdict(claim, _how(claim), holds, evidence, within_error, sum(map(len, known)), sum(map(len, everything)))


def _shown(place: Place, means: Means, errors: Means) -> str:
    return f"{means[place]:.4g} ± {errors[place]:.2g}" if place in errors else f"{means[place]:.4g}"


def _groups(claim: Claim, rows: Sequence[str], columns: Sequence[str], entry: Entry) -> list[list[Place]]:
    """Cells that are compared with each other: those of a row, or of a column."""
    by_row = [[(row, column) for column in columns] for row in rows]
    by_column = [[(row, column) for row in rows] for column in columns]
    if claim.rule in _BEST:
        return by_row if claim.best in {column.name for column in entry.columns} else by_column
    return by_column if claim.along == "rows" else by_row


def _holds(claim: Claim, group: Sequence[Place], means: Means, errors: Means, slack: int = 1) -> bool:
    """Whether a claim holds for a group of cells if all values and differences are `slack` standard errors better."""

    def error(*places: Place) -> float:
        return slack * math.hypot(*(errors.get(place, 0.0) for place in places))

    if claim.rule in ("rising", "falling"):
        sign = 1 if claim.rule == "rising" else -1
        return all(sign * (means[other] - means[one]) >= -error(one, other) for one, other in pairwise(group))
    if claim.rule in _BEST:
        best = next(place for place in group if claim.best in place)
        others = [place for place in group if place != best]
        return all(_BEST[claim.rule] * (means[best] - means[place]) >= -error(best, place) for place in others)
    low = -math.inf if claim.low is None else claim.low
    high = math.inf if claim.high is None else claim.high
    return all(low - error(place) <= means[place] <= high + error(place) for place in group)


def _how(claim: Claim) -> str:
    limits = {
        "at_least": f"every value is at least {claim.low}",
        "at_most": f"every value is at most {claim.high}",
        "between": f"every value is between {claim.low} and {claim.high}",
        "rising": f"no value is lower than the one before, along {claim.along}",
        "falling": f"no value is higher than the one before, along {claim.along}",
        "highest": f"{claim.best} has the highest value",
        "lowest": f"{claim.best} has the lowest value",
    }
    return limits[claim.rule]
