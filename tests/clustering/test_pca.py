"""Principal component scores, by hand and compared with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.clustering import l2, principal_scores
from coterie.errors import SpecError

values = st.floats(-1e3, 1e3, allow_nan=False, width=32)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=values)

# A cross around (5, 5, 5): ±3 along x and ±1 along y. Sums of squares 18 and 2: x explains 90 % of the variance.
CROSS = np.array([[8.0, 5, 5], [2, 5, 5], [5, 6, 5], [5, 4, 5]])


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.5, [[3], [-3], [0], [0]]),
        (0.9, [[3], [-3], [0], [0]]),  # just enough
        (0.91, [[3, 0], [-3, 0], [0, 1], [0, -1]]),
        (1.0, [[3, 0], [-3, 0], [0, 1], [0, -1]]),  # z has no variance
    ],
)
def test_the_fewest_components_that_explain_the_share_are_kept(share, expected):
    np.testing.assert_allclose(principal_scores(CROSS, share), expected, atol=1e-12)


def test_scores_equal_those_of_scikit_learn_up_to_signs():
    from sklearn.decomposition import PCA

    draw = np.random.default_rng(0).normal
    # Six directions, each with half the variance of the previous one, in more columns than a block has.
    rows = (draw(size=(12, 6)) * 2.0 ** -np.arange(6) @ draw(size=(6, 5000)) + 0.01 * draw(size=(12, 5000))).astype("f")
    model = PCA(n_components=0.95, svd_solver="full")
    theirs = model.fit_transform(rows.astype(np.float64))
    mine = principal_scores(rows, 0.95)
    assert mine.shape == theirs.shape
    assert 1 < mine.shape[1] < 11
    np.testing.assert_allclose(np.abs(mine), np.abs(theirs), rtol=1e-8, atol=1e-8 * np.abs(theirs).max())


@settings(max_examples=50, deadline=None)
@given(rows=matrices, shift=values, order=st.randoms())
def test_all_components_preserve_distances_and_ignore_shifts(rows, shift, order):
    scores = principal_scores(rows, 1.0)
    scale = max(1.0, float(np.abs(rows).max()))
    np.testing.assert_allclose(l2(scores), l2(rows), atol=1e-6 * scale)
    np.testing.assert_allclose(l2(principal_scores(rows + shift, 1.0)), l2(rows), atol=1e-4 * (scale + abs(shift)))
    mixed = list(range(len(rows)))
    order.shuffle(mixed)
    np.testing.assert_allclose(l2(principal_scores(rows[mixed], 1.0)), l2(rows)[mixed][:, mixed], atol=1e-6 * scale)


@pytest.mark.parametrize("rows", [np.ones((4, 3)) / 7, np.zeros((4, 3)), np.array([[1.0, 2.0]])])
def test_rows_without_variance_have_one_column_of_zeros(rows):
    assert principal_scores(rows, 0.95).tolist() == [[0.0]] * len(rows)


@pytest.mark.parametrize("size", [1e-150, 1e200])
def test_scores_of_very_large_and_small_vectors_are_accurate(size):
    np.testing.assert_allclose(principal_scores(size * (CROSS - 5), 1.0), size * principal_scores(CROSS, 1.0))


@pytest.mark.parametrize("share", [0.0, -1, 1.1, np.nan])
def test_an_invalid_share_is_rejected(share):
    with pytest.raises(SpecError, match=r"share must be greater than 0 and at most 1, got"):
        principal_scores(CROSS, share)


def test_input_that_is_not_finite_is_rejected():
    with pytest.raises(SpecError, match="the first is row 1"):
        principal_scores([[1.0], [np.inf]], 0.5)
