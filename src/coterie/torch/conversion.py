"""Conversion of a module to Coterie's own layers, and of its parameters in both directions.

Coterie's images have their channels last: kernels (outputs, inputs, height, width) become (outputs, height, width,
inputs), and after an image is flattened, the columns of the next kernel are reordered accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from coterie.models.layers import BatchNorm, Context, Conv, Dense, Dropout, GroupNorm, Layer, Plain, pool
from coterie.torch.modules import at, put
from coterie.torch.pytorch import pytorch
from coterie.types import Array, Params

#: Inputs of the first layer: images, vectors, or either.
Takes = Literal["images", "vectors", "either"]


class NotConverted(Exception):
    """A module cannot be converted; the message is the reason."""


@dataclass(frozen=True)
class Leaf:
    """An array of a layer.

    Attributes:
        torch_name: Name in PyTorch.
        path: Path in Coterie's parameters.
        from_torch: PyTorch's array → Coterie's array.
        to_torch: Coterie's array → PyTorch's array.
    """

    torch_name: str
    path: tuple[str, ...]
    from_torch: Callable[[Array], Array] = lambda array: array
    to_torch: Callable[[Array], Array] = lambda array: array


@dataclass(frozen=True)
class Step:
    """A layer of a converted module.

    Attributes:
        name: Name of the layer in the module.
        layer: Coterie's layer.
        leaves: Its arrays.
    """

    name: str
    layer: Layer
    leaves: tuple[Leaf, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """Path of the layer's parameters in the tree."""
        return tuple(self.name.split(".")) if self.name else ("layer",)


@dataclass(frozen=True)
class Chain:
    """The layers of a converted module, from input to output.

    Attributes:
        steps: The layers.
        takes: Inputs of the first layer.
    """

    steps: tuple[Step, ...]
    takes: Takes

    def from_torch(self, values: dict[str, Array]) -> Params:
        """PyTorch's arrays by name → Coterie's parameters."""
        tree: Params = {}
        for step in self.steps:
            for leaf in step.leaves:
                value = leaf.from_torch(values[_joined(step.name, leaf.torch_name)])
                put(tree, (*step.path, *leaf.path), np.ascontiguousarray(value))
        return tree

    def to_torch(self, params: Params) -> dict[str, Array]:
        """Coterie's parameters → PyTorch's arrays by name."""
        return {
            _joined(step.name, leaf.torch_name): leaf.to_torch(np.asarray(at(params, (*step.path, *leaf.path))))
            for step in self.steps
            for leaf in step.leaves
        }

    def paths(self) -> set[str]:
        """Paths of all arrays."""
        return {"/".join((*step.path, *leaf.path)) for step in self.steps for leaf in step.leaves}

    def call(self, params: Params, x: Any, context: Context) -> Any:
        """The outputs of the module."""
        for place, step in enumerate(self.steps):
            own = at(params, step.path) if step.leaves else {}
            # Statistics are stored by path; the key of dropout depends on the position in the chain.
            name = "/".join(step.path) if step.leaves else f"{place:04d}"
            x = step.layer.apply(own, x, context, name, own.get("stats"))
        return x

    def learned(self, stats: dict[str, Any]) -> Params:
        """New statistics (path of a layer → statistics) as a part of the parameters."""
        tree: Params = {}
        for name, updated in stats.items():
            put(tree, (*name.split("/"), "stats"), updated)
        return tree


def chain(module: Any) -> Chain:
    """The layers of a module.

    Raises:
        NotConverted: If Coterie does not have all of its layers.
    """
    nn = pytorch().nn
    takes: Takes | None = None
    flat: bool | None = None  # whether examples are vectors at this layer; None: not known yet
    channels: int | None = None  # channels of the image at this layer; None: not known
    folded: int | None = None  # channels of a flattened image, until the next dense layer
    steps: list[Step] = []
    for name, layer in _layers(module):
        kind = type(layer)
        if kind in (nn.Conv2d, nn.MaxPool2d, nn.GroupNorm, nn.BatchNorm2d):
            if flat:
                raise _not_converted(name, layer, "on vectors")
            takes, flat = takes or "images", False
            channels = _channels(layer, channels)
            made = _image_layer(name, layer)
        elif kind is nn.Flatten:
            if flat is False and channels is None:
                raise _not_converted(name, layer, "without a layer that sets the channels before it")
            takes, flat, folded = takes or "either", True, channels
            made = _plain(name, layer)
        elif kind in (nn.Linear, nn.BatchNorm1d):
            if flat is False or (folded is not None and kind is nn.BatchNorm1d):
                raise _not_converted(name, layer, "on images")
            takes, flat = takes or "vectors", True
            made = _dense(name, layer, folded) if kind is nn.Linear else _batch_norm(name, layer)
            folded = None
        else:
            made = _plain(name, layer)
        if any(not value.requires_grad for value in layer.parameters()):
            raise _not_converted(name, layer, "with parameters that are not trained")
        steps.append(made)
    return Chain(tuple(steps), takes or "either")


def _layers(module: Any) -> Iterator[tuple[str, Any]]:
    """The layers of an `nn.Sequential` and of those inside it, by name."""
    nn = pytorch().nn
    visited: set[int] = set()

    def walk(part: Any, name: str) -> Iterator[tuple[str, Any]]:
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            raise _not_converted(name, part, "with hooks")
        if id(part) in visited:
            raise _not_converted(name, part, "used twice")
        visited.add(id(part))
        if isinstance(part, nn.Sequential) and type(part).forward is nn.Sequential.forward:
            for key, inner in part._modules.items():
                yield from walk(inner, _joined(name, key))
        else:
            yield name, part

    return walk(module, "")


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def _not_converted(name: str, layer: Any, why: str = "") -> NotConverted:
    what = f"layer {name!r}" if name else "it"
    return NotConverted(f"{what} is {type(layer).__name__}{' ' if why else ''}{why}")


def _channels(layer: Any, before: int | None) -> int | None:
    for key in ("out_channels", "num_channels", "num_features"):
        if hasattr(layer, key):
            return int(getattr(layer, key))
    return before


def _image_layer(name: str, layer: Any) -> Step:
    nn = pytorch().nn
    if type(layer) is nn.Conv2d:
        return _conv(name, layer)
    if type(layer) is nn.BatchNorm2d:
        return _batch_norm(name, layer)
    if type(layer) is nn.GroupNorm:
        _only(name, layer, affine=True, eps=1e-5)
        return Step(name, GroupNorm(layer.num_groups), _NORM)
    _only(name, layer, padding=0, dilation=1, ceil_mode=False, return_indices=False, stride=layer.kernel_size)
    return Step(name, pool(_square(name, layer, layer.kernel_size)))


def _conv(name: str, layer: Any) -> Step:
    _only(name, layer, groups=1, dilation=(1, 1), padding_mode="zeros")
    padding: Any = layer.padding if isinstance(layer.padding, str) else _square(name, layer, layer.padding)
    size, stride = _square(name, layer, layer.kernel_size), _square(name, layer, layer.stride)
    made = Conv(layer.out_channels, size, stride, padding, bias=layer.bias is not None)
    kernel = Leaf(
        "weight", ("kernel",), lambda array: array.transpose(0, 2, 3, 1), lambda array: array.transpose(0, 3, 1, 2)
    )
    return Step(name, made, (kernel, *_bias(layer)))


def _dense(name: str, layer: Any, channels: int | None) -> Step:
    def reordered(array: Array, *, last: int) -> Array:
        """Columns in the order (channels, places) → (places, channels), or the reverse."""
        rows = len(array)
        return array.reshape(rows, -1, last).transpose(0, 2, 1).reshape(rows, -1)

    kernel = Leaf("weight", ("kernel",))
    if channels is not None:
        places = layer.in_features // channels
        kernel = Leaf(
            "weight",
            ("kernel",),
            lambda array: reordered(array, last=places),
            lambda array: reordered(array, last=channels),
        )
    return Step(name, Dense(layer.out_features, bias=layer.bias is not None), (kernel, *_bias(layer)))


def _bias(layer: Any) -> tuple[Leaf, ...]:
    return () if layer.bias is None else (Leaf("bias", ("bias",)),)


#: Arrays of normalization layers.
_NORM = (Leaf("weight", ("scale",)), Leaf("bias", ("shift",)))
_RUNNING = (Leaf("running_mean", ("stats", "mean")), Leaf("running_var", ("stats", "variance")))


def _batch_norm(name: str, layer: Any) -> Step:
    _only(name, layer, affine=True, eps=1e-5, track_running_stats=True)
    if layer.momentum is None:
        raise _not_converted(name, layer, "without momentum")
    return Step(name, BatchNorm(layer.momentum), _NORM + _RUNNING)


def _plain(name: str, layer: Any) -> Step:
    """A layer without parameters."""
    import jax
    import jax.numpy as jnp

    nn = pytorch().nn
    # Not the ReLU of Coterie's own models, whose derivative at 0 is 1/2; PyTorch's is 0.
    functions = {nn.ReLU: jax.nn.relu, nn.Tanh: jnp.tanh, nn.Sigmoid: jax.nn.sigmoid, nn.Identity: lambda x: x}
    if type(layer) in functions:
        return Step(name, Plain(functions[type(layer)]))
    if type(layer) is nn.Flatten:
        _only(name, layer, start_dim=1, end_dim=-1)
        return Step(name, Plain(lambda x: x.reshape(x.shape[0], -1)))
    if type(layer) is nn.Dropout and layer.p < 1:
        return Step(name, Dropout(layer.p))
    raise _not_converted(name, layer)


def _only(name: str, layer: Any, **settings: Any) -> None:
    """Raise NotConverted if a layer has other settings than these."""
    for key, value in settings.items():
        if getattr(layer, key) != value:
            raise _not_converted(name, layer, f"with {key}={getattr(layer, key)!r}")


def _square(name: str, layer: Any, sides: Any) -> int:
    if isinstance(sides, int):
        return sides
    if sides[0] != sides[1]:
        raise _not_converted(name, layer, f"that is not square: {tuple(sides)}")
    return int(sides[0])
