"""Training and test examples of one client: a shuffle, and the first floor(f·n) are for training."""

from __future__ import annotations

import math

from coterie.data.federated import Integers
from coterie.errors import SpecError
from coterie.seeds import Seed


def check_share(test_share: float) -> None:
    """Refuse a share that leaves nothing for training."""
    if not 0 <= test_share < 1:
        raise SpecError(f"test_share must be at least 0 and less than 1, got {test_share}")


def kept(n: int, test_share: float) -> int:
    """How many of n examples are for training.

    At least one is, and with two or more at least one is for testing; a share of 0 asks for no test examples.
    """
    # A hair more than the product: (1 - 0.1)·n can fall short of a whole number in floating point.
    wanted = min(n, max(1, math.floor((1 - test_share) * n + 1e-9)))
    return wanted if test_share == 0 or n < 2 else min(wanted, n - 1)


def split(numbers: Integers, test_share: float, seed: Seed) -> tuple[Integers, Integers]:
    """Training and test examples of a client that owns these, after a shuffle."""
    shuffled = numbers[seed.permutation(len(numbers))]
    fit = kept(len(numbers), test_share)
    return shuffled[:fit], shuffled[fit:]
