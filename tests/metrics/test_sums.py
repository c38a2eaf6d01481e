"""Metrics from sums over examples, by hand and against the metrics of all predictions."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import metrics
from coterie.metrics import FROM_SUMS, add_up


def test_sums_of_clients_add_up_to_those_of_all_examples():
    # Client a: targets 1, 3 (mean 2, spread 2). Client b: target 8. Together: mean 4, spread 9 + 1 + 16 = 26.
    sums = {
        "weight": np.array([2.0, 1.0]),
        "mean": np.array([2.0, 8.0]),
        "spread": np.array([2.0, 0.0]),
        "squared": np.array([5.0, 8.0]),
        "absolute": np.array([3.0, 2.0]),
    }
    total = add_up(sums)
    assert {name: value.tolist() for name, value in total.items()} == {
        "weight": [3.0],
        "mean": [4.0],
        "spread": [26.0],
        "squared": [13.0],
        "absolute": [5.0],
    }
    assert FROM_SUMS["r2"](total) == pytest.approx([1 - 13 / 26])
    assert FROM_SUMS["mae"](sums) == pytest.approx([3 / 2, 2.0])


def test_clients_without_examples_have_no_value_and_do_not_change_the_total():
    sums = {
        "weight": np.array([4.0, 0.0]),
        "hits": np.array([[1.0, 2.0], [0, 0]]),
        "true": np.array([[1.0, 3], [0, 0]]),
    }
    assert FROM_SUMS["accuracy"](sums) == pytest.approx([3 / 4, np.nan], nan_ok=True)
    assert FROM_SUMS["balanced_accuracy"](sums) == pytest.approx([(1 + 2 / 3) / 2, np.nan], nan_ok=True)
    assert FROM_SUMS["accuracy"](add_up(sums)) == pytest.approx([3 / 4])


def test_the_spread_keeps_its_digits_with_a_large_mean_in_single_precision():
    # Two clients around 10,000: spreads 2 and 2, means 9,999 and 10,001, so that 2 + 2 + 2·1 + 2·1 = 8. In single
    # precision a sum of squares, 4·10⁸, would be rounded to multiples of 32.
    sums = {
        "weight": np.array([2, 2], np.float32),
        "mean": np.array([9999, 10001], np.float32),
        "spread": np.array([2, 2], np.float32),
    }
    assert add_up(sums)["spread"] == pytest.approx([8.0])


def test_every_metric_that_is_a_sum_is_built_in():
    assert set(FROM_SUMS) == {"loss", *metrics.CLASSIFICATION, *metrics.REGRESSION} - {"auroc"}
