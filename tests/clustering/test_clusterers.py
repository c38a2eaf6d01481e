from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.clustering import agglomerative, bipartition, components, kmeans, l2
from coterie.errors import SpecError
from coterie.seeds import Seed

LINKAGES = ["average", "single", "complete", "weighted"]
LINE = l2([[0.0], [1.0], [3.0], [6.0]])


def similarities(n: int, seed: int) -> np.ndarray:
    half = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    return (half + half.T) / 2


def across(similarity: np.ndarray, labels: np.ndarray) -> float:
    return float(similarity[np.ix_(labels == 0, labels == 1)].max())


def test_kmeans_numbers_clusters_by_smallest_member_and_returns_their_means() -> None:
    labels, centers = kmeans([[10.0], [0.0], [2.0], [12.0]], 2, Seed(0))
    assert labels.dtype == np.int64
    assert labels.tolist() == [0, 1, 1, 0]
    np.testing.assert_array_equal(centers, [[11], [1]])


def test_kmeans_returns_at_most_as_many_clusters_as_distinct_rows() -> None:
    labels, centers = kmeans([[1.0], [1.0], [5.0]], 7, Seed(0))
    assert labels.tolist() == [0, 0, 1]
    assert centers.tolist() == [[1], [5]]
    assert kmeans(np.ones((4, 2)), 3, Seed(0))[0].tolist() == [0, 0, 0, 0]
    assert kmeans([[2.0, 3.0]], 2, Seed(0))[1].tolist() == [[2, 3]]


def test_rows_that_differ_only_in_the_last_bits_give_no_warning() -> None:
    labels, centers = kmeans([[1.0], [1.0 + 2e-16], [1.0 - 1e-16], [9.0]], 4, Seed(0))
    assert len(centers) == labels.max() + 1
    assert labels[3] not in labels[:3]


@given(st.integers(0, 2**64))
@settings(max_examples=15, deadline=None)
def test_the_same_seed_gives_the_same_bytes(value: int) -> None:
    points = np.random.default_rng(0).normal(size=(30, 3))
    first, second = (kmeans(points, 4, Seed(value)) for _ in range(2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1].tobytes() == second[1].tobytes()


@pytest.mark.parametrize(
    ("linkage", "last"),
    # 0 and 1 merge at 1. Then 3: single 2, complete 3, average (3 + 2)/2. Then 6: 3; 6; (6+5+3)/3; ((6+5)/2 + 3)/2.
    # Ward: √(2 n m/(n + m)) times the distance of the centers, √(4/3)·(3 - 1/2), then √(6/4)·(6 - 4/3).
    [
        ("single", [2, 3]),
        ("complete", [3, 6]),
        ("average", [2.5, 14 / 3]),
        ("weighted", [2.5, 4.25]),
        ("ward", [2.5 * (4 / 3) ** 0.5, 14 / 3 * 1.5**0.5]),
    ],
)
def test_clusters_merge_while_their_distance_is_at_most_the_threshold(linkage, last) -> None:
    def found(threshold: float) -> list[int]:
        return agglomerative(LINE, threshold=threshold, linkage=linkage).tolist()

    assert found(0) == [0, 1, 2, 3]
    assert found(1) == [0, 0, 1, 2]
    assert found(last[0] - 1e-6) == [0, 0, 1, 2]
    if linkage != "complete":  # where 3 joins 0 and 1, or 6, at the same distance
        assert found(last[0]) == [0, 0, 0, 1]
    assert found(last[1]) == [0, 0, 0, 0]
    assert found(np.inf) == [0, 0, 0, 0]


@pytest.mark.parametrize("linkage", LINKAGES)
def test_there_are_exactly_k_clusters_even_if_all_distances_are_equal(linkage) -> None:
    flat = 1.0 - np.eye(6)
    for k in range(1, 7):
        assert set(agglomerative(flat, k=k, linkage=linkage)) == set(range(k))
    assert agglomerative(flat, k=9, linkage=linkage).tolist() == list(range(6))
    assert agglomerative([[0.0]], k=2).tolist() == [0]


def test_clusters_at_a_mean_distance_equal_to_the_threshold_merge() -> None:
    for n in range(2, 30):
        assert agglomerative(0.1 * (1 - np.eye(n)), threshold=0.1).max() == 0


def test_components_include_chains() -> None:
    # 0 - 1 - 3 is a chain with steps of 1 and 2; 0 and 3 are 3 apart.
    assert components(LINE, 2.0, 1).tolist() == [0, 0, 0, 1]
    assert components(LINE, 2.0, 2).tolist() == [0, 0, 0, -1]
    assert components(LINE, 0.0, 2).tolist() == [-1] * 4
    assert components(LINE, np.inf, 2).tolist() == [0] * 4
    assert components(LINE[::-1, ::-1], 1.0, 2).tolist() == [-1, -1, 0, 0]
    assert components([[0.0]], 1.0, 1).tolist() == [0]


def test_the_diagonal_of_distances_is_ignored() -> None:
    losses = LINE + 7 * np.eye(4)
    assert components(losses, 2.0, 1).tolist() == [0, 0, 0, 1]
    assert agglomerative(losses, threshold=1.0).tolist() == [0, 0, 1, 2]


@given(st.integers(1, 12), st.integers(0, 1000), st.floats(0, 3))
@settings(deadline=None)
def test_components_are_single_linkage_cut_at_the_threshold(n: int, seed: int, threshold: float) -> None:
    apart = l2(np.random.default_rng(seed).normal(size=(n, 2)))
    np.testing.assert_array_equal(
        components(apart, threshold, 1), agglomerative(apart, threshold=threshold, linkage="single")
    )


@pytest.mark.parametrize("sizes", [(5, 5), (2, 9), (1, 4)])
def test_a_matrix_of_two_blocks_is_split_into_the_blocks(sizes: tuple[int, int]) -> None:
    truth = np.repeat([0, 1], sizes)
    similarity = np.where(truth[:, None] == truth, 0.9, -0.1)
    np.testing.assert_array_equal(bipartition(similarity), truth)
    np.testing.assert_array_equal(bipartition(similarity, linkage="complete"), truth)


@given(st.integers(2, 9), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_no_other_bipartition_has_a_lower_similarity_between_its_parts(n: int, seed: int) -> None:
    similarity = similarities(n, seed)
    every = (np.array([0, *rest]) for rest in itertools.product((0, 1), repeat=n - 1) if any(rest))
    labels = bipartition(similarity)
    assert set(labels) == {0, 1}
    assert across(similarity, labels) == min(across(similarity, each) for each in every)


def test_complete_linkage_does_not_give_the_optimal_bipartition() -> None:
    found = [
        across(similarity, bipartition(similarity)) < across(similarity, bipartition(similarity, linkage="complete"))
        for similarity in (similarities(8, seed) for seed in range(10))
    ]
    assert any(found)


@given(st.integers(2, 10), st.integers(0, 1000), st.integers(1, 12))
@settings(deadline=None)
def test_clusters_are_numbered_by_their_smallest_member(n: int, seed: int, k: int) -> None:
    points = np.random.default_rng(seed).normal(size=(n, 2))
    for labels in (agglomerative(l2(points), k=k), components(l2(points), 0.7, 1), bipartition(similarities(n, seed))):
        _, first = np.unique(labels, return_index=True)
        assert (np.diff(first) > 0).all()
        assert set(labels) == set(range(labels.max() + 1))


def test_invalid_input_is_rejected() -> None:
    broken = LINE.copy()
    broken[0, 1] = np.nan
    for call in (lambda D: agglomerative(D, k=2), lambda D: components(D, 1.0, 1), bipartition):
        with pytest.raises(SpecError, match="must be finite"):
            call(broken)
        with pytest.raises(SpecError, match="symmetric"):
            call(np.triu(LINE))
        with pytest.raises(SpecError, match="square"):
            call(LINE[:2])
    with pytest.raises(SpecError, match="non-negative"):
        components(-LINE, 1.0, 1)
    with pytest.raises(SpecError, match="got both"):
        agglomerative(LINE, k=2, threshold=1.0)
    with pytest.raises(SpecError, match="got none"):
        agglomerative(LINE)
    with pytest.raises(SpecError, match="Did you mean 'single'"):
        agglomerative(LINE, k=2, linkage="singel")
    with pytest.raises(SpecError, match="threshold"):
        components(LINE, -1.0, 1)
    with pytest.raises(SpecError, match="min_size"):
        components(LINE, 1.0, 0)
    with pytest.raises(SpecError, match="at least 2 clients"):
        bipartition([[1.0]])
    with pytest.raises(SpecError, match="k must be"):
        kmeans(LINE, 0, Seed(0))
    with pytest.raises(SpecError, match="must be finite"):
        kmeans(broken, 2, Seed(0))
