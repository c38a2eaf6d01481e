"""What counts as noticed, missed, late, false, right: runs small enough to be followed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.drift import Look, measure


def figures(rounds, kinds=None, *names):
    found = measure(rounds, kinds)
    return {name: getattr(found, name) for name in names}


# ----------------------------------------------------------------------------------------------- by flags, by clusters


def test_a_method_that_looks_is_measured_by_whom_it_flags():
    # a shifts before round 1 and is flagged in round 3: two rounds later. b shifts before round 2 and never is.
    # c is flagged in round 4 without a shift. a's other cluster in round 2 is no detection.
    rounds = [
        Look(assignment={"a": 0, "b": 0, "c": 0}, flagged=()),
        Look(shifted=["a"], flagged=()),
        Look(shifted=["b"], flagged=(), assignment={"a": 1}),
        Look(flagged=("a",)),
        Look(flagged=("c",)),
    ]
    names = ("shifts", "detected", "missed", "delay", "delay_longest", "false_alarms", "migrations", "right", "moved")
    assert figures(rounds, None, *names) == {
        "shifts": 2,
        "detected": 1,
        "missed": 1,
        "delay": 2.0,
        "delay_longest": 2,
        "false_alarms": 1,
        "migrations": 1,
        "right": None,
        "moved": None,
    }


def test_a_method_that_does_not_look_is_measured_by_changes_of_cluster():
    # a shifts before round 1, takes part in it and stays, takes part in round 3 and changes: two rounds after the
    # shift, one of which it took part in. b shifts before round 1 and takes no part: missed, and not heard.
    # c changes in round 2 without a shift.
    rounds = [
        Look(assignment={"a": 0, "b": 0, "c": 0}),
        Look(shifted=["a", "b"], assignment={"a": 0}),
        Look(assignment={"c": 1}),
        Look(assignment={"a": 1}),
    ]
    names = ("shifts", "detected", "missed", "missed_unheard", "delay", "delay_heard", "false_alarms", "migrations")
    assert figures(rounds, None, *names) == {
        "shifts": 2,
        "detected": 1,
        "missed": 1,
        "missed_unheard": 1,
        "delay": 2.0,
        "delay_heard": 1.0,
        "false_alarms": 1,
        "migrations": 2,
    }


def test_to_notice_in_the_round_before_which_it_happened_is_no_delay():
    rounds = [Look(assignment={"a": 0}, flagged=()), Look(shifted=["a"], flagged=["a"], assignment={"a": 1})]
    assert figures(rounds, None, "delay", "delay_longest", "delay_heard") == {
        "delay": 0.0,
        "delay_longest": 0,
        "delay_heard": 0.0,
    }


def test_a_shift_is_missed_when_the_client_shifts_again_and_one_detection_is_of_the_last():
    # Shifts before rounds 1, 2 and 4; flagged in round 5: the first two are missed, the third is seen a round later.
    rounds = [Look(assignment={"a": 0}, flagged=()), *(Look(shifted=["a"], flagged=()) for _ in range(2))]
    rounds += [Look(flagged=()), Look(shifted=["a"], flagged=()), Look(flagged=["a"])]
    assert figures(rounds, None, "shifts", "detected", "missed", "delay") == {
        "shifts": 3,
        "detected": 1,
        "missed": 2,
        "delay": 1.0,
    }


def test_a_second_detection_of_one_shift_is_a_false_alarm():
    rounds = [Look(assignment={"a": 0}, flagged=()), Look(shifted=["a"], flagged=["a"]), Look(flagged=["a"])]
    assert figures(rounds, None, "detected", "false_alarms", "early_alarms") == {
        "detected": 1,
        "false_alarms": 1,
        "early_alarms": 0,
    }


def test_alarms_before_anybody_shifted_are_told_apart():
    rounds = [
        Look(assignment={"a": 0, "b": 0}),
        Look(assignment={"a": 1}),
        Look(shifted=["b"]),
        Look({}, {}, None, {"a": 0}),
    ]
    assert figures(rounds, None, "false_alarms", "early_alarms") == {"false_alarms": 2, "early_alarms": 1}


def test_shifts_of_clients_without_a_cluster_are_not_seen_and_cannot_be_missed():
    rounds = [Look(shifted=["a"], assignment={"a": 0}), Look(assignment={"a": 0})]
    assert figures(rounds, None, "shifts", "unseen", "missed", "delay", "delay_longest") == {
        "shifts": 0,
        "unseen": 1,
        "missed": 0,
        "delay": None,
        "delay_longest": None,
    }


def test_a_skipped_round_is_a_round():
    # The shift before round 1 is told in round 3; round 2 gave nothing.
    rounds = [Look(assignment={"a": 0}, flagged=()), Look(shifted=["a"]), Look(), Look(flagged=["a"])]
    assert figures(rounds, None, "detected", "delay") == {"detected": 1, "delay": 2.0}


# ------------------------------------------------------------------------------------------------------ right and wrong

KINDS = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1, "f": 1}
SETTLED = Look(assignment={"a": 0, "b": 0, "c": 0, "d": 1, "e": 1, "f": 1})


def test_a_migration_is_right_where_most_others_of_its_kind_are():
    # a and d exchange their data. a goes to cluster 1, where e and f are: right. d goes to 2, where nobody is: wrong.
    rounds = [SETTLED, Look(shifted=["a", "d"], kinds={"a": 1, "d": 0}, assignment={"a": 1, "d": 2})]
    names = ("migrations", "right", "wrong", "moved", "moved_detected")
    assert figures(rounds, KINDS, *names) == {
        "migrations": 2,
        "right": 1,
        "wrong": 1,
        "moved": 2,
        "moved_detected": 2,
    }


def test_all_migrations_of_a_round_are_judged_where_clients_are_after_it():
    # Kind 1 moves to cluster 2 as a whole: each finds the two others there.
    rounds = [SETTLED, Look(assignment=dict.fromkeys("def", 2))]
    assert figures(rounds, KINDS, "right", "wrong") == {"right": 3, "wrong": 0}


def test_a_migration_without_a_change_of_kind_is_wrong_and_the_way_back_right():
    rounds = [SETTLED, Look(shifted=["a"], kinds={"a": 0}, assignment={"a": 1}), Look(assignment={"a": 0})]
    names = ("right", "wrong", "moved", "detected", "false_alarms")
    assert figures(rounds, KINDS, *names) == {"right": 1, "wrong": 1, "moved": 0, "detected": 1, "false_alarms": 1}


def test_equal_numbers_will_do_and_a_kind_of_one_client_is_not_judged():
    # Of kind 0, b is in cluster 0 and c in 1: a may go to either. d alone is of kind 1.
    start = Look(assignment={"a": 2, "b": 0, "c": 1, "d": 0})
    rounds = [start, Look(assignment={"a": 1, "d": 1})]
    assert figures(rounds, {"a": 0, "b": 0, "c": 0, "d": 1}, "migrations", "right", "wrong") == {
        "migrations": 2,
        "right": 1,
        "wrong": 0,
    }


def test_kinds_that_appear_later_count():
    # The images of a, then of b turn to a kind that nobody had: a finds nobody, b finds a.
    rounds = [
        SETTLED,
        Look(shifted=["a"], kinds={"a": 7}, assignment={"a": 2}),
        Look(shifted=["b"], kinds={"b": 7}, assignment={"b": 2}),
    ]
    assert figures(rounds, KINDS, "right", "wrong", "moved") == {"right": 1, "wrong": 0, "moved": 2}


# ---------------------------------------------------------------------------------------------------------- properties

clients = st.sampled_from("abcd")
looks = st.builds(
    Look,
    shifted=st.sets(clients),
    kinds=st.dictionaries(clients, st.integers(0, 2)),
    flagged=st.none() | st.sets(clients),
    assignment=st.dictionaries(clients, st.integers(0, 2)),
)


@given(st.lists(looks, max_size=12))
def test_every_shift_is_detected_or_missed_and_every_detection_is_one_or_a_false_alarm(rounds):
    found = measure(rounds, {"a": 0, "b": 0, "c": 1, "d": 2})
    assert found.detected + found.missed == found.shifts
    assert found.shifts + found.unseen == sum(len(each.shifted) for each in rounds)
    if any(each.flagged is not None for each in rounds):
        assert found.detected + found.false_alarms == sum(len(each.flagged or ()) for each in rounds)
    else:
        assert found.detected + found.false_alarms == found.migrations
    assert found.right + found.wrong <= found.migrations
    assert found.missed_unheard <= found.missed
    assert found.moved_detected <= found.moved <= found.shifts
    if found.delay is not None:
        assert 0 <= found.delay_heard <= found.delay <= found.delay_longest


@given(st.lists(looks, max_size=8), st.permutations("abcd"), st.permutations(range(3)))
def test_names_of_clients_and_clusters_do_not_matter(rounds, names, groups):
    called = dict(zip("abcd", names, strict=True))
    other = [
        Look(
            {called[c] for c in each.shifted},
            {called[c]: kind for c, kind in each.kinds.items()},
            None if each.flagged is None else {called[c] for c in each.flagged},
            {called[c]: groups[group] for c, group in each.assignment.items()},
        )
        for each in rounds
    ]
    kinds = {"a": 0, "b": 0, "c": 1, "d": 1}
    assert measure(other, {called[c]: kind for c, kind in kinds.items()}) == measure(rounds, kinds)


@pytest.mark.parametrize("kinds", [None, {}])
def test_without_true_clusters_nothing_is_right_or_wrong(kinds):
    found = measure([SETTLED, Look(assignment={"a": 1})], kinds)
    assert (found.right, found.wrong, found.moved, found.moved_detected) == (None, None, None, None)
    assert found.migrations == 1
