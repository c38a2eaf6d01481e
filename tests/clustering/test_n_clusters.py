from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.clustering import choose, cosine, edc_embedding, elbow, madc
from coterie.errors import SpecError
from coterie.seeds import Seed

RULES: list[Any] = ["silhouette", "eigengap", "stability"]
SIZES, GOOD = (1, 2, 3, 4, 10, 30), (0.30, 0.50, 0.70, 0.90, 0.91, 0.90)


def updates(groups: int, seed: int, n: int = 40, d: int = 300) -> np.ndarray:
    """Noise of norm 1 per coordinate about a direction in common and one for each group."""
    draw = np.random.default_rng(seed)
    centers = draw.normal(size=(groups, d)) + 0.5 * draw.normal(size=d)
    return np.asarray(centers[np.arange(n) % groups] + draw.normal(size=(n, d)))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("groups", [2, 4])
def test_planted_groups_are_counted(rule: Any, groups: int) -> None:
    planted = updates(groups, 0)
    found = choose(edc_embedding(planted, 5), 5, rule, seed=Seed(0))
    assert found.k == groups
    assert set(found.scores) == {1, 2, 3, 4, 5}
    assert found.scores[groups] > found.scores[1]
    assert choose(madc(planted), 5, rule, seed=Seed(0), kind="distances", linkage="complete").k == groups


@pytest.mark.parametrize("rule", RULES)
def test_data_without_groups_are_one_group(rule: Any) -> None:
    # Each of these alone would pass a fixed bar of 0.25: a normal sample on a line has a silhouette near 0.6.
    line = np.random.default_rng(0).normal(size=(40, 1))
    assert choose(line, 5, rule, seed=Seed(0)).k == 1
    assert choose(edc_embedding(updates(1, 0), 5), 5, rule, seed=Seed(0)).k == 1


@pytest.mark.parametrize(("d", "k"), [(3, 2), (10, 3)])
def test_silhouettes_that_hardly_differ_go_to_fewer_groups(d: int, k: int) -> None:
    # Ten clients at 0, ten at d, ten at 100. Three groups have the mean silhouette 1; with two, those at 0 have
    # 1 - (10d/19)/100 and those at d 1 - (10d/19)/(100 - d): in the mean 0.989 for d = 3 and 0.963 for d = 10.
    line = np.repeat([0.0, d, 100], 10)[:, None]
    found = choose(line, 3, "silhouette", seed=Seed(0))
    assert found.scores[3] == pytest.approx(1.0)
    assert found.scores[2] == pytest.approx(1 - 10 * d / 19 * (1 / 100 + 1 / (100 - d)) / 3)
    assert found.k == k


def test_distances_count_by_what_they_exceed_the_noise() -> None:
    # Four groups of ten: 6 within, 8 to the sister group, 11 to the others. As they are, two groups have the mean
    # silhouette 1 - (9·6 + 10·8)/19 / 11 = 0.359, and four 1 - 6/8 = 0.25. Less the nearest neighbor's 6 they have
    # 1 - (10·2)/19 / 5 = 0.789, and 1 - 0/2 = 1.
    group = np.repeat(np.arange(4), 10)
    distances = np.where(group[:, None] == group, 6.0, np.where(group[:, None] // 2 == group // 2, 8.0, 11.0))
    np.fill_diagonal(distances, 0.0)
    found = choose(distances, 5, "silhouette", seed=Seed(0), kind="distances", linkage="complete")
    assert found.k == 4
    assert found.scores[2] == pytest.approx(1 - 20 / 19 / 5)
    assert found.scores[4] == pytest.approx(1.0)


@pytest.mark.parametrize("rule", RULES)
def test_edge_cases_are_one_group(rule: Any) -> None:
    for points in (np.zeros((1, 2)), np.eye(2), np.eye(3), np.ones((9, 2))):
        assert choose(points, 4, rule, seed=Seed(0)).k == 1
    assert choose(np.random.default_rng(0).normal(size=(9, 2)), 1, rule, seed=Seed(0)).k == 1


@pytest.mark.parametrize("rule", RULES)
def test_groups_of_equal_clients_are_counted(rule: Any) -> None:
    assert choose(np.repeat(np.eye(3), 6, axis=0), 5, rule, seed=Seed(0)).k == 3


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_gives_the_same_scores(rule: Any) -> None:
    points = edc_embedding(updates(3, 1, n=20), 4)
    assert choose(points, 4, rule, seed=Seed(5)) == choose(points, 4, rule, seed=Seed(5))


def test_the_draws_of_the_bar_do_not_decide_what_the_gap_says() -> None:
    # Four directions in noise. One sample in a hundred without groups has a stray point and a gap several times the
    # usual one; that sample alone must not lift the bar above groups that all other samples are far below.
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(4, 600))
    updates = draw.normal(size=(40, 600)) + 0.65 * centers[np.arange(40) % 4]
    apart = np.maximum(1 - cosine(updates), 0)
    assert {choose(apart, 10, "eigengap", seed=Seed(s), kind="distances").k for s in range(40)} == {4}


def test_the_elbow_of_the_specification_is_at_four() -> None:
    assert elbow(SIZES, GOOD) == 4
    assert elbow(SIZES, GOOD, "best") == 10
    assert elbow(SIZES, GOOD, "tolerance") == 4  # 0.90 ≥ 0.91 - 0.01
    order = [3, 0, 5, 1, 4, 2]
    assert elbow([SIZES[i] for i in order], [GOOD[i] for i in order]) == 4


def test_without_a_gain_of_a_hundredth_there_is_one_cluster() -> None:
    assert elbow((1, 2, 3), (0.5, 0.509, 0.4)) == 1
    assert elbow((1, 2, 3), (0.5, 0.51, 0.4)) == 2
    assert elbow((1,), (0.5,)) == 1
    assert elbow((1, 5), (0.9, 0.1)) == 1


def test_ties_go_to_fewer_clusters() -> None:
    # x = 0, 1/2, 1 and y = 0, 1/2, 1: the line itself, all differences are 0.
    assert elbow((1, 2, 3), (0.0, 0.5, 1.0)) == 1
    assert elbow((1, 2, 3), (0.0, 1.0, 1.0), "best") == 2


def test_wrong_input_is_refused() -> None:
    with pytest.raises(SpecError, match="one number for each"):
        elbow((1, 2), (0.5,))
    with pytest.raises(SpecError, match="different"):
        elbow((2, 2), (0.5, 0.6))
    with pytest.raises(SpecError, match="finite"):
        elbow((1, 2), (0.5, np.nan))
    with pytest.raises(SpecError, match="Known: best, elbow, tolerance"):
        elbow((1, 2), (0.5, 0.6), "knee")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="No rule"):
        choose(np.eye(5), 3, "gap", seed=Seed(0))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="must be finite"):
        choose([[np.nan]], 3, seed=Seed(0))
    with pytest.raises(SpecError, match="most"):
        choose(np.eye(5), 0, seed=Seed(0))
