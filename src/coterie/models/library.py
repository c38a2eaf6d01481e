"""Models by name: `build("mlp", shape, classes, widths=(200,))`.

Kernels are stored as (outputs, inputs) and used as `x @ kernel.T`. With this layout a step of logistic regression takes
two thirds of the time of the transposed layout on a CPU.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, get_args

import numpy as np

from coterie import tree
from coterie.errors import SpecError, shown, unknown
from coterie.models import networks, recurrent
from coterie.models.dense_product import dense_product
from coterie.models.layers import Dense, Init, Layer, initial_bias, initial_kernel, relu
from coterie.models.recipe import built, checked_recipe, factory
from coterie.models.task import MAX_UNITS, Normalize, Task, check_size
from coterie.seeds import Seed
from coterie.types import Params


def _dense(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    widths: Sequence[int],
    normalize: Any,
    l2: float,
    scheme: Init = "glorot",
) -> Task:
    sizes = (math.prod(shape), *widths, classes)
    layers = tuple(f"dense{i}" for i in range(len(sizes) - 1))
    check_size(f"Model {name}", sum(outputs * (inputs + 1) for inputs, outputs in itertools.pairwise(sizes)))

    def init(seed: Seed) -> Params:
        return {
            layer: {
                "bias": initial_bias(seed.fold(layer, "bias"), outputs, inputs, scheme),
                "kernel": initial_kernel(seed.fold(layer, "kernel"), (outputs, inputs), inputs, outputs, scheme),
            }
            for layer, (inputs, outputs) in zip(layers, itertools.pairwise(sizes), strict=True)
        }

    def apply(params: Params, x: Any, key: Any) -> Any:
        import jax.numpy as jnp

        h = x.reshape(x.shape[0], -1)
        for layer in layers:
            h = dense_product(params[layer]["kernel"], h) + params[layer]["bias"]
            if layer != layers[-1]:
                h = jnp.maximum(h, 0.0)
        return h

    network: list[tuple[str, Layer]] = []
    for layer, outputs in zip(layers, sizes[1:], strict=True):
        network += [(layer, Dense(outputs)), ("", relu)]
    return Task(name, init, apply, shape, classes, normalize, layers, l2, network=tuple(network[:-1]))


def mclr(shape: tuple[int, ...], classes: int | None, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """Multinomial logistic regression on flattened inputs.

    Args:
        shape: Shape of one input.
        classes: Number of classes.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
    """
    return _dense("mclr", shape, _classes("mclr", classes), (), normalize, l2)


def mlp(
    shape: tuple[int, ...],
    classes: int | None,
    *,
    widths: Sequence[int] = (128,),
    init: Init = "glorot",
    normalize: Any = None,
    l2: float = 0.0,
) -> Task:
    """Multilayer perceptron: dense layers with ReLU.

    Args:
        shape: Shape of one input.
        classes: Number of classes.
        widths: Widths of the hidden layers.
        init: Initial values. glorot: kernels uniform in ±sqrt(6 / (inputs + outputs)) and biases 0, as in Keras; torch:
            both uniform in ±1/sqrt(inputs), PyTorch's default.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
    """
    widths = tuple(widths) if isinstance(widths, Sequence) else (widths,)
    if not widths or any(isinstance(w, bool) or not isinstance(w, int) or not 1 <= w <= MAX_UNITS for w in widths):
        expected = f"whole numbers from 1 to {MAX_UNITS}"
        raise SpecError(f"mlp.widths must be {expected}, got {shown(widths)}; for no hidden layer use mclr")
    if init not in get_args(Init):
        raise SpecError(f"mlp.init must be one of {', '.join(map(repr, get_args(Init)))}, got {init!r}")
    return _dense("mlp", shape, _classes("mlp", classes), widths, normalize, l2, init)


def linear_regression(
    shape: tuple[int, ...], classes: int | None = None, *, bias: bool = True, normalize: Any = None, l2: float = 0.0
) -> Task:
    """Linear regression with half the squared error, initialized to Bernoulli(1/2) coordinates as in IFCA's paper.

    Args:
        shape: Shape of one input.
        classes: Must be None.
        bias: Whether there is a bias (intercept). The model of IFCA's synthetic data has none.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
    """
    if classes is not None:
        raise SpecError(f"linear-regression is a regression, but the data have {classes} classes; use mclr or mlp")
    inputs = math.prod(shape)
    check_size("Model linear-regression", inputs + bias)

    def init(seed: Seed) -> Params:
        kernel = (seed.fold("linear", "kernel").uniform(inputs) < 0.5).astype(np.float32)
        return {"linear": {"kernel": kernel} | ({"bias": np.zeros((), np.float32)} if bias else {})}

    def apply(params: Params, x: Any, key: Any) -> Any:
        outputs = x.reshape(x.shape[0], -1) @ params["linear"]["kernel"]
        return outputs + params["linear"]["bias"] if bias else outputs

    network = (("linear", Dense(1, bias=bias)),)
    return Task("linear-regression", init, apply, shape, None, normalize, ("linear",), l2, network=network)


def _classes(name: str, classes: int | None) -> int:
    if classes is None:
        raise SpecError(f"{name} is a classifier, but the data have regression targets; use linear-regression")
    return classes


#: Name → description.
MODELS: dict[str, str] = {
    "mclr": "multinomial logistic regression",
    "mlp": "multilayer perceptron with ReLU",
    "linear-regression": "linear regression, half the squared error",
    "cnn": "CNN: two 5×5 convolutions (32, 64) with pooling, dense",
    "cnn-mnist": "FlexCFL's CNN for MNIST: two 3×3 convolutions (32, 64), dropout, dense",
    "cnn-femnist": "FlexCFL's CNN for FEMNIST: six convolutions, dense 128, dropout",
    "cnn-fmnist": "FlexCFL's CNN for Fashion-MNIST: two 5×5 convolutions (32, 64), dense 1024",
    "cnn-fedsim": "CNN of FedSim and LEAF: two convolutions, dense 2048",
    "lenet5": "LeNet-5 for gray or color images of 28×28 or 32×32",
    "resnet9": "SR-FCA's ResNet-9 with batch norm",
    "resnet9-gn": "PACFL's ResNet-9 with group norm",
    "lstm": "LSTM of FedProx and FedGroup for Sent140: two layers of 100, dense 30, one output",
    "bilstm": "FlexCFL's LSTM for Sent140: two bidirectional layers (64, 32), dense 64, dropout",
    "bigru": "FlexCFL's GRU for Sent140: two bidirectional layers (64, 32), dense 64, dropout",
    "rnn": "FedSim's RNN for Fed-Goodreads: 128 simple recurrent units, one output",
    "char-lstm": "LSTM of SR-FCA and LEAF for Shakespeare: learned embedding (8), two LSTM layers, dense",
}

_BUILDERS: dict[str, Callable[..., Task]] = {
    "mclr": mclr,
    "mlp": mlp,
    "linear-regression": linear_regression,
    "cnn": networks.cnn,
    "cnn-mnist": networks.cnn_mnist,
    "cnn-femnist": networks.cnn_femnist,
    "cnn-fmnist": networks.cnn_fmnist,
    "cnn-fedsim": networks.cnn_fedsim,
    "lenet5": networks.lenet5,
    "resnet9": networks.resnet9,
    "resnet9-gn": networks.resnet9_gn,
    "lstm": recurrent.lstm,
    "bilstm": recurrent.bilstm,
    "bigru": recurrent.bigru,
    "rnn": recurrent.rnn,
    "char-lstm": recurrent.char_lstm,
}


def build(name: str, shape: tuple[int, ...], classes: int | None, /, **options: Any) -> Task:
    """The task with this model name. Equal settings give the same object, whose compiled functions are reused.

    Args:
        name: Name in `MODELS`.
        shape: Shape of one input.
        classes: Number of classes; None: regression.
        **options: Settings of the model; see `model_options`.

    Raises:
        SpecError: If the model or an option is unknown or invalid.
    """
    known = model_options(name)
    for option in options:
        if option not in known:
            raise SpecError(unknown("setting", option, known, f"of model {name}"))
    options = {**known, **options}
    normalize = options.pop("normalize")
    return built(_BUILDERS[name], name, shape, classes, normalize, options)


def from_factory(name: str, shape: tuple[int, ...], classes: int | None, /, **options: Any) -> Task:
    """A task of your own, from a function that is imported by name, so that clients on other machines can build it.

    Args:
        name: "package.module:function". The function is called with `shape`, `classes`, `normalize=` and the options,
            and returns a task, for example of `from_flax` or `coterie.torch.task`. The package must be installed on
            every machine.
        shape: Shape of one input.
        classes: Number of classes; None: regression.
        **options: Settings of the function: numbers, texts and lists of them; `normalize`: a `Normalize` or None.

    Raises:
        SpecError: If the function cannot be imported, or does not return a task with this shape and these classes.
    """
    return built(_checked_factory(name), name, shape, classes, options.pop("normalize", None), options)


def from_recipe(recipe: object, *, allowed: Collection[str] = ()) -> Task:
    """The task of a recipe (`Task.recipe`), equal to the one that it describes. Equal recipes give the same object.

    Args:
        recipe: The recipe. It may come from another machine: it is validated first, and its sizes are limited.
        allowed: Names of factories, "package.module:function", that may be imported; see `from_factory`.

    Raises:
        SpecError: If the recipe is invalid, too large, or needs a factory that is not allowed.
    """
    valid = checked_recipe(recipe, allowed)
    make = from_factory if ":" in valid["name"] else build
    normalize = None if valid["normalize"] is None else Normalize(*valid["normalize"])
    return make(valid["name"], valid["shape"], valid["classes"], normalize=normalize, **valid["options"])


@lru_cache
def _checked_factory(name: str) -> Callable[..., Task]:
    """The function of this name with checks of its result; cached, because tasks are cached by the function."""
    function = factory(name)

    def make(shape: tuple[int, ...], classes: int | None, **options: Any) -> Task:
        task = function(shape, classes, **options)
        if not isinstance(task, Task):
            raise SpecError(f"{name} must return a task (coterie.models.Task), got {shown(task)}")
        if (tuple(task.shape), task.classes) != (tuple(shape), classes):
            raise SpecError(
                f"{name} must return a task with inputs of shape {tuple(shape)} and {classes} classes, got "
                f"{tuple(task.shape)} and {task.classes}"
            )
        if task.normalize is not None and type(task.normalize) is not Normalize:
            raise SpecError(f"{name} must return a task whose normalize is the given one, got {shown(task.normalize)}")
        check_size(f"Model {name}", tree.size(task.init(Seed(0))))
        return dataclasses.replace(task)  # a copy: the function may return the same object for other settings

    return make


def builder(name: str) -> Callable[..., Task]:
    """The function that builds a model."""
    if name not in _BUILDERS:
        raise SpecError(unknown("model", name, _BUILDERS))
    return _BUILDERS[name]


def model_options(name: str) -> dict[str, Any]:
    """The settings of a model and their defaults."""
    entries = inspect.signature(builder(name)).parameters.values()
    return {entry.name: entry.default for entry in entries if entry.kind is entry.KEYWORD_ONLY}
