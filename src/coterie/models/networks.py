"""Convolutional networks of the papers. Tests compare their numbers of parameters with the papers.

Images without a channel axis get one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from coterie import tree
from coterie.errors import SpecError, shown
from coterie.models.layers import (
    BatchNorm,
    Context,
    Conv,
    Dense,
    Dropout,
    GroupNorm,
    Init,
    Layer,
    Residual,
    global_max,
    pool,
    relu,
    scaled,
)
from coterie.models.task import MAX_UNITS, Task, check_size
from coterie.seeds import Seed
from coterie.types import Params


def network(
    name: str,
    shape: tuple[int, ...],
    classes: int | None,
    layers: Sequence[Layer],
    *,
    normalize: Any = None,
    l2: float = 0.0,
    scheme: Init = "glorot",
) -> Task:
    """A task with a sequence of layers on images; see `layered`."""
    if len(shape) not in (2, 3):
        raise SpecError(f"{name} takes images, (height, width) or (height, width, channels), the data have {shape}")
    return layered(
        name,
        shape,
        classes,
        layers,
        first=shape if len(shape) == 3 else (*shape, 1),
        normalize=normalize,
        l2=l2,
        scheme=scheme,
    )


def layered(
    name: str,
    shape: tuple[int, ...],
    classes: int | None,
    layers: Sequence[Layer],
    *,
    first: tuple[int, ...] | None = None,
    normalize: Any = None,
    l2: float = 0.0,
    scheme: Init = "glorot",
    tokens: int | None = None,
) -> Task:
    """A task with a sequence of layers.

    Args:
        name: Name of the task.
        shape: Shape of one input.
        classes: Number of classes.
        layers: Layers from input to output.
        first: Shape of one input for the first layer, if it differs from `shape`.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
        scheme: Initialization.
        tokens: Number of tokens, if inputs are token ids; None: inputs are numbers.
    """
    if classes is None:
        raise SpecError(f"{name} is a classifier, but the data have regression targets; use linear-regression")
    input_shape = first or shape
    names = [f"layer{place:02d}" for place in range(len(layers))]

    def init(seed: Seed) -> Params:
        params: Params = {}
        inner = input_shape
        for key, layer in zip(names, layers, strict=True):
            made, inner = layer.init(seed.fold(key), inner, scheme)
            if min(inner) < 1:
                raise SpecError(f"{name} needs larger images than {shape}")
            if made:
                params[key] = made
                check_size(f"Model {name}", tree.size(params))
        return params

    def call(params: Params, x: Any, context: Context) -> Any:
        out = x.reshape(x.shape[0], *input_shape)
        for key, layer in zip(names, layers, strict=True):
            own = params.get(key, {})
            out = layer.apply(own, out, context, key, _stats(own))
        return out

    def learn(params: Params, x: Any, key: Any, weight: Any) -> tuple[Any, Params]:
        context = Context(key, weight)
        out = call(params, x, context)
        return out, _nested(context.stats)

    example = init(Seed(0))
    uses_stats = any(_stats(part) for part in example.values())
    return Task(
        name,
        init,
        lambda params, x, key: call(params, x, Context(key)),
        shape,
        classes,
        normalize,
        tuple(example),
        l2,
        random=any(isinstance(layer, Dropout) for layer in layers),
        learn=learn if uses_stats else None,
        tokens=tokens,
        network=tuple(zip(names, layers, strict=True)),
    )


def _stats(params: Params) -> Any:
    """The running statistics in the parameters of a layer: its own, or those of its inner layers by name."""
    if "stats" in params:
        return params["stats"]
    inner = {key: _stats(value) for key, value in params.items() if isinstance(value, dict)}
    return {key: value for key, value in inner.items() if value}


def _nested(stats: dict[str, Any]) -> Params:
    """New statistics (path → statistics) as a part of the parameters."""
    part: Params = {}
    for path, updated in stats.items():
        node = part
        for key in path.split("/"):
            node = node.setdefault(key, {})
        node["stats"] = updated
    return part


def _two_convolutions(filters: tuple[int, int], size: int, dense: int | None, classes: int | None) -> list[Layer]:
    first, second = filters
    layers: list[Layer] = [Conv(first, size), relu, pool(), Conv(second, size), relu, pool()]
    return layers + ([Dense(dense), relu] if dense else []) + [Dense(classes or 1)]


def cnn(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """CNN: two 5×5 convolutions (32, 64 filters), each with pooling, and a dense layer."""
    return network("cnn", shape, classes, _two_convolutions((32, 64), 5, None, classes), normalize=normalize, l2=l2)


def cnn_mnist(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FlexCFL's CNN for MNIST: two 3×3 convolutions (32, 64 filters), each with pooling, dropout, dense."""
    layers = _two_convolutions((32, 64), 3, None, classes)
    layers.insert(-1, Dropout(0.5))
    return network("cnn-mnist", shape, classes, layers, normalize=normalize, l2=l2)


def cnn_femnist(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FlexCFL's CNN for FEMNIST: six convolutions, two of them with stride 2, dense 128, dropout."""
    layers: list[Layer] = []
    for filters in (32, 64):
        layers += [Conv(filters, 3, padding="valid"), relu, Conv(filters, 3, padding="valid"), relu]
        layers += [Conv(filters, 5, stride=2), relu, Dropout(0.4)]
    layers += [Dense(128), relu, Dropout(0.4), Dense(classes or 1)]
    return network("cnn-femnist", shape, classes, layers, normalize=normalize, l2=l2)


def cnn_fmnist(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FlexCFL's CNN for Fashion-MNIST: two 5×5 convolutions (32, 64 filters), each with pooling, dense 1024."""
    layers = _two_convolutions((32, 64), 5, 1024, classes)
    return network("cnn-fmnist", shape, classes, layers, normalize=normalize, l2=l2)


def cnn_fedsim(
    shape: tuple[int, ...],
    classes: int | None,
    /,
    *,
    form: Literal["code", "paper"] = "code",
    normalize: Any = None,
    l2: float = 0.0,
) -> Task:
    """FedSim's CNN, and with 62 classes LEAF's: two convolutions, each with pooling, dense 2048.

    Args:
        shape: Shape of one input.
        classes: Number of classes.
        form: FedSim's `code` has 5×5 kernels and 32 and 64 filters, its `paper` 3×3 kernels and 64 and 64 filters.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
    """
    if form not in ("code", "paper"):
        raise SpecError(f"cnn-fedsim.form must be 'code' or 'paper', got {form!r}")
    filters, size = ((32, 64), 5) if form == "code" else ((64, 64), 3)
    layers = _two_convolutions(filters, size, 2048, classes)
    return network("cnn-fedsim", shape, classes, layers, normalize=normalize, l2=l2)


def lenet5(
    shape: tuple[int, ...], classes: int | None, /, *, width: float = 1.0, normalize: Any = None, l2: float = 0.0
) -> Task:
    """LeNet-5: two 5×5 convolutions (6, 16 filters), each with pooling, dense 120 and 84.

    Args:
        shape: Shape of one input.
        classes: Number of classes.
        width: Factor on the numbers of filters.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
    """
    if not 0 <= width <= MAX_UNITS:  # false for NaN as well
        raise SpecError(f"lenet5.width must be a number from 0 to {MAX_UNITS}, got {shown(width)}")
    first, second = max(1, round(6 * width)), max(1, round(16 * width))
    layers: list[Layer] = [
        Conv(first, 5, padding="valid"),
        relu,
        pool(),
        Conv(second, 5, padding="valid"),
        relu,
        pool(),
    ]
    layers += [Dense(120), relu, Dense(84), relu, Dense(classes or 1)]
    return network("lenet5", shape, classes, layers, normalize=normalize, l2=l2, scheme="torch")


def resnet9(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """SR-FCA's ResNet-9 with batch norm, whose running statistics are sent and averaged."""

    def block(filters: int, size: int, **options: Any) -> list[Layer]:
        padding = options.pop("padding", size // 2)
        return [Conv(filters, size, padding=padding, bias=False, **options), BatchNorm(), relu]

    layers = [
        *block(64, 3),
        *block(128, 5, stride=2),
        Residual([*block(128, 3), *block(128, 3)]),
        *block(256, 3),
        pool(),
        Residual([*block(256, 3), *block(256, 3)]),
        *block(128, 3, padding=0),
        global_max,
        Dense(classes or 1, bias=False),
        scaled(0.2),
    ]
    return network("resnet9", shape, classes, layers, normalize=normalize, l2=l2, scheme="torch")


def resnet9_gn(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """PACFL's ResNet-9 with group norm."""

    def block(filters: int) -> list[Layer]:
        return [Conv(filters, 3), GroupNorm(32), relu]

    layers = [
        *block(64),
        *block(128),
        pool(),
        Residual([*block(128), *block(128)]),
        *block(256),
        pool(),
        *block(512),
        pool(),
        Residual([*block(512), *block(512)]),
        pool(4),
        Dense(classes or 1),
    ]
    return network("resnet9-gn", shape, classes, layers, normalize=normalize, l2=l2, scheme="torch")
