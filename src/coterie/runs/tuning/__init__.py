"""Search for good settings with Optuna: `tune` chooses them on validation examples (extra `optuna`)."""

from __future__ import annotations

from coterie.runs.tuning.search import tune
from coterie.runs.tuning.search_space import Choices, Dimension, Range, search_space
from coterie.runs.tuning.study import Study

__all__ = ["Choices", "Dimension", "Range", "Study", "search_space", "tune"]
