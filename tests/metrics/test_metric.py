"""`Metric`, with which users describe their own metrics."""

from __future__ import annotations

import pytest

import coterie
from coterie.errors import SpecError


def test_a_metric_refuses_attributes_that_it_cannot_use():
    with pytest.raises(SpecError, match="needs a function"):
        coterie.Metric("accuracy")
    with pytest.raises(SpecError, match="'labels' or 'probabilities', got 'scores'"):
        coterie.Metric(max, needs="scores")
    with pytest.raises(SpecError, match="True or False, got 1"):
        coterie.Metric(max, greater_is_better=1)


def test_a_metric_takes_labels_and_is_better_if_greater_by_default():
    metric = coterie.Metric(max)
    assert (metric.needs, metric.greater_is_better) == ("labels", True)
