"""Layers of neural networks as pure functions.

On the CPU, convolutions are patches and a matrix product, because XLA's own convolution took more than ten times as
long inside a compiled loop. On GPUs XLA's convolution is used (`coterie.models.compiled_for`). Images are (rows,
height, width, channels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from coterie.models.compiled_for import for_gpu
from coterie.models.dense_product import dense_product
from coterie.models.task import check_size
from coterie.seeds import Seed
from coterie.types import Array, Params

#: Initialization: uniform in ±sqrt(6 / (fan in + fan out)) with zero biases, or PyTorch's default.
Init = Literal["glorot", "torch"]
Shape = tuple[int, ...]
#: Number of images whose patches are computed at a time; the patches of more do not fit the cache.
IMAGES_AT_ONCE = 16


@dataclass
class Context:
    """Context of a forward pass.

    Attributes:
        key: `jax.random` key of dropout; None outside of training.
        weight: 1 for an example, 0 for padding; None outside of training.
        stats: New running statistics by layer, collected in training.
    """

    key: Any = None
    weight: Any = None
    stats: dict[str, Any] = field(default_factory=dict)


class Layer(Protocol):
    """A layer of a network."""

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """Initial parameters (may be empty) for inputs of this shape, and the shape of the outputs."""

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The outputs for inputs x; `name` is the path of the layer, `stats` its running statistics."""


def initial_kernel(seed: Seed, shape: Shape, fan_in: int, fan_out: int, scheme: Init) -> Array:
    """An initial kernel."""
    check_size(f"A kernel of shape {shape}", math.prod(shape))
    bound = math.sqrt(6.0 / (fan_in + fan_out)) if scheme == "glorot" else 1.0 / math.sqrt(fan_in)
    return ((2.0 * seed.uniform(math.prod(shape)) - 1.0) * bound).astype(np.float32).reshape(shape)


def initial_bias(seed: Seed, outputs: int, fan_in: int, scheme: Init) -> Array:
    """An initial bias."""
    check_size(f"A bias of {outputs:,} outputs", outputs)
    return (
        np.zeros(outputs, np.float32)
        if scheme == "glorot"
        else initial_kernel(seed, (outputs,), fan_in, outputs, scheme)
    )


@dataclass(frozen=True)
class Dense:
    """A dense layer.

    Attributes:
        outputs: Number of outputs.
        bias: Whether there is a bias.
    """

    outputs: int
    bias: bool = True

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """A kernel (outputs, inputs), and a bias."""
        inputs = math.prod(shape)
        params: Params = {
            "kernel": initial_kernel(seed.fold("kernel"), (self.outputs, inputs), inputs, self.outputs, scheme)
        }
        if self.bias:
            params["bias"] = initial_bias(seed.fold("bias"), self.outputs, inputs, scheme)
        return params, (self.outputs,)

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """`x @ kernel.T + bias`."""
        out = dense_product(params["kernel"], x.reshape(x.shape[0], -1))
        return out + params["bias"] if self.bias else out


@dataclass(frozen=True)
class Conv:
    """A convolution with square kernels.

    Attributes:
        outputs: Number of filters.
        size: Side of the kernel.
        stride: Stride.
        padding: `same` as in TensorFlow, `valid` for no padding, or a number of zeros on all sides.
        bias: Whether there is a bias.
    """

    outputs: int
    size: int
    stride: int = 1
    padding: Literal["same", "valid"] | int = "same"
    bias: bool = True

    def pads(self, side: int) -> tuple[int, int]:
        """Number of zeros before and after a side of this length."""
        if self.padding == "valid":
            return 0, 0
        if isinstance(self.padding, int):
            return self.padding, self.padding
        total = max((-(-side // self.stride) - 1) * self.stride + self.size - side, 0)
        return total // 2, total - total // 2

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """A kernel (outputs, height, width, inputs), read row by row by the product and its gradients, and a bias."""
        height, width, inputs = shape
        area = self.size**2
        kernel = (self.outputs, self.size, self.size, inputs)
        params: Params = {
            "kernel": initial_kernel(seed.fold("kernel"), kernel, area * inputs, area * self.outputs, scheme)
        }
        if self.bias:
            params["bias"] = initial_bias(seed.fold("bias"), self.outputs, area * inputs, scheme)
        sides = [(side + sum(self.pads(side)) - self.size) // self.stride + 1 for side in (height, width)]
        return params, (*sides, self.outputs)

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The convolution of the inputs."""
        from jax import lax

        kernel, s = params["kernel"], self.stride
        pads = [self.pads(side) for side in x.shape[1:3]]
        if for_gpu():
            out = lax.conv_general_dilated(x, kernel, (s, s), pads, dimension_numbers=("NHWC", "OHWI", "NHWC"))
        elif x.shape[0] > IMAGES_AT_ONCE and x.shape[0] % IMAGES_AT_ONCE == 0:
            parts = x.reshape(-1, IMAGES_AT_ONCE, *x.shape[1:])
            out = lax.map(lambda part: self._by_patches(part, kernel, pads), parts)
            out = out.reshape(x.shape[0], *out.shape[2:])
        else:
            out = self._by_patches(x, kernel, pads)
        return out + params["bias"] if self.bias else out

    def _by_patches(self, x: Any, kernel: Any, pads: list[tuple[int, int]]) -> Any:
        import jax.numpy as jnp

        s = self.stride
        padded = jnp.pad(x, ((0, 0), *pads, (0, 0)))
        high, wide = ((side + sum(pad) - self.size) // s + 1 for side, pad in zip(x.shape[1:3], pads, strict=True))
        patches = [
            padded[:, i : i + (high - 1) * s + 1 : s, j : j + (wide - 1) * s + 1 : s]
            for i in range(self.size)
            for j in range(self.size)
        ]
        rows = jnp.concatenate(patches, axis=-1).reshape(-1, self.size**2 * x.shape[3])
        return (rows @ kernel.reshape(self.outputs, -1).T).reshape(x.shape[0], high, wide, self.outputs)


@dataclass(frozen=True)
class Plain:
    """A layer without parameters.

    Attributes:
        function: Inputs → outputs.
        shaped: Shape of one input → shape of one output.
        name: Name of the function, for exports to other formats; empty: it has none.
        value: Number that belongs to the function, such as the side of pooled squares.
    """

    function: Callable[[Any], Any]
    shaped: Callable[[Shape], Shape] = lambda shape: shape
    name: str = ""
    value: float = 0.0

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """No parameters."""
        return {}, self.shaped(shape)

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The function of the inputs."""
        return self.function(x)


def _relu(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.maximum(x, 0.0)


def _pooled(x: Any, size: int) -> Any:
    rows, height, width, channels = x.shape
    high, wide = height // size, width // size
    return x[:, : high * size, : wide * size].reshape(rows, high, size, wide, size, channels).max(axis=(2, 4))


relu = Plain(_relu, name="relu")
global_max = Plain(lambda x: x.max(axis=(1, 2)), lambda shape: shape[2:], "global max")


def pool(size: int = 2) -> Plain:
    """Max pooling over squares; incomplete squares at the edges are dropped."""

    def shaped(shape: Shape) -> Shape:
        return shape[0] // size, shape[1] // size, shape[2]

    return Plain(lambda x: _pooled(x, size), shaped, "max pooling", size)


def scaled(factor: float) -> Plain:
    """Multiplication of the inputs by a constant."""
    return Plain(lambda x: x * factor, name="scaled", value=factor)


@dataclass(frozen=True)
class Dropout:
    """Dropout: in training, each input is dropped with probability `rate` and the others are scaled up."""

    rate: float

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """No parameters."""
        return {}, shape

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The inputs, with dropout in training."""
        if context.key is None:
            return x
        import jax
        import jax.numpy as jnp

        # The key depends on the layer's name, so that adding a layer before this one does not change the draws.
        key = jax.random.fold_in(context.key, int.from_bytes(name.encode()[-4:], "little") % 2**31)
        return jnp.where(jax.random.bernoulli(key, 1 - self.rate, x.shape), x / (1 - self.rate), 0.0)


@dataclass(frozen=True)
class GroupNorm:
    """Group normalization over `groups` groups of channels of each example."""

    groups: int = 32

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """Scale and shift of each channel."""
        return {"scale": np.ones(shape[-1], np.float32), "shift": np.zeros(shape[-1], np.float32)}, shape

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The normalized inputs."""
        from jax import lax

        rows, height, width, channels = x.shape
        parts = x.reshape(rows, height, width, self.groups, channels // self.groups)
        mean = parts.mean(axis=(1, 2, 4), keepdims=True)
        variance = ((parts - mean) ** 2).mean(axis=(1, 2, 4), keepdims=True)
        normal = ((parts - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
        return normal * params["scale"] + params["shift"]


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalization: over the batch in training, with running statistics otherwise.

    Running statistics are part of the parameters: they are sent and averaged.

    Attributes:
        momentum: Weight of the batch in the running statistics.
    """

    momentum: float = 0.1

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """Scale and shift of each channel, and its running mean and variance."""
        channels = shape[-1]
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        return {"scale": ones, "shift": zeros, "stats": {"mean": zeros, "variance": ones}}, shape

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The normalized inputs."""
        import jax.numpy as jnp
        from jax import lax

        mean, variance = stats["mean"], stats["variance"]
        if context.weight is not None:
            # Padding is ignored, so that all backends have the same statistics.
            axes = tuple(range(1, x.ndim - 1))
            weight = context.weight.reshape(-1, *[1] * (x.ndim - 1))
            count = jnp.maximum(context.weight.sum(), 1.0) * math.prod(x.shape[1:-1])
            mean = (x * weight).sum(axis=(0, *axes)) / count
            variance = (jnp.square(x - mean) * weight).sum(axis=(0, *axes)) / count
            unbiased = variance * count / jnp.maximum(count - 1, 1.0)
            context.stats[name] = {
                "mean": (1 - self.momentum) * stats["mean"] + self.momentum * mean,
                "variance": (1 - self.momentum) * stats["variance"] + self.momentum * unbiased,
            }
        return (x - mean) * lax.rsqrt(variance + 1e-5) * params["scale"] + params["shift"]


@dataclass(frozen=True)
class Residual:
    """A residual block: the inputs plus the outputs of the inner layers."""

    layers: Sequence[Layer]

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """The parameters of the inner layers, by position."""
        params: Params = {}
        inner = shape
        for place, layer in enumerate(self.layers):
            made, inner = layer.init(seed.fold("layer", place), inner, scheme)
            if made:
                params[f"layer{place:02d}"] = made
        return params, shape

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The inputs plus the outputs of the inner layers."""
        out = x
        for place, layer in enumerate(self.layers):
            key = f"layer{place:02d}"
            out = layer.apply(params.get(key, {}), out, context, f"{name}/{key}", (stats or {}).get(key))
        return x + out
