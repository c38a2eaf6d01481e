"""Aggregation of models: plain, weighted and robust means, and mixing between clusters."""

from __future__ import annotations

from coterie.aggregation.means import MixForm, Trimming, mix_groups, trimmed_mean, uniform_mean, weighted_mean
from coterie.aggregation.robust import Aggregation, clipped_mean, coordinate_median, geometric_median, krum

__all__ = [
    "Aggregation",
    "MixForm",
    "Trimming",
    "clipped_mean",
    "coordinate_median",
    "geometric_median",
    "krum",
    "mix_groups",
    "trimmed_mean",
    "uniform_mean",
    "weighted_mean",
]
