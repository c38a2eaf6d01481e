"""Divisions of clients on which two halves of their examples agree."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.clustering import l2, repeated_splits
from coterie.clustering.repeated_splits import correlation, is_repeated
from coterie.errors import SpecError
from coterie.seeds import Seed


def halved(points, noise):
    """Distances of points, and of their halves at point ± noise, to all points."""
    full, noise = np.array(points, float)[:, None], np.array(noise, float)[:, None]
    n = len(full)
    return l2(full), *(l2(np.concatenate([half, full]))[:n, n:] for half in (full + noise, full - noise))


def test_clusters_are_divided_until_the_halves_disagree():
    # Ten points near 0, ten near 10, ten near 100. The halves of each client are where it is.
    points = [center + 0.01 * i for center in (0, 10, 100) for i in range(10)]
    rng = Seed(0).generator()
    found = repeated_splits(*halved(points, rng.normal(size=30)))
    assert found.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert sorted(size for size, _, _ in found.tried) == [10, 10, 10, 20, 30]


def test_clients_without_clusters_stay_together():
    # A normal sample in which each client is the mean of its halves: whatever division is found follows the noise.
    counts = []
    for seed in range(10):
        rng = Seed(seed).generator()
        one, two = rng.normal(size=(2, 40, 20))
        full = (one + two) / 2
        halves = [l2(np.concatenate([half, full]))[:40, 40:] for half in (one, two)]
        counts.append(repeated_splits(l2(full), *halves).labels.max() + 1)
    assert counts == [1] * 10


def test_differences_below_a_share_of_the_median_are_not_divided():
    # Distances of 10 within pairs of clusters near 0 and 10, of about 100 to the others: the median is between 90 and
    # 101, so that a share of ½ keeps 0 and 10 together, and a share of 0 does not.
    points = [center + 0.01 * i for center in (0, 10, 100, 110) for i in range(10)]
    distances = halved(points, Seed(0).generator().normal(size=40))
    assert repeated_splits(*distances).labels.max() + 1 == 4
    assert repeated_splits(*distances, least=0.5).labels.tolist() == [0] * 20 + [1] * 20


def test_few_clients_need_a_higher_correlation():
    # artanh(0.9) = 1.4722: times √(13 - 3) is 4.66, times √(12 - 3) is 4.42.
    assert (is_repeated(0.9, 13), is_repeated(0.9, 12)) == (True, False)
    assert not is_repeated(0.64, 10_000)
    assert (is_repeated(1.0, 4), is_repeated(1.0, 3), is_repeated(-1.0, 99)) == (True, False, False)


def test_the_correlation_by_hand():
    # Deviations (-1, 0, 1) and (-1, 1, 0): Σ = 1, norms √2 and √2.
    assert correlation(np.array([1.0, 2, 3]), np.array([4.0, 6, 5])) == pytest.approx(0.5)
    assert correlation(np.array([1.0, 1]), np.array([1.0, 2])) == 0


def test_halves_of_another_size_are_rejected():
    with pytest.raises(SpecError, match="first and second must be"):
        repeated_splits(np.zeros((3, 3)), np.zeros((2, 3)), np.zeros((3, 3)))
