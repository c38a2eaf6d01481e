from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.clustering import agglomerative, flag_data_angles, flag_proximity, update_angles
from coterie.clustering.proximity import Span, data_angles, ratio_span, size_ratios
from coterie.errors import SpecError

X, Y = np.eye(2)[:, :1], np.eye(2)[:, 1:]
AT_60 = np.array([[0.5], [np.sqrt(0.75)]])

# Three clients and two classes. Class 0: a along x, b at 60° to it; class 1: only c. Sizes are such that ln(n + e) is
# an integer: e - e = 0 → 1, e² - e → 2, e³ - e → 3.
BASES = [[X, None], [AT_60, None], [None, Y]]
ONE, TWO, THREE = (np.e**k - np.e for k in (1, 2, 3))
COUNTS = np.array([[TWO, ONE], [THREE, ONE], [ONE, TWO]])


def matrix(ab: float, ac: float, bc: float) -> np.ndarray:
    return np.array([[0, ab, ac], [ab, 0, bc], [ac, bc, 0]])


# V -------------------------------------------------------------------------------------------------------------------


def test_weighted_angles_by_hand() -> None:
    #   V' of class 0: ab 60, ac and bc 180.    Of class 1: ab 0, ac and bc 180.
    #   W  of class 0: ab 3/2, ac 2/1, bc 3/1.  Of class 1: ac and bc 2/1; ab does not count, because neither has it.
    #   w_min = 3/2, w_max = 3, so W' = 1/2 + (W - 3/2)/(3/2): 1/2 at 3/2, 5/6 at 2, 3/2 at 3.
    #   V_ab = (60/2 + 0)/2 = 15,  V_ac = (180·5/6 + 180·5/6)/2 = 150,  V_bc = (180·3/2 + 180·5/6)/2 = 210
    np.testing.assert_allclose(flag_data_angles(BASES, COUNTS), matrix(15, 150, 210), atol=1e-6)
    # With δ = 1/10: W' = 9/10 + (W - 3/2)/(3/2)/5 is 9/10, 29/30 and 11/10.
    #   V_ab = 60·0.9/2 = 27,  V_ac = 180·29/30 = 174,  V_bc = 90·(11/10 + 29/30) = 186
    np.testing.assert_allclose(flag_data_angles(BASES, COUNTS, delta=0.1), matrix(27, 174, 186), atol=1e-6)


def test_without_weights_the_angle_is_the_mean_over_all_classes() -> None:
    plain = matrix(30, 180, 180)
    np.testing.assert_allclose(flag_data_angles(BASES), plain, atol=1e-6)
    np.testing.assert_array_equal(flag_data_angles(BASES, COUNTS, delta=0.0), flag_data_angles(BASES))
    # A third class that no client has counts among the classes: all angles are reduced by a third.
    more = [[*client, None] for client in BASES]
    np.testing.assert_allclose(flag_data_angles(more), plain * 2 / 3, atol=1e-6)


def test_equal_sizes_have_equal_weights() -> None:
    same = np.full((2, 1), 7)
    np.testing.assert_allclose(flag_data_angles([[X], [AT_60]], same), [[0, 60], [60, 0]], atol=1e-6)


@pytest.mark.parametrize("log", ["shifted", "clamped"])
def test_weights_are_finite_and_within_bounds_for_any_size(log: str) -> None:
    sizes = np.array([0, 1, 2, 10, 10**6])
    ratios = size_ratios(sizes, sizes, log)
    assert np.isfinite(ratios).all()
    assert ratios.min() == 1
    np.testing.assert_array_equal(ratios, ratios.T)
    assert (np.diff(ratios[0]) >= 0).all()  # it increases with the larger size
    span = ratio_span(sizes[:, None], log)
    for delta in (0.0, 0.3, 0.5, 1.0):
        weights = (1 - delta) + 2 * delta * span.share(ratios)
        assert 1 - delta - 1e-12 <= weights.min()
        assert weights.max() <= 1 + delta + 1e-12
    # ln(10⁶ + e)/ln(0 + e) = 13.8; ln(10⁶)/ln 2 = 19.9
    assert ratios.max() == pytest.approx(np.log(10**6 + np.e) if log == "shifted" else np.log2(10**6))


def test_clamped_sizes_by_hand() -> None:
    # ln 2, ln 2, ln 2 and ln 8 = 3 ln 2.
    found = size_ratios([0, 1, 2, 8], [8], "clamped")
    np.testing.assert_allclose(found, [[3], [3], [3], [1]])


def test_bounds_are_over_pairs_in_which_at_least_one_client_has_the_class() -> None:
    assert ratio_span(COUNTS) == Span(pytest.approx(1.5), pytest.approx(3.0))
    assert ratio_span(np.zeros((3, 2))) == Span(1.0, 1.0)
    assert ratio_span(np.array([[5]])) == Span(1.0, 1.0)


def test_angles_of_newcomers_equal_their_rows_of_the_full_matrix() -> None:
    span = ratio_span(COUNTS)
    rows = data_angles(BASES[1:], BASES, COUNTS[1:], COUNTS, span, 0.5)
    whole = flag_data_angles(BASES, COUNTS)
    np.testing.assert_allclose(rows[0, [0, 2]], whole[1, [0, 2]], atol=1e-5)
    np.testing.assert_allclose(rows[1, :2], whole[2, :2], atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"counts": np.ones((2, 2))}, r"counts must be .clients, classes. = \(3, 2\).* got shape \(2, 2\)"),
        ({"counts": -np.ones((3, 2))}, "non-negative"),
        ({"delta": 1.5}, "delta must be between 0 and 1, got 1.5"),
        ({"counts": COUNTS, "log": "plain"}, "No log 'plain'.*Known: .*shifted"),
    ],
)
def test_invalid_weights_are_rejected(settings, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        flag_data_angles(BASES, **settings)


# A -------------------------------------------------------------------------------------------------------------------

V, G = matrix(10, 20, 40), matrix(30, 60, 90)


def test_proximity_by_hand() -> None:
    # V̂ = 1/4, 1/2, 1 and Ĝ = 1/3, 2/3, 1: the zeros of the diagonals are the minimum.
    np.testing.assert_allclose(flag_proximity(V, G), matrix(7 / 24, 7 / 12, 1))
    np.testing.assert_allclose(flag_proximity(V, G, beta=0.8), matrix(0.2 + 0.2 / 3, 0.4 + 0.4 / 3, 1))
    # Without the diagonals: V̂ = 0, 1/3, 1 and Ĝ = 0, 1/2, 1.
    np.testing.assert_allclose(flag_proximity(V, G, scale="offdiag"), matrix(0, 5 / 12, 1))


def test_with_beta_0_or_1_the_other_matrix_is_not_needed() -> None:
    np.testing.assert_allclose(flag_proximity(V, None, beta=1.0), V / 40)
    np.testing.assert_allclose(flag_proximity(None, G, beta=0.0), G / 90)


def test_a_constant_matrix_is_scaled_to_zeros() -> None:
    np.testing.assert_array_equal(flag_proximity(np.zeros((3, 3)), G), G / 180)
    np.testing.assert_array_equal(flag_proximity(matrix(5, 5, 5), G, scale="offdiag"), matrix(0, 1 / 4, 1 / 2))
    assert flag_proximity([[0.0]], [[0.0]]).tolist() == [[0.0]]


angles = hnp.arrays(np.float64, (5, 5), elements=st.floats(0, 180))


@settings(max_examples=50, deadline=None)
@given(angles, angles, st.floats(0, 1), st.sampled_from(["whole", "offdiag"]))
def test_proximity_is_symmetric_within_0_and_1_with_a_zero_diagonal(one, two, beta, scale) -> None:
    found = flag_proximity(one + one.T, two + two.T, beta, scale)
    np.testing.assert_array_equal(found, found.T)
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-12
    assert not np.diagonal(found).any()
    # At α = 1 all clients are one cluster with any linkage.
    for linkage in ("average", "single", "complete"):
        assert agglomerative(found, threshold=1.0, linkage=linkage).max() == 0


def test_with_a_tiny_threshold_every_client_is_its_own_cluster() -> None:
    assert agglomerative(flag_proximity(V, G), threshold=0.01).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((V, G, 2.0), "beta must be between 0 and 1, got 2.0"),
        ((None, G), "V is required if beta is 0.5"),
        ((V, None), "G is required if beta is 0.5"),
        ((V, G[:2, :2]), "the same clients, got 3 and 2"),
        ((V, G, 0.5, "rows"), "No scale 'rows'"),
    ],
)
def test_invalid_input_of_the_proximity_is_rejected(given, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        flag_proximity(*given)


# Planted clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_clusters_of_disjoint_classes_are_recovered_for_a_range_of_thresholds(seed: int) -> None:
    # Twelve clients in three clusters with two of six classes each; directions and updates are the cluster's plus
    # noise.
    draw = np.random.default_rng(seed)
    truth = np.arange(12) % 3
    class_centres, moves = draw.normal(size=(6, 40)), draw.normal(size=(3, 60))
    counts = np.zeros((12, 6), int)
    bases: list[list[np.ndarray | None]] = [[None] * 6 for _ in truth]
    for i, group in enumerate(truth):
        for c in (2 * group, 2 * group + 1):
            counts[i, c] = draw.integers(5, 500)
            bases[i][c] = (class_centres[c] + 0.5 * draw.normal(size=40))[:, None]
    updates = moves[truth] + 0.7 * draw.normal(size=(12, 60))
    proximity = flag_proximity(flag_data_angles(bases, counts), update_angles(updates))
    for alpha in np.arange(0.45, 0.71, 0.05):
        assert agglomerative(proximity, threshold=alpha).tolist() == truth.tolist()
