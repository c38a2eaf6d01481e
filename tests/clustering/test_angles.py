from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group

from coterie.clustering import class_angles, pacfl_angles, principal_angle, update_angles
from coterie.errors import SpecError

E1, E2, E3 = np.eye(3)


def columns(*vectors: np.ndarray) -> np.ndarray:
    return np.stack(vectors, axis=1)


def turned(first: np.ndarray, second: np.ndarray, degrees: float) -> np.ndarray:
    """The unit vector at this angle from the first toward the second."""
    return np.cos(np.deg2rad(degrees)) * first + np.sin(np.deg2rad(degrees)) * second


def random(inputs: int, vectors: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(inputs, vectors)))[0]


# Principal angles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [0.0, 1e-3, 30.0, 45.0, 89.0, 90.0])
def test_the_angle_of_two_lines_is_the_angle_between_them(degrees: float) -> None:
    bases = [columns(E1), columns(turned(E1, E2, degrees))]
    for angle in ("subspace", "sum", "pairwise_abs", "pairwise_signed"):
        np.testing.assert_allclose(pacfl_angles(bases, angle), [[0, degrees], [degrees, 0]], atol=2e-6)
    np.testing.assert_allclose(class_angles([bases[:1]], [bases[1:]]), [[[degrees]]], atol=2e-6)


def test_equal_spans_have_angle_0_for_any_basis() -> None:
    basis = random(20, 4, 0)
    spin = ortho_group.rvs(4, random_state=1)
    skew = basis @ np.random.default_rng(2).normal(size=(4, 4))
    found = class_angles([[basis]], [[basis], [-basis], [basis @ spin], [basis[:, ::-1]], [skew], [np.float32(basis)]])
    np.testing.assert_allclose(found.ravel(), 0, atol=3e-5)  # rounding of float32


def test_orthogonal_spans_have_angle_90() -> None:
    whole = random(20, 8, 0)
    assert class_angles([[whole[:, :3]]], [[whole[:, 3:]]]).item() == pytest.approx(90)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 5))
def test_the_angle_is_the_smallest_subspace_angle_of_scipy(seed: int, p: int, q: int) -> None:
    one, two = random(12, p, seed), random(12, q, seed + 1)
    expected = np.rad2deg(subspace_angles(one, two))
    assert class_angles([[one]], [[two]]).item() == pytest.approx(expected.min(), abs=1e-5)
    assert pacfl_angles([one, two])[0, 1] == pytest.approx(expected.min(), abs=1e-5)
    assert pacfl_angles([one, two], "sum")[0, 1] == pytest.approx(expected.sum(), abs=1e-4)


def test_all_pairs_of_many_clients_equal_a_loop_over_pairs() -> None:
    # More clients than fit into one product; with no vector, one, several, and columns that are not orthogonal.
    draw = np.random.default_rng(0)
    bases = [draw.normal(size=(15, draw.integers(0, 5))) for _ in range(37)]
    found = pacfl_angles(bases)
    for i, j in itertools.combinations(range(37), 2):
        there = bases[i].shape[1] and bases[j].shape[1]
        expected = principal_angle(bases[i], bases[j]) if there else 90.0
        assert found[i, j] == pytest.approx(expected, abs=1e-5)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diagonal(found), 0)


# PACFL ---------------------------------------------------------------------------------------------------------------


def test_a_shared_direction_gives_angle_0_and_the_sum_adds_the_other_angles() -> None:
    # span(e1, e2) and span(e1, e2 turned by 60° to e3): principal angles 0 and 60.
    bases = [columns(E1, E2), columns(E1, turned(E2, E3, 60))]
    assert pacfl_angles(bases)[0, 1] == pytest.approx(0, abs=2e-6)
    assert pacfl_angles(bases, "sum")[0, 1] == pytest.approx(60)


def test_pairwise_angles_compare_single_vectors() -> None:
    # The bisector of e1 and e2 lies in their span, at 45° to both.
    bases = [columns(E1, E2), columns(turned(E1, E2, 45))]
    assert pacfl_angles(bases)[0, 1] == pytest.approx(0, abs=2e-6)
    for angle in ("pairwise_abs", "pairwise_signed"):
        assert pacfl_angles(bases, angle)[0, 1] == pytest.approx(45)


def test_signs_of_columns_matter_only_in_the_signed_form() -> None:
    bases = [columns(E1, E3), columns(turned(E1, E2, 30), E3 * 5)]
    flipped = [bases[0] * [-1, -1], bases[1]]
    for angle in ("subspace", "sum", "pairwise_abs"):
        np.testing.assert_allclose(pacfl_angles(flipped, angle), pacfl_angles(bases, angle), atol=2e-6)
    # e3 and e3 are 0° apart, e3 and -e3 are 180°, e1 turned away by 30° from -e1 is at 150°; e1 and e3 stay at 90°.
    assert pacfl_angles(bases, "pairwise_signed")[0, 1] == pytest.approx(0, abs=2e-6)
    assert pacfl_angles(flipped, "pairwise_signed")[0, 1] == pytest.approx(90)


def test_linearly_dependent_columns_change_nothing() -> None:
    wide = random(4, 3, 0)
    twice = np.concatenate([wide, wide @ np.ones((3, 3))], axis=1)  # more columns than inputs
    other = random(4, 1, 1)
    for angle in ("subspace", "sum"):
        assert pacfl_angles([twice, other], angle)[0, 1] == pytest.approx(pacfl_angles([wide, other], angle)[0, 1])
    assert pacfl_angles([np.zeros((4, 2)), other])[0, 1] == 90


@pytest.mark.parametrize("angle", ["subspace", "sum", "pairwise_abs", "pairwise_signed"])
def test_a_client_without_vectors_is_at_90_degrees_to_all_others(angle: str) -> None:
    found = pacfl_angles([None, np.zeros((3, 0)), columns(E1)], angle)
    np.testing.assert_allclose(found, [[0, 90, 90], [90, 0, 90], [90, 90, 0]])
    np.testing.assert_allclose(pacfl_angles([None, None], angle), [[0, 90], [90, 0]])
    np.testing.assert_allclose(pacfl_angles([None], angle, others=[columns(E1)]), [[90]])


@pytest.mark.parametrize("angle", ["subspace", "sum", "pairwise_abs", "pairwise_signed"])
def test_angles_to_others_are_a_block_of_the_full_matrix(angle: str) -> None:
    bases = [random(10, 1 + k % 3, k) for k in range(7)]
    found = pacfl_angles(bases[:3], angle, others=bases[3:])
    np.testing.assert_allclose(found, pacfl_angles(bases, angle)[:3, 3:], atol=1e-9)


# FLAG ----------------------------------------------------------------------------------------------------------------


def test_a_class_of_only_one_client_gives_180_degrees_and_a_class_of_neither_gives_0() -> None:
    # a has class 0, b classes 0 and 1, c class 1; no client has class 2.
    a, b, c = [columns(E1)], [columns(turned(E1, E2, 20)), columns(E3), None], [None, columns(E3), np.zeros((3, 0))]
    found = class_angles([a, b, c], [a, b, c])
    expected_0 = [[0, 20, 180], [20, 0, 180], [180, 180, 0]]
    expected_1 = [[0, 180, 180], [180, 0, 0], [180, 0, 0]]
    np.testing.assert_allclose(found[..., 0], expected_0, atol=2e-6)
    np.testing.assert_allclose(found[..., 1], expected_1, atol=2e-6)
    np.testing.assert_array_equal(found[..., 2], 0)


def test_clients_with_disjoint_classes_are_180_degrees_apart_in_both_classes() -> None:
    found = class_angles([[columns(E1), None]], [[None, columns(E1)]])
    assert found.tolist() == [[[180, 180]]]


def test_angles_of_updates_by_hand() -> None:
    # To (1, 0): (0, 3) is at 90°, (-2, 0) at 180°, (1, 1) at 45°, and a zero update at 90° by definition.
    updates = np.array([[1.0, 0], [0, 3], [-2, 0], [1, 1], [0, 0]])
    found = update_angles(updates)
    np.testing.assert_allclose(found[0], [0, 90, 180, 45, 90], atol=1e-5)
    np.testing.assert_array_equal(np.diagonal(found), 0)
    np.testing.assert_allclose(update_angles(updates[:2], updates[2:]), found[:2, 2:], atol=1e-5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pacfl_angles([columns(E1)], "largest"), "No angle 'largest'.*Known: .*subspace"),
        (lambda: pacfl_angles([columns(E1), np.eye(2)]), "same number of inputs .rows., got 2 and 3"),
        (lambda: pacfl_angles([E1]), r"client 0 must be a matrix .inputs, vectors., got shape \(3,\)"),
        (lambda: class_angles([[columns(E1), columns(E1 * np.nan)]], []), "client 0 for class 1 must hold finite"),
        (lambda: update_angles([[1.0]], [[1.0, 2.0]]), "must have the same length, got 1 and 2"),
    ],
)
def test_invalid_input_is_rejected(call, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        call()


@pytest.mark.parametrize("angle", ["subspace", "pairwise_abs"])
def test_clients_with_the_same_digits_are_nearer_than_clients_with_other_digits(angle: str) -> None:
    # Three singular vectors of each class: two clients with the digits 0 and 1, one with 8 and 9.
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)

    def signature(classes: tuple[int, int], half: int) -> np.ndarray:
        parts = [images[labels == label][half::2] for label in classes]
        return np.concatenate([np.linalg.svd(part.T, full_matrices=False)[0][:, :3] for part in parts], axis=1)

    found = pacfl_angles([signature((0, 1), 0), signature((0, 1), 1), signature((8, 9), 0)], angle)
    assert 3 * found[0, 1] < min(found[0, 2], found[1, 2])
