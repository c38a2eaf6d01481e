"""Models by name: numbers of parameters, initial values and options."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coterie import tree
from coterie.errors import SpecError
from coterie.models import MODELS, Normalize, Task, build, linear_regression, mclr, mlp
from coterie.seeds import Seed

DENSE = [
    # inputs·outputs + outputs for each layer; the ids are those of the table of models in the papers
    pytest.param("mclr", (28, 28), 10, {}, 784 * 10 + 10, 7_850, id="MCLR-mnist"),
    pytest.param("mlp", (28, 28), 10, {"widths": (128,)}, 784 * 128 + 128 + 128 * 10 + 10, 101_770, id="MLP-mnist"),
    pytest.param("mclr", (784,), 26, {}, 784 * 26 + 26, 20_410, id="MCLR-femnist26"),
    pytest.param(
        "mlp", (28, 28, 1), 26, {"widths": (512,)}, 784 * 512 + 512 + 512 * 26 + 26, 415_258, id="MLP-femnist26"
    ),
    pytest.param("mlp", (28, 28), 10, {"widths": (512,)}, 784 * 512 + 512 + 512 * 10 + 10, 407_050, id="MLP-femnist10"),
    pytest.param("mclr", (60,), 10, {}, 60 * 10 + 10, 610, id="MCLR-synthetic"),
    pytest.param("mlp", (28, 28), 10, {"widths": 200}, 784 * 200 + 200 + 200 * 10 + 10, 159_010, id="MLP-200"),
    pytest.param("mclr", (1280,), 7, {}, 1280 * 7 + 7, 8_967, id="MCLR-mex"),
    pytest.param(
        "mlp",
        (1280,),
        7,
        {"widths": [1280, 640, 120]},
        1280 * 1280 + 1280 + 1280 * 640 + 640 + 640 * 120 + 120 + 120 * 7 + 7,
        2_537_287,
        id="MLP-3",
    ),
    pytest.param("linear-regression", (1000,), None, {"bias": False}, 1000, 1_000, id="Linear-reg"),
    pytest.param("linear-regression", (1000,), None, {}, 1000 + 1, 1_001, id="Linear-reg with bias"),
]


@pytest.mark.parametrize(("name", "shape", "classes", "options", "derived", "published"), DENSE)
def test_the_number_of_parameters_is_that_of_the_paper(name, shape, classes, options, derived, published):
    params = build(name, shape, classes, **options).init(Seed(0))
    assert tree.size(params) == derived == published
    assert {leaf.dtype for leaf in tree.leaves(params)} == {np.dtype(np.float32)}


def some(name):
    """The model of this name for images, or for sequences of ids."""
    return build(name, (32,) if name == "char-lstm" else (32, 32), None if name == "linear-regression" else 2)


@pytest.mark.parametrize("name", MODELS)
def test_two_builds_with_the_same_seed_are_identical_and_with_another_seed_are_not(name):
    one, other = (some(name) for _ in range(2))
    assert tree.same(one.init(Seed(7)), other.init(Seed(7)))
    assert not tree.same(one.init(Seed(7)), one.init(Seed(8)))


def test_layers_of_one_model_have_different_initial_values():
    params = mlp((4,), 4, widths=(4, 4)).init(Seed(0))
    kernels = [params[layer]["kernel"] for layer in ("dense0", "dense1", "dense2")]
    assert not any(np.array_equal(kernels[i], kernels[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_kernels_are_uniform_within_glorots_bound_and_biases_are_zero():
    # sqrt(6 / (140 + 10)) = 0.2
    kernel = mclr((140,), 10).init(Seed(3))["dense0"]["kernel"]
    assert kernel.shape == (10, 140)
    assert np.abs(kernel).max() <= np.float32(0.2)
    # All of 1,400 draws within 0.99 of the bound has probability 0.99^1400 < 1e-6.
    assert np.abs(kernel).max() > 0.99 * 0.2
    # The mean of 1,400 draws of variance 0.2²/3 has deviation 0.2/sqrt(3·1400) = 0.0031; tolerance: six deviations.
    assert abs(kernel.mean()) < 6 * 0.2 / math.sqrt(3 * 1400)
    assert not mclr((140,), 10).init(Seed(3))["dense0"]["bias"].any()
    # By definition: 2u - 1 for each of the uniform numbers of the seed, times the bound.
    drawn = (2 * Seed(3).fold("dense0", "kernel").uniform(1400) - 1) * math.sqrt(6 / 150)
    assert np.array_equal(kernel, drawn.astype(np.float32).reshape(10, 140))


def test_mlp_can_be_initialized_like_pytorch():
    # Both kernel and bias uniform in ±1/sqrt(inputs): ±0.05 with 400 inputs, ±0.1 with 100.
    params = mlp((20, 20), 50, widths=(100,), init="torch").init(Seed(3))
    for layer, bound in (("dense0", 0.05), ("dense1", 0.1)):
        for values in params[layer].values():
            assert np.abs(values).max() <= np.float32(bound)
            # All of at least 50 draws within 0.7 of the bound: 0.7^50 < 2e-8.
            assert np.abs(values).max() > 0.7 * bound
            # Mean 0 and mean square bound²/3; a square has deviation bound²·sqrt(4/45). Tolerance: six deviations.
            n = values.size
            assert abs(values.mean()) < 6 * bound / math.sqrt(3 * n)
            assert abs(np.square(values).mean() - bound**2 / 3) < 6 * bound**2 * math.sqrt(4 / 45 / n)
        assert not np.array_equal(params[layer]["bias"], params[layer]["kernel"].ravel()[: params[layer]["bias"].size])


def test_the_default_initialization_of_mlp_is_glorots():
    default, named = mlp((9,), 3).init(Seed(1)), build("mlp", (9,), 3, init="glorot").init(Seed(1))
    assert tree.same(default, named)
    assert not any(layer["bias"].any() for layer in default.values())
    with pytest.raises(SpecError, match=r"mlp\.init must be one of 'glorot', 'torch', got 'zeros'"):
        build("mlp", (9,), 3, init="zeros")


def test_pytorch_has_the_same_bounds():
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
    params, linear = mlp((400,), 100, widths=(100,), init="torch").init(Seed(0)), torch.nn.Linear(400, 100)
    for ours, theirs in ((params["dense0"]["kernel"], linear.weight), (params["dense0"]["bias"], linear.bias)):
        assert ours.shape == tuple(theirs.shape)
        assert float(theirs.detach().abs().max()) <= 0.05
        assert np.abs(ours).max() <= np.float32(0.05)
        # The largest of n draws is within 20/n of the bound except with probability e^-20.
        assert abs(float(theirs.detach().abs().max()) - np.abs(ours).max()) < 0.05 * 20 / ours.size


def test_linear_regression_is_initialized_to_zeros_and_ones_with_equal_probability():
    kernel = linear_regression((1000,), bias=False).init(Seed(0))["linear"]["kernel"]
    assert set(kernel.tolist()) == {0.0, 1.0}
    # 1,000 fair coins have deviation sqrt(1000)/2 = 15.8; tolerance: six deviations.
    assert abs(kernel.sum() - 500) < 6 * 15.9


def test_the_initial_loss_of_a_zero_image_is_the_logarithm_of_the_number_of_classes():
    # Biases are 0, so all logits of a zero input are 0: the loss is ln C, for every label.
    for task in (mclr((6,), 10), mlp((6,), 10, widths=(5, 4))):
        losses = task.losses(task.init(Seed(1)), np.zeros((10, 6), np.float32), np.arange(10))
        assert np.asarray(losses) == pytest.approx([math.log(10)] * 10, rel=1e-6)  # float32


def test_the_initial_loss_is_about_the_logarithm_of_the_number_of_classes():
    # For an input of norm 1 a logit has mean 0 and variance σ² = 2/(784 + 10), a third of the squared bound, and
    # E loss = E log Σ exp(z) - E z_y is between ln C (Jensen) and ln C + σ²/2 (Jensen again, and uniform draws
    # are sub-Gaussian). A loss deviates by at most 2σ: the logarithm of the sum and z_y by at most σ each. Mean of
    # 100 draws of the model; six deviations of that mean.
    task = mclr((784,), 10)
    x = np.full((1, 784), 1 / 28, np.float32)
    sigma = math.sqrt(2 / 794)
    losses = [float(task.losses(task.init(Seed(i)), x, np.array([i % 10]))[0]) for i in range(100)]
    slack = 6 * 2 * sigma / math.sqrt(100)
    assert -slack < np.mean(losses) - math.log(10) < sigma**2 / 2 + slack


def test_logistic_regression_is_one_product_with_the_flattened_image():
    task = mclr((2, 2), 3)
    params = {"dense0": {"kernel": np.arange(12, dtype=np.float32).reshape(3, 4), "bias": np.array([1, 0, -1.0])}}
    x = np.array([[[1, 0], [0, 2]], [[0, 0], [0, 0]]], np.float32)
    # rows (0 1 2 3), (4 5 6 7), (8 9 10 11) with (1, 0, 0, 2): 0 + 6, 4 + 14, 8 + 22; and the bias
    assert np.asarray(task.outputs(params, x)).tolist() == [[7, 18, 29], [1, 0, -1]]


def test_a_dense_network_has_a_relu_between_its_layers_and_none_after_the_last():
    task = mlp((1,), 2, widths=(2,))
    params = {
        "dense0": {"kernel": np.array([[1.0], [-1.0]]), "bias": np.array([0.0, 1.0])},
        "dense1": {"kernel": np.array([[1.0, 1.0], [-2.0, 0.0]]), "bias": np.array([0.0, 0.5])},
    }
    # x = 3: hidden (3, -2) → (3, 0); outputs 3 + 0, -6 + 0.5.    x = -1: hidden (-1, 2) → (0, 2); outputs 2, 0.5.
    x = np.array([[3.0], [-1.0]])
    assert np.asarray(task.outputs(params, x)).tolist() == [[3, -5.5], [2, 0.5]]
    assert task.layers == ("dense0", "dense1")


def test_outputs_have_one_row_per_example_and_one_column_per_class():
    x = np.ones((5, 2, 3), np.float32)
    for task, shape in (
        (mclr((2, 3), 4), (5, 4)),
        (mlp((2, 3), 7), (5, 7)),
        (linear_regression((2, 3), bias=False), (5,)),
    ):
        assert task.outputs(task.init(Seed(0)), x).shape == shape


def test_linear_regression_has_a_bias_unless_it_is_left_out():
    x = np.array([[1.0, 2.0]])
    kernel = np.array([10.0, 100.0])
    assert linear_regression((2,), bias=False).outputs({"linear": {"kernel": kernel}}, x).tolist() == [210]
    biased = {"linear": {"kernel": kernel, "bias": np.array(5.0)}}
    assert linear_regression((2,)).outputs(biased, x).tolist() == [215]


@pytest.mark.parametrize(
    ("name", "classes", "options", "text"),
    [
        ("mlpp", 3, {}, "No model 'mlpp'. Did you mean 'mlp'? Known: bigru, bilstm, "),
        (
            "mlp",
            3,
            {"width": 3},
            "No setting 'width' of model mlp. Did you mean 'widths'? Known: init, l2, normalize, widths",
        ),
        ("mclr", 3, {"widths": (3,)}, "No setting 'widths' of model mclr. Known: l2, normalize"),
        ("mclr", 3, {"shape": (3,)}, "No setting 'shape' of model mclr. Known: l2, normalize"),
        (
            "mlp",
            3,
            {"widths": ()},
            "mlp.widths must be whole numbers from 1 to 1000000, got (); for no hidden layer use mclr",
        ),
        ("mlp", 3, {"widths": (5, 0)}, "mlp.widths must be whole numbers from 1 to 1000000, got (5, 0); for no hidden"),
        (
            "mlp",
            3,
            {"widths": 10**19},
            "mlp.widths must be whole numbers from 1 to 1000000, got (10000000000000000000,)",
        ),
        ("lenet5", 3, {"width": float("nan")}, "lenet5.width must be a number from 0 to 1000000, got nan"),
        ("lenet5", 3, {"width": 1e308}, "lenet5.width must be a number from 0 to 1000000, got 1e+308"),
        ("mlp", 3, {"widths": 1.5}, "mlp.widths must be whole numbers from 1 to 1000000, got (1.5,); for no hidden"),
        ("mlp", 3, {"widths": True}, "mlp.widths must be whole numbers from 1 to 1000000, got (True,); for no hidden"),
        ("mlp", 3, {"widths": None}, "mlp.widths must be whole numbers from 1 to 1000000, got (None,); for no hidden"),
        ("mclr", None, {}, "mclr is a classifier, but the data have regression targets; use linear-regression"),
        ("mlp", None, {}, "mlp is a classifier, but the data have regression targets; use linear-regression"),
        ("mclr", 0, {}, "mclr.classes must be a whole number of at least 1, got 0"),
        ("mclr", 2.5, {}, "mclr.classes must be a whole number of at least 1, got 2.5"),
        (
            "linear-regression",
            3,
            {},
            "linear-regression is a regression, but the data have 3 classes; use mclr or mlp",
        ),
        ("mlp", 3, {"l2": -1}, "mlp.l2 must be a finite number of at least 0, got -1"),
        ("mclr", 3, {"l2": "x"}, "mclr.l2 must be a finite number of at least 0, got 'x'"),
        ("mclr", 3, {"l2": math.nan}, "mclr.l2 must be a finite number of at least 0, got nan"),
        ("mclr", 3, {"normalize": 255}, "mclr.normalize must be a function of the inputs, got 255"),
    ],
)
def test_an_invalid_option_raises_an_error_that_names_the_allowed_values(name, classes, options, text):
    with pytest.raises(SpecError) as caught:
        build(name, (4,), classes, **options)
    assert str(caught.value).startswith(text)


def test_every_listed_model_can_be_built():
    for name, description in MODELS.items():
        assert description
        assert isinstance(some(name), Task)


def test_the_same_settings_give_the_same_object_so_that_the_next_run_does_not_compile():
    unit = Normalize(0.0, 16.0)
    task = build("mlp", (8, 8), 10, widths=(4,), normalize=unit)
    assert build("mlp", (8, 8), 10, widths=(4,), normalize=Normalize(0.0, 16.0)) is task
    for shape, classes, other in (
        ((8, 8), 10, {"widths": (5,), "normalize": unit}),
        ((8, 8), 10, {"widths": (4,), "normalize": Normalize(0.0, 17.0)}),
        ((8, 8), 9, {"widths": (4,), "normalize": unit}),
        ((4, 16), 10, {"widths": (4,), "normalize": unit}),
    ):
        assert build("mlp", shape, classes, **other) is not task
    assert build("mclr", (8,), 2, l2=1).l2 == 1
    with pytest.raises(SpecError, match=r"l2 must be a finite number of at least 0, got True"):
        build("mclr", (8,), 2, l2=True)  # True equals 1, which was built before


def test_a_model_with_normalization_by_arrays_is_cached_by_their_values():
    deviation = np.ones(8)
    task = build("mclr", (8,), 2, normalize=Normalize(np.zeros(8), deviation))
    assert build("mclr", (8,), 2, normalize=Normalize(np.zeros(8), np.ones(8))) is task
    deviation[0] = 2.0  # the cached task has a copy
    assert build("mclr", (8,), 2, normalize=Normalize(np.zeros(8), deviation)) is not task
    np.testing.assert_array_equal(task.inputs(np.full((1, 8), 3)), np.full((1, 8), 3.0))


def test_a_model_with_a_function_as_normalization_has_no_recipe_and_is_cached_by_the_function():
    task = build("mclr", (8,), 2, normalize=np.negative)
    assert build("mclr", (8,), 2, normalize=np.negative) is task
    assert task.recipe is None
