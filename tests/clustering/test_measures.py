from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.clustering import agglomerative, cosine, edc, edc_embedding, kmeans, l1, l2, madc, madc_of, principal_angle
from coterie.errors import SpecError
from coterie.seeds import Seed

values = st.floats(-1e3, 1e3, allow_nan=False, width=32)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=values)


def random(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def bundles(n: int = 10, d: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Clients alternating around e_1 and e_2."""
    truth = np.arange(n) % 2
    return np.eye(d)[truth] + 0.02 * random(n, d), truth


def triple_loop(cosines: np.ndarray) -> np.ndarray:
    n = len(cosines)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                out[i, j] = sum(abs(cosines[i, z] - cosines[j, z]) for z in range(n) if z not in (i, j)) / (n - 2)
    return out


def test_cosines_of_known_angles() -> None:
    # Angles of 0, 90, 45 and 180 degrees to the first axis.
    found = cosine([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-5.0, 0.0]])
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(
        found, [[1, 0, half, -1], [0, 1, half, 0], [half, half, 1, -half], [-1, 0, -half, 1]], atol=1e-15
    )


def test_a_zero_vector_has_cosine_0_to_others_and_1_to_itself() -> None:
    np.testing.assert_array_equal(cosine(np.array([[0.0, 0], [1, 0], [0, 0]])), np.eye(3))


def test_cosines_over_many_blocks_of_columns_equal_the_plain_formula() -> None:
    updates = random(7, 9000).astype(np.float32)
    wide = updates.astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    np.testing.assert_allclose(cosine(updates), unit @ unit.T, atol=1e-13)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e200, 1e308])
def test_cosines_of_very_large_and_small_vectors_are_accurate(size: float) -> None:
    # (1, 1) and (1, 0): 45 degrees for any length of the first.
    assert cosine([[size, size], [1.0, 0.0]])[0, 1] == pytest.approx(np.sqrt(0.5))


@given(matrices)
def test_cosines_are_symmetric_and_within_one(updates: np.ndarray) -> None:
    found = cosine(updates)
    assert found.dtype == np.float64
    assert np.abs(found).max() <= 1
    np.testing.assert_array_equal(np.diagonal(found), 1)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("n", [3, 5, 20, 70])
def test_madc_equals_the_triple_loop_of_its_definition(n: int) -> None:
    cosines = cosine(random(n, 8, seed=n))
    np.testing.assert_allclose(madc_of(cosines), triple_loop(cosines), atol=1e-12, rtol=0)
    uneven = np.random.default_rng(n).uniform(-1, 1, (n, n))  # the definition does not require symmetry
    np.testing.assert_allclose(madc_of(uneven), triple_loop(uneven), atol=1e-12, rtol=0)


def test_madc_of_a_cosine_matrix_equals_the_form_of_the_authors_code() -> None:
    cosines = cosine(random(12, 5))
    city = np.abs(cosines[:, None] - cosines[None]).sum(axis=2)
    expected = (city - 2 * (1 - cosines)) / 10
    np.testing.assert_allclose(madc_of(cosines), expected - np.diag(np.diag(expected)), atol=1e-14)


def test_madc_of_two_clients_is_one_minus_their_cosine_and_of_one_is_0() -> None:
    np.testing.assert_allclose(madc([[1.0, 0.0], [-1.0, 0.0]]), [[0, 2], [2, 0]])
    np.testing.assert_array_equal(madc([[3.0, 4.0]]), [[0.0]])


@given(matrices)
@settings(max_examples=50)
def test_madc_is_a_dissimilarity(updates: np.ndarray) -> None:
    found = madc(np.vstack([updates, updates[:1]]))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diagonal(found), 0)
    assert found.min() >= 0
    if len(found) > 2 and updates[0].any():
        assert found[0, -1] == pytest.approx(0, abs=1e-12)  # identical rows


@pytest.mark.parametrize("m", [1, 3, 6])
def test_edc_from_the_gram_matrix_equals_edc_from_an_explicit_svd(m: int) -> None:
    updates = random(8, 30) * np.arange(1, 9)[:, None]
    directions = np.linalg.svd(updates.T)[0][:, :m]
    expected = updates @ directions / np.linalg.norm(updates, axis=1, keepdims=True)
    found = edc_embedding(updates, m)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-10)
    np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, atol=1e-10)
    apart = np.linalg.norm(expected[:, None] - expected[None], axis=2) / m
    np.testing.assert_allclose(edc(updates, m), apart, atol=1e-10)


def test_the_largest_entry_of_each_direction_is_positive() -> None:
    found = edc_embedding(random(9, 20), 4)
    assert (found[np.abs(found).argmax(axis=0), np.arange(4)] > 0).all()


def test_columns_beyond_the_rank_are_zero() -> None:
    # Rank 1: all on one line, so cosines are 1 and -1.
    np.testing.assert_allclose(
        edc_embedding([[1.0, 2.0], [2.0, 4.0], [-1.0, -2.0]], 5), np.outer([1, 1, -1], np.eye(5)[0]), atol=1e-12
    )
    np.testing.assert_array_equal(edc_embedding(np.zeros((3, 4)), 2), np.zeros((3, 2)))
    np.testing.assert_array_equal(edc_embedding([[3.0, 0.0]], 3), [[1, 0, 0]])


def test_a_zero_vector_is_at_the_origin_of_the_embedding() -> None:
    found = edc_embedding(np.vstack([random(4, 6), np.zeros(6)]), 3)
    np.testing.assert_array_equal(found[-1], 0)


def test_two_orthogonal_clusters_are_found_by_edc_and_by_madc() -> None:
    updates, truth = bundles()
    np.testing.assert_array_equal(kmeans(edc_embedding(updates, 2), 2, Seed(0))[0], truth)
    np.testing.assert_array_equal(agglomerative(madc(updates), k=2, linkage="complete"), truth)


@given(hnp.arrays(np.float64, 10, elements=st.floats(0.01, 100)))
@settings(max_examples=25, deadline=None)
def test_rescaling_updates_does_not_change_the_labels(scale: np.ndarray) -> None:
    updates, truth = bundles()
    updates *= scale[:, None]
    np.testing.assert_array_equal(kmeans(edc_embedding(updates, 2), 2, Seed(0))[0], truth)
    np.testing.assert_array_equal(agglomerative(madc(updates), k=2, linkage="complete"), truth)


def test_distances_by_hand() -> None:
    points = [[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]
    np.testing.assert_array_equal(l1(points), [[0, 7, 3], [7, 0, 4], [3, 4, 0]])
    np.testing.assert_array_equal(l2(points), [[0, 5, 3], [5, 0, 4], [3, 4, 0]])


def test_distances_over_many_tiles_equal_the_plain_formula() -> None:
    points = random(150, 4500).astype(np.float32)
    wide = points.astype(np.float64)
    np.testing.assert_allclose(l1(points)[3], np.abs(wide - wide[3]).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(l2(points)[140], np.linalg.norm(wide - wide[140], axis=1), rtol=1e-12)


def test_the_angle_of_equal_spans_is_0_and_of_orthogonal_ones_90() -> None:
    axes = np.eye(5)
    assert principal_angle(axes[:, :2], axes[:, :2] @ [[1.0, 2.0], [3.0, -1.0]]) == pytest.approx(0, abs=1e-6)
    assert principal_angle(axes[:, :2], axes[:, 2:]) == pytest.approx(90)
    assert principal_angle(axes[:, :2], axes[:, 1:3]) == pytest.approx(0, abs=1e-6)  # one direction in common
    assert principal_angle([[1.0], [0.0]], [[1.0], [1.0]]) == pytest.approx(45)


def test_signs_and_order_of_columns_do_not_change_the_angle() -> None:
    first, second = random(9, 3), random(9, 2, seed=1)
    angle = principal_angle(first, second)
    assert principal_angle(-first[:, ::-1], second * [1, -1]) == pytest.approx(angle)
    one, two = np.linalg.qr(first)[0], np.linalg.qr(second)[0]
    assert angle == pytest.approx(np.rad2deg(np.arccos(np.linalg.svd(one.T @ two)[1].max())))


@pytest.mark.parametrize("measure", [cosine, madc, l1, l2, lambda U: edc(U, 2), lambda U: principal_angle(U, U)])
def test_input_that_is_not_a_finite_matrix_is_rejected(measure) -> None:
    for wrong in ([[1.0, np.nan]], [[np.inf, 1.0]]):
        with pytest.raises(SpecError, match="must be finite"):
            measure(wrong)
    for shape in ((3,), (0, 2), (2, 0)):
        with pytest.raises(SpecError, match="must be a matrix"):
            measure(np.zeros(shape))
    with pytest.raises(SpecError, match="real numbers"):
        measure([["a"]])


def test_other_invalid_input_is_rejected() -> None:
    with pytest.raises(SpecError, match="m must be a whole number of at least 1"):
        edc_embedding(np.eye(2), 0)
    with pytest.raises(SpecError, match="square"):
        madc_of(np.zeros((2, 3)))
    with pytest.raises(SpecError, match="is all 0"):
        principal_angle(np.zeros((3, 1)), np.ones((3, 1)))
    with pytest.raises(SpecError, match="same number of features"):
        principal_angle(np.ones((3, 1)), np.ones((4, 1)))
    with pytest.raises(SpecError, match="overflow"):
        l2([[1e300], [-1e300]])


def test_arguments_are_not_changed() -> None:
    updates = random(5, 4)
    before = updates.copy()
    cosines = cosine(updates)
    kept = cosines.copy()
    madc_of(cosines)
    edc(updates, 2)
    l2(updates)
    np.testing.assert_array_equal(updates, before)
    np.testing.assert_array_equal(cosines, kept)
