"""A module, looked at: what is trained, what training changes besides, whether it draws, and how it starts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.torch.pytorch import pytorch, seeded
from coterie.types import Array, Params

#: Where a task starts: drawn by seed, or the module as it was given.
Start = Literal["drawn", "given"]
#: Examples in the call that tells how a module behaves; batch normalization wants more than one.
_ROWS = 3


@dataclass(frozen=True, eq=False)
class Seen:
    """A copy of a user's module, and what there is to know about it.

    Attributes:
        module: The copy; what happens to the user's own afterwards is no concern of the task.
        name: What to call it.
        params: Names of the parameters that are trained, as PyTorch has them: `features.0.weight`.
        stats: Names of the buffers that training changes, such as running means.
        random: Whether it draws random numbers while it trains.
    """

    module: Any
    name: str
    params: tuple[str, ...]
    stats: tuple[str, ...]
    random: bool

    def start(self, seed: Seed, how: Start) -> dict[str, Array]:
        """Parameters and statistics by name: given, or drawn by the layers' own `reset_parameters`."""
        module = self.module
        if how == "drawn":
            module = copy.deepcopy(module)
            with seeded(int(seed.fold("torch").words(1)[0])):
                for layer in reversed(list(module.modules())):  # a layer may mend what those inside it have drawn
                    reset = _reset(layer)
                    if reset is not None and _trained(layer):
                        reset()
        held = tensors(module)
        return {name: held[name].detach().numpy().copy() for name in (*self.params, *self.stats)}


def tensors(module: Any) -> dict[str, Any]:
    """All parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def nested(values: dict[str, Any], stats: tuple[str, ...]) -> Params:
    """Values by name as a tree: `features.0.weight` → features, 0, weight; statistics one step deeper, in `stats`."""
    tree: Params = {}
    for name, value in values.items():
        put(tree, path_of(name, name in stats), value)
    return tree


def path_of(name: str, is_statistic: bool) -> tuple[str, ...]:
    """Where the tree has what PyTorch calls by this name."""
    *above, last = name.split(".")
    return (*above, "stats", last) if is_statistic else (*above, last)


def put(tree: Params, path: tuple[str, ...], value: Any) -> None:
    """Set a leaf, and make the way to it."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def at(tree: Any, path: tuple[str, ...]) -> Any:
    """What lies at a path."""
    for key in path:
        tree = tree[key]
    return tree


def look(
    module: Any, name: str | None, shape: tuple[int, ...], classes: int | None, tokens: int | None, start: Start
) -> Seen:
    """Check a module, and call it on inputs of this shape to see how it behaves."""
    torch = pytorch()
    if not isinstance(module, torch.nn.Module):
        raise SpecError(f"coterie.torch.task takes a torch.nn.Module, got {type(module).__name__}")
    name = name or type(module).__name__
    _check_tensors(module, name)
    module = copy.deepcopy(module)
    params = tuple(key for key, value in module.named_parameters() if value.requires_grad)
    if not params:
        raise SpecError(f"Module {name} has nothing to train: no parameter that requires a gradient")
    if start == "drawn":
        _check_reset(module, name)
    stats, random = _trial(module, name, (_ROWS, *shape), classes, tokens)
    return Seen(module, name, params, stats, random)


def _check_tensors(module: Any, name: str) -> None:
    torch = pytorch()
    for key, value in tensors(module).items():
        if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
            raise SpecError(f"{key} of module {name} has no shape yet; call the module once on an example first")
        if value.device.type != "cpu":
            raise SpecError(f"{key} of module {name} is on {value.device}; say module.cpu() first")
        if value.is_floating_point() and value.dtype != torch.float32:
            raise SpecError(f"{key} of module {name} is {value.dtype}; models are in float32: say module.float() first")
        if "stats" in key.split("."):
            raise SpecError(f"{key} of module {name}: the name 'stats' is taken for running statistics; choose another")


def _trial(
    module: Any, name: str, shape: tuple[int, ...], classes: int | None, tokens: int | None
) -> tuple[tuple[str, ...], bool]:
    """Which buffers training changes, and whether it draws; the module is left as it was."""
    torch = pytorch()
    trying = copy.deepcopy(module).train()
    with seeded(0), torch.no_grad():
        inputs = torch.randn(shape) if tokens is None else torch.randint(tokens, shape)
        stream = torch.get_rng_state()
        try:
            trying(inputs.clone())
            random = not torch.equal(stream, torch.get_rng_state())
            outputs = copy.deepcopy(module).eval()(inputs)
        except Exception as fault:
            raise SpecError(f"Module {name} cannot take inputs of shape {shape}: {fault}") from fault
    _check_outputs(outputs, name, classes)
    stats = []
    for key, before in module.named_buffers():
        if torch.equal(before, trying.get_buffer(key)):
            continue
        layer, _, last = key.rpartition(".")
        if last == "num_batches_tracked" and getattr(module.get_submodule(layer), "momentum", None) is not None:
            continue  # a count that plays no part in what the layer computes
        if not before.is_floating_point():
            raise SpecError(f"Training changes {key} of module {name}: whole numbers have no mean over clients")
        stats.append(key)
    return tuple(stats), random


def _check_outputs(outputs: Any, name: str, classes: int | None) -> None:
    torch = pytorch()
    wanted = [(_ROWS,), (_ROWS, 1)] if classes is None else [(_ROWS, classes)]
    if not isinstance(outputs, torch.Tensor) or outputs.dtype != torch.float32 or tuple(outputs.shape) not in wanted:
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        what = "a number for each" if classes is None else f"a row of {classes} logits for each"
        raise SpecError(f"Module {name} must give {what} of {_ROWS} inputs, shape {wanted[-1]} in float32, got {got}")


def _reset(layer: Any) -> Any:
    return getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)


def _trained(layer: Any) -> bool:
    own = list(layer.parameters(recurse=False))
    return not own or any(value.requires_grad for value in own)


def _check_reset(module: Any, name: str) -> None:
    """Whoever draws starts must be able to draw every parameter."""
    covered: set[int] = set()
    for layer in module.modules():
        if _reset(layer) is not None:
            covered |= {id(value) for value in layer.parameters()}
    for key, value in module.named_parameters():
        if value.requires_grad and id(value) not in covered:
            raise SpecError(
                f"Nobody knows how to draw {key} of module {name}: give its class a method reset_parameters, or "
                "start from the module as it is with start='given'"
            )
