"""What can be drawn over rounds: its values in a view, its name on an axis, and its mean over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.errors import RecordError, unknown
from coterie.reports.figures.groups import Group
from coterie.reports.score_curves import Curves
from coterie.reports.view import RunView
from coterie.types import Array

#: Quantity → its values in the curves, over the evaluated rounds; None if the run does not have it.
_EVALUATED: dict[str, Callable[[Curves], Array | None]] = {
    "primary": lambda curves: curves.primary,
    "mean": lambda curves: curves.mean,
    "worst_tenth": lambda curves: curves.worst_tenth,
    "test_loss": lambda curves: curves.loss,
    "coverage": lambda curves: curves.coverage,
    "validation": lambda curves: curves.validation,
    "adjusted_rand": lambda curves: curves.adjusted_rand,
}
#: The same over the rounds of training.
_TRAINED: dict[str, Callable[[Curves], Array]] = {
    "train_loss": lambda curves: curves.train_loss,
    "discrepancy": lambda curves: curves.discrepancy,
}

#: Names of quantities that every run may have; the others are its metrics.
QUANTITIES = (*_EVALUATED, *_TRAINED)

_LABELS = {
    "test_loss": "test loss",
    "train_loss": "training loss",
    "discrepancy": "discrepancy",
    "adjusted_rand": "adjusted Rand index",
    "coverage": "coverage (%)",
}

#: What to do for a quantity that a run does not have.
_HINTS = {
    "validation": "run it with --set run.validate=true",
    "adjusted_rand": "the true clusters of its data are not known",
    "discrepancy": "its method does not measure it",
}


@dataclass(frozen=True)
class Line:
    """Mean over seeds.

    Attributes:
        x: Rounds from 1, or megabytes.
        y: Mean over the runs that have a value there.
        deviation: Standard deviation over runs; NaN where there is only one.
    """

    x: Array
    y: Array
    deviation: Array


def quantity_label(view: RunView, quantity: str) -> str:
    """The name of a quantity on an axis, with its unit."""
    metric = view.metric
    quantity = "primary" if quantity == metric.name else quantity
    name = metric.label if metric.name == "loss" else f"test {metric.label}"
    unit = " (%)" if metric.percent else ""
    own = {
        "primary": f"{name}{unit}",
        "mean": f"{name}, mean over clients{unit}",
        "worst_tenth": f"{name}, worst tenth{unit}",
        "validation": f"validation {metric.label}{unit}",
    }
    return own.get(quantity) or _LABELS.get(quantity) or quantity.replace("_", " ")


def values_of(view: RunView, quantity: str) -> tuple[Array, Array]:
    """Rounds and values of a quantity, in percent where it is shown in percent; rounds without a value are left out.

    Raises:
        RecordError: If the run does not have it.
    """
    curves = view.curves
    factor = 100.0 if quantity == "coverage" or (view.metric.percent and quantity in _OF_METRIC) else 1.0
    values: Array | None
    if quantity in _TRAINED:
        rounds, values = curves.training_round, _TRAINED[quantity](curves)
    elif quantity in _EVALUATED:
        rounds, values = curves.round, _EVALUATED[quantity](curves)
    elif quantity == view.metric.name:
        return values_of(view, "primary")
    elif quantity in curves.other:
        rounds, values = curves.round, curves.other[quantity]
    else:
        raise RecordError(
            unknown("metric", quantity, {*QUANTITIES, *curves.other, view.metric.name}, f"in {view.path}")
        )
    known = np.zeros(0, bool) if values is None else ~np.isnan(values)
    if values is None or not known.any():
        hint = _HINTS.get(quantity, "no round was evaluated")
        raise RecordError(f"{view.path} has no {quantity_label(view, quantity).partition(' (')[0]}: {hint}")
    return rounds[known], factor * values[known]


_OF_METRIC = ("primary", "mean", "worst_tenth", "validation")


def mean_line(group: Group, quantity: str, against: str = "round") -> Line:
    """The mean of a quantity over the runs of a group, over rounds or over the megabytes sent until then."""
    found = [(view, *values_of(view, quantity)) for view in group.views]
    rounds = np.unique(np.concatenate([each for _, each, _ in found]))
    table = np.full((len(found), len(rounds)), np.nan)
    for row, (_, own, values) in zip(table, found, strict=True):
        row[np.searchsorted(rounds, own)] = values
    x = rounds
    if against == "megabytes":
        x = np.mean([view.traffic.until(rounds) for view, _, _ in found], axis=0) / 1e6
    return Line(x, np.nanmean(table, axis=0), _deviations(table))


def _deviations(table: Array) -> Array:
    counts = (~np.isnan(table)).sum(axis=0)
    found = np.full(table.shape[1], np.nan)
    several = counts > 1
    found[several] = np.nanstd(table[:, several], axis=0, ddof=1)
    return found


def final_score(views: Sequence[RunView]) -> tuple[float, float]:
    """Primary metric over the last ten rounds: mean over runs and standard deviation, NaN for one run or no score."""
    scores = []
    for view in views:
        rounds, values = values_of(view, "primary")
        scores.append(float(values[rounds > rounds.max() - 10].mean()))
    return float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else float("nan")
