"""Which metrics a run computes, and what is refused."""

from __future__ import annotations

import pytest

from coterie.errors import SpecError
from coterie.metrics import Metric
from coterie.runs import metric_plan
from coterie.runs.metric_plan import plan_metrics


def own(y_true, y_pred):
    return 0.0


def test_nothing_but_accuracy_and_loss_is_computed_by_default():
    plan = plan_metrics((), "accuracy", 3)
    assert plan.names == ()
    assert plan.work(metrics=True).name == "score"
    assert plan_metrics((), "loss", None, weighted=True).work(metrics=False).name == "weighted_score"


def test_metrics_that_are_sums_need_one_work_and_others_are_pooled_in_simulation():
    plan = plan_metrics(("ece", "auroc"), "accuracy", 3, {"own": own})
    assert (plan.sums, tuple(plan.pooled), plan.client_means) == (("ece",), ("auroc", "own"), ())
    assert plan.work(metrics=True).name == "classification_scores"
    assert plan.work(metrics=False).name == "score"
    assert plan_metrics(("rmse",), "loss", None).work(metrics=True).name == "regression_scores"


def test_the_primary_metric_is_computed_and_decides_what_is_better():
    plan = plan_metrics((), "brier", 3)
    assert plan.sums == ("brier",)
    assert not plan.higher
    assert plan_metrics((), "own", 3, {"own": Metric(own)}).higher
    assert not plan_metrics((), "loss", None).higher


def test_clients_on_other_machines_compute_their_own_auroc():
    plan = plan_metrics(("macro_f1", "auroc"), "accuracy", 3, simulated=False)
    assert (plan.sums, dict(plan.pooled), plan.client_means) == (("macro_f1",), {}, ("auroc",))


@pytest.mark.parametrize(
    ("names", "classes", "given", "simulated", "text"),
    [
        (("acuracy",), 3, {}, True, "Did you mean 'accuracy'.*metrics={'acuracy': function}"),
        (("rmse",), 3, {}, True, "the task is a classification; use one of accuracy, balanced_accuracy"),
        (("auroc",), None, {}, True, "the task is a regression; use one of rmse, mae, r2, loss"),
        ((), 3, {"own": own}, False, "clients on other machines do not have its code"),
        ((), 3, {"auroc": own}, True, "already a metric 'auroc'"),
        ((), 3, {"own": 3}, True, "must be a coterie.Metric or a function"),
    ],
)
def test_metrics_that_cannot_be_computed_are_refused(names, classes, given, simulated, text):
    primary = "loss" if classes is None else "accuracy"
    with pytest.raises(SpecError, match=text):
        plan_metrics(names, primary, classes, given, simulated=simulated)


def test_accuracy_cannot_be_the_primary_metric_of_a_regression():
    with pytest.raises(SpecError, match="'accuracy' cannot be used, the task is a regression"):
        plan_metrics((), "accuracy", None)


def test_other_packages_register_metrics_by_entry_point(monkeypatch):
    class Point:
        name = "theirs"

        @staticmethod
        def load():
            return Metric(own, needs="probabilities", greater_is_better=False)

    asked = []
    monkeypatch.setattr(metric_plan.metadata, "entry_points", lambda group: asked.append(group) or [Point()])
    plan = plan_metrics(("theirs",), "accuracy", 3)
    assert asked == ["coterie.metrics"]
    assert plan.pooled["theirs"].needs == "probabilities"
    assert not plan.greater_is_better["theirs"]
