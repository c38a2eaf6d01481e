"""Recipes: tasks as plain data that another machine can build."""

from __future__ import annotations

import dataclasses
import sys
import types

import numpy as np
import pytest

from coterie import codec, tree
from coterie.errors import SpecError
from coterie.methods.trial_runs import trial_task
from coterie.models import MODELS, Normalize, build, from_factory, from_functions, from_recipe, mclr, recipe_of
from coterie.models.task import MAX_PARAMETERS
from coterie.seeds import Seed

RECIPE = {"name": "mclr", "shape": (2, 2), "classes": 3, "options": {"l2": 0.0}, "normalize": (0.0, 16.0)}


def some(name):
    """The model of this name for images, or for sequences of ids."""
    return build(name, (32,) if name == "char-lstm" else (32, 32), None if name == "linear-regression" else 2)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_rebuilt_from_its_recipe_after_a_transfer_as_the_same_object(name):
    task = some(name)
    received = codec.decode(codec.encode(task.recipe))
    assert received == task.recipe
    assert from_recipe(received) is task


def test_a_recipe_has_all_settings_also_those_left_at_their_defaults():
    task = build("mlp", (8, 8), 10, widths=[4, 3], normalize=Normalize(0.0, 16.0))
    assert task.recipe == {
        "name": "mlp",
        "shape": (8, 8),
        "classes": 10,
        "options": {"widths": (4, 3), "init": "glorot", "l2": 0.0},
        "normalize": (0.0, 16.0),
    }
    assert build("mlp", (8, 8), 10, widths=(4, 3), l2=0.0, normalize=Normalize(0.0, 16.0)) is task


def test_a_task_built_in_another_process_has_the_same_initial_model_and_normalization():
    task = build("mlp", (2, 2), 3, widths=(5,), normalize=Normalize(np.arange(4.0).reshape(2, 2), np.float32(2)))
    sent = codec.encode(task.recipe)
    from coterie.models import recipe

    recipe._from_bytes.cache_clear()  # as in another process
    other = from_recipe(codec.decode(sent))
    assert other is not task
    assert tree.same(other.init(Seed(5)), task.init(Seed(5)))
    x = np.array([[[2, 3], [4, 5]]], np.uint8)
    np.testing.assert_array_equal(other.inputs(x), [[[1, 1], [1, 1]]])  # (2 - 0)/2, (3 - 1)/2, (4 - 2)/2, (5 - 3)/2
    assert codec.encode(other.recipe) == sent


def test_the_trial_task_of_flag_has_a_recipe():
    task = build("mlp", (8, 8), 10, normalize=Normalize(np.full((8, 8), 3.0), 2.0))
    small = trial_task(task, "mclr")
    assert from_recipe(codec.decode(codec.encode(recipe_of(small)))) is small


def test_a_task_that_was_changed_or_made_from_functions_has_no_recipe():
    changed = dataclasses.replace(build("mclr", (8,), 2), l2=1.0)
    own = from_functions(lambda key: {"w": np.zeros(8)}, lambda params, x: x @ params["w"], (8,), None, name="mine")
    for task in (changed, own, mclr((8,), 2)):
        assert task.recipe is None
    with pytest.raises(SpecError, match=r"Model mine cannot be sent to clients on other machines.*from_factory"):
        recipe_of(own)


@pytest.fixture
def package(monkeypatch):
    """A module with a factory, as a package that both sides have installed."""
    module = types.ModuleType("some_package")

    def scaled(shape, classes, *, normalize=None, start=1.0):
        def init(key):
            return {"dense": {"kernel": np.full((classes, *shape), start)}}

        def apply(params, x):
            return x @ params["dense"]["kernel"].T

        return from_functions(init, apply, shape, classes, name="scaled", normalize=normalize)

    module.scaled = scaled
    module.not_a_task = lambda shape, classes, normalize=None: 7
    module.other_shape = lambda shape, classes, normalize=None: build("mclr", (9,), classes)
    module.closure = lambda shape, classes, normalize=None: mclr(shape, classes, normalize=lambda x: x)
    module.number = 3
    monkeypatch.setitem(sys.modules, "some_package", module)
    from coterie.models import library

    library._checked_factory.cache_clear()
    return module


def test_an_own_model_is_built_on_both_sides_by_the_name_of_its_factory(package):
    task = from_factory("some_package:scaled", (3,), 2, normalize=Normalize(0.0, 2.0), start=4.0)
    received = codec.decode(codec.encode(recipe_of(task)))
    assert received == {
        "name": "some_package:scaled",
        "shape": (3,),
        "classes": 2,
        "options": {"start": 4.0},
        "normalize": (0.0, 2.0),
    }
    other = from_recipe(received, allowed=("some_package:scaled",))
    assert other is task
    np.testing.assert_array_equal(other.init(Seed(0))["dense"]["kernel"], np.full((2, 3), 4.0))
    assert from_recipe({**received, "options": {"start": 5.0}}, allowed=["some_package:scaled"]) is not task


def test_a_factory_that_is_not_allowed_is_not_imported():
    recipe = {**RECIPE, "name": "package_that_must_not_be_imported:scaled", "options": {}}
    for allowed in ((), ("package_that_must_not_be_imported:other", "package_that_must_not_be_imported")):
        with pytest.raises(SpecError, match=r"not allowed here.*Allow exactly this name"):
            from_recipe(recipe, allowed=allowed)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("some_package:missing", "has no function missing"),
        ("some_package:number", "has no function number"),
        ("package_that_is_not_there:f", "Install the package on every machine"),
        ("some_package:scaled.__globals__", "must be 'package.module:function'"),
        ("some package:scaled", "must be 'package.module:function'"),
        (":scaled", "must be 'package.module:function'"),
        ("some_package:_scaled", "must be 'package.module:function'"),
        ("some_package:not_a_task", "must return a task"),
        ("some_package:other_shape", r"inputs of shape \(3,\) and 2 classes, got \(9,\) and 2"),
        ("some_package:closure", "whose normalize is the given one"),
    ],
)
def test_a_factory_that_cannot_be_used_is_refused_with_the_reason(package, name, text):
    with pytest.raises(SpecError, match=text):
        from_factory(name, (3,), 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": 3}, "name of a recipe must be a text"),
        ({"name": "nothing"}, "No model 'nothing'"),
        ({"shape": ()}, "shape of a recipe must be 1 to 8 whole numbers"),
        ({"shape": (2, -2)}, "shape of a recipe must be 1 to 8 whole numbers"),
        ({"shape": (2.0,)}, "shape of a recipe must be 1 to 8 whole numbers"),
        ({"shape": (1_000_000, 1_000_000)}, "shape of a recipe must be at most 16,777,216 numbers in all"),
        ({"classes": 0}, "classes of a recipe must be none or a whole number from 1 to 1,000,000"),
        ({"classes": True}, "classes of a recipe must be none or a whole number from 1 to 1,000,000"),
        ({"classes": 2**40}, "classes of a recipe must be none or a whole number from 1 to 1,000,000"),
        ({"options": [1]}, "options of a recipe must be a dict"),
        ({"options": {"a b": 1}}, "options of a recipe must be a dict"),
        ({"options": {"l2": {"a": 1}}}, r"options\.l2 of a recipe must be a number"),
        ({"options": {"l2": 2**70}}, r"options\.l2 of a recipe must be a number"),
        ({"options": {"l2": ((1,),)}}, r"options\.l2 of a recipe must be a number"),
        ({"options": {"l3": 0.0}}, "No setting 'l3' of model mclr"),
        ({"options": {"normalize": None}}, "options of a recipe must be settings other than normalize"),
        ({"normalize": 3.0}, "normalize of a recipe must be none, or a finite mean"),
        ({"normalize": (0.0, 0.0)}, "a deviation above 0"),
        ({"normalize": (np.inf, 1.0)}, "a finite mean"),
        ({"normalize": (np.zeros(3), 1.0)}, "broadcast over one input"),
        ({"normalize": (np.zeros((5, 2, 2)), 1.0)}, "broadcast over one input"),
        ({"normalize": ("0", 1.0)}, "a finite mean"),
    ],
)
def test_a_malformed_recipe_is_refused_and_the_message_names_the_part(change, text):
    assert from_recipe(RECIPE).name == "mclr"
    with pytest.raises(SpecError, match=text):
        from_recipe({**RECIPE, **change})


@pytest.mark.parametrize("recipe", [None, 3, "mclr", {}, {**RECIPE, "code": "print()"}, {"name": "mclr"}])
def test_what_is_not_a_recipe_is_refused(recipe):
    with pytest.raises(SpecError, match="A recipe must be a dict with the keys name, shape, classes, options"):
        from_recipe(recipe)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options"),
    [
        ("mclr", (1000, 1000), 101, {}),  # 101,000,101 parameters
        ("mlp", (10,), 2, {"widths": (1_000_000,) * 3}),
        ("mlp", (1,), 2, {"widths": (9_000, 9_000, 9_000)}),  # each layer is allowed, not both
        ("char-lstm", (10,), 2, {"units": 1_000_000}),
        ("lenet5", (32, 32), 2, {"width": 1_000_000.0}),
        ("cnn", (4096, 4096), 1_000_000, {}),
        ("resnet9", (64, 64), 1_000_000, {}),
        ("bilstm", (16, 1_000_000), 2, {}),
    ],
)
def test_a_hostile_recipe_cannot_allocate_more_than_the_largest_model(name, shape, classes, options, monkeypatch):
    drawn = []
    monkeypatch.setattr(Seed, "uniform", lambda seed, count: drawn.append(count) or np.zeros(count))
    recipe = {"name": name, "shape": shape, "classes": classes, "options": options, "normalize": None}
    with pytest.raises(SpecError, match=r"would have [\d,]+ parameters; a model may have at most 100,000,000"):
        from_recipe(recipe).init(Seed(0))
    assert sum(drawn) <= MAX_PARAMETERS


def test_a_factory_with_too_many_parameters_is_refused(package, monkeypatch):
    monkeypatch.setattr("coterie.models.task.MAX_PARAMETERS", 10)
    assert from_factory("some_package:scaled", (5,), 2).recipe
    with pytest.raises(SpecError, match="Model some_package:scaled would have 12 parameters"):
        from_factory("some_package:scaled", (6,), 2)
