from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import metrics
from coterie.errors import SpecError

# The first use of scikit-learn or SciPy inside a property loads it, which exceeds the time limit of hypothesis.
unhurried = settings(deadline=None, max_examples=50)

counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20).map(
    lambda pairs: [(min(pair), max(pair)) for pair in pairs]  # (correct, total)
)
tested_counts = counts.filter(lambda pairs: any(total for _, total in pairs))
partitions = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=20)  # (predicted, true)
curves = st.lists(st.floats(0, 1), min_size=1, max_size=30)


# Accuracy and loss


def test_weighted_accuracy_counts_examples_and_mean_accuracy_counts_clients() -> None:
    # a: 1 of 2, b: 8 of 8. Examples: 9/10. Clients: (0.5 + 1) / 2.
    assert metrics.weighted_accuracy([1, 8], [2, 8]) == 0.9
    assert metrics.mean_accuracy([1, 8], [2, 8]) == 0.75


def test_a_client_without_test_examples_is_skipped() -> None:
    # Only 3 of 4 counts; a client with 0 of 0 is skipped.
    assert metrics.weighted_accuracy([3, 0], [4, 0]) == 0.75
    assert metrics.mean_accuracy([3, 0], [4, 0]) == 0.75
    assert metrics.worst_share_accuracy([3, 0], [4, 0]) == 0.75


def test_mappings_are_matched_by_client_not_by_position() -> None:
    # a: 1 of 2, b: 8 of 8, in different orders
    assert metrics.mean_accuracy({"a": 1, "b": 8}, {"b": 8, "a": 2}) == 0.75


@given(st.lists(st.integers(0, 7), min_size=1, max_size=20))
def test_weighted_and_mean_accuracy_agree_if_all_clients_have_equally_many_examples(correct: list[int]) -> None:
    total = [7] * len(correct)
    assert metrics.weighted_accuracy(correct, total) == pytest.approx(metrics.mean_accuracy(correct, total), abs=1e-12)


@given(tested_counts, st.randoms(use_true_random=False), st.floats(0.01, 1))
def test_accuracies_are_between_the_worst_and_the_best_client_in_any_order(
    pairs: list[tuple[int, int]], random: Any, share: float
) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    rates = [correct / total for correct, total in pairs if total]
    for measure in (
        metrics.weighted_accuracy,
        metrics.mean_accuracy,
        lambda correct, total: metrics.worst_share_accuracy(correct, total, share),
    ):
        score = measure(*zip(*pairs, strict=True))
        assert min(rates) - 1e-12 <= score <= max(rates) + 1e-12
        assert measure(*zip(*shuffled, strict=True)) == pytest.approx(score, abs=1e-12)


def test_the_worst_share_is_rounded_down_but_is_at_least_one_client() -> None:
    # Accuracies 0/20, 1/20, ..., 19/20 of 20 clients: a tenth is two clients, 29 % is five (of 5.8), 1 % is one.
    correct, total = list(range(20)), [20] * 20
    assert metrics.worst_share_accuracy(correct, total) == pytest.approx((0 + 1) / 2 / 20)
    assert metrics.worst_share_accuracy(correct, total, 0.29) == pytest.approx((0 + 1 + 2 + 3 + 4) / 5 / 20)
    assert metrics.worst_share_accuracy(correct, total, 0.01) == 0


def test_the_whole_share_is_the_mean_accuracy() -> None:
    assert metrics.worst_share_accuracy([1, 8, 2], [2, 8, 8], 1.0) == metrics.mean_accuracy([1, 8, 2], [2, 8, 8])


def test_training_loss_is_weighted_by_examples_and_skips_clients_without_any() -> None:
    # (1·2 + 3·4) / (1 + 3) = 3.5
    assert metrics.training_loss([2.0, 4.0, math.nan], [1, 3, 0]) == 3.5
    assert metrics.training_loss({"b": 4.0, "a": 2.0}, {"a": 1, "b": 3}) == 3.5


def test_the_training_loss_is_not_finite_if_a_client_diverged() -> None:
    assert math.isnan(metrics.training_loss([2.0, math.nan], [1, 3]))


@pytest.mark.parametrize(
    ("correct", "total", "text"),
    [
        ([1], [2, 3], r"correct and total need one number for each client, got shapes \(1,\) and \(2,\)"),
        ([3], [2], "correct must be between 0 and total"),
        ([-1], [2], "correct must be between 0 and total"),
        ([math.nan], [2], "correct must be between 0 and total"),
        ([1], [math.inf], "total must be finite"),
        ([0, 0], [0, 0], "No client has test examples"),
        ([], [], "No client has test examples"),
        ({"a": 1}, {"a": 1, "b": 2}, "must have the same clients; only in one of them: b"),
        ({"a": 1}, [1], "must both be mappings by client, or both be sequences"),
    ],
)
def test_invalid_counts_are_rejected(correct: Any, total: Any, text: str) -> None:
    for measure in (metrics.weighted_accuracy, metrics.mean_accuracy, metrics.worst_share_accuracy):
        with pytest.raises(SpecError, match=text):
            measure(correct, total)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, math.nan])
def test_an_invalid_share_is_rejected(share: float) -> None:
    with pytest.raises(SpecError, match=f"share must be greater than 0 and at most 1, got {share}"):
        metrics.worst_share_accuracy([1], [1], share)


@pytest.mark.parametrize(
    ("samples", "text"),
    [([1, -1], "non-negative"), ([1, math.nan], "finite"), ([0, 0], "No client has examples"), ([1], "shapes")],
)
def test_invalid_sample_counts_are_rejected(samples: list[float], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        metrics.training_loss([1.0, 2.0], samples)


# Final score


def test_the_three_rules_for_a_final_score() -> None:
    # Rounds 0 to 11 score 0.0, 0.1, ..., 1.1, but round 3 scores 2. The last ten are rounds 2 to 11:
    # 0.2 + 2 + 0.4 + ... + 1.1 = 2.2 + (0.4 + 1.1)·8/2 = 8.2, over 10.
    curve = [i / 10 for i in range(12)]
    curve[3] = 2.0
    assert metrics.final_score(curve) == pytest.approx(0.82)
    assert metrics.final_score(curve, "best") == 2.0
    assert metrics.final_score(curve, "last") == 1.1


def test_a_curve_of_fewer_than_ten_rounds_is_averaged_completely() -> None:
    assert metrics.final_score([0.25, 0.75]) == 0.5


def test_rounds_without_full_coverage_are_ignored() -> None:
    # Rounds 1 and 2 count, scores 0.5 and 0.25.
    curve, coverage = [0.9, 0.5, 0.25, 0.8], [0.5, 1.0, 1.0, 0.99]
    assert metrics.final_score(curve, "best", coverage) == 0.5
    assert metrics.final_score(curve, "last", coverage) == 0.25
    assert metrics.final_score(curve, "last_ten", coverage) == 0.375


@given(curves)
def test_the_best_score_is_never_below_the_other_two(curve: list[float]) -> None:
    best = metrics.final_score(curve, "best")
    assert best >= metrics.final_score(curve, "last")
    assert best >= metrics.final_score(curve, "last_ten") - 1e-12


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([],), r"curve must be one-dimensional with at least one number, got shape \(0,\)"),
        (([[1.0]],), r"got shape \(1, 1\)"),
        (([0.5, math.nan],), "curve must be finite, entry 1 is not"),
        (([0.5], "mean"), "No rule for the final score 'mean'. Known: best, last, last_ten"),
        (([0.5], "best", [1.0, 1.0]), "coverage needs one number for each of the 1 rounds, got 2"),
        (([0.5], "best", [0.9]), "No round has coverage 1"),
    ],
)
def test_invalid_input_of_the_final_score_is_rejected(arguments: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        metrics.final_score(*arguments)


# Discrepancy


def test_discrepancy_is_the_mean_distance_over_the_cohort_and_over_each_cluster() -> None:
    # Differences (3, 4), (0, 1), (0, 0): distances 5, 1, 0. Total 6/3 = 2; group 0: (5 + 1)/2 = 3, group 2: 0.
    local = {"a": np.array([[3.0], [0.0], [7.0]]), "b": {"c": np.array([5.0, 2.0, 1.0])}}
    reference = {"a": np.array([[0.0], [0.0], [7.0]]), "b": {"c": np.array([1.0, 1.0, 1.0])}}
    out = metrics.discrepancy(local, reference, groups=[0, 0, 2])
    assert out == metrics.Discrepancy(total=2.0, by_group={0: 3.0, 2: 0.0})
    assert metrics.discrepancy(local, reference) == metrics.Discrepancy(total=2.0, by_group={})


def test_a_client_without_a_cluster_counts_only_in_the_total() -> None:
    # Distances 1 and 3.
    out = metrics.discrepancy(np.array([[1.0], [3.0]]), np.zeros((2, 1)), groups=[1, None])
    assert out == metrics.Discrepancy(total=2.0, by_group={1: 1.0})


def test_discrepancy_of_equal_models_is_zero() -> None:
    models = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    assert metrics.discrepancy(models, models.copy(), [0, 1, 1]) == metrics.Discrepancy(0.0, {0: 0.0, 1: 0.0})


def test_distances_of_float32_models_are_computed_in_float64() -> None:
    # (1e25)² is beyond the range of float32.
    far = np.array([[1e25]], dtype=np.float32)
    assert metrics.discrepancy(far, np.zeros((1, 1), np.float32)).total == pytest.approx(1e25, rel=1e-6)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-100, 100)), min_size=1, max_size=12))
def test_the_total_is_the_mean_of_the_clusters_weighted_by_size(rows: list[tuple[int, float]]) -> None:
    groups = [group for group, _ in rows]
    out = metrics.discrepancy(np.array([[value] for _, value in rows]), np.zeros((len(rows), 1)), groups)
    assert sum(out.by_group[g] * groups.count(g) for g in set(groups)) / len(rows) == pytest.approx(out.total)


@pytest.mark.parametrize(
    ("local", "reference", "groups", "text"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), None, r"bank has shapes \(2, 3\) and \(2, 4\)"),
        ({"a": np.ones(2)}, {"b": np.ones(2)}, None, "same arrays; only in one of them: a, b"),
        ({"a": np.ones(2)}, np.ones(2), None, "same rows of models"),
        ({"a": np.ones(2), "b": np.ones(3)}, {"a": np.ones(2), "b": np.ones(3)}, None, "same leading axis"),
        (np.float64(1), np.float64(1), None, "same rows of models"),
        ({}, {}, None, "The bank is empty"),
        (np.ones((0, 2)), np.ones((0, 2)), None, "The bank is empty"),
        (np.ones((2, 2)), np.ones((2, 2)), [0], "groups needs one entry for each of the 2 models, got 1"),
    ],
)
def test_banks_that_do_not_match_are_rejected(local: Any, reference: Any, groups: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        metrics.discrepancy(local, reference, groups)


# Clusters


@pytest.mark.parametrize("variant", ["majority", "hungarian"])
def test_the_true_clusters_in_another_numbering_have_no_error(variant: Any) -> None:
    assert metrics.misclustering([5, 5, 0, 9], [0, 0, 1, 2], variant) == 0


@pytest.mark.parametrize("variant", ["majority", "hungarian"])
@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_with_all_clients_in_one_cluster_only_one_of_k_equal_clusters_is_right(variant: Any, k: int) -> None:
    truth = [cluster for cluster in range(k) for _ in range(3)]
    assert metrics.misclustering([0] * len(truth), truth, variant) == pytest.approx(1 - 1 / k)


def test_a_minority_in_a_cluster_is_misclustered() -> None:
    # Cluster 0 has the true clusters 0, 0, 1 and is matched to 0; cluster 1 has 1, 1 and is matched to 1: one of five
    # is wrong.
    assert metrics.misclustering([0, 0, 0, 1, 1], [0, 0, 1, 1, 1]) == pytest.approx(1 / 5)


def test_only_the_hungarian_variant_penalizes_too_many_clusters() -> None:
    # One cluster per client: pure, but of 2 + 2 clients only one in each true cluster can be matched: 1 - 2/4.
    assert metrics.misclustering([0, 1, 2, 3], [0, 0, 1, 1]) == 0
    assert metrics.misclustering([0, 1, 2, 3], [0, 0, 1, 1], "hungarian") == 0.5


def test_the_hungarian_variant_matches_a_true_cluster_to_only_one_found_cluster() -> None:
    # Rows: cluster 0 holds three of true 0 and two of true 1, cluster 1 holds two of true 0. By majority both match
    # 0, 5 of 7 fit. One to one: 0 as 0 and 1 as 1 fits 3 + 0; 0 as 1 and 1 as 0 fits 2 + 2.
    predicted, truth = [0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0, 0]
    assert metrics.misclustering(predicted, truth) == pytest.approx(2 / 7)
    assert metrics.misclustering(predicted, truth, "hungarian") == pytest.approx(3 / 7)


@pytest.mark.parametrize("variant", ["majority", "hungarian"])
def test_a_client_without_a_cluster_is_misclustered(variant: Any) -> None:
    # Of four clients, c is None (or -1, or missing) and the others are right.
    assert metrics.misclustering([0, 0, None, 1], [0, 0, 1, 1], variant) == 0.25
    assert metrics.misclustering(np.array([0, 0, -1, 1]), [0, 0, 1, 1], variant) == 0.25
    truth = {"a": 0, "b": 0, "c": 1, "d": 1}
    assert metrics.misclustering({"d": 1, "a": 0, "b": 0}, truth, variant) == 0.25
    assert metrics.misclustering({}, truth, variant) == 1


@unhurried
@given(partitions, st.permutations(range(5)), st.permutations(range(5)), st.randoms(use_true_random=False))
def test_neither_the_numbering_of_clusters_nor_the_order_of_clients_matters(
    pairs: list[tuple[int, int]], names: list[int], true_names: list[int], random: Any
) -> None:
    renamed = [(names[found], true_names[true]) for found, true in pairs]
    random.shuffle(renamed)
    for measure in (
        metrics.misclustering,
        lambda predicted, truth: metrics.misclustering(predicted, truth, "hungarian"),
        metrics.adjusted_rand,
        metrics.nmi,
    ):
        before, after = measure(*zip(*pairs, strict=True)), measure(*zip(*renamed, strict=True))
        assert after == pytest.approx(before, abs=1e-9)


@unhurried
@given(partitions)
def test_one_to_one_matching_never_has_a_lower_error_than_majority(pairs: list[tuple[int, int]]) -> None:
    predicted, truth = zip(*pairs, strict=True)
    majority = metrics.misclustering(predicted, truth)
    assert 0 <= majority <= metrics.misclustering(predicted, truth, "hungarian") + 1e-12 <= 1


def test_adjusted_rand_of_a_small_table() -> None:
    # Predicted {a,b,c}, {d}; true {a,b}, {c,d}. Pairs together in both: ab = 1. Predicted pairs 3, true pairs 2, of 6.
    # Expected 3·2/6 = 1, greatest (3 + 2)/2 = 2.5, so (1 - 1)/(2.5 - 1) = 0.
    assert metrics.adjusted_rand([0, 0, 0, 1], [0, 0, 1, 1]) == pytest.approx(0, abs=1e-12)
    # Predicted {a,b}, {c}, {d}; true {a,b}, {c,d}: both 1, predicted 1, true 2: (1 - 1/3)/(1.5 - 1/3) = 4/7.
    assert metrics.adjusted_rand([0, 0, 1, 2], [0, 0, 1, 1]) == pytest.approx(4 / 7)


def test_nmi_of_a_small_table() -> None:
    # Predicted {a,b}, {c}, {d}; true {a,b}, {c,d}. The true clusters follow from the predicted ones: information =
    # H(true) = ln 2. H(predicted) = ½ ln 2 + 2·¼ ln 4 = 1.5 ln 2. ln 2 over the mean 1.25 ln 2 is 0.8.
    assert metrics.nmi([0, 0, 1, 2], [0, 0, 1, 1]) == pytest.approx(0.8)


def test_perfect_clusters_have_rand_and_nmi_1_and_a_single_cluster_has_0() -> None:
    truth = [0, 0, 1, 1, 2]
    for measure in (metrics.adjusted_rand, metrics.nmi):
        assert measure([7, 7, 3, 3, 0], truth) == pytest.approx(1)
        assert measure([0] * 5, truth) == pytest.approx(0, abs=1e-12)


def test_rand_and_nmi_ignore_clients_without_a_cluster() -> None:
    truth = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    for measure in (metrics.adjusted_rand, metrics.nmi):
        assert measure({"a": 0, "b": 0, "c": 1}, truth) == pytest.approx(1)
        assert measure([0, 0, 1, None, -1], list(truth.values())) == pytest.approx(1)


@pytest.mark.parametrize(
    ("predicted", "truth", "text"),
    [
        ([0], [0, 1], "predicted has 1 clients and truth has 2"),
        ([], [], "There are no clients"),
        ([0], [None], "truth must have a cluster for every client"),
        ([0.5], [0], "A cluster is a whole number from 0, or None or -1 for none, got 0.5"),
        ([-2], [0], "A cluster is a whole number from 0, or None or -1 for none, got -2"),
        ({"a": 0, "x": 0}, {"a": 0}, "truth must contain every client of predicted; missing: x"),
        ({"a": 0}, [0], "must both be mappings by client, or both be sequences"),
    ],
)
def test_assignments_that_do_not_match_are_rejected(predicted: Any, truth: Any, text: str) -> None:
    for measure in (metrics.misclustering, metrics.adjusted_rand, metrics.nmi):
        with pytest.raises(SpecError, match=text):
            measure(predicted, truth)


def test_rand_and_nmi_need_a_client_with_a_cluster() -> None:
    for measure in (metrics.adjusted_rand, metrics.nmi):
        with pytest.raises(SpecError, match="No client has a cluster"):
            measure([None, -1], [0, 1])


def test_an_unknown_variant_raises_an_error_with_the_nearest_variant() -> None:
    variant: Any = "hungary"
    with pytest.raises(SpecError, match=r"No variant of misclustering 'hungary'. Did you mean 'hungarian'\?"):
        metrics.misclustering([0], [0], variant)


def test_cluster_stats_count_members_empty_clusters_and_clients_without_a_cluster() -> None:
    out = metrics.cluster_stats({"a": 0, "b": 2, "c": 2, "d": None}, 4)
    assert out == metrics.ClusterStats(sizes=(1, 0, 2, 0), non_empty=2, empties=2, unassigned=1, collapsed=False)
    assert metrics.cluster_stats(np.array([0, 2, 2, -1]), 4) == out


@pytest.mark.parametrize(
    ("assignment", "k", "collapsed"),
    [([1, 1, 1], 2, True), ([0, 0], 1, False), ([0, 1], 2, False), ([None], 2, True)],
)
def test_clusters_are_collapsed_if_at_most_one_of_several_has_clients(
    assignment: list[int | None], k: int, collapsed: bool
) -> None:
    assert metrics.cluster_stats(assignment, k).collapsed is collapsed


@given(st.lists(st.integers(-1, 4), max_size=30))
def test_sizes_and_unassigned_clients_add_up_to_all_clients(assignment: list[int]) -> None:
    out = metrics.cluster_stats(assignment, 5)
    assert sum(out.sizes) + out.unassigned == len(assignment)
    assert out.non_empty + out.empties == 5
    assert out.empties == out.sizes.count(0)


def test_cluster_stats_rejects_invalid_clusters_and_k_below_one() -> None:
    with pytest.raises(SpecError, match="Clusters are numbered from 0 to 1, got 2"):
        metrics.cluster_stats([0, 2, 3], 2)
    with pytest.raises(SpecError, match="k must be at least 1, got 0"):
        metrics.cluster_stats([], 0)


def test_a_migration_is_from_one_cluster_to_another() -> None:
    # a moves, b stays, c gets its first cluster, d loses its cluster, e is new, f is gone: one migration.
    before = {"a": 0, "b": 1, "c": None, "d": 1, "f": 0}
    after = {"e": 0, "d": None, "c": 1, "b": 1, "a": 1}
    assert metrics.migrations(before, after) == 1
    assert metrics.migrations([0, 1, None, 1], np.array([1, 1, 1, -1])) == 1


@given(partitions)
def test_the_number_of_migrations_is_symmetric(pairs: list[tuple[int, int]]) -> None:
    before, after = zip(*pairs, strict=True)
    assert metrics.migrations(before, after) == metrics.migrations(after, before)
    assert metrics.migrations(before, before) == 0


def test_migrations_rejects_assignments_of_different_clients() -> None:
    with pytest.raises(SpecError, match="before has 1 clients and after has 2"):
        metrics.migrations([0], [0, 1])
    with pytest.raises(SpecError, match="must both be mappings by client, or both be sequences"):
        metrics.migrations({"a": 0}, [0])


# PNI


def test_pni_of_two_clients_is_the_difference_of_their_errors() -> None:
    # Each differs by 1 from the other: PNI_i = 1, mean 1, √(N - 1) = 1.
    assert metrics.pni([0.0, 1.0]) == metrics.PNI(value=1.0, scaled=1.0)


def test_pni_of_three_clients_by_hand() -> None:
    # RMSE 0, 0, 3: the first two have √(0 + 9) = 3, the third √(9 + 9) = 3√2. Mean 2 + √2; over √2: √2 + 1.
    out = metrics.pni({"a": 0.0, "b": 0.0, "c": 3.0})
    assert out.value == pytest.approx(2 + math.sqrt(2))
    assert out.scaled == pytest.approx(math.sqrt(2) + 1)


@given(st.floats(0, 1e6), st.integers(2, 40))
def test_pni_of_equal_errors_is_exactly_zero(rmse: float, n_clients: int) -> None:
    assert metrics.pni([rmse] * n_clients) == metrics.PNI(0.0, 0.0)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=15), st.floats(0, 100))
def test_pni_equals_its_double_sum_and_does_not_depend_on_order_or_a_common_shift(
    rmse: list[float], shift: float
) -> None:
    # The double sum of the definition; the function uses a single sum.
    expected = sum(math.sqrt(sum((one - other) ** 2 for other in rmse)) for one in rmse) / len(rmse)
    for same in (rmse, rmse[::-1], [value + shift for value in rmse]):
        assert metrics.pni(same).value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_label_rmse_uses_class_numbers() -> None:
    # Differences 3, 0, 0, -1: √(10/4)
    assert metrics.label_rmse([3, 1, 2, 0], [0, 1, 2, 1]) == pytest.approx(math.sqrt(2.5))


def test_uint8_labels_do_not_wrap_around() -> None:
    # 0 - 255 would be 1 in uint8.
    assert metrics.label_rmse(np.array([0], np.uint8), np.array([255], np.uint8)) == 255


@pytest.mark.parametrize(
    ("rmse", "text"),
    [
        ([1.0], "needs the RMSE of at least two"),
        ([], "rmse must be one-dimensional with at least one number"),
        ([1.0, math.nan], "rmse must be finite, entry 1 is not"),
        ([1.0, -1.0], "rmse must be non-negative"),
    ],
)
def test_invalid_input_of_pni_is_rejected(rmse: list[float], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        metrics.pni(rmse)


def test_different_numbers_of_labels_are_rejected() -> None:
    with pytest.raises(SpecError, match="predicted has 1 labels and labels has 2"):
        metrics.label_rmse([1], [1, 2])


# Cost to a target


def test_the_first_round_at_the_target_counts_even_if_later_ones_are_below() -> None:
    assert metrics.rounds_to_target([0.1, 0.85, 0.2, 0.9], 0.85) == 1
    assert metrics.rounds_to_target([0.85], 0.85) == 0
    assert metrics.rounds_to_target([0.1, 0.2], 0.85) is None


def test_with_a_window_the_moving_mean_must_stay_at_the_target() -> None:
    # Means of two: rounds 1 to 5: 0.5, 0.5, 0.25, 0.5, 1. At least 0.5 until the end from round 4.
    curve = [0.0, 1.0, 0.0, 0.5, 0.5, 1.5]
    assert metrics.rounds_to_target(curve, 0.5, window=2) == 4
    # Never below 0.25: the first round with a mean.
    assert metrics.rounds_to_target(curve, 0.25, window=2) == 1
    # The last mean is 1.
    assert metrics.rounds_to_target(curve, 1.1, window=2) is None


def test_a_curve_shorter_than_the_window_never_reaches_a_target() -> None:
    assert metrics.rounds_to_target([1.0, 1.0], 0.5, window=3) is None


@given(st.floats(0, 1), st.integers(1, 9))
def test_a_constant_curve_reaches_its_own_level_when_the_window_is_full(level: float, window: int) -> None:
    assert metrics.rounds_to_target([level] * 9, level, window) == window - 1


@given(curves, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_target_is_never_reached_earlier(curve: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    for window in (None, 1, 3):
        soon, late = (metrics.rounds_to_target(curve, target, window) for target in (low, high))
        assert late is None or (soon is not None and soon <= late)


def test_bytes_to_target_are_the_total_at_the_end_of_that_round() -> None:
    curve, sent = [0.1, 0.5, 0.9], [100, 250, 400]
    assert metrics.bytes_to_target(curve, sent, 0.5) == 250
    assert metrics.bytes_to_target(curve, sent, 0.95) is None
    # Means of two: 0.3 and 0.7, in rounds 1 and 2
    assert metrics.bytes_to_target(curve, sent, 0.5, window=2) == 400


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ([1], "cumulative_bytes needs one number for each of the 2 rounds"),
        ([5, 3], "must not decrease: give the running total"),
        ([-1, 3], "must be non-negative"),
    ],
)
def test_bytes_that_are_not_a_running_total_are_rejected(sent: list[int], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        metrics.bytes_to_target([0.1, 0.2], sent, 0.2)


def test_a_window_below_one_round_is_rejected() -> None:
    with pytest.raises(SpecError, match="window must be at least 1 round, got 0"):
        metrics.rounds_to_target([0.5], 0.5, window=0)


def test_importing_the_module_loads_neither_scipy_nor_scikit_learn() -> None:
    code = "import sys, coterie.metrics; print(sorted({'scipy', 'sklearn'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# Curves of several runs -----------------------------------------------------------------------------------------------


def test_a_loss_has_converged_if_it_changed_little_over_the_last_rounds() -> None:
    falling = [1.0 - 0.01 * t for t in range(60)]
    assert not metrics.converged(falling)
    assert metrics.converged([*falling, *[0.41] * 51])
    assert not metrics.converged([*falling, *[0.41] * 49])  # 0.40 + 0.02 = 0.42 fifty rounds before
    assert not metrics.converged([0.5] * 50), "fifty rounds have no round fifty rounds before the last"
    assert metrics.converged([3.0, 1.0, 1.5], tolerance=0.5, rounds=1)
    assert not metrics.converged([3.0, 1.0, 1.5], tolerance=0.49, rounds=1)


def test_the_improvement_is_the_mean_over_rounds_of_the_difference_of_mean_curves() -> None:
    # Means over seeds (0.2, 0.6) and (0.1, 0.3): differences 0.1 and 0.3, of mean 0.2 and deviation 0.1.
    found = metrics.mean_improvement([[0.1, 0.5], [0.3, 0.7]], [[0.1, 0.3]])
    assert found.mean == pytest.approx(0.2)
    assert found.deviation == pytest.approx(0.1)


def test_p_values_are_corrected_by_holms_method() -> None:
    # Sorted 0.01, 0.03, 0.04: times 3, 2, 1 are 0.03, 0.06, 0.04, and none may be below an earlier one.
    assert metrics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert metrics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert metrics.holm([0.2]) == [0.2]


def test_gradient_dissimilarity_is_the_distance_from_the_weighted_mean() -> None:
    # Mean (1·(0, 0) + 3·(4, 0))/4 = (3, 0): squared distances 9 and 1, of mean 5.
    assert metrics.gradient_dissimilarity(np.array([[0.0, 0.0], [4.0, 0.0]]), [1, 3]) == pytest.approx(5.0)
    assert metrics.gradient_dissimilarity(np.ones((3, 2)), [1, 1, 2]) == 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: metrics.converged([1.0], rounds=0), "rounds must be at least 1"),
        (lambda: metrics.mean_improvement([[0.1]], [[0.1, 0.2]]), "Curves must have the same rounds, got 1 and 2"),
        (lambda: metrics.mean_improvement([[np.nan]], [[0.1]]), "curves of finite scores"),
        (lambda: metrics.mean_improvement([], [[0.1]]), "curves of finite scores"),
        (lambda: metrics.holm([1.2]), "p_values must be between 0 and 1"),
        (lambda: metrics.holm([]), "at least one number"),
        (lambda: metrics.gradient_dissimilarity(np.ones((2, 2)), [1]), "one row per client"),
        (lambda: metrics.gradient_dissimilarity(np.ones((2, 2)), [0, 0]), "not all 0"),
    ],
)
def test_invalid_curves_and_gradients_are_rejected(call, text) -> None:
    with pytest.raises(SpecError, match=text):
        call()
