"""Drift detection by label counts, by hand; migration itself is tested with the methods that use it."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import SpecError
from coterie.federation import PerClient, sequential, vectorized
from coterie.methods.migration import Detector, Migration, watch
from coterie.methods.protocol import Round
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize(
    "make",
    [
        pytest.param(sequential, id="sequential"),
        pytest.param(vectorized, id="vectorized", marks=pytest.mark.exhaustive),
    ],
)


def drifted(fed, clients="a", renew=0, **detector):
    rows = PerClient(np.array([renew], np.int32), dict.fromkeys(clients, 0))
    return fed.ask(clients, watch, Seed(0), renew=rows, detector=Detector(**detector)).by_client("shifted")


@BOTH
@pytest.mark.parametrize(("kind", "shifted"), [("label", 1), ("sorted_counts", 0)])
def test_exchanged_classes_are_a_drift_that_sorted_counts_cannot_detect(make, kind, shifted, labeled, two_classes):
    # h_ref = (10, 0), h = (0, 10), n = 10, L = 2: D = 10 > τ = 1 class by class, and 0 between sorted counts.
    fed = make(labeled(a=(10, 0)), two_classes)
    assert drifted(fed, kind=kind) == {"a": 0}  # sets its reference counts
    fed.set_data(labeled(a=(0, 10)))
    assert drifted(fed, kind=kind) == {"a": shifted}


@pytest.mark.parametrize("kind", ["label", "sorted_counts"])
def test_doubled_counts_are_a_drift_for_both_detectors(kind, labeled, two_classes):
    # D = n/L > 0.2 n/L.
    fed = sequential(labeled(a=(6, 4)), two_classes)
    drifted(fed, kind=kind)
    fed.set_data(labeled(a=(12, 8)))
    assert drifted(fed, kind=kind) == {"a": 1}


@BOTH
@pytest.mark.parametrize(
    ("now", "shifted"), [((5, 7), 0), ((5, 8), 1), ((6, 4), 0), ((7, 3), 1), ((5, 3), 0), ((5, 2), 1)]
)
def test_the_threshold_is_strict(make, now, shifted, labeled, two_classes):
    # n = 10, so L·τ = 2: two samples more or less, or one exchanged, reach it exactly and are not a drift.
    fed = make(labeled(a=(5, 5)), two_classes)
    drifted(fed)
    fed.set_data(labeled(a=now))
    assert drifted(fed) == {"a": shifted}


def test_small_drifts_add_up_until_they_are_detected(labeled, two_classes):
    # (10, 10), n = 20, L·τ = 4: by (11, 9), 2; (12, 8), 4; (13, 7), 6. Then from there, where 4 is not a drift.
    fed = sequential(labeled(a=(10, 10)), two_classes)
    drifted(fed)
    found = []
    for now in ((11, 9), (12, 8), (13, 7), (11, 9), (10, 10)):
        fed.set_data(labeled(a=now))
        found.append(drifted(fed)["a"])
    assert found == [0, 0, 1, 0, 1]


def test_the_threshold_uses_the_initial_number_of_samples(labeled, two_classes):
    # n stays 10 after growing to 100: 3 more are detected, 2 are not.
    fed = sequential(labeled(a=(5, 5)), two_classes)
    drifted(fed)
    fed.set_data(labeled(a=(50, 50)))
    assert drifted(fed) == {"a": 1}
    for now, shifted in (((52, 50), 0), ((53, 50), 1)):
        fed.set_data(labeled(a=now))
        assert drifted(fed) == {"a": shifted}


def test_renewing_sets_the_reference_counts_and_is_not_a_drift(labeled, two_classes):
    fed = sequential(labeled(a=(10, 0)), two_classes)
    drifted(fed)
    fed.set_data(labeled(a=(0, 10)))
    assert drifted(fed, renew=1) == {"a": 0}
    assert drifted(fed) == {"a": 0}


def test_a_round_reports_drifted_clients_their_clusters_and_counts():
    # b chose again and stays in 1; a moves from 0 to 1; the reply of c was lost.
    migration = Migration(("c", "a", "b"), {"a": 1, "b": 1})
    plain = Round("state", assignment={"a": 2, "d": 0}, counts={"empty_clusters": 0})
    out = migration.added_to(plain, before={"a": 0, "b": 1, "c": 0, "d": 0})
    assert out.assignment == {"a": 2, "b": 1, "d": 0}  # training in the round comes after the migration
    assert out.counts == {"empty_clusters": 0, "shifts": 3, "migrations": 1}
    assert out.flagged == ("a", "b", "c")
    assert "migrations" not in migration.added_to(plain).counts


@pytest.mark.parametrize("tau", [-1.0, float("inf"), float("nan")])
def test_the_threshold_must_be_finite_and_at_least_zero(tau):
    with pytest.raises(SpecError, match=r"method\.tau must be .*at least 0, got"):
        Detector(tau=tau)
