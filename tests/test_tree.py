"""Trees of arrays, and banks of models."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from coterie import tree

ARRAYS = npst.arrays(
    st.sampled_from([np.float32, np.float64, np.int32]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    elements={"min_value": -1000, "max_value": 1000},
)
KEYS = st.text("ab-/0", min_size=1, max_size=3)
TREES = st.recursive(ARRAYS, lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=6)


def model(kernel, bias):
    return {"dense": {"kernel": np.array(kernel, np.float32), "bias": np.array(bias, np.float32)}}


@given(TREES)
def test_unflatten_restores_the_flattened_tree_exactly(one):
    vector = tree.flatten(one)
    assert vector.shape == (tree.size(one),)
    assert tree.same(tree.unflatten(vector, one), one)


@given(TREES)
def test_leaves_are_in_the_same_order_as_in_jax(one):
    assert [id(leaf) for leaf in tree.leaves(one)] == [id(leaf) for leaf in jax.tree_util.tree_leaves(one)]


def test_flatten_uses_sorted_keys_and_not_insertion_order():
    # bias before kernel, dense0 before dense1, each row by row
    one = {
        "dense1": {"kernel": np.array([[5.0]])},
        "dense0": {"kernel": np.array([[1.0, 2], [3, 4]]), "bias": np.zeros(1)},
    }
    assert tree.flatten(one).tolist() == [0, 1, 2, 3, 4, 5]
    assert [path for path, _ in tree.paths(one)] == ["dense0/bias", "dense0/kernel", "dense1/kernel"]
    assert next(iter(tree.paths(np.ones(2))))[0] == ""


def test_an_unflattened_model_does_not_share_memory_with_the_vector():
    vector = np.zeros(3, np.float32)
    made = tree.unflatten(vector, model([[1, 2]], [3]))
    vector[:] = 9
    assert tree.flatten(made).tolist() == [0, 0, 0]


def test_unflatten_rejects_a_vector_of_the_wrong_length():
    with pytest.raises(ValueError, match=r"The vector must have 3 entries, one for each parameter, got \(4,\)"):
        tree.unflatten(np.zeros(4), model([[1, 2]], [3]))


def test_size_counts_parameters_and_nbytes_counts_bytes():
    one = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((), np.float64)}
    assert tree.size(one) == 2 * 3 + 1
    assert tree.nbytes(one) == 2 * 3 * 4 + 8


@given(npst.arrays(np.float32, npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
def test_a_row_of_a_stack_is_the_model_that_was_stacked(leaves):
    models = [{"a": {"b": leaf}, "c": np.float32(i)} for i, leaf in enumerate(leaves)]
    bank = tree.stack(models)
    assert tree.rows(bank) == len(models)
    for i, one in enumerate(models):
        assert tree.same(tree.row(bank, i), one)


def test_take_returns_rows_in_the_given_order_with_repetition_and_none_for_no_indices():
    bank = tree.stack([model([[i, 10 * i]], [-i]) for i in range(3)])
    assert tree.take(bank, [2, 0, 2])["dense"]["bias"].tolist() == [[-2], [0], [-2]]
    assert tree.take(bank, [])["dense"]["kernel"].shape == (0, 1, 2)


def test_concatenate_appends_the_rows_of_banks():
    banks = [tree.stack([model([[i]], [i])]) for i in (3, 4)]
    assert tree.concatenate(banks)["dense"]["bias"].tolist() == [[3], [4]]
    assert tree.concatenate(banks[:1]) is banks[0]


def test_stack_rejects_an_empty_list():
    with pytest.raises(ValueError, match="A bank needs at least one model"):
        tree.stack([])


def test_flatten_rows_flattens_each_model_of_a_bank():
    models = [model([[1, 2], [3, 4]], [5, 6]), model([[7, 8], [9, 10]], [11, 12])]
    expected = [tree.flatten(one).tolist() for one in models]
    assert expected[0] == [5, 6, 1, 2, 3, 4]  # bias, then kernel
    assert tree.flatten_rows(tree.stack(models)).tolist() == expected


def test_where_rows_selects_whole_models():
    yes = tree.stack([model([[1, 1]], [1]), model([[2, 2]], [2])])
    no = tree.stack([model([[-1, -1]], [-1]), model([[-2, -2]], [-2])])
    assert tree.flatten_rows(tree.where_rows(np.array([False, True]), yes, no)).tolist() == [[-1, -1, -1], [2, 2, 2]]


def test_row_distances_are_over_all_arrays_of_a_model():
    # Row 0: (3, 4) in the kernel, 12 in the bias: sqrt(9 + 16 + 144) = 13. Row 1: equal.
    one = tree.stack([model([[3, 4]], [12]), model([[1, 1]], [1])])
    other = tree.stack([model([[0, 0]], [0]), model([[1, 1]], [1])])
    assert tree.row_distances(one, other).tolist() == [13, 0]


def test_row_distances_of_more_rows_than_are_computed_at_a_time(monkeypatch):
    monkeypatch.setattr(tree, "_ENTRIES_AT_A_TIME", 4)  # two rows of two entries
    bank, zero = np.array([[3.0, 4], [6, 8], [9, 12], [0, 0], [5, 12]]), np.zeros((1, 2))
    assert tree.row_distances(bank, np.repeat(zero, 5, axis=0)).tolist() == [5, 10, 15, 0, 13]
    assert tree.row_distances(bank, zero).tolist() == [5, 10, 15, 0, 13]  # one row for all


def test_row_distances_to_the_row_that_is_named_for_each_model(monkeypatch):
    # |(3, 4)| = 5, |(6, 8) - (3, 4)| = 5, |(3, 4) - (3, 4)| = 0; rows need not be in order, nor all be used.
    bank, other = np.array([[3.0, 4], [6, 8], [3, 4]]), np.array([[0.0, 0], [7, 7], [3, 4]])
    assert tree.row_distances(bank, other, [0, 2, 2]).tolist() == [5, 5, 0]
    monkeypatch.setattr(tree, "_ENTRIES_AT_A_TIME", 2)  # one row of two entries
    assert tree.row_distances(bank, other, [0, 2, 2]).tolist() == [5, 5, 0]
    monkeypatch.setattr(tree, "_ENTRIES_AT_A_TIME", 4)  # two rows
    assert tree.row_distances(bank, other, np.array([0, 2, 2])).tolist() == [5, 5, 0]
    assert tree.row_distances(bank, other[:1], [0, 0, 0]).tolist() == [5, 10, 5]


def test_an_empty_bank_has_no_rows_and_no_distances():
    none = tree.take(tree.stack([model([[1, 2]], [3])]), [])
    assert tree.flatten_rows(none).shape == (0, 3)
    assert tree.row_distances(none, none).shape == (0,)


def test_row_distances_and_norms_do_not_overflow_float32():
    # (1e30)² is beyond float32, whose largest number is 3.4e38.
    large = tree.stack([model([[1e30, 0]], [0])])
    zero = tree.map(np.zeros_like, large)
    assert tree.row_distances(large, zero) == pytest.approx([1e30], rel=1e-7)  # 1e30 rounded to float32
    assert tree.norm(tree.row(large, 0)) == pytest.approx(1e30, rel=1e-7)


def test_the_norm_is_over_all_arrays():
    assert tree.norm(model([[1, 2]], [2])) == 3  # sqrt(1 + 4 + 4)


def test_same_compares_bytes_dtypes_shapes_and_structure():
    one = {"a": np.array([0.0, np.nan], np.float32)}
    assert tree.same(one, {"a": np.array([0.0, np.nan], np.float32)})
    assert not tree.same(one, {"a": np.array([-0.0, np.nan], np.float32)})
    assert not tree.same(one, {"a": np.array([0.0, np.nan], np.float64)})
    assert not tree.same(one, {"a": np.array([[0.0, np.nan]], np.float32)})
    assert not tree.same(one, {"b": one["a"]})
    assert not tree.same(one, one | {"b": one["a"]})
    assert not tree.same(one, one["a"])
    quiet = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)  # two NaNs with different payloads
    assert not tree.same(quiet[:1], quiet[1:])


def test_same_distinguishes_a_slash_in_a_key_from_a_branch_and_an_empty_branch_from_none():
    leaf = np.ones(1)
    assert not tree.same({"a/b": leaf}, {"a": {"b": leaf}})
    assert not tree.same({"a": {}}, {})


def test_map_accepts_several_trees_and_does_not_change_them():
    one, other = model([[1, 2]], [3]), model([[10, 20]], [30])
    before = tree.flatten(one).tolist()
    assert tree.flatten(tree.map(np.add, one, other)).tolist() == [33, 11, 22]
    assert tree.flatten(one).tolist() == before


def test_finite_checks_every_float():
    assert tree.finite({"a": np.ones(2), "b": np.array([1, 2])})
    assert not tree.finite({"a": np.ones(2), "b": {"c": np.array([1, np.inf])}})
    assert not tree.finite(np.array(np.nan))


def test_host_returns_numpy_arrays():
    assert isinstance(tree.host({"a": jax.numpy.ones(2)})["a"], np.ndarray)


def test_unstack_is_the_inverse_of_stack_and_copies():
    models = [{"a": {"b": np.full(2, i, np.float32)}, "n": np.array(i, np.int32)} for i in range(3)]
    bank = tree.stack(models)
    again = tree.unstack(bank)
    assert all(tree.same(one, other) for one, other in zip(models, again, strict=True))
    bank["a"]["b"][:] = 9
    assert again[1]["a"]["b"].tolist() == [1, 1]
