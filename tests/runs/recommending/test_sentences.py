"""The reasons of a recommendation: true beside the table of all methods."""

from __future__ import annotations

import pytest

from coterie.runs.recommending.recommendation import MethodResult
from coterie.runs.recommending.rule import Decision
from coterie.runs.recommending.sentences import reasons

#: Standard error of the differences.
ERROR = 0.05


def result(method, answer, score, clusters=None, *, reference=0.75, error=ERROR):
    gain = None if method == "fedavg" else score - reference
    return MethodResult(
        method=method,
        answer=answer,
        score=score,
        seed_deviation=None,
        client_deviation=None,
        difference=gain,
        error=None if gain is None else error,
        better=False,
        clusters=clusters,
        sent_bytes=100.0,
        seconds=1.0,
        settings={},
        needs=(),
        reveals=(),
        sees_individuals="never",
    )


def said(*others, decision=None):
    results = {each.method: each for each in (result("fedavg", "one model", 0.75), *others)}
    return reasons(decision or Decision("fedavg", "one model", (), ("fedavg",)), results, "accuracy", 0.01, 3)


LOCAL = result("local", "local", 0.722)


def test_methods_that_ended_with_one_cluster_are_named_with_their_scores():
    flhc, ifca = result("flhc", "clusters", 0.778, (1, 1, 1)), result("ifca", "clusters", 0.76, (1, 2, 1))
    assert said(LOCAL, flhc, ifca)[1:] == [
        "flhc (77.8 %) and ifca (76.0 %) ended with one cluster for at least half of the seeds, that is, one model "
        "for all clients; they are not counted as better.",
        "local scores 72.2 % and is not better.",
    ]


def test_a_method_that_always_ended_with_one_cluster_is_the_only_other_one():
    assert said(result("flhc", "clusters", 0.778, (1, 1, 1)))[1:] == [
        "flhc (77.8 %) ended with one cluster, that is, one model for all clients; it is not counted as better."
    ]


def test_the_best_of_several_other_methods_is_named():
    fedprox = result("fedprox", "one model", 0.74)
    assert said(LOCAL, fedprox)[1:] == ["The best of the other methods, fedprox, scores 74.0 % and is not better."]


@pytest.mark.parametrize(
    ("score", "error", "why"),
    [
        (0.755, ERROR, "0.5 percentage points better, less than the margin of 1.0 percentage points."),
        (0.8, ERROR, "5.0 percentage points better, which may be chance: the standard error is 5.0 percentage points."),
        (0.8, None, "5.0 percentage points better, which may be chance: only one client has scores."),
    ],
)
def test_a_gain_that_is_not_enough_has_its_reason(score, error, why):
    assert said(result("ifca", "clusters", score, (2, 2, 2), error=error))[1:] == [
        f"ifca scores {100 * score:.1f} %: {why}"
    ]


def test_a_method_with_one_cluster_and_a_higher_score_than_the_chosen_one_is_explained():
    local, high = result("local", "local", 0.85), result("flhc", "clusters", 0.87, (1, 1, 1))
    low = result("fedgroup", "clusters", 0.76, (1, 1, 1))
    lines = said(local, high, low, decision=Decision("local", "local", ("local",), ("local",)))
    assert lines[1:] == [
        "flhc (87.0 %) ended with one cluster, that is, one model for all clients; it is not counted as better."
    ]
