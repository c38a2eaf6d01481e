"""What a curve of scores over rounds comes to: a final score, the cost of a target, an improvement that is real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from coterie.errors import SpecError, unknown
from coterie.metrics.validation import row_of
from coterie.types import Array

#: Which rounds make the score.
FinalRule = Literal["last_ten", "best", "last"]


def final_score(
    curve: Sequence[float] | Array, rule: FinalRule = "last_ten", coverage: Sequence[float] | Array | None = None
) -> float:
    """The one number that stands for a curve of scores over rounds.

    Args:
        curve: A score for each round.
        rule: "last_ten" is the mean of the last ten rounds (of all, if there are fewer); "best" is the maximum, the
            papers' rule, which stops early on test examples; "last" is the last round.
        coverage: Share of clients with an assignment in each round; if given, rounds below 1 do not count.
    """
    if rule not in get_args(FinalRule):
        raise SpecError(unknown("rule for the final score", rule, get_args(FinalRule)))
    scores = row_of(curve, "curve")
    if coverage is not None:
        covered = row_of(coverage, "coverage")
        if len(covered) != len(scores):
            raise SpecError(f"coverage needs one number for each of the {len(scores)} rounds, got {len(covered)}")
        scores = scores[covered >= 1 - 1e-9]
        if not len(scores):
            raise SpecError("No round has coverage 1: train longer, or score without coverage")
    if rule == "best":
        return float(scores.max())
    return float(scores[-10:].mean() if rule == "last_ten" else scores[-1])


def rounds_to_target(curve: Sequence[float] | Array, target: float, window: int | None = None) -> int | None:
    """The first round that reaches the target, as a position in the curve; None if none does.

    Args:
        curve: A score for each round.
        target: The score to reach; equal is enough.
        window: If given, the first round from which on the mean of this and the `window` - 1 rounds before it
            stays at the target until the end.
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
    below = np.flatnonzero(means < target - 1e-12)  # the mean of equal scores may be a rounding error below them
    first = int(below[-1]) + 1 if below.size else 0
    return first + window - 1 if first < len(means) else None


def bytes_to_target(
    curve: Sequence[float] | Array, cumulative_bytes: Sequence[int] | Array, target: float, window: int | None = None
) -> int | None:
    """The bytes sent, down and up, until the target was reached; None if it never was.

    Args:
        curve: A score for each round.
        cumulative_bytes: All bytes sent from the start to the end of each round.
        target: The score to reach; equal is enough.
        window: As in `rounds_to_target`.
    """
    sent = np.asarray(cumulative_bytes)
    if sent.shape != (len(curve),):
        raise SpecError(f"cumulative_bytes needs one number for each of the {len(curve)} rounds, got {sent.shape}")
    if not (sent >= 0).all() or (np.diff(sent) < 0).any():
        raise SpecError("cumulative_bytes must not be negative and must not fall: give the running total")
    reached = rounds_to_target(curve, target, window)
    return None if reached is None else int(sent[reached])


def converged(losses: Sequence[float] | Array, tolerance: float = 8e-4, rounds: int = 50) -> bool:
    """Whether the training loss stood still: its change over the last rounds, FedSim's 50, is at most the tolerance."""
    if rounds < 1 or not tolerance >= 0:
        raise SpecError(f"rounds must be at least 1 and tolerance at least 0, got {rounds} and {tolerance}")
    curve = row_of(losses, "losses")
    return len(curve) > rounds and abs(float(curve[-1] - curve[-1 - rounds])) <= tolerance


@dataclass(frozen=True)
class Improvement:
    """By how much one method is better than another, in the unit of the curves."""

    mean: float  # over rounds
    deviation: float  # over rounds, as FedSim prints it: not over seeds


def mean_improvement(
    curves: Sequence[Sequence[float]] | Array, others: Sequence[Sequence[float]] | Array
) -> Improvement:
    """The mean over rounds of the difference of two curves, each the mean over its seeds.

    Args:
        curves: One curve of scores for each seed, all of the same rounds.
        others: Those of the method that is compared with.
    """
    both = [np.asarray(each, np.float64) for each in (curves, others)]
    for each in both:
        if each.ndim != 2 or not each.size or not np.isfinite(each).all():
            raise SpecError(f"An improvement needs curves of finite scores, (seeds, rounds), got shape {each.shape}")
    if both[0].shape[1] != both[1].shape[1]:
        raise SpecError(f"Curves must be of the same rounds, got {both[0].shape[1]} and {both[1].shape[1]}")
    difference = both[0].mean(axis=0) - both[1].mean(axis=0)
    return Improvement(float(difference.mean()), float(difference.std()))


def holm(p_values: Sequence[float] | Array) -> list[float]:
    """p-values of several tests, corrected by Holm (1979): the chance of one false find among them all is kept."""
    given = row_of(p_values, "p_values")
    if not ((given >= 0) & (given <= 1)).all():
        raise SpecError("p_values must lie between 0 and 1")
    order = np.argsort(given, kind="stable")
    steps = given[order] * np.arange(len(given), 0, -1)
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in corrected]
