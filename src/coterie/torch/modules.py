"""Inspection of a module: trained parameters, running statistics, use of random numbers, initial values."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.torch.pytorch import pytorch, seeded
from coterie.types import Array, Params

#: Initial models: drawn from the seed, or the given module.
Start = Literal["drawn", "given"]
#: Number of examples in the trial call; batch normalization needs more than one.
_ROWS = 3


@dataclass(frozen=True, eq=False)
class ModuleInfo:
    """A copy of a module and its properties.

    Attributes:
        module: The copy, so that later changes of the user's module have no effect.
        name: Name of the module.
        params: PyTorch's names of the trained parameters, such as `features.0.weight`.
        stats: Names of the buffers that training changes, such as running means.
        random: Whether the module draws random numbers in training.
    """

    module: Any
    name: str
    params: tuple[str, ...]
    stats: tuple[str, ...]
    random: bool

    def start(self, seed: Seed, start: Start) -> dict[str, Array]:
        """Initial parameters and statistics by name: given, or drawn by the layers' own `reset_parameters`."""
        module = self.module
        if start == "drawn":
            module = copy.deepcopy(module)
            with seeded(int(seed.fold("torch").words(1)[0])):
                for layer in reversed(list(module.modules())):  # a layer may override the values of its inner layers
                    reset = _reset(layer)
                    if reset is not None and _trained(layer):
                        reset()
        held = tensors(module)
        return {name: held[name].detach().numpy().copy() for name in (*self.params, *self.stats)}


def tensors(module: Any) -> dict[str, Any]:
    """All parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def nested(values: dict[str, Any], stats: tuple[str, ...]) -> Params:
    """Values by name as a tree: `features.0.weight` → features/0/weight; statistics are inside a key `stats`."""
    tree: Params = {}
    for name, value in values.items():
        put(tree, path_of(name, name in stats), value)
    return tree


def path_of(name: str, is_statistic: bool) -> tuple[str, ...]:
    """Path in the tree of the array with this name in PyTorch."""
    *above, last = name.split(".")
    return (*above, "stats", last) if is_statistic else (*above, last)


def put(tree: Params, path: tuple[str, ...], value: Any) -> None:
    """Set a leaf of a nested dict, creating the dicts on its path."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def at(tree: Any, path: tuple[str, ...]) -> Any:
    """The subtree or leaf at a path."""
    for key in path:
        tree = tree[key]
    return tree


def inspect_module(
    module: Any, name: str | None, shape: tuple[int, ...], classes: int | None, tokens: int | None, start: Start
) -> ModuleInfo:
    """Validate a module, and call it on inputs of this shape to determine its properties."""
    torch = pytorch()
    if not isinstance(module, torch.nn.Module):
        raise SpecError(f"coterie.torch.task takes a torch.nn.Module, got {type(module).__name__}")
    name = name or type(module).__name__
    _check_tensors(module, name)
    module = copy.deepcopy(module)
    params = tuple(key for key, value in module.named_parameters() if value.requires_grad)
    if not params:
        raise SpecError(f"Module {name} has no trainable parameters: at least one must require a gradient")
    if start == "drawn":
        _check_reset(module, name)
    stats, random = _trial(module, name, (_ROWS, *shape), classes, tokens)
    return ModuleInfo(module, name, params, stats, random)


def _check_tensors(module: Any, name: str) -> None:
    torch = pytorch()
    for key, value in tensors(module).items():
        if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
            raise SpecError(f"{key} of module {name} has no shape yet; call the module once on an example first")
        if value.device.type != "cpu":
            raise SpecError(f"{key} of module {name} is on {value.device}; call module.cpu() first")
        if value.is_floating_point() and value.dtype != torch.float32:
            raise SpecError(f"{key} of module {name} is {value.dtype}, not float32; call module.float() first")
        if "stats" in key.split("."):
            raise SpecError(f"{key} of module {name}: the name 'stats' is reserved for running statistics; rename it")


def _trial(
    module: Any, name: str, shape: tuple[int, ...], classes: int | None, tokens: int | None
) -> tuple[tuple[str, ...], bool]:
    """Names of the buffers that training changes, and whether it draws random numbers; does not change the module."""
    torch = pytorch()
    trial = copy.deepcopy(module).train()
    with seeded(0), torch.no_grad():
        inputs = torch.randn(shape) if tokens is None else torch.randint(tokens, shape)
        stream = torch.get_rng_state()
        try:
            trial(inputs.clone())
            random = not torch.equal(stream, torch.get_rng_state())
            outputs = copy.deepcopy(module).eval()(inputs)
        except Exception as fault:
            raise SpecError(f"Module {name} failed with inputs of shape {shape}: {fault}") from fault
    _check_outputs(outputs, name, classes)
    stats = []
    for key, before in module.named_buffers():
        if torch.equal(before, trial.get_buffer(key)):
            continue
        layer, _, last = key.rpartition(".")
        if last == "num_batches_tracked" and getattr(module.get_submodule(layer), "momentum", None) is not None:
            continue  # a counter that does not affect the outputs
        if not before.is_floating_point():
            raise SpecError(f"Training changes the integer buffer {key} of module {name}: integers cannot be averaged")
        stats.append(key)
    return tuple(stats), random


def _check_outputs(outputs: Any, name: str, classes: int | None) -> None:
    torch = pytorch()
    wanted = [(_ROWS,), (_ROWS, 1)] if classes is None else [(_ROWS, classes)]
    if not isinstance(outputs, torch.Tensor) or outputs.dtype != torch.float32 or tuple(outputs.shape) not in wanted:
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        what = "one number" if classes is None else f"{classes} logits"
        raise SpecError(f"Module {name} must return {what} per input, shape {wanted[-1]} in float32, got {got}")


def _reset(layer: Any) -> Any:
    return getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)


def _trained(layer: Any) -> bool:
    own = list(layer.parameters(recurse=False))
    return not own or any(value.requires_grad for value in own)


def _check_reset(module: Any, name: str) -> None:
    """Check that every parameter can be initialized by a `reset_parameters` method."""
    covered: set[int] = set()
    for layer in module.modules():
        if _reset(layer) is not None:
            covered |= {id(value) for value in layer.parameters()}
    for key, value in module.named_parameters():
        if value.requires_grad and id(value) not in covered:
            raise SpecError(
                f"No layer initializes {key} of module {name}: give its class a method reset_parameters, or use the "
                "module's own values with start='given'"
            )
