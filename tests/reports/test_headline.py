"""Results in words."""

from __future__ import annotations

import pytest

from coterie.reports.headline import figures, headline, notes, scores_of
from coterie.reports.view import RunView


def said(folder):
    return headline(RunView.read(folder))


def test_clusters_with_known_truth_and_the_mean_of_the_last_rounds(write):
    # Means over clients: round 1: (1.0 + 0.4) / 2 = 0.7, round 2: (0.9 + 0.7) / 2 = 0.8; mean 0.75. Worst: 0.7.
    answers = [{"a": (0, 10), "b": (1, 4)}, {"a": (0, 9), "b": (1, 7)}]
    truth = {"truth": {"adjusted_rand": 1.0, "misclustering": 0.0, "clusters": 2}}
    assert said(write(answers, lines=[truth, truth])) == [
        "2 clusters found, adjusted Rand index 1.00; with the model of its cluster a client scores 80.0 % on average, "
        "the worst tenth 70.0 %.",
        "Accuracy on test examples after the last evaluated round; mean of all rounds: 75.0 %.",
    ]


def test_without_true_clusters_there_is_no_index(write):
    first, _ = said(write([{"a": (0, 10), "b": (1, 4)}]))
    assert first == (
        "2 clusters found; with the model of its cluster a client scores 70.0 % on average, the worst tenth 40.0 %."
    )


def test_one_model_for_all_is_no_cluster(write):
    first, second = said(write([{"a": (0, 10), "b": (0, 4)}]))
    assert first == "With one model for all a client scores 70.0 % on average, the worst tenth 40.0 %."
    assert second == "Accuracy on test examples after the last evaluated round."


def test_one_of_two_models_is_one_cluster(write):
    line = {"clusters": {"count": 1, "sizes": [2, 0], "adapted": False, "collapsed": True}}
    folder = write([{"a": (0, 10), "b": (0, 4)}], lines=[line])
    assert said(folder)[0].startswith("1 cluster found; with the model")
    assert "all clients are served one of them" in " ".join(notes(RunView.read(folder)))


def test_own_models_are_named(write):
    line = {"clusters": {"count": 1, "sizes": [2], "adapted": True}}
    assert said(write([{"a": (0, 10), "b": (0, 4)}], lines=[line]))[0].startswith("With its own model a client scores")


def test_a_single_client_has_no_worst_tenth(write):
    assert said(write([{"a": (0, 10)}]))[0] == "The only client scores 100.0 %."


def test_a_regression_speaks_of_the_loss_after_the_last_round(write):
    # Losses 1 - n / 10: in the last round 0.2 and 0.6, mean 0.4, the highest 0.6; in the first 0.9, (0.9 + 0.4) / 2.
    spec = {"run": {"primary_metric": "loss"}}
    answers = [{"a": (0, 1), "b": (1, 1)}, {"a": (0, 8), "b": (1, 4)}]
    first, second = said(write(answers, spec=spec))
    assert first == (
        "2 clusters found; with the model of its cluster a client has a test loss of 0.4 on average, "
        "the worst tenth 0.6."
    )
    assert second == "Test loss on test examples after the last evaluated round; mean of all rounds: 0.65."


def test_a_failed_run_says_why_and_how_far_it_went(write):
    spec = {"run": {"rounds": 9}}
    folder = write([{"a": (0, 10), "b": (1, 4)}], spec=spec, status="failed", summary={"reason": "Too few replies."})
    assert said(folder)[0] == "The run failed after 1 of 9 rounds: Too few replies."


def test_a_run_without_an_evaluation_has_no_scores(write):
    found = said(write([], spec={"run": {"rounds": 9}}, status=None))
    assert found == [
        "The run was interrupted after 0 of 9 rounds.",
        "No round was evaluated, so there are no scores.",
    ]


def test_only_the_last_ten_rounds_count(write):
    # Eleven rounds; the first, with 0, does not count: (9 · 0.8 + 0.9) / 10 = 0.81.
    scores = scores_of(RunView.read(write([{"a": (0, 0)}, *[{"a": (0, 8)}] * 9, {"a": (0, 9)}])))
    assert (scores.mean, scores.span) == (0.9, "the last ten rounds")
    assert scores.recent == pytest.approx(0.81)


def test_the_large_numbers(write):
    found = {each.label: each.value for each in figures(RunView.read(write([{"a": (0, 10), "b": (1, 4)}])))}
    assert found == {
        "accuracy, mean over clients": 0.7,
        "accuracy, worst tenth of clients": 0.4,
        "clusters": 2,
        "clients": 2,
        "rounds": 1,
        "traffic": 150,
        "time": 5.0,
    }


def test_the_models_of_an_earlier_round_are_served_and_scored(write):
    # Round 1: (1.0 + 0.4) / 2 = 0.7 and worst 0.4; round 2 is better on test examples, but round 1 is served.
    best = {"t": 0, "step": 0, "metric": "accuracy", "validation": 0.9, "test": 0.7, "served": True}
    folder = write([{"a": (0, 10), "b": (1, 4)}, {"a": (0, 9), "b": (1, 7)}], summary={"best_round": best})
    assert said(folder) == [
        "2 clusters found; with the model of its cluster a client scores 70.0 % on average, the worst tenth 40.0 %.",
        "Accuracy on test examples after round 1, whose models are served; mean of all rounds: 75.0 %.",
    ]
    assert figures(RunView.read(folder))[0].note == "round 1, whose models are served; mean of all rounds 75.0 %"
