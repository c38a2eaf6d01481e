"""Detections, misses, delays, false alarms and correct migrations, counted by hand in small runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.drift import ObservedRound, measure


def figures(rounds, truth=None, *names):
    found = measure(rounds, truth)
    return {name: getattr(found, name) for name in names}


# ----------------------------------------------------------------------------------------------- by flags, by clusters


def test_a_method_with_drift_detection_is_measured_by_the_clients_it_flags():
    # a shifts before round 1 and is flagged in round 3: two rounds later. b shifts before round 2 and never is.
    # c is flagged in round 4 without a shift. That a changes its cluster in round 2 is not a detection.
    rounds = [
        ObservedRound(assignment={"a": 0, "b": 0, "c": 0}, flagged=()),
        ObservedRound(shifted=["a"], flagged=()),
        ObservedRound(shifted=["b"], flagged=(), assignment={"a": 1}),
        ObservedRound(flagged=("a",)),
        ObservedRound(flagged=("c",)),
    ]
    names = (
        "shifts",
        "detected",
        "missed",
        "delay",
        "delay_max",
        "false_alarms",
        "migrations",
        "migrations_correct",
        "true_cluster_changes",
    )
    assert figures(rounds, None, *names) == {
        "shifts": 2,
        "detected": 1,
        "missed": 1,
        "delay": 2.0,
        "delay_max": 2,
        "false_alarms": 1,
        "migrations": 1,
        "migrations_correct": None,
        "true_cluster_changes": None,
    }


def test_a_method_without_drift_detection_is_measured_by_changes_of_cluster():
    # a shifts before round 1, takes part in it and stays, takes part in round 3 and changes: two rounds after the
    # shift, one of which it took part in. b shifts before round 1 and is never in the cohort again: missed.
    # c changes in round 2 without a shift.
    rounds = [
        ObservedRound(assignment={"a": 0, "b": 0, "c": 0}),
        ObservedRound(shifted=["a", "b"], assignment={"a": 0}),
        ObservedRound(assignment={"c": 1}),
        ObservedRound(assignment={"a": 1}),
    ]
    names = (
        "shifts",
        "detected",
        "missed",
        "missed_not_in_cohort",
        "delay",
        "delay_in_cohort",
        "false_alarms",
        "migrations",
    )
    assert figures(rounds, None, *names) == {
        "shifts": 2,
        "detected": 1,
        "missed": 1,
        "missed_not_in_cohort": 1,
        "delay": 2.0,
        "delay_in_cohort": 1.0,
        "false_alarms": 1,
        "migrations": 2,
    }


def test_a_detection_in_the_round_right_after_the_shift_has_delay_zero():
    rounds = [
        ObservedRound(assignment={"a": 0}, flagged=()),
        ObservedRound(shifted=["a"], flagged=["a"], assignment={"a": 1}),
    ]
    assert figures(rounds, None, "delay", "delay_max", "delay_in_cohort") == {
        "delay": 0.0,
        "delay_max": 0,
        "delay_in_cohort": 0.0,
    }


def test_a_detection_counts_for_the_last_of_several_shifts_and_the_others_are_missed():
    # Shifts before rounds 1, 2 and 4; flagged in round 5: the first two are missed, the third has delay 1.
    rounds = [
        ObservedRound(assignment={"a": 0}, flagged=()),
        *(ObservedRound(shifted=["a"], flagged=()) for _ in range(2)),
    ]
    rounds += [ObservedRound(flagged=()), ObservedRound(shifted=["a"], flagged=()), ObservedRound(flagged=["a"])]
    assert figures(rounds, None, "shifts", "detected", "missed", "delay") == {
        "shifts": 3,
        "detected": 1,
        "missed": 2,
        "delay": 1.0,
    }


def test_a_second_detection_of_one_shift_is_a_false_alarm():
    rounds = [
        ObservedRound(assignment={"a": 0}, flagged=()),
        ObservedRound(shifted=["a"], flagged=["a"]),
        ObservedRound(flagged=["a"]),
    ]
    assert figures(rounds, None, "detected", "false_alarms", "early_alarms") == {
        "detected": 1,
        "false_alarms": 1,
        "early_alarms": 0,
    }


def test_false_alarms_before_the_first_shift_are_counted_separately():
    rounds = [
        ObservedRound(assignment={"a": 0, "b": 0}),
        ObservedRound(assignment={"a": 1}),
        ObservedRound(shifted=["b"]),
        ObservedRound({}, {}, None, {"a": 0}),
    ]
    assert figures(rounds, None, "false_alarms", "early_alarms") == {"false_alarms": 2, "early_alarms": 1}


def test_a_shift_of_a_client_without_a_cluster_is_neither_detected_nor_missed():
    rounds = [ObservedRound(shifted=["a"], assignment={"a": 0}), ObservedRound(assignment={"a": 0})]
    assert figures(rounds, None, "shifts", "shifts_unassigned", "missed", "delay", "delay_max") == {
        "shifts": 0,
        "shifts_unassigned": 1,
        "missed": 0,
        "delay": None,
        "delay_max": None,
    }


def test_a_skipped_round_counts_for_the_delay():
    # The shift before round 1 is detected in round 3; round 2 was skipped.
    rounds = [
        ObservedRound(assignment={"a": 0}, flagged=()),
        ObservedRound(shifted=["a"]),
        ObservedRound(),
        ObservedRound(flagged=["a"]),
    ]
    assert figures(rounds, None, "detected", "delay") == {"detected": 1, "delay": 2.0}


# ------------------------------------------------------------------------------------------------ correct and wrong

TRUTH = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1, "f": 1}
SETTLED = ObservedRound(assignment={"a": 0, "b": 0, "c": 0, "d": 1, "e": 1, "f": 1})


def test_a_migration_is_correct_if_most_clients_of_the_true_cluster_are_there():
    # a and d exchange their data. a goes to cluster 1, where e and f are: correct. d goes to 2, which is empty: wrong.
    rounds = [SETTLED, ObservedRound(shifted=["a", "d"], true_clusters={"a": 1, "d": 0}, assignment={"a": 1, "d": 2})]
    names = (
        "migrations",
        "migrations_correct",
        "migrations_wrong",
        "true_cluster_changes",
        "true_cluster_changes_detected",
    )
    assert figures(rounds, TRUTH, *names) == {
        "migrations": 2,
        "migrations_correct": 1,
        "migrations_wrong": 1,
        "true_cluster_changes": 2,
        "true_cluster_changes_detected": 2,
    }


def test_migrations_of_a_round_are_checked_after_all_clients_have_moved():
    # All of true cluster 1 moves to cluster 2: each client finds the two others there.
    rounds = [SETTLED, ObservedRound(assignment=dict.fromkeys("def", 2))]
    assert figures(rounds, TRUTH, "migrations_correct", "migrations_wrong") == {
        "migrations_correct": 3,
        "migrations_wrong": 0,
    }


def test_a_migration_without_a_change_of_true_cluster_is_wrong_and_the_way_back_correct():
    rounds = [
        SETTLED,
        ObservedRound(shifted=["a"], true_clusters={"a": 0}, assignment={"a": 1}),
        ObservedRound(assignment={"a": 0}),
    ]
    names = ("migrations_correct", "migrations_wrong", "true_cluster_changes", "detected", "false_alarms")
    assert figures(rounds, TRUTH, *names) == {
        "migrations_correct": 1,
        "migrations_wrong": 1,
        "true_cluster_changes": 0,
        "detected": 1,
        "false_alarms": 1,
    }


def test_ties_are_correct_and_a_true_cluster_of_one_client_is_not_checked():
    # Of true cluster 0, b is in cluster 0 and c in 1: a may go to either. d is the only client of true cluster 1.
    start = ObservedRound(assignment={"a": 2, "b": 0, "c": 1, "d": 0})
    rounds = [start, ObservedRound(assignment={"a": 1, "d": 1})]
    assert figures(
        rounds, {"a": 0, "b": 0, "c": 0, "d": 1}, "migrations", "migrations_correct", "migrations_wrong"
    ) == {
        "migrations": 2,
        "migrations_correct": 1,
        "migrations_wrong": 0,
    }


def test_true_clusters_that_appear_later_count():
    # The images of a, then of b rotate to a new true cluster: a is its first client, b finds a.
    rounds = [
        SETTLED,
        ObservedRound(shifted=["a"], true_clusters={"a": 7}, assignment={"a": 2}),
        ObservedRound(shifted=["b"], true_clusters={"b": 7}, assignment={"b": 2}),
    ]
    assert figures(rounds, TRUTH, "migrations_correct", "migrations_wrong", "true_cluster_changes") == {
        "migrations_correct": 1,
        "migrations_wrong": 0,
        "true_cluster_changes": 2,
    }


# ---------------------------------------------------------------------------------------------------------- properties

clients = st.sampled_from("abcd")
observed = st.builds(
    ObservedRound,
    shifted=st.sets(clients),
    true_clusters=st.dictionaries(clients, st.integers(0, 2)),
    flagged=st.none() | st.sets(clients),
    assignment=st.dictionaries(clients, st.integers(0, 2)),
)


@given(st.lists(observed, max_size=12))
def test_every_shift_is_detected_or_missed_and_every_detection_is_one_or_a_false_alarm(rounds):
    found = measure(rounds, {"a": 0, "b": 0, "c": 1, "d": 2})
    assert found.detected + found.missed == found.shifts
    assert found.shifts + found.shifts_unassigned == sum(len(each.shifted) for each in rounds)
    if any(each.flagged is not None for each in rounds):
        assert found.detected + found.false_alarms == sum(len(each.flagged or ()) for each in rounds)
    else:
        assert found.detected + found.false_alarms == found.migrations
    assert found.migrations_correct + found.migrations_wrong <= found.migrations
    assert found.missed_not_in_cohort <= found.missed
    assert found.true_cluster_changes_detected <= found.true_cluster_changes <= found.shifts
    if found.delay is not None:
        assert 0 <= found.delay_in_cohort <= found.delay <= found.delay_max


@given(st.lists(observed, max_size=8), st.permutations("abcd"), st.permutations(range(3)))
def test_names_of_clients_and_clusters_do_not_matter(rounds, names, clusters):
    called = dict(zip("abcd", names, strict=True))
    other = [
        ObservedRound(
            {called[c] for c in each.shifted},
            {called[c]: true for c, true in each.true_clusters.items()},
            None if each.flagged is None else {called[c] for c in each.flagged},
            {called[c]: clusters[found] for c, found in each.assignment.items()},
        )
        for each in rounds
    ]
    truth = {"a": 0, "b": 0, "c": 1, "d": 1}
    assert measure(other, {called[c]: true for c, true in truth.items()}) == measure(rounds, truth)


@pytest.mark.parametrize("truth", [None, {}])
def test_without_true_clusters_migrations_are_neither_correct_nor_wrong(truth):
    found = measure([SETTLED, ObservedRound(assignment={"a": 1})], truth)
    assert (
        found.migrations_correct,
        found.migrations_wrong,
        found.true_cluster_changes,
        found.true_cluster_changes_detected,
    ) == (None, None, None, None)
    assert found.migrations == 1
