"""Compression of updates to 8 bits, or to the entries of largest magnitude."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coterie.clients.update_compression import decompressed, largest_entries, quantized

FLOATS = arrays.arrays(np.float32, (2, 7), elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False))


def rows(*values):
    return np.array(values, np.float32)


def test_each_array_has_its_own_scale_and_halves_are_rounded_to_even_levels():
    # Scales: 254 / 127 = 2 for the first array, 63.5 / 127 = 0.5 for the second.
    #   5 / 2 = 2.5 → 2, -7 / 2 = -3.5 → -4, -0.3 / 0.5 = -0.6 → -1
    coded = quantized(rows((254, 5, -7, 63.5, -0.3)), (3, 2))
    assert coded["levels"].dtype == np.int8
    assert coded["levels"].tolist() == [[127, 2, -4, 127, -1]]
    assert coded["scales"].tolist() == [[2.0, 0.5]]
    assert decompressed(coded, (3, 2)).tolist() == [[254, 4, -8, 63.5, -0.5]]


def test_an_array_of_zeros_is_sent_exactly():
    coded = quantized(rows((0, 0, 1)), (2, 1))
    assert coded["scales"][0, 0] == 0
    assert decompressed(coded, (2, 1))[0, :2].tolist() == [0, 0]


@given(FLOATS)
def test_the_error_of_8_bits_is_at_most_half_a_level(updates):
    coded = quantized(updates, (4, 3))
    assert np.abs(coded["levels"].astype(int)).max() <= 127
    error = np.abs(decompressed(coded, (4, 3)) - updates)
    level = np.repeat(coded["scales"], (4, 3), axis=1)
    assert (error <= 0.5 * level * (1 + 1e-4) + 1e-37).all()


def test_the_largest_magnitudes_are_kept_and_the_lowest_index_of_equal_ones():
    # The second largest magnitude is 2, at the indices 0, 3 and 4.
    coded = largest_entries(rows((2, -5, 1, -2, 2)), 2)
    assert coded["indices"].tolist() == [[0, 1]]
    assert coded["values"].tolist() == [[2, -5]]
    assert decompressed(coded, (2, 3)).tolist() == [[2, -5, 0, 0, 0]]


@given(FLOATS, st.integers(1, 7))
def test_what_is_kept_is_exact_and_no_smaller_than_what_is_left(updates, k):
    sent = decompressed(largest_entries(updates, k), (7,))
    kept = sent != 0
    assert np.array_equal(sent[kept], updates[kept])
    assert (kept.sum(axis=1) <= k).all()
    for row, chosen in zip(np.abs(updates), kept, strict=True):
        assert row[~chosen].max(initial=0) <= np.sort(row)[-k]
    if k == 7:
        assert np.array_equal(sent, updates)


@given(FLOATS)
def test_a_client_does_not_depend_on_the_others(updates):
    for code in (lambda some: quantized(some, (4, 3)), lambda some: largest_entries(some, 3)):
        both, alone = code(updates), code(updates[1:])
        for name, values in alone.items():
            assert np.array_equal(both[name][1:], values)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_stays_so_and_the_others_are_exact(bad):
    updates = rows((1, bad, 3), (127, -2, 0))
    for coded in (quantized(updates, (3,)), largest_entries(updates, 2)):
        sent = decompressed(coded, (3,))
        assert not np.isfinite(sent[0]).all()
        assert sent[1].tolist() == [127, -2, 0]
