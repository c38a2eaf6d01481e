"""Layers as small pure pieces, and how they are put together.

Convolutions on the CPU are patches and a matrix product: inside a compiled loop XLA's own convolution took more than
ten times as long. Elsewhere XLA's own is used. Images are (rows, height, width, channels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from coterie.seeds import Seed
from coterie.types import Array, Params

#: How kernels start: uniform in ±sqrt(6 / (fan in + fan out)) with zero biases, or PyTorch's default.
Init = Literal["glorot", "torch"]
Shape = tuple[int, ...]
#: Images whose patches are made at a time when there are many: those of more do not fit the cache.
FEW = 16


@dataclass
class Context:
    """What layers need beside their inputs.

    Attributes:
        key: Of dropout; None outside local training.
        weight: 1 for an example and 0 for filling; None outside local training.
        stats: New statistics, by layer, which training collects.
    """

    key: Any = None
    weight: Any = None
    stats: dict[str, Any] = field(default_factory=dict)


class Layer(Protocol):
    """A piece of a model."""

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """Parameters (empty for none) for inputs of this shape, and the shape of the outputs."""

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The outputs."""


def start(seed: Seed, shape: Shape, fan_in: int, fan_out: int, how: Init) -> Array:
    """A kernel."""
    bound = math.sqrt(6.0 / (fan_in + fan_out)) if how == "glorot" else 1.0 / math.sqrt(fan_in)
    return ((2.0 * seed.uniform(math.prod(shape)) - 1.0) * bound).astype(np.float32).reshape(shape)


def start_bias(seed: Seed, outputs: int, fan_in: int, how: Init) -> Array:
    """A bias."""
    return np.zeros(outputs, np.float32) if how == "glorot" else start(seed, (outputs,), fan_in, outputs, how)


@dataclass(frozen=True)
class Dense:
    """All inputs to all outputs."""

    outputs: int
    bias: bool = True

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """A kernel (outputs, inputs)."""
        inputs = math.prod(shape)
        params: Params = {"kernel": start(seed.fold("kernel"), (self.outputs, inputs), inputs, self.outputs, how)}
        if self.bias:
            params["bias"] = start_bias(seed.fold("bias"), self.outputs, inputs, how)
        return params, (self.outputs,)

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """`x @ kernel.T + bias`."""
        out = x.reshape(x.shape[0], -1) @ params["kernel"].T
        return out + params["bias"] if self.bias else out


@dataclass(frozen=True)
class Conv:
    """A convolution with square kernels; `same` pads as TensorFlow does, `valid` not at all, a number on all sides."""

    outputs: int
    size: int
    stride: int = 1
    padding: Literal["same", "valid"] | int = "same"
    bias: bool = True

    def pads(self, side: int) -> tuple[int, int]:
        """Zeros before and after a side."""
        if self.padding == "valid":
            return 0, 0
        if isinstance(self.padding, int):
            return self.padding, self.padding
        total = max((-(-side // self.stride) - 1) * self.stride + self.size - side, 0)
        return total // 2, total - total // 2

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """A kernel (outputs, height, width, inputs): a product and both its gradients read it row by row."""
        height, width, inputs = shape
        area = self.size**2
        kernel = (self.outputs, self.size, self.size, inputs)
        params: Params = {"kernel": start(seed.fold("kernel"), kernel, area * inputs, area * self.outputs, how)}
        if self.bias:
            params["bias"] = start_bias(seed.fold("bias"), self.outputs, area * inputs, how)
        sides = [(side + sum(self.pads(side)) - self.size) // self.stride + 1 for side in (height, width)]
        return params, (*sides, self.outputs)

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The convolution."""
        import jax
        from jax import lax

        kernel, s = params["kernel"], self.stride
        pads = [self.pads(side) for side in x.shape[1:3]]
        if jax.default_backend() != "cpu":
            out = lax.conv_general_dilated(x, kernel, (s, s), pads, dimension_numbers=("NHWC", "OHWI", "NHWC"))
        elif x.shape[0] > FEW and x.shape[0] % FEW == 0:
            parts = x.reshape(-1, FEW, *x.shape[1:])
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
    """A layer without parameters."""

    function: Callable[[Any], Any]
    shaped: Callable[[Shape], Shape] = lambda shape: shape

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """None."""
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


relu = Plain(_relu)
global_max = Plain(lambda x: x.max(axis=(1, 2)), lambda shape: shape[2:])


def pool(size: int = 2) -> Plain:
    """The largest of each square; what is left over at the edges is dropped."""
    return Plain(lambda x: _pooled(x, size), lambda shape: (shape[0] // size, shape[1] // size, shape[2]))


def scaled(factor: float) -> Plain:
    """The inputs times a number."""
    return Plain(lambda x: x * factor)


@dataclass(frozen=True)
class Dropout:
    """In local training, each input is dropped with this probability and the others are scaled up."""

    rate: float

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """None."""
        return {}, shape

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The inputs, thinned while training."""
        if context.key is None:
            return x
        import jax
        import jax.numpy as jnp

        # By the layer's name: another layer before this one moves no draw.
        key = jax.random.fold_in(context.key, int.from_bytes(name.encode()[-4:], "little") % 2**31)
        return jnp.where(jax.random.bernoulli(key, 1 - self.rate, x.shape), x / (1 - self.rate), 0.0)


@dataclass(frozen=True)
class GroupNorm:
    """Normalised over groups of channels of each example."""

    groups: int = 32

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """Scale and shift of each channel."""
        return {"scale": np.ones(shape[-1], np.float32), "shift": np.zeros(shape[-1], np.float32)}, shape

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The normalized inputs."""
        from jax import lax

        rows, height, width, channels = x.shape
        parts = x.reshape(rows, height, width, self.groups, channels // self.groups)
        mean = parts.mean(axis=(1, 2, 4), keepdims=True)
        spread = ((parts - mean) ** 2).mean(axis=(1, 2, 4), keepdims=True)
        normal = ((parts - mean) * lax.rsqrt(spread + 1e-5)).reshape(x.shape)
        return normal * params["scale"] + params["shift"]


@dataclass(frozen=True)
class BatchNorm:
    """Normalised over the batch while training, by running statistics otherwise; those are carried and averaged."""

    momentum: float = 0.1

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
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
            # Filling counts for nothing: every federation sees the same statistics.
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
    """The inputs plus what layers make of them."""

    layers: Sequence[Layer]

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """The layers' parameters, by their places."""
        params: Params = {}
        inner = shape
        for place, layer in enumerate(self.layers):
            made, inner = layer.init(seed.fold("layer", place), inner, how)
            if made:
                params[f"layer{place:02d}"] = made
        return params, shape

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The sum."""
        out = x
        for place, layer in enumerate(self.layers):
            key = f"layer{place:02d}"
            out = layer.apply(params.get(key, {}), out, context, f"{name}/{key}", (stats or {}).get(key))
        return x + out
