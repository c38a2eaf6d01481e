"""A module of layers that Coterie has, as those layers; and its parameters, there and back.

Coterie's images have their channels last: kernels (outputs, inputs, height, width) become (outputs, height, width,
inputs), and where an image is flattened, the columns of the next kernel are put in the order of the flattened image.
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

#: What the first layers take: an image, a vector, or either.
Takes = Literal["images", "vectors", "either"]


class NotConverted(Exception):
    """Why a module cannot be converted."""


@dataclass(frozen=True)
class Leaf:
    """An array of a layer: what PyTorch calls it, where Coterie has it, and the way there and back."""

    theirs: str
    ours: tuple[str, ...]
    there: Callable[[Array], Array] = lambda array: array
    back: Callable[[Array], Array] = lambda array: array


@dataclass(frozen=True)
class Step:
    """A layer at its place in the module, and its arrays."""

    name: str
    layer: Layer
    leaves: tuple[Leaf, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """Where the tree has this layer's parameters."""
        return tuple(self.name.split(".")) if self.name else ("layer",)


@dataclass(frozen=True)
class Chain:
    """The layers of a converted module, from input to output."""

    steps: tuple[Step, ...]
    takes: Takes

    def there(self, values: dict[str, Array]) -> Params:
        """PyTorch's arrays by name → Coterie's parameters."""
        tree: Params = {}
        for step in self.steps:
            for leaf in step.leaves:
                value = leaf.there(values[_joined(step.name, leaf.theirs)])
                put(tree, (*step.path, *leaf.ours), np.ascontiguousarray(value))
        return tree

    def back(self, params: Params) -> dict[str, Array]:
        """Coterie's parameters → PyTorch's arrays by name."""
        return {
            _joined(step.name, leaf.theirs): leaf.back(np.asarray(at(params, (*step.path, *leaf.ours))))
            for step in self.steps
            for leaf in step.leaves
        }

    def paths(self) -> set[str]:
        """Where the arrays lie."""
        return {"/".join((*step.path, *leaf.ours)) for step in self.steps for leaf in step.leaves}

    def call(self, params: Params, x: Any, context: Context) -> Any:
        """The outputs."""
        for place, step in enumerate(self.steps):
            own = at(params, step.path) if step.leaves else {}
            # Statistics are found by their way through the tree; dropout draws by its place in the chain.
            name = "/".join(step.path) if step.leaves else f"{place:04d}"
            x = step.layer.apply(own, x, context, name, own.get("stats"))
        return x

    def learned(self, stats: dict[str, Any]) -> Params:
        """New statistics, as layers left them by name, as a part of the parameters."""
        tree: Params = {}
        for name, fresh in stats.items():
            put(tree, (*name.split("/"), "stats"), fresh)
        return tree


def chain(module: Any) -> Chain:
    """The layers of a module, or NotConverted with the reason."""
    nn = pytorch().nn
    takes: Takes | None = None
    flat: bool | None = None  # whether examples are vectors by now; None while nobody has said
    channels: int | None = None  # of the image at hand, where they are known
    folded: int | None = None  # of a flattened image whose next kernel is yet to come
    steps: list[Step] = []
    for name, layer in _layers(module):
        kind = type(layer)
        if kind in (nn.Conv2d, nn.MaxPool2d, nn.GroupNorm, nn.BatchNorm2d):
            if flat:
                raise _refused(name, layer, "on vectors")
            takes, flat = takes or "images", False
            channels = _channels(layer, channels)
            made = _of_images(name, layer)
        elif kind is nn.Flatten:
            if flat is False and channels is None:
                raise _refused(name, layer, "after pooling alone")
            takes, flat, folded = takes or "either", True, channels
            made = _plain(name, layer)
        elif kind in (nn.Linear, nn.BatchNorm1d):
            if flat is False or (folded is not None and kind is nn.BatchNorm1d):
                raise _refused(name, layer, "on images")
            takes, flat = takes or "vectors", True
            made = _dense(name, layer, folded) if kind is nn.Linear else _batch_norm(name, layer)
            folded = None
        else:
            made = _plain(name, layer)
        if any(not value.requires_grad for value in layer.parameters()):
            raise _refused(name, layer, "with parameters that are not trained")
        steps.append(made)
    return Chain(tuple(steps), takes or "either")


def _layers(module: Any) -> Iterator[tuple[str, Any]]:
    """The layers in an `nn.Sequential`, and in those inside it, by name."""
    nn = pytorch().nn
    met: set[int] = set()

    def walk(part: Any, name: str) -> Iterator[tuple[str, Any]]:
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            raise _refused(name, part, "with hooks")
        if id(part) in met:
            raise _refused(name, part, "for a second time")
        met.add(id(part))
        if isinstance(part, nn.Sequential) and type(part).forward is nn.Sequential.forward:
            for key, inner in part._modules.items():
                yield from walk(inner, _joined(name, key))
        else:
            yield name, part

    return walk(module, "")


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def _refused(name: str, layer: Any, why: str = "") -> NotConverted:
    what = f"layer {name!r}" if name else "it"
    return NotConverted(f"{what} is {type(layer).__name__}{' ' if why else ''}{why}")


def _channels(layer: Any, before: int | None) -> int | None:
    for key in ("out_channels", "num_channels", "num_features"):
        if hasattr(layer, key):
            return int(getattr(layer, key))
    return before


def _of_images(name: str, layer: Any) -> Step:
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
        """Columns of (channels, places) as (places, channels), or the other way round."""
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


#: Arrays of a normalization.
_NORM = (Leaf("weight", ("scale",)), Leaf("bias", ("shift",)))
_RUNNING = (Leaf("running_mean", ("stats", "mean")), Leaf("running_var", ("stats", "variance")))


def _batch_norm(name: str, layer: Any) -> Step:
    _only(name, layer, affine=True, eps=1e-5, track_running_stats=True)
    if layer.momentum is None:
        raise _refused(name, layer, "without momentum")
    return Step(name, BatchNorm(layer.momentum), _NORM + _RUNNING)


def _plain(name: str, layer: Any) -> Step:
    """A layer without parameters."""
    import jax
    import jax.numpy as jnp

    nn = pytorch().nn
    # Not the ReLU of Coterie's own models, whose slope at 0 is a half; PyTorch's is 0.
    functions = {nn.ReLU: jax.nn.relu, nn.Tanh: jnp.tanh, nn.Sigmoid: jax.nn.sigmoid, nn.Identity: lambda x: x}
    if type(layer) in functions:
        return Step(name, Plain(functions[type(layer)]))
    if type(layer) is nn.Flatten:
        _only(name, layer, start_dim=1, end_dim=-1)
        return Step(name, Plain(lambda x: x.reshape(x.shape[0], -1)))
    if type(layer) is nn.Dropout and layer.p < 1:
        return Step(name, Dropout(layer.p))
    raise _refused(name, layer)


def _only(name: str, layer: Any, **settings: Any) -> None:
    """Refuse a layer with other settings than these."""
    for key, value in settings.items():
        if getattr(layer, key) != value:
            raise _refused(name, layer, f"with {key}={getattr(layer, key)!r}")


def _square(name: str, layer: Any, sides: Any) -> int:
    if isinstance(sides, int):
        return sides
    if sides[0] != sides[1]:
        raise _refused(name, layer, f"that is not square: {tuple(sides)}")
    return int(sides[0])
