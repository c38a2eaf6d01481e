from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.aggregation import mix_groups, trimmed_mean, uniform_mean, weighted_mean
from coterie.errors import SpecError

MEANS: dict[str, Callable[[Any], Any]] = {
    "weighted": lambda bank: weighted_mean(bank, [1.0, 2.0, 3.0]),
    "uniform": uniform_mean,
    "trimmed": lambda bank: trimmed_mean(bank, 0.34),
    "mixed": lambda bank: mix_groups(bank, 0.5),
    "mixed as printed": lambda bank: mix_groups(bank, 0.5, "paper"),
    "mixed at rate 0": lambda bank: mix_groups(bank, 0.0),
}

each_mean = pytest.mark.parametrize("mean", MEANS.values(), ids=MEANS.keys())

values = st.floats(-1e6, 1e6, allow_nan=False, width=32)
banks = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=values)
betas = st.floats(0, 0.49)


def nested() -> dict[str, Any]:
    """Three models, each with a matrix, a vector and a scalar."""
    return {
        "dense": {
            "kernel": np.arange(12, dtype=np.float32).reshape(3, 2, 2) + 1,
            "bias": np.array([[1, -1], [0, 2], [5, 5]], dtype=np.float64),
        },
        "scale": np.array([1, 2, 6], dtype=np.float32),
    }


def arrays(tree: dict[str, Any]) -> list[Any]:
    """The arrays of a tree with the structure of `nested`."""
    return [tree["dense"]["kernel"], tree["dense"]["bias"], tree["scale"]]


# Weighted and uniform mean


def test_a_weighted_mean_by_hand() -> None:
    # (1·0 + 3·8) / 4 = 6 and (1·4 + 3·0) / 4 = 1
    bank = {"a": np.array([[0.0, 4.0], [8.0, 0.0]])}
    np.testing.assert_array_equal(weighted_mean(bank, [1, 3])["a"], [6.0, 1.0])


def test_a_uniform_mean_by_hand() -> None:
    # kernel[m] = 4m + (1, 2, 3, 4), so the mean is that of m = 1; bias: (1+0+5)/3, (-1+2+5)/3; scale: (1+2+6)/3
    out = uniform_mean(nested())
    np.testing.assert_array_equal(out["dense"]["kernel"], [[5, 6], [7, 8]])
    np.testing.assert_array_equal(out["dense"]["bias"], [2, 2])
    np.testing.assert_array_equal(out["scale"], 3)


def test_a_model_of_weight_zero_is_ignored_even_if_it_is_not_finite() -> None:
    bank = np.array([[1.0], [np.nan], [3.0], [np.inf]])
    np.testing.assert_array_equal(weighted_mean(bank, [1, 0, 1, 0]), [2.0])


def test_sums_are_in_float64() -> None:
    # 2^24 + 1 is not a float32: a float32 sum of 2^24, 1, -2^24 gives 0, the exact mean is 1/3.
    bank = np.array([[2.0**24], [1.0], [-(2.0**24)]], dtype=np.float32)
    third = np.float32(1 / 3)
    assert uniform_mean(bank)[0] == third
    assert weighted_mean(bank, [1, 1, 1])[0] == pytest.approx(third, rel=1e-7)
    assert trimmed_mean(bank, 0.0)[0] == third


@pytest.mark.parametrize("scale", [5e-324, 1e308])
def test_weights_of_any_size_are_normalized_without_overflow_or_underflow(scale: float) -> None:
    np.testing.assert_array_equal(weighted_mean(np.array([[2.0], [4.0]]), [scale, scale]), [3.0])


@given(banks, st.floats(1e-3, 1e3))
def test_equal_weights_give_the_uniform_mean(bank: np.ndarray, weight: float) -> None:
    expected = uniform_mean(bank)
    np.testing.assert_allclose(weighted_mean(bank, np.full(len(bank), weight)), expected, rtol=1e-12, atol=1e-8)


@given(banks, st.data())
def test_a_weighted_mean_is_in_the_hull_and_does_not_depend_on_the_order_of_models(
    bank: np.ndarray, data: st.DataObject
) -> None:
    weights = data.draw(hnp.arrays(np.float64, len(bank), elements=st.floats(0.01, 100)))
    order = data.draw(st.permutations(range(len(bank))))
    out = weighted_mean(bank, weights)
    slack = 1e-12 * np.abs(bank).max()
    assert (out >= bank.min(axis=0) - slack).all()
    assert (out <= bank.max(axis=0) + slack).all()
    np.testing.assert_allclose(weighted_mean(bank[order], weights[order]), out, rtol=0, atol=slack)


# Trimmed mean


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        (0.2, 3),  # b = 1: (2 + 3 + 4) / 3
        (0.0, 22),  # b = 0: 110 / 5
        (0.19, 22),  # b = ⌊0.95⌋ = 0
        (0.4, 3),  # b = 2: the median
        (0.49, 3),  # b = ⌊2.45⌋ = 2
    ],
)
def test_the_lowest_and_highest_values_of_each_coordinate_are_dropped(beta: float, expected: float) -> None:
    bank = np.array([[100.0], [3.0], [1.0], [4.0], [2.0]])
    assert trimmed_mean(bank, beta) == pytest.approx([expected], abs=1e-12)


def test_each_coordinate_is_trimmed_separately() -> None:
    # b = ⌊0.34·3⌋ = 1 leaves the median: of (0, 5, 9) and of (7, 1, 3)
    np.testing.assert_array_equal(trimmed_mean(np.array([[0.0, 7.0], [5.0, 1.0], [9.0, 3.0]]), 0.34), [5.0, 3.0])


def test_the_sum_is_divided_by_the_number_of_remaining_values() -> None:
    # J = 10, β = 0.15: b = ⌊1.5⌋ = 1 at each end, (1 + ... + 8) / 8 = 4.5; the paper would divide by 7.
    bank = np.arange(10, dtype=np.float64)[:, None]
    np.testing.assert_array_equal(trimmed_mean(bank, 0.15), [4.5])


@pytest.mark.parametrize(
    ("models", "beta", "expected"),
    [
        (10, 0.15, 4.0),  # positions ⌊1.5⌋ = 1 to before ⌊8.5⌋ = 8: one low and two high dropped, (1 + ... + 7) / 7
        (10, 0.2, 4.5),  # 2 to before 8: βJ is an integer, and the ends are equal
        (3, 0.4, 1.0),  # ⌊1.2⌋ = 1 to before ⌊1.8⌋ = 1: nothing left, so the plain mean
        (5, 0.3, 1.5),  # ⌊1.5⌋ = 1 to before ⌊3.5⌋ = 3: (1 + 2) / 2
    ],
)
def test_trimming_as_coded_drops_more_high_than_low_values(models: int, beta: float, expected: float) -> None:
    bank = np.arange(models, dtype=np.float64)[:, None]
    np.testing.assert_allclose(trimmed_mean(bank, beta, "as_coded"), [expected])


def test_a_product_just_below_an_integer_is_rounded_up() -> None:
    # 0.29 · 100 = 28.999999999999996 in floats. b = 29 drops all of the -1, b = 28 would leave one and give -1/44.
    assert 0.29 * 100 < 29
    bank = np.zeros((100, 1))
    bank[:29] = -1
    np.testing.assert_array_equal(trimmed_mean(bank, 0.29), [0.0])


def test_if_no_value_would_remain_the_result_is_the_plain_mean() -> None:
    # β = 0.4999999999, J = 2: β J + 1e-9 > 1, so b = 1 and J - 2b = 0; (1 + 4) / 2 instead
    np.testing.assert_array_equal(trimmed_mean(np.array([[1.0], [4.0]]), 0.4999999999), [2.5])
    np.testing.assert_array_equal(trimmed_mean(np.array([[7.0]]), 0.49), [7.0])


@pytest.mark.parametrize("outlier", [1e30, -1e30, np.inf, -np.inf, np.nan])
def test_one_arbitrary_model_cannot_move_the_result_out_of_the_range_of_the_others(outlier: float) -> None:
    # b = ⌊0.2·5⌋ = 1. A high outlier is dropped together with the 1, a low one with the 4.
    bank = np.array([[1.0], [2.0], [3.0], [4.0], [outlier]])
    expected = 2.0 if outlier < 0 else 3.0  # (1 + 2 + 3) / 3 or (2 + 3 + 4) / 3
    np.testing.assert_array_equal(trimmed_mean(bank, 0.2), [expected])


@given(banks, betas, st.data())
def test_a_trimmed_mean_has_the_same_bytes_in_any_order_and_is_in_the_hull(
    bank: np.ndarray, beta: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(bank))))
    out = trimmed_mean(bank, beta)
    np.testing.assert_array_equal(trimmed_mean(bank[order], beta), out)
    slack = 1e-12 * np.abs(bank).max()
    assert (out >= bank.min(axis=0) - slack).all()
    assert (out <= bank.max(axis=0) + slack).all()


@given(banks, betas)
def test_a_trimmed_mean_equals_sorting_each_coordinate_in_plain_python(bank: np.ndarray, beta: float) -> None:
    n_models = len(bank)
    drop = int(beta * n_models + 1e-9)
    drop = drop if n_models - 2 * drop >= 1 else 0
    expected = [sum(sorted(column)[drop : n_models - drop]) / (n_models - 2 * drop) for column in bank.T.tolist()]
    np.testing.assert_allclose(trimmed_mean(bank, beta), expected, rtol=1e-12, atol=1e-8)


def test_the_number_of_blocks_does_not_change_the_trimmed_mean() -> None:
    # 150,000 coordinates of 7 models are many blocks, 10 are one.
    bank = np.random.default_rng(0).standard_normal((7, 150_000)).astype(np.float32)
    out = trimmed_mean(bank, 0.2)
    for start in (0, 9_357, 65_530, 149_990):
        np.testing.assert_array_equal(out[start : start + 10], trimmed_mean(bank[:, start : start + 10], 0.2))


# Mixing of clusters


def test_mixing_is_a_weighted_mean_with_the_others_weighted_by_rate_over_norm() -> None:
    # ‖(3, 4)‖ = 5, ‖(0, 2)‖ = 2, η_g = 0.5, so the others' weights are 0.1 and 0.25.
    #   w_0 ← ((3, 4) + 0.25 (0, 2)) / 1.25 = (2.4, 3.6)
    #   w_1 ← ((0, 2) + 0.1 (3, 4)) / 1.1 = (3/11, 24/11)
    out = mix_groups(np.array([[3.0, 4.0], [0.0, 2.0]]), 0.5)
    np.testing.assert_allclose(out, [[2.4, 3.6], [3 / 11, 24 / 11]], rtol=1e-14)


def test_the_form_of_the_paper_has_no_denominator() -> None:
    # As above: (3, 4) + 0.25 (0, 2) = (3, 4.5) and (0, 2) + 0.1 (3, 4) = (0.3, 2.4); from the snapshot, so w_1 is
    # pulled by the old w_0.
    out = mix_groups(np.array([[3.0, 4.0], [0.0, 2.0]]), 0.5, "paper")
    np.testing.assert_allclose(out, [[3.0, 4.5], [0.3, 2.4]], rtol=1e-14)


def test_the_norm_is_over_all_parameters() -> None:
    # Model 0 is (3, 4) spread over two arrays, norm 5; model 1 is zero and so takes w_0/5 · η_g, η_g = 1:
    #   ((0, 0) + (3, 4)/5) / (1 + 1/5) = (0.5, 2/3)
    bank = {"a": np.array([[3.0], [0.0]]), "b": {"c": np.array([4.0, 0.0])}}
    out = mix_groups(bank, 1.0)
    np.testing.assert_allclose(out["a"], [[3.0], [0.5]], rtol=1e-14)
    np.testing.assert_allclose(out["b"]["c"], [4.0, 2 / 3], rtol=1e-14)


def test_norms_of_float32_models_do_not_overflow() -> None:
    # (1e25)² is beyond the range of float32. Norms are 1e25, weights 1e-25 · 1e25 = 1: each form of mean is that of
    # both models.
    bank = np.array([[1e25, 0.0], [0.0, 1e25]], dtype=np.float32)
    np.testing.assert_allclose(mix_groups(bank, 1e25), np.full((2, 2), 5e24), rtol=1e-6)


@pytest.mark.parametrize("form", ["normalized", "paper"])
def test_a_model_of_norm_zero_contributes_nothing(form: Any) -> None:
    # The two others are mixed as if the zero model were not there.
    two = np.array([[3.0, 4.0], [0.0, 2.0]])
    three = np.concatenate([two, np.zeros((1, 2))])
    np.testing.assert_allclose(mix_groups(three, 0.5, form)[:2], mix_groups(two, 0.5, form), rtol=1e-14)


@pytest.mark.parametrize("form", ["normalized", "paper"])
@given(bank=banks)
def test_rate_zero_leaves_all_models_unchanged(form: Any, bank: np.ndarray) -> None:
    out = mix_groups(bank, 0.0, form)
    np.testing.assert_array_equal(out, bank)
    assert not np.shares_memory(out, bank)


@pytest.mark.parametrize("form", ["normalized", "paper"])
def test_a_single_model_is_unchanged(form: Any) -> None:
    bank = np.array([[0.1, 0.7]])
    np.testing.assert_array_equal(mix_groups(bank, 5.0, form), bank)


@given(hnp.arrays(np.float64, 4, elements=values), st.integers(2, 5), st.floats(0, 10))
def test_mixing_equal_models_is_the_identity_in_the_normalized_form(model: np.ndarray, n: int, rate: float) -> None:
    bank = np.tile(model, (n, 1))
    np.testing.assert_allclose(mix_groups(bank, rate), bank, rtol=1e-12, atol=1e-300)


@given(banks, st.floats(0, 10), st.data())
def test_mixed_models_are_in_the_hull_and_reordering_clusters_reorders_the_result(
    bank: np.ndarray, rate: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(bank))))
    out = mix_groups(bank, rate)
    slack = 1e-12 * np.abs(bank).max()
    assert (out >= bank.min(axis=0) - slack).all()
    assert (out <= bank.max(axis=0) + slack).all()
    np.testing.assert_allclose(mix_groups(bank[order], rate), out[order], rtol=0, atol=slack)


# All functions


@each_mean
def test_arguments_are_unchanged_and_dtypes_and_structure_are_kept(mean: Callable[[Any], Any]) -> None:
    bank, before = nested(), nested()
    out = mean(bank)
    assert out.keys() == bank.keys()
    for got, given_in, was in zip(arrays(out), arrays(bank), arrays(before), strict=True):
        np.testing.assert_array_equal(given_in, was)
        assert isinstance(got, np.ndarray)
        assert got.dtype == given_in.dtype
        assert got.shape in (given_in.shape, given_in.shape[1:])
        assert not np.shares_memory(got, given_in)


@each_mean
def test_a_column_of_scalars_is_not_sorted_in_place(mean: Callable[[Any], Any]) -> None:
    bank = np.array([3.0, 1.0, 2.0])
    mean(bank)
    np.testing.assert_array_equal(bank, [3.0, 1.0, 2.0])


@each_mean
def test_a_plain_array_is_a_bank_of_one_array(mean: Callable[[Any], Any]) -> None:
    rows = np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 1.0]])
    np.testing.assert_array_equal(mean(rows), mean({"only": rows})["only"])


@each_mean
@settings(max_examples=25)
@given(bank=hnp.arrays(np.float64, (3, 4), elements=values))
def test_the_division_of_a_model_into_arrays_does_not_matter(mean: Callable[[Any], Any], bank: np.ndarray) -> None:
    cut = mean({"b": bank[:, :1], "a": {"x": bank[:, 1], "y": bank[:, 2:].reshape(3, 2, 1)}})
    whole = mean(bank)
    glued = np.concatenate(
        [cut["b"].reshape(*whole.shape[:-1], 1), cut["a"]["x"][..., None], cut["a"]["y"][..., 0]], -1
    )
    np.testing.assert_allclose(glued, whole, rtol=1e-9, atol=1e-9)


@each_mean
@pytest.mark.parametrize(
    ("bank", "text"),
    [
        ({}, "The bank is empty: it needs at least one array and one model"),
        ({"a": {}}, "The bank is empty"),
        (np.zeros((0, 3)), "The bank is empty"),
        (
            {"a": np.zeros((3, 2)), "b": {"c": np.zeros((2, 2))}},
            r"bank\['a'\] has 3 models and bank\['b/c'\] has 2",
        ),
        ({"a": np.float64(1)}, r"bank\['a'\] is a scalar: every array of a bank needs a leading axis"),
        ({"a": np.zeros((3, 2), dtype=int)}, r"bank\['a'\] has type int64: means need floating-point numbers"),
    ],
)
def test_an_invalid_bank_is_rejected(mean: Callable[[Any], Any], bank: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        mean(bank)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([1.0], r"one number for each of the 2 models, got shape \(1,\)"),
        ([[1.0, 1.0]], r"got shape \(1, 2\)"),
        ([1.0, -1.0], r"finite and not negative, got \[1.0, -1.0\]"),
        ([1.0, np.nan], "finite and not negative"),
        ([1.0, np.inf], "finite and not negative"),
        ([0.0, 0.0], "all 0: at least one must be positive; for equal weights use uniform_mean"),
    ],
)
def test_invalid_weights_are_rejected(weights: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        weighted_mean(np.ones((2, 3)), weights)


@pytest.mark.parametrize("beta", [-0.1, 0.5, 1.0, np.nan])
def test_an_invalid_beta_is_rejected(beta: float) -> None:
    with pytest.raises(SpecError, match=f"beta must be at least 0 and less than 0.5, got {beta}"):
        trimmed_mean(np.ones((2, 3)), beta)


@pytest.mark.parametrize("rate", [-0.1, np.nan, np.inf])
def test_an_invalid_rate_is_rejected(rate: float) -> None:
    with pytest.raises(SpecError, match=f"rate must be finite and at least 0, got {rate}"):
        mix_groups(np.ones((2, 3)), rate)


def test_an_unknown_form_of_mixing_raises_an_error_with_the_nearest_form() -> None:
    form: Any = "normalised"
    with pytest.raises(SpecError, match=r"No form of mixing 'normalised'. Did you mean 'normalized'\? Known: normal"):
        mix_groups(np.ones((2, 3)), 0.1, form)
