"""Which metrics a run computes at its evaluations, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from coterie.clients.metric_scores import classification_scores, regression_scores, weighted_score
from coterie.clients.scores import score
from coterie.clients.work import Work
from coterie.errors import SpecError, unknown
from coterie.metrics import CLASSIFICATION, FROM_SUMS, REGRESSION, Metric

#: A metric as users give it: a `Metric`, or a function (y_true, y_pred) → number.
MetricLike = Metric | Callable[..., Any]

#: Scores that every evaluation has; not computed as metrics unless they are asked for.
ALWAYS = ("accuracy", "loss")


@dataclass(frozen=True)
class MetricPlan:
    """The metrics of a run.

    Attributes:
        sums: Metrics that follow from sums over examples.
        pooled: Metrics that are computed from the predictions of all clients, in simulation.
        client_means: Metrics that clients compute and the server averages, where clients are on other machines.
        primary: The metric that decides targets, early stopping, the best round and comparisons.
        greater_is_better: Name → whether a higher value is better, of all of these.
        weighted: Whether the clients' examples have weights.
        classes: Number of classes; None for regression.
    """

    sums: tuple[str, ...] = ()
    pooled: Mapping[str, Metric] = field(default_factory=dict)
    client_means: tuple[str, ...] = ()
    primary: str = "accuracy"
    greater_is_better: Mapping[str, bool] = field(default_factory=lambda: {"accuracy": True, "loss": False})
    weighted: bool = False
    classes: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All metrics, in the order of the record."""
        return (*self.sums, *self.pooled, *self.client_means)

    @property
    def higher(self) -> bool:
        """Whether a higher value of the primary metric is better."""
        return self.greater_is_better[self.primary]

    def work(self, *, metrics: bool) -> Work:
        """The work that clients are asked for scores.

        Args:
            metrics: Whether metrics are wanted, or only accuracy and loss.
        """
        if metrics and self.sums:
            return regression_scores if self.classes is None else classification_scores
        return weighted_score if self.weighted else score


def plan_metrics(
    names: tuple[str, ...],
    primary: str,
    classes: int | None,
    own: Mapping[str, MetricLike] | None = None,
    *,
    weighted: bool = False,
    simulated: bool = True,
) -> MetricPlan:
    """Find out how each metric of a run is computed.

    Args:
        names: The metrics to compute.
        primary: The primary metric; it is computed, too.
        classes: Number of classes; None for regression.
        own: Metrics that are not built in, by name.
        weighted: Whether the clients' examples have weights.
        simulated: Whether the clients are simulated, so that their predictions can be pooled.

    Raises:
        SpecError: If a metric is unknown, does not fit the task, or cannot be computed where the clients are.
    """
    given = {str(name): _metric(str(name), each) for name, each in (own or {}).items()}
    wanted = dict.fromkeys([*names, *given])
    if primary not in wanted and (primary != "loss" and (primary != "accuracy" or classes is None)):
        wanted[primary] = None
    sums, pooled, means = [], {}, []
    greater = {"loss": False} | ({} if classes is None else {"accuracy": True})
    for name in wanted:
        if name in FROM_SUMS:
            greater[name] = _built_in(name, classes).greater_is_better if name != "loss" else False
            sums.append(name)
            continue
        metric = given.get(name) or _found(name, classes)
        greater[name] = metric.greater_is_better
        if simulated:
            pooled[name] = metric
        else:
            check_built_in(name)
            means.append(name)
    return MetricPlan(tuple(sums), pooled, tuple(means), primary, greater, weighted, classes)


def check_built_in(name: str) -> None:
    """Raise SpecError if clients on other machines do not have a metric."""
    if name not in (*ALWAYS, *CLASSIFICATION, *REGRESSION):
        raise SpecError(
            f"Metric {name!r} is not built in, and clients on other machines do not have its code; use one of "
            f"{', '.join({**CLASSIFICATION, **REGRESSION})}"
        )


def _metric(name: str, given: MetricLike) -> Metric:
    """An own metric as a `Metric`."""
    if name == "loss" or name in CLASSIFICATION or name in REGRESSION:
        raise SpecError(f"There is already a metric {name!r}; choose another name, or put {name!r} into run.metrics")
    if isinstance(given, Metric):
        return given
    if not callable(given):
        raise SpecError(f"Metric {name!r} must be a coterie.Metric or a function (y_true, y_pred), got {given!r:.60}")
    return Metric(given)


def _found(name: str, classes: int | None) -> Metric:
    """The built-in metric with this name, or one that another package registers in the group `coterie.metrics`."""
    if name in CLASSIFICATION or name in REGRESSION:
        return _built_in(name, classes)
    points = {point.name: point for point in metadata.entry_points(group="coterie.metrics")}
    if name in points:
        return _metric(name, points[name].load())
    known = {*CLASSIFICATION, *REGRESSION, "loss", *points}
    raise SpecError(
        f"{unknown('metric', name, known)}. Give a metric of your own to coterie.run or coterie.resume: "
        f"metrics={{{name!r}: function}}"
    )


def _built_in(name: str, classes: int | None) -> Metric:
    """A built-in metric that fits the task."""
    kind, fitting = ("a regression", REGRESSION) if classes is None else ("a classification", CLASSIFICATION)
    if name not in fitting:
        raise SpecError(f"Metric {name!r} cannot be used, the task is {kind}; use one of {', '.join(fitting)}, loss")
    return fitting[name]
