"""The rule of `recommend`: scores in, answer out, with numbers done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coterie.runs.recommending.rule import (
    Candidate,
    ClientScores,
    Difference,
    decide,
    difference,
    margin_of,
)


def scores(*rows, weights=None):
    values = np.array(rows, np.float64)
    return ClientScores(values, np.ones_like(values) if weights is None else np.array(weights, np.float64))


def zeros(*shape):
    return scores(*np.zeros(shape))


def test_the_error_of_one_seed_is_the_standard_error_over_clients():
    # d = 0.1, 0.2, 0.3: mean 0.2, standard deviation 0.1, so that the error of the mean is 0.1 / √3.
    found = difference(scores([0.1, 0.2, 0.3]), zeros(1, 3), higher_is_better=True)
    assert found.mean == pytest.approx(0.2)
    assert found.error == pytest.approx(0.1 / math.sqrt(3))
    assert found.clients == 3


def test_the_error_of_several_seeds_adds_the_spread_over_seeds():
    # Two clients, two seeds: d = (0.1, 0.3) and (0.3, 0.5), mean 0.3, W = 4.
    #   clients: rests (0.1 - 0.3) + (0.3 - 0.3) = -0.2 and (0.3 - 0.3) + (0.5 - 0.3) = 0.2; 2/1 · 0.08 = 0.16
    #   seeds:   rests (0.1 + 0.3) - 0.6 = -0.2 and (0.3 + 0.5) - 0.6 = 0.2; 2/1 · 0.08 = 0.16
    # error = √0.32 / 4
    found = difference(scores([0.1, 0.3], [0.3, 0.5]), zeros(2, 2), higher_is_better=True)
    assert found.mean == pytest.approx(0.3)
    assert found.error == pytest.approx(math.sqrt(0.32) / 4)


def test_clients_count_by_their_validation_examples():
    # d = 0 with weight 3 and 0.4 with weight 1: mean 0.1; rests 3 · (-0.1) = -0.3 and 0.3; √(2 · 0.18) / 4 = 0.15.
    one = scores([0.5, 0.5], weights=[[3, 1]])
    found = difference(scores([0.5, 0.9], weights=[[3, 1]]), one, higher_is_better=True)
    assert found.mean == pytest.approx(0.1)
    assert found.error == pytest.approx(0.15)


def test_a_lower_loss_is_a_positive_difference():
    found = difference(scores([1.0, 1.0]), scores([2.0, 4.0]), higher_is_better=False)
    assert found.mean == pytest.approx(2.0)


def test_clients_without_validation_examples_do_not_count():
    found = difference(scores([0.1, math.nan, 0.3]), scores([0.0, math.nan, 0.0]), higher_is_better=True)
    assert (found.mean, found.clients) == (pytest.approx(0.2), 2)


def test_a_method_with_fewer_seeds_is_paired_with_the_same_seeds_of_the_reference():
    found = difference(scores([0.3, 0.5]), scores([0.1, 0.3], [0.9, 0.9]), higher_is_better=True)
    assert found.mean == pytest.approx(0.2)


def test_means_are_weighted_by_examples_over_seeds_and_by_client():
    found = scores([1.0, 0.0], [0.0, math.nan], weights=[[1, 1], [2, 5]])
    assert found.mean == pytest.approx(1 / 4)
    assert found.by_seed == pytest.approx([1 / 2, 0.0])
    assert found.by_client == pytest.approx([1 / 3, 0.0])


def test_chance_is_a_multiple_of_the_error_that_grows_with_the_number_of_methods():
    # Quantiles of Student's distribution with 9 degrees of freedom: 1.833 at 0.05, 2.821 at 0.01.
    assert Difference(1.84, 1.0, 10).beyond_noise(1)
    assert not Difference(1.82, 1.0, 10).beyond_noise(1)
    assert Difference(2.83, 1.0, 10).beyond_noise(5)
    assert not Difference(2.81, 1.0, 10).beyond_noise(5)


def test_a_single_client_shows_nothing():
    found = difference(scores([0.9], [0.9]), zeros(2, 1), higher_is_better=True)
    assert not found.beyond_noise(1)


def test_margins_are_a_point_of_accuracy_and_two_percent_of_a_loss():
    assert margin_of("accuracy", 0.7) == 0.01
    assert margin_of("loss", 0.5) == pytest.approx(0.01)
    assert margin_of("rmse", 30.0) == pytest.approx(0.6)


# ------------------------------------------------------------------------------------------------------------- answers

ONE = Candidate("one model", 0.70, None, 100)


def candidate(answer, score, error=0.002, sent=100, one_cluster=False, reference=0.70):
    return Candidate(answer, score, Difference(score - reference, error, 40), sent, one_cluster)


def answer(**others):
    return decide({"fedavg": ONE, **others}, "fedavg", "accuracy", higher_is_better=True)


def test_one_model_is_enough_if_nothing_is_better():
    found = answer(local=candidate("local", 0.60), fedgroup=candidate("clusters", 0.69))
    assert (found.method, found.answer, found.better) == ("fedavg", "one model", ())


def test_one_model_is_enough_if_the_gain_is_below_the_margin():
    assert answer(fedgroup=candidate("clusters", 0.709)).answer == "one model"
    assert answer(fedgroup=candidate("clusters", 0.710)).answer == "clusters"


def test_one_model_is_enough_if_the_gain_may_be_chance():
    # 40 clients, one comparison: t(0.95, 39) = 1.685.
    assert answer(fedgroup=candidate("clusters", 0.80, error=0.060)).answer == "one model"
    assert answer(fedgroup=candidate("clusters", 0.80, error=0.059)).answer == "clusters"


def test_a_method_that_ended_with_one_cluster_is_no_reason_for_clusters():
    found = answer(cfl=candidate("clusters", 0.80, one_cluster=True))
    assert (found.method, found.answer) == ("fedavg", "one model")


def test_the_best_method_is_chosen_if_the_others_are_worse_by_more_than_the_margin():
    found = answer(ifca=candidate("clusters", 0.93, sent=900), fedgroup=candidate("clusters", 0.91, sent=100))
    assert (found.method, found.answer) == ("ifca", "clusters")
    assert (found.better, found.equal) == (("ifca", "fedgroup"), ("ifca",))


def test_of_equally_good_methods_the_one_with_the_fewest_bytes_is_chosen():
    found = answer(ifca=candidate("clusters", 0.93, sent=900), fedgroup=candidate("clusters", 0.92, sent=100))
    assert found.method == "fedgroup"
    assert found.better == ("ifca", "fedgroup")
    assert found.equal == ("fedgroup", "ifca")


def test_local_training_is_preferred_to_equally_good_clusters():
    found = answer(fedgroup=candidate("clusters", 0.93, sent=1), local=candidate("local", 0.925, sent=50))
    assert (found.method, found.answer) == ("local", "local")


def test_one_model_by_another_method_is_preferred_to_equally_good_clusters():
    found = answer(fedprox=candidate("one model", 0.93), fedgroup=candidate("clusters", 0.935, sent=1))
    assert (found.method, found.answer) == ("fedprox", "one model")


def test_with_losses_the_lowest_score_is_the_best():
    one = Candidate("one model", 2.0, None, 100)
    others = {
        "ifca": Candidate("clusters", 1.0, Difference(1.0, 0.01, 40), 100),
        "local": Candidate("local", 1.5, Difference(0.5, 0.01, 40), 1),
    }
    found = decide({"fedavg": one, **others}, "fedavg", "loss", higher_is_better=False)
    assert (found.method, found.better) == ("ifca", ("ifca", "local"))


def test_losses_are_equal_if_they_differ_by_two_percent_of_the_best():
    # 2 % of the loss of one model would be 0.04: more than twice the best loss.
    one = Candidate("one model", 2.0, None, 100)
    others = {
        name: Candidate(answer, score, Difference(2.0 - score, 0.01, 40), 100)
        for name, answer, score in [
            ("ifca", "clusters", 0.0100),
            ("local", "local", 0.0102),
            ("flhc", "clusters", 0.0103),
        ]
    }
    found = decide({"fedavg": one, **others}, "fedavg", "loss", higher_is_better=False)
    assert (found.method, found.equal) == ("local", ("local", "ifca"))
