"""Checks statements of a paper on measured values.

at_least, at_most, between      every value is within the limits
rising, falling                 no value is lower (higher) than the one before, along rows or columns
highest                         the row (column) `best` has the highest value of each column (row)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coterie.reproduce.schema import Claim, Entry

#: (row, column) → measured mean.
Means = Mapping[tuple[str, str], float]

_BEST: dict[str, Callable[[Sequence[float]], float]] = {"highest": max, "lowest": min}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim.

    Attributes:
        claim: The claim.
        how: How it was checked.
        holds: Whether it holds; None if values are missing.
        evidence: The values.
    """

    claim: Claim
    how: str
    holds: bool | None
    evidence: str


def check(claim: Claim, means: Means, entry: Entry, errors: Means | None = None) -> Verdict:
    """Check a claim; a group of cells with missing values is left out, and without any other it is not checked.

    Args:
        claim: The claim.
        means: The measured means.
        entry: The entry of the claim.
        errors: Standard errors of the means, which are shown beside them: a difference may be within them.
    """
    rows = claim.rows or tuple(row.name for row in entry.rows)
    columns = claim.columns or tuple(column.name for column in entry.columns)
    groups = [[place for place in group if place in means] for group in _groups(claim, rows, columns, entry)]
    least = 1 if claim.rule in ("at_least", "at_most", "between") else 2
    known = [group for group in groups if len(group) >= least]
    if claim.rule in _BEST:
        known = [group for group in known if any(claim.best in place for place in group)]
    outcomes = [_holds(claim, group, means) for group in known]
    evidence = "; ".join(", ".join(_shown(place, means, errors or {}) for place in group) for group in known)
    return Verdict(claim, _how(claim), all(outcomes) if outcomes else None, evidence)


def _shown(place: tuple[str, str], means: Means, errors: Means) -> str:
    return f"{means[place]:.4g} ± {errors[place]:.2g}" if place in errors else f"{means[place]:.4g}"


def _groups(claim: Claim, rows: Sequence[str], columns: Sequence[str], entry: Entry) -> list[list[tuple[str, str]]]:
    """Cells that are compared with each other: those of a row, or of a column."""
    by_row = [[(row, column) for column in columns] for row in rows]
    by_column = [[(row, column) for row in rows] for column in columns]
    if claim.rule in _BEST:
        return by_row if claim.best in {column.name for column in entry.columns} else by_column
    return by_column if claim.along == "rows" else by_row


def _holds(claim: Claim, group: Sequence[tuple[str, str]], means: Means) -> bool:
    values = [means[place] for place in group]
    pairs = list(pairwise(values))
    if claim.rule == "rising":
        return all(one <= other for one, other in pairs)
    if claim.rule == "falling":
        return all(one >= other for one, other in pairs)
    if claim.rule in _BEST:
        return _BEST[claim.rule](values) == next(means[place] for place in group if claim.best in place)
    low, high = claim.low, claim.high
    return all((low is None or value >= low) and (high is None or value <= high) for value in values)


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
