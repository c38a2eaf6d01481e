"""Tasks from flax modules and from pure functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from coterie import tree
from coterie.errors import SpecError
from coterie.models import Normalize, from_flax, from_functions
from coterie.seeds import Seed


class Two(linen.Module):
    """Two dense layers, whose order is not alphabetical."""

    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Dense(4, name="zeta")(x.reshape(x.shape[0], -1)))
        return linen.Dense(3, name="alpha")(x)


class Dropping(linen.Module):
    """Dropout of half of the inputs in training."""

    @linen.compact
    def __call__(self, x, train: bool):
        x = linen.Dropout(0.5, deterministic=not train)(x)
        return linen.Dense(2)(x)


class Normed(linen.Module):
    """Batch normalization with running means."""

    @linen.compact
    def __call__(self, x, train: bool):
        return linen.BatchNorm(use_running_average=not train)(x)


TWO = from_flax(Two(), (2, 2), 3)
DROPPING = from_flax(Dropping(), (50,), 2, name="dropping")


def test_a_task_from_a_flax_module_has_its_parameters():
    params = TWO.init(Seed(0))
    theirs = Two().init(Seed(0).key(), jnp.zeros((1, 2, 2)))["params"]
    assert tree.same(params, tree.host(theirs))
    assert tree.size(params) == (4 * 4 + 4) + (4 * 3 + 3)
    assert all(type(leaf) is np.ndarray and leaf.dtype == np.float32 for leaf in tree.leaves(params))
    assert TWO.name == "Two"


def test_a_task_from_a_flax_module_has_its_outputs_after_normalization():
    params = TWO.init(Seed(1))
    x = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    theirs = Two().apply({"params": params}, (jnp.asarray(x, jnp.float32) - 1) * 0.5)
    task = from_flax(Two(), (2, 2), 3, normalize=Normalize(1, 2))
    assert np.array_equal(task.outputs(params, x), theirs)
    assert task.outputs(params, x).shape == (2, 3)


def test_layers_are_ordered_from_input_to_output_and_not_alphabetically():
    assert TWO.layers == ("zeta", "alpha")


def test_two_builds_with_the_same_seed_are_identical():
    assert tree.same(from_flax(Two(), (2, 2), 3).init(Seed(5)), TWO.init(Seed(5)))
    assert not tree.same(TWO.init(Seed(5)), TWO.init(Seed(6)))


def test_dropout_is_active_only_with_a_key():
    params = DROPPING.init(Seed(0))
    x = np.ones((4, 50), np.float32)
    plain = np.asarray(DROPPING.outputs(params, x))
    by_hand = x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]
    assert plain == pytest.approx(by_hand, abs=1e-5)  # sums of 50 terms below 1 in float32, in another order
    keys = [jax.random.key(0), jax.random.key(1)]
    first, again, other = (np.asarray(DROPPING.outputs(params, x, key)) for key in (keys[0], keys[0], keys[1]))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, plain)
    assert DROPPING.random
    assert not TWO.random


def test_a_module_with_other_variables_than_params_is_rejected():
    with pytest.raises(SpecError, match="Module Normed has variables batch_stats; only params are supported"):
        from_flax(Normed(), (3,), 3)


def test_a_task_from_pure_functions():
    def init(key):
        return {"w": jax.random.normal(key, (3,)), "b": {"c": np.float64(2)}}

    task = from_functions(init, lambda params, x: x @ params["w"] + params["b"]["c"], (3,), None, name="line")
    params = task.init(Seed(2))
    assert np.array_equal(params["w"], init(Seed(2).key())["w"])
    assert params["b"]["c"].dtype == np.float32
    assert (task.name, task.layers, task.random) == ("line", ("w", "b"), False)
    outputs = task.outputs({"w": np.array([1.0, 10, 100]), "b": {"c": np.float32(2)}}, np.array([[1, 2, 3]]))
    assert outputs.tolist() == [1 + 20 + 300 + 2]


def test_predictions_of_a_regression_may_be_one_column():
    task = from_functions(lambda key: {"w": np.ones((2, 1))}, lambda params, x: x @ params["w"], (2,), None)
    assert task.outputs(task.init(Seed(0)), np.ones((5, 2))).shape == (5,)


def test_a_function_of_three_arguments_gets_the_training_key():
    task = from_functions(lambda key: {"w": np.ones(1)}, lambda params, x, key: (x, key), (1,), 2)
    assert task.random
    assert task.outputs({}, np.ones((1, 1)), "the key")[1] == "the key"
    assert task.outputs({}, np.ones((1, 1)))[1] is None


def test_parameters_do_not_share_memory_with_the_result_of_init():
    shared = {"w": np.zeros(2, np.float32)}
    task = from_functions(lambda key: shared, lambda params, x: x, (2,), 2)
    task.init(Seed(0))["w"][:] = 9
    assert not shared["w"].any()


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (None, "init of model odd must return a nested dict of arrays, got None"),
        ({}, "init of model odd must return a nested dict of arrays, got {}"),
        (np.zeros(2), "init of model odd must return a nested dict of arrays, got array"),
        ({"a": {"b": [1.0]}}, "init of model odd must return a nested dict of arrays, but a/b is"),
    ],
)
def test_parameters_that_are_not_a_nested_dict_of_arrays_are_rejected(made, text):
    with pytest.raises(SpecError) as caught:
        from_functions(lambda key: made, lambda params, x: x, (2,), 2, name="odd")
    assert str(caught.value).startswith(text)


class Spelling(linen.Module):
    """The sum of learned vectors of ids."""

    @linen.compact
    def __call__(self, ids):
        return linen.Dense(2)(linen.Embed(5, 3)(ids).sum(axis=1))


def test_a_module_for_tokens_gets_integer_ids():
    task = from_flax(Spelling(), (4,), 2, tokens=5)
    params = task.init(Seed(0))
    ids = np.array([[0, 4, 1, 1]], np.uint8)
    theirs = Spelling().apply({"params": params}, ids.astype(np.int32))
    np.testing.assert_array_equal(task.outputs(params, ids), theirs)
    with pytest.raises(SpecError, match="has the tokens 0 to 4, the data have ids from 5 to 5"):
        task.check(np.full((1, 4), 5), np.zeros(1, int))


def test_pure_functions_for_tokens_get_integer_ids():
    seen = []

    def apply(params, x):
        seen.append(x.dtype)
        return params["w"][x].sum(axis=1)

    task = from_functions(lambda key: {"w": jnp.eye(3)}, apply, (2,), 3, tokens=3)
    assert np.asarray(task.outputs(task.init(Seed(0)), np.array([[0, 2]], np.uint8))).tolist() == [[1, 0, 1]]
    assert seen == [np.int32]
