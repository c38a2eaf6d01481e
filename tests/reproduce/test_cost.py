"""Rough durations."""

from __future__ import annotations

import pytest

from coterie.reproduce.cost import milliseconds_per_round
from coterie.runs.spec import Spec


def per_round(method, data="mnist-powerlaw", **run):
    spec = {
        "data": data,
        "method": method,
        "model": {"name": "mlp", "widths": [128]},
        "local": {"epochs": 10, "batch_size": 10},
        "run": {"rounds": 300, "clients_per_round": 20, **run},
    }
    return milliseconds_per_round(Spec.from_dict(spec))


def test_an_evaluation_that_asks_all_clients_for_all_losses_takes_longer():
    three, six = ({"name": "ifca", "clusters": k} for k in (3, 6))
    plain = per_round(three, score_with="assigned")
    assert per_round("fedavg") == plain
    # Twice as many models, twice as much on top; milliseconds are rounded.
    assert per_round(six) - plain == pytest.approx(2 * (per_round(three) - plain), abs=3)
    assert per_round(three) > 2 * plain
    assert per_round(three, evaluate_every=300) < 1.1 * plain


def test_a_run_with_drift_is_scored_as_assigned():
    spec = {"data": "mnist-powerlaw", "method": "ifca", "shift": {"name": "swap_all"}}
    without = {**spec, "shift": {"name": "none"}}
    assert milliseconds_per_round(Spec.from_dict(spec)) < milliseconds_per_round(Spec.from_dict(without))
