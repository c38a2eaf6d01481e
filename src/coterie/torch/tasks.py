"""`task` creates a task from a module, `load` copies trained parameters into a module."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from coterie import tree
from coterie.errors import SpecError
from coterie.models import Task
from coterie.models.layers import BatchNorm, Context, Dropout
from coterie.seeds import Seed
from coterie.threads import start_jax
from coterie.torch import losses
from coterie.torch.callbacks import Faults, Host, callback_functions, callback_loss
from coterie.torch.conversion import Chain, NotConverted, chain
from coterie.torch.modules import ModuleInfo, Start, inspect_module, nested, tensors
from coterie.torch.pytorch import pytorch
from coterie.types import Array, Bank, Params

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger(__name__)

#: Position of the channels in stored images.
Channels = Literal["first", "last"]
Convert = bool | Literal["auto"]


def task(
    module: nn.Module,
    loss: Callable[..., Any],
    *,
    shape: tuple[int, ...],
    classes: int | None,
    convert: Convert = "auto",
    start: Start = "drawn",
    channels: Channels = "first",
    tokens: int | None = None,
    name: str | None = None,
    normalize: Any = None,
    l2: float = 0.0,
) -> Task:
    """A task from a PyTorch module.

    Parameters that do not require a gradient are neither trained nor sent. Buffers that training changes, such as the
    running means of batch normalization, are sent and averaged like parameters.

    Args:
        module: A module that takes a batch of inputs and returns logits (rows, classes), or predictions (rows,) or
            (rows, 1). It is copied; `load` copies trained parameters back.
        loss: A loss such as `nn.CrossEntropyLoss()` or `nn.MSELoss()`, or a function of (outputs, targets). The loss of
            a batch is the mean over its examples; a function without `reduction` is called for each example separately.
        shape: Shape of one input as stored.
        classes: Number of classes; None: regression.
        convert: Whether to convert the module to Coterie's own layers. `auto`: if possible. True: raise an error with
            the reason if not possible. False: PyTorch runs the module. Both give the same models up to rounding, except
            that dropout draws different random numbers.
        start: `drawn`: initial models are drawn by the layers' own `reset_parameters` from the seed of the run, so that
            methods with several models start from different ones. `given`: all initial models are the given module, for
            example a pre-trained one. Methods whose models must differ at the start, such as IFCA, then cannot
            separate clusters.
        channels: `first`: the module gets inputs as stored. `last`: stored images are (height, width) or (height,
            width, channels), like Coterie's own data, and the module gets (channels, height, width).
        tokens: Number of tokens: inputs are ids below it, passed as integers. None: inputs are numbers.
        name: Name of the task; default: the name of the module's class.
        normalize: Function applied to the stored inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.

    Raises:
        SpecError: If the module, the loss or an option is invalid, or PyTorch is not installed.
    """
    pytorch()
    shape = tuple(shape)
    _check(convert, start, channels, shape)
    losses.check(loss, classes)
    arranged = _arranged(np.zeros((1, *shape), np.float32), channels, None).shape[1:]
    info = inspect_module(module, name, arranged, classes, tokens, start)
    start_jax()
    made = _chain(info, loss, len(arranged), tokens, convert)
    faults = Faults()
    parts = (
        _by_pytorch(info, classes, channels, tokens, faults) if made is None else _by_layers(made, classes, channels)
    )
    kind = losses.known(loss)
    return Task(
        info.name,
        lambda seed: parts.tree(info.start(seed, start)),
        parts.apply,
        shape,
        classes,
        normalize,
        tuple(key for key in parts.tree(info.start(Seed(0), start)) if key != "stats"),
        l2,
        random=parts.random,
        learn=parts.learn,
        tokens=tokens,
        loss=_LOSSES[kind] if kind else callback_loss(losses.per_example(loss), faults),
        fault=faults.first,
    )


def load(module: nn.Module, params: Params | Bank, *, row: int | None = None) -> nn.Module:
    """The module with trained parameters.

    Args:
        module: The module from which the task was created, or one like it. It is changed in place.
        params: A model, or a bank of models such as `record.models()`.
        row: Row of the bank, such as `record.model_of(client)`.

    Raises:
        SpecError: If the model does not match the module.
    """
    torch = pytorch()
    values, held = _by_name(module, params if row is None else tree.row(params, row)), tensors(module)
    with torch.no_grad():
        for name, value in values.items():
            held[name].copy_(torch.from_numpy(np.array(value)))
    return module


@dataclass(frozen=True)
class _Parts:
    """The functions of a task; `tree` turns PyTorch's arrays by name into parameters."""

    tree: Callable[[dict[str, Array]], Params]
    apply: Callable[[Params, Any, Any], Any]
    learn: Callable[[Params, Any, Any, Any], tuple[Any, Params]] | None
    random: bool


_LOSSES = {"cross entropy": None, "squared error": losses.squared_error}


def _by_pytorch(
    info: ModuleInfo, classes: int | None, channels: Channels, tokens: int | None, faults: Faults
) -> _Parts:
    import jax

    if jax.default_backend() != "cpu":
        raise SpecError(
            f"Module {info.name} runs in PyTorch on the CPU, but JAX runs on {jax.default_backend()}: "
            "set JAX_PLATFORMS=cpu"
        )
    host = Host(info, lambda x: _arranged(x, channels, tokens), classes, faults)
    return _Parts(lambda values: nested(values, info.stats), *callback_functions(host), info.random)


def _by_layers(made: Chain, classes: int | None, channels: Channels) -> _Parts:
    import jax.numpy as jnp

    def call(params: Params, x: Any, context: Context) -> Any:
        if made.takes != "images":
            x = _arranged(x, channels, None)
        elif channels == "first":
            x = jnp.moveaxis(x, 1, -1)
        elif x.ndim == 3:
            x = x[..., None]
        outputs = made.call(params, x, context)
        return outputs.reshape(len(x)) if classes is None else outputs

    def learn(params: Params, x: Any, key: Any, weight: Any) -> tuple[Any, Params]:
        context = Context(key, weight)
        outputs = call(params, x, context)
        return outputs, made.learned(context.stats)

    layer_types = {type(step.layer) for step in made.steps}
    return _Parts(
        made.from_torch,
        lambda params, x, key: call(params, x, Context(key)),
        learn if BatchNorm in layer_types else None,
        Dropout in layer_types,
    )


def _arranged(x: Any, channels: Channels, tokens: int | None) -> Any:
    """Stored inputs → inputs of the module."""
    if tokens is not None:
        return x.astype(np.int64)
    if channels == "first":
        return x
    return x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)


def _chain(info: ModuleInfo, loss: Any, axes: int, tokens: int | None, convert: Convert) -> Chain | None:
    """The converted layers of the module, or None if PyTorch runs it."""
    if convert is False:
        return None
    try:
        if tokens is not None:
            raise NotConverted("it takes tokens")
        if losses.known(loss) is None:
            raise NotConverted("its loss is neither cross-entropy nor the squared error")
        made = chain(info.module)
        if made.takes != "either" and axes != (3 if made.takes == "images" else 1):
            raise NotConverted(f"its first layer takes {made.takes}, its inputs have {axes} axes")
        return made
    except NotConverted as reason:
        if convert is True:
            raise SpecError(
                f"Module {info.name} cannot be converted: {reason}. With convert='auto' PyTorch runs it"
            ) from reason
        log.info("PyTorch runs module %s, because %s", info.name, reason)
        return None


def _by_name(module: Any, model: Params) -> dict[str, Any]:
    """The arrays of a model by PyTorch's names, whether or not the module was converted."""
    held = {key: value.detach().numpy() for key, value in tensors(module).items()}
    given = dict(tree.paths(model))
    plain = {path: ".".join(key for key in path.split("/") if key != "stats") for path in given}
    wanted = {key for key, value in module.named_parameters() if value.requires_grad}
    if wanted <= set(plain.values()) <= held.keys():
        _check_shapes(given, {path: held[name] for path, name in plain.items()})
        return {name: given[path] for path, name in plain.items()}
    try:
        made = chain(module)
    except NotConverted:
        made = None
    if made is not None and made.paths() == given.keys():
        _check_shapes(given, dict(tree.paths(made.from_torch(held))))
        return made.to_torch(model)
    raise SpecError(f"The model has the arrays {sorted(given)}, module {type(module).__name__} has {sorted(held)}")


def _check_shapes(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    for path, value in given.items():
        if value.shape != wanted[path].shape:
            raise SpecError(
                f"{path} of the module has shape {wanted[path].shape}, that of the model {value.shape}; for a bank of "
                "models, select one with row=…"
            )


def _check(convert: Any, start: Any, channels: Any, shape: tuple[int, ...]) -> None:
    for name, value, allowed in (
        ("convert", convert, ("auto", True, False)),
        ("start", start, get_args(Start)),
        ("channels", channels, get_args(Channels)),
    ):
        if value not in allowed:
            raise SpecError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    if channels == "last" and len(shape) not in (2, 3):
        raise SpecError(f"channels='last' is for images, (height, width) or (height, width, channels), got {shape}")
