"""Whether chance explains the classes that a client lacks, and what such classes count in FLAG's angles."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.clustering import flag_data_angles
from coterie.clustering.absent_classes import class_shares, lacks_by_chance

TEN = np.full(10, 0.1)


def with_absent(n, absent):
    """Counts of n examples in ten classes, of which some are absent."""
    counts = np.zeros(10, int)
    counts[absent:] = n // (10 - absent)
    counts[-1] += n - counts.sum()
    return counts


@pytest.mark.parametrize(
    ("n", "most"),
    [
        # E K = 10 · 0.9^36 = 0.225, Var K = 0.225 + 90 · 0.8^36 - 0.225² = 0.204: 0.225 + 2.5 · 0.451 + 1 = 2.35.
        (36, 2),
        # E K = 10 · 0.9^18 = 1.501, Var K = 1.501 + 90 · 0.8^18 - 1.501² = 0.869: 1.501 + 2.5 · 0.932 + 1 = 4.83.
        (18, 4),
        # E K = 10 · 0.9^200 ≈ 0: 1.
        (200, 1),
    ],
)
def test_so_many_absent_classes_are_chance(n, most):
    counts = np.stack([with_absent(n, absent) for absent in range(9)])
    assert lacks_by_chance(counts, TEN).tolist() == [absent <= most for absent in range(9)]


def test_classes_that_no_client_has_do_not_count():
    # Two of four classes exist. Each client lacks at most one of the two by chance, and both never.
    counts = np.array([[30, 30, 0, 0], [60, 0, 0, 0]])
    assert class_shares(counts).tolist() == [0.75, 0.25, 0, 0]
    assert lacks_by_chance(counts, class_shares(counts)).tolist() == [True, True]


def test_a_class_that_is_missing_by_chance_counts_like_the_mean_of_the_others():
    # Class 0: 30° apart. Class 1: 60° apart. Class 2: only the first client has it. Unweighted, so that V is
    # (30 + 60 + 180)/3 = 90, or with class 2 as the mean of 30 and 60: (30 + 60 + 45)/3 = 45.
    def turned(degrees):
        return np.array([[np.cos(np.deg2rad(degrees))], [np.sin(np.deg2rad(degrees))]])

    bases = [[turned(0), turned(0), turned(0)], [turned(30), turned(60), None]]
    assert flag_data_angles(bases)[0, 1] == pytest.approx(90)
    assert flag_data_angles(bases, by_chance=np.array([True, True]))[0, 1] == pytest.approx(45)
    # Only the client that lacks the class matters; and without a common class, 180° stay.
    assert flag_data_angles(bases, by_chance=np.array([True, False]))[0, 1] == pytest.approx(90)
    apart = [[turned(0), None], [None, turned(0)]]
    assert flag_data_angles(apart, by_chance=np.array([True, True]))[0, 1] == pytest.approx(180)
