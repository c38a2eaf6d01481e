"""Summaries of curves over rounds: final score, cost to reach a target, convergence, improvement, Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from coterie.errors import SpecError, unknown
from coterie.metrics.validation import row_of
from coterie.types import Array

#: Rule for the final score.
FinalRule = Literal["last_ten", "best", "last"]


def final_score(
    curve: Sequence[float] | Array,
    rule: FinalRule = "last_ten",
    coverage: Sequence[float] | Array | None = None,
    rounds: Sequence[int] | None = None,
) -> float:
    """The final score of a curve of scores over rounds.

    Args:
        curve: Score of each round.
        rule: "last_ten": mean of the last ten rounds (of all, if there are fewer). "best": the maximum, as in the
            papers, which selects the round on test examples. "last": the last round.
        coverage: Share of clients with an assignment in each round; if given, rounds below 1 are ignored.
        rounds: Number of each round, increasing, if not every round has a score; the last ten are those above the last
            number minus ten. None: every round has a score.
    """
    if rule not in get_args(FinalRule):
        raise SpecError(unknown("rule for the final score", rule, get_args(FinalRule)))
    scores = row_of(curve, "curve")
    numbers = np.arange(len(scores)) if rounds is None else np.asarray(rounds)
    if len(numbers) != len(scores) or (np.diff(numbers) <= 0).any():
        raise SpecError(f"rounds needs an increasing number for each of the {len(scores)} scores, got {rounds}")
    if coverage is not None:
        covered = row_of(coverage, "coverage")
        if len(covered) != len(scores):
            raise SpecError(f"coverage needs one number for each of the {len(scores)} rounds, got {len(covered)}")
        scores, numbers = scores[covered >= 1 - 1e-9], numbers[covered >= 1 - 1e-9]
        if not len(scores):
            raise SpecError("No round has coverage 1: train longer, or score without coverage")
    if rule == "best":
        return float(scores.max())
    return float(scores[numbers > numbers[-1] - 10].mean() if rule == "last_ten" else scores[-1])


def rounds_to_target(curve: Sequence[float] | Array, target: float, window: int | None = None) -> int | None:
    """The first round that reaches the target, as a position in the curve; None if no round does.

    Args:
        curve: Score of each round.
        target: Score to reach (≥).
        window: If given, the first round from which the mean over the last `window` rounds stays at the target until
            the end.
    """
    scores = row_of(curve, "curve")
    if window is None:
        reached = np.flatnonzero(scores >= target)
        return int(reached[0]) if reached.size else None
    if window < 1:
        raise SpecError(f"window must be at least 1 round, got {window}")
    if window > len(scores):
        return None
    means = np.lib.stride_tricks.sliding_window_view(scores, window).mean(axis=1)
    below = np.flatnonzero(means < target - 1e-12)  # the mean of equal scores may be slightly below them
    first = int(below[-1]) + 1 if below.size else 0
    return first + window - 1 if first < len(means) else None


def bytes_to_target(
    curve: Sequence[float] | Array, cumulative_bytes: Sequence[int] | Array, target: float, window: int | None = None
) -> int | None:
    """Bytes sent in both directions until the target is reached; None if it is not reached.

    Args:
        curve: Score of each round.
        cumulative_bytes: Running total of bytes at the end of each round.
        target: Score to reach (≥).
        window: See `rounds_to_target`.
    """
    sent = np.asarray(cumulative_bytes)
    if sent.shape != (len(curve),):
        raise SpecError(f"cumulative_bytes needs one number for each of the {len(curve)} rounds, got {sent.shape}")
    if not (sent >= 0).all() or (np.diff(sent) < 0).any():
        raise SpecError("cumulative_bytes must be non-negative and must not decrease: give the running total")
    reached = rounds_to_target(curve, target, window)
    return None if reached is None else int(sent[reached])


def converged(losses: Sequence[float] | Array, tolerance: float = 8e-4, rounds: int = 50) -> bool:
    """Whether the training loss has converged: its change over the last rounds is at most the tolerance.

    Args:
        losses: Training loss of each round.
        tolerance: Largest change.
        rounds: Number of rounds; the default is that of FedSim.
    """
    if rounds < 1 or not tolerance >= 0:
        raise SpecError(f"rounds must be at least 1 and tolerance at least 0, got {rounds} and {tolerance}")
    curve = row_of(losses, "losses")
    return len(curve) > rounds and abs(float(curve[-1] - curve[-1 - rounds])) <= tolerance


@dataclass(frozen=True)
class Improvement:
    """Difference between the curves of two methods, in the unit of the curves.

    Attributes:
        mean: Mean over rounds.
        deviation: Standard deviation over rounds (not over seeds), as reported by FedSim.
    """

    mean: float
    deviation: float


def mean_improvement(
    curves: Sequence[Sequence[float]] | Array, others: Sequence[Sequence[float]] | Array
) -> Improvement:
    """Mean improvement over rounds, from curves that are averaged over seeds.

    Args:
        curves: Curves of the method, (seeds, rounds).
        others: Curves of the method it is compared with, (seeds, rounds).
    """
    both = [np.asarray(each, np.float64) for each in (curves, others)]
    for each in both:
        if each.ndim != 2 or not each.size or not np.isfinite(each).all():
            raise SpecError(f"An improvement needs curves of finite scores, (seeds, rounds), got shape {each.shape}")
    if both[0].shape[1] != both[1].shape[1]:
        raise SpecError(f"Curves must have the same rounds, got {both[0].shape[1]} and {both[1].shape[1]}")
    difference = both[0].mean(axis=0) - both[1].mean(axis=0)
    return Improvement(float(difference.mean()), float(difference.std()))


def holm(p_values: Sequence[float] | Array) -> list[float]:
    """p-values of several tests, corrected by Holm's method (1979), which controls the family-wise error rate."""
    given = row_of(p_values, "p_values")
    if not ((given >= 0) & (given <= 1)).all():
        raise SpecError("p_values must be between 0 and 1")
    order = np.argsort(given, kind="stable")
    steps = given[order] * np.arange(len(given), 0, -1)
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in corrected]
