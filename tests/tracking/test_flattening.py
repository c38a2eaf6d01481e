"""What trackers report."""

from __future__ import annotations

from coterie.runs.spec import Spec
from coterie.tracking import final_metrics, metrics, parameters, tags

SPEC = Spec.from_dict(
    {
        "data": "blobs",
        "model": {"name": "mlp", "widths": [8, 4]},
        "method": {"name": "ifca", "clusters": 3},
        "run": {"seed": 7},
    }
)


def test_parameters_are_all_settings_by_their_names():
    found = parameters(SPEC)
    assert found["method.clusters"] == 3
    assert found["local.learning_rate"] == SPEC.local.learning_rate
    assert found["model.widths"] == "[8, 4]"
    assert all(isinstance(value, bool | int | float | str) for value in found.values())


def test_tags_say_what_was_run():
    assert tags(SPEC) == {"method": "ifca", "data": "blobs", "model": "mlp", "seed": "7"}


def test_metrics_are_the_finite_numbers_of_a_line_without_values_per_client():
    row = {
        "t": 4,
        "stage": "train",
        "loss": float("nan"),
        "skipped": None,
        "assignment": {"a": 1},
        "accuracy": {"weighted": 0.5, "per_cluster": {"0": 0.25}},
        "clusters": {"count": 2, "sizes": [1, 2], "collapsed": False},
        "traffic": {"train": {"down": 10, "up": 5}},
    }
    assert metrics(row) == {
        "accuracy.weighted": 0.5,
        "accuracy.per_cluster.0": 0.25,
        "clusters.count": 2.0,
        "clusters.collapsed": 0.0,
        "traffic.train.down": 10.0,
        "traffic.train.up": 5.0,
    }
    assert metrics({**row, "stage": "prepare"}) == {}


def test_numbers_of_a_summary_have_a_prefix():
    summary = {"format": 2, "seed": 1, "status": "done", "test_loss": 0.5, "truth": None, "versions": {"numpy": "2"}}
    assert final_metrics(summary) == {"final.test_loss": 0.5}
