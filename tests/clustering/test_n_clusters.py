from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.clustering import choose_n_clusters, cosine, edc_embedding, elbow, guarded_elbow, madc
from coterie.errors import SpecError
from coterie.seeds import Seed

#: Stability clusters many samples, which takes seconds; `make test` only looks whether it finds planted clusters.
RULES: list[Any] = ["silhouette", "eigengap", pytest.param("stability", marks=pytest.mark.exhaustive)]
SIZES, GOOD = (1, 2, 3, 4, 10, 30), (0.30, 0.50, 0.70, 0.90, 0.91, 0.90)


def updates(clusters: int, seed: int, n: int = 40, d: int = 300) -> np.ndarray:
    """Updates with a common direction, one direction per cluster, and noise of norm 1 per coordinate."""
    draw = np.random.default_rng(seed)
    centers = draw.normal(size=(clusters, d)) + 0.5 * draw.normal(size=d)
    return np.asarray(centers[np.arange(n) % clusters] + draw.normal(size=(n, d)))


@pytest.mark.parametrize("rule", ["silhouette", "eigengap", "stability"])
@pytest.mark.parametrize("clusters", [2, 4])
def test_the_number_of_planted_clusters_is_found(rule: Any, clusters: int) -> None:
    planted = updates(clusters, 0)
    found = choose_n_clusters(edc_embedding(planted, 5), 5, rule, seed=Seed(0))
    assert found.k == clusters
    assert set(found.scores) == {1, 2, 3, 4, 5}
    assert found.scores[clusters] > found.scores[1]
    assert choose_n_clusters(madc(planted), 5, rule, seed=Seed(0), kind="distances", linkage="complete").k == clusters


@pytest.mark.parametrize("rule", RULES)
def test_data_without_clusters_are_one_cluster(rule: Any) -> None:
    # These would exceed a fixed threshold of 0.25: a normal sample on a line has a silhouette near 0.6.
    line = np.random.default_rng(0).normal(size=(40, 1))
    assert choose_n_clusters(line, 5, rule, seed=Seed(0)).k == 1
    assert choose_n_clusters(edc_embedding(updates(1, 0), 5), 5, rule, seed=Seed(0)).k == 1


@pytest.mark.parametrize(("d", "k"), [(3, 2), (10, 3)])
def test_nearly_equal_silhouettes_go_to_fewer_clusters(d: int, k: int) -> None:
    # Ten clients at 0, ten at d, ten at 100. Three clusters have the mean silhouette 1; with two, those at 0 have
    # 1 - (10d/19)/100 and those at d 1 - (10d/19)/(100 - d): in the mean 0.989 for d = 3 and 0.963 for d = 10.
    line = np.repeat([0.0, d, 100], 10)[:, None]
    found = choose_n_clusters(line, 3, "silhouette", seed=Seed(0))
    assert found.scores[3] == pytest.approx(1.0)
    assert found.scores[2] == pytest.approx(1 - 10 * d / 19 * (1 / 100 + 1 / (100 - d)) / 3)
    assert found.k == k


def test_the_nearest_neighbor_distance_is_subtracted_from_distances() -> None:
    # Four clusters of ten: 6 within, 8 to the nearest cluster, 11 to the others. Unchanged, two clusters have the mean
    # silhouette 1 - (9·6 + 10·8)/19 / 11 = 0.359, and four 1 - 6/8 = 0.25. Minus the nearest neighbor's 6 they have
    # 1 - (10·2)/19 / 5 = 0.789, and 1 - 0/2 = 1.
    group = np.repeat(np.arange(4), 10)
    distances = np.where(group[:, None] == group, 6.0, np.where(group[:, None] // 2 == group // 2, 8.0, 11.0))
    np.fill_diagonal(distances, 0.0)
    found = choose_n_clusters(distances, 5, "silhouette", seed=Seed(0), kind="distances", linkage="complete")
    assert found.k == 4
    assert found.scores[2] == pytest.approx(1 - 20 / 19 / 5)
    assert found.scores[4] == pytest.approx(1.0)


@pytest.mark.parametrize("rule", RULES)
def test_edge_cases_are_one_cluster(rule: Any) -> None:
    for points in (np.zeros((1, 2)), np.eye(2), np.eye(3), np.ones((9, 2))):
        assert choose_n_clusters(points, 4, rule, seed=Seed(0)).k == 1
    assert choose_n_clusters(np.random.default_rng(0).normal(size=(9, 2)), 1, rule, seed=Seed(0)).k == 1


@pytest.mark.parametrize("rule", RULES)
def test_clusters_of_equal_clients_are_counted(rule: Any) -> None:
    assert choose_n_clusters(np.repeat(np.eye(3), 6, axis=0), 5, rule, seed=Seed(0)).k == 3


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_gives_the_same_scores(rule: Any) -> None:
    points = edc_embedding(updates(3, 1, n=20), 4)
    assert choose_n_clusters(points, 4, rule, seed=Seed(5)) == choose_n_clusters(points, 4, rule, seed=Seed(5))


def test_an_outlier_sample_does_not_decide_the_eigengap() -> None:
    # Four directions in noise. One sample in a hundred without clusters has an outlier and a gap several times the
    # usual one; it must not lift the threshold above clusters that all other samples are far below.
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(4, 600))
    updates = draw.normal(size=(40, 600)) + 0.65 * centers[np.arange(40) % 4]
    apart = np.maximum(1 - cosine(updates), 0)
    assert {choose_n_clusters(apart, 10, "eigengap", seed=Seed(s), kind="distances").k for s in range(40)} == {4}


def test_the_elbow_of_the_example_is_at_four() -> None:
    assert elbow(SIZES, GOOD) == 4
    assert elbow(SIZES, GOOD, "best") == 10
    assert elbow(SIZES, GOOD, "tolerance") == 4  # 0.90 ≥ 0.91 - 0.01
    order = [3, 0, 5, 1, 4, 2]
    assert elbow([SIZES[i] for i in order], [GOOD[i] for i in order]) == 4


def test_a_gain_below_0_01_gives_the_smallest_size() -> None:
    assert elbow((1, 2, 3), (0.5, 0.509, 0.4)) == 1
    assert elbow((1, 2, 3), (0.5, 0.51, 0.4)) == 2
    assert elbow((1,), (0.5,)) == 1
    assert elbow((1, 5), (0.9, 0.1)) == 1


def test_ties_go_to_fewer_clusters() -> None:
    # x = 0, 1/2, 1 and y = 0, 1/2, 1: the line itself, all differences are 0.
    assert elbow((1, 2, 3), (0.0, 0.5, 1.0)) == 1
    assert elbow((1, 2, 3), (0.0, 1.0, 1.0), "best") == 2


def curve(gain: Any) -> Any:
    """Scores of four clients with 1, 2, 3 and 10 clusters; those of 3 clusters are 8 plus the gains over 2 clusters.

    With a mean gain of 2 the means are 0, 8, 10, 10. x = 0, 1/9, 2/9, 1 and y = 0, 0.8, 1, 1, and the elbow is at 3:
    y - x = 0, 0.69, 0.78, 0.
    """
    three = 8 + np.asarray(gain, float)
    return np.array([np.zeros(4), np.full(4, 8.0), three, three])


def test_fewer_clusters_than_at_the_elbow_are_taken_within_the_noise() -> None:
    # Gains 6, -2, 6, -2: mean 2, deviations ±4, sd = √(4·16/3) = 4.62, standard error 4.62/√4 = 2.31. 2 ≤ 2·2.31.
    # One cluster is worse by 14, 6, 14, 6: mean 10, the same error, 10 > 2·2.31 = 4.62.
    noisy = curve([6, -2, 6, -2])
    assert elbow((1, 2, 3, 10), noisy.mean(axis=1)) == 3
    assert guarded_elbow((1, 2, 3, 10), noisy) == 2
    order = [2, 0, 3, 1]
    assert guarded_elbow([(1, 2, 3, 10)[i] for i in order], noisy[order]) == 2


def test_the_elbow_stays_above_the_noise() -> None:
    # The same means. Gains 2.2, 1.8, 2.2, 1.8: sd = √(4·0.04/3) = 0.231, standard error 0.115, 2 > 2·0.115.
    assert guarded_elbow((1, 2, 3, 10), curve([2.2, 1.8, 2.2, 1.8])) == 3


def test_noise_is_two_standard_errors() -> None:
    # Gains 2 ± t: sd = t·√(4/3), standard error t/√3. 2 t/√3 = 2 at t = √3 = 1.732.
    assert guarded_elbow((1, 2, 3, 10), curve([3.73, 0.27, 3.73, 0.27])) == 3
    assert guarded_elbow((1, 2, 3, 10), curve([3.74, 0.26, 3.74, 0.26])) == 2


def test_differences_of_one_client_count_and_not_those_between_clients() -> None:
    # Levels of 0 to 300 would make the error of a mean 64, more than any difference here.
    levels = np.array([0.0, 100.0, 200.0, 300.0])
    assert guarded_elbow((1, 2, 3, 10), curve([2.2, 1.8, 2.2, 1.8]) + levels) == 3


def test_clients_are_compared_where_both_scores_are_known() -> None:
    # The third client is unknown for two clusters. The others gain 2.2, 1.8, 2: sd 0.2, error 0.115, above the noise.
    scores = curve([2.2, 1.8, 2.0, 2.0])
    scores[1, 2] = np.nan
    assert guarded_elbow((1, 2, 3, 10), scores) == 3
    assert guarded_elbow((1, 2, 10), [[0.0], [1.0], [1.0]]) == 2  # the error of one client is unknown
    assert guarded_elbow((1,), [[0.5, 0.25]]) == 1


def test_equal_scores_go_to_fewer_clusters() -> None:
    assert guarded_elbow((1, 2, 3), [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]) == 2


def test_with_several_scores_the_largest_elbow_counts_and_fewer_clusters_must_not_be_worse_in_any() -> None:
    sizes = (1, 2, 3, 10)
    clear, noisy = curve([2.2, 1.8, 2.2, 1.8]), curve([6, -2, 6, -2])
    assert guarded_elbow(sizes, clear, noisy) == guarded_elbow(sizes, noisy, clear) == 3
    assert guarded_elbow(sizes, noisy, noisy) == 2
    # Saturated: all but one cluster have the score 1, so that the elbow is at 2. The other score shows that 3 is
    # better.
    saturated = np.minimum(clear, 1.0)
    assert guarded_elbow(sizes, saturated) == 2
    assert guarded_elbow(sizes, saturated, clear) == 3
    # A score that only falls has its elbow at 1, and does not count against the other.
    falling = -np.arange(4.0)[:, None] * np.array([1.0, 1.1, 1.2, 1.3])
    assert guarded_elbow(sizes, falling) == 1
    assert guarded_elbow(sizes, falling, clear) == 3


def test_more_clusters_than_at_the_elbow_are_never_taken() -> None:
    # Means 0, 9, 10 for 1, 2 and 20 clusters: the elbow is at 2.
    assert guarded_elbow((1, 2, 20), [[0.0, 0.0], [8.9, 9.1], [9.9, 10.1]]) == 2


def test_invalid_input_is_rejected() -> None:
    with pytest.raises(SpecError, match="partitions, clients"):
        guarded_elbow((1, 2), [0.5, 0.6])
    with pytest.raises(SpecError, match="at least one known score"):
        guarded_elbow((1, 2), [[0.5], [np.nan]])
    with pytest.raises(SpecError, match="different"):
        guarded_elbow((2, 2), [[0.5], [0.6]])
    with pytest.raises(SpecError, match="one number for each"):
        elbow((1, 2), (0.5,))
    with pytest.raises(SpecError, match="different"):
        elbow((2, 2), (0.5, 0.6))
    with pytest.raises(SpecError, match="finite"):
        elbow((1, 2), (0.5, np.nan))
    with pytest.raises(SpecError, match="Known: best, elbow, tolerance"):
        elbow((1, 2), (0.5, 0.6), "knee")
    with pytest.raises(SpecError, match="No rule"):
        choose_n_clusters(np.eye(5), 3, "gap", seed=Seed(0))
    with pytest.raises(SpecError, match="must be finite"):
        choose_n_clusters([[np.nan]], 3, seed=Seed(0))
    with pytest.raises(SpecError, match="max_clusters must be"):
        choose_n_clusters(np.eye(5), 0, seed=Seed(0))
