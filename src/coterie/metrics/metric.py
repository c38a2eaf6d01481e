"""`Metric`: a metric that a run computes at its evaluations, and the built-in metrics by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from coterie.errors import SpecError
from coterie.metrics import predictions


@dataclass(frozen=True)
class Metric:
    """A metric of predictions.

    Attributes:
        function: (labels or targets, predictions) → number. NaN where it is not defined.
        needs: What `function` gets as predictions of a classifier: `labels`, (n,); or `probabilities`, (n, classes).
            A regression always gives its predictions, (n,).
        greater_is_better: Whether a higher value is better.
    """

    function: Callable[..., Any]
    needs: Literal["labels", "probabilities"] = "labels"
    greater_is_better: bool = True

    def __post_init__(self) -> None:
        """Validate the attributes."""
        if not callable(self.function):
            raise SpecError(f"A metric needs a function (y_true, y_pred) -> float, got {self.function!r:.60}")
        if self.needs not in ("labels", "probabilities"):
            raise SpecError(f"Metric.needs must be 'labels' or 'probabilities', got {self.needs!r}")
        if not isinstance(self.greater_is_better, bool):
            raise SpecError(f"Metric.greater_is_better must be True or False, got {self.greater_is_better!r}")


#: Built-in metrics of classifiers, by name.
CLASSIFICATION: dict[str, Metric] = {
    "accuracy": Metric(predictions.accuracy),
    "balanced_accuracy": Metric(predictions.balanced_accuracy),
    "macro_f1": Metric(predictions.macro_f1),
    "auroc": Metric(predictions.auroc, needs="probabilities"),
    "log_loss": Metric(predictions.log_loss, needs="probabilities", greater_is_better=False),
    "brier": Metric(predictions.brier, needs="probabilities", greater_is_better=False),
    "ece": Metric(predictions.ece, needs="probabilities", greater_is_better=False),
}

#: Built-in metrics of regressions, by name.
REGRESSION: dict[str, Metric] = {
    "rmse": Metric(predictions.rmse, greater_is_better=False),
    "mae": Metric(predictions.mae, greater_is_better=False),
    "r2": Metric(predictions.r2),
}
