"""Every method learns with its default settings, on the data sets that need no files.

`digits` and `blobs` with default settings: 40 clients in four true clusters, 50 rounds of ten clients.
"""

from __future__ import annotations

import functools
import math
import statistics

import pytest

import coterie
from coterie.methods import METHODS
from coterie.runs.spec import method_options, method_types

#: Number of classes, all equally frequent: chance is 1 / classes.
CLASSES = {"digits": 10, "blobs": 4}

#: Methods that may stay below both FedAvg and Local, with the reason.
MAY_STAY_BELOW = {
    # All clients start with the same model, so the first E-step puts a whole cohort into one center. Later E-steps
    # split clients by chance, and every center is a mean over fewer clients than FedAvg's model. The papers that
    # compare with FeSEM report this, and the default keeps their rule; `warm_start` is the remedy.
    "fesem",
    "fesem-mig",
}


@functools.cache
def summary(method: str, data: str, seed: int) -> dict:
    """The summary of a run with default settings; evaluation does not affect training, so the last round suffices."""
    return coterie.run({"data": data, "method": method, "run": {"seed": seed, "evaluate_every": 50}}).summary


def accuracy(method: str, data: str, seed: int) -> float:
    found = summary(method, data, seed)
    assert found["coverage"] == 1.0
    return found["accuracy"]["weighted"]


def check_accuracy(method, data, seeds):
    """At least three times chance; and the lower of FedAvg and Local, up to one standard error of the test accuracy."""
    found = [accuracy(method, data, seed) for seed in seeds]
    assert min(found) >= 3 / CLASSES[data]
    if method in MAY_STAY_BELOW:
        return
    lower = [min(accuracy(baseline, data, seed) for baseline in ("fedavg", "local")) for seed in seeds]
    mean = statistics.fmean(found)
    images = sum(len(coterie.data.load(data).examples(client, "test")[1]) for client in coterie.data.load(data).clients)
    assert mean >= statistics.fmean(lower) - math.sqrt(mean * (1 - mean) / images)


#: Methods that `make test` trains; `make test-all` trains the others too.
EACH_TIME = ("fedavg", "ifca")


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.exhaustive) for name in METHODS]
)
def test_a_method_learns_with_its_default_settings(method):
    check_accuracy(method, "digits", [0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("data", CLASSES)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_with_its_default_settings_on_every_seed(method, data, seeds):
    check_accuracy(method, data, seeds)


def test_the_number_of_clusters_is_auto_by_default_in_every_method_that_can_choose_it():
    defaults = {name: method_options(name)["clusters"] for name in METHODS if "clusters" in method_options(name)}
    can_choose = {name for name in defaults if "auto" in str(method_types(name)["clusters"])}
    assert can_choose >= {"fedgroup", "fedgrouprox", "flexcfl", "flhc"}
    assert {name for name, default in defaults.items() if default == "auto"} == can_choose


@pytest.mark.exhaustive
@pytest.mark.parametrize("data", CLASSES)
@pytest.mark.parametrize("method", ["fedgroup", "fedgrouprox", "flexcfl"])
def test_the_default_number_of_groups_is_that_of_the_true_clusters(method, data, seeds):
    scores = [summary(method, data, seed)["truth"]["adjusted_rand"] for seed in seeds]
    assert scores.count(1.0) >= 0.9 * len(scores)
