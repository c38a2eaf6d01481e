"""`task` makes a task of a module, `load` brings what was learned back into it."""

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
from coterie.torch.calls import Faults, Host, called, called_loss
from coterie.torch.converting import Chain, NotConverted, chain
from coterie.torch.modules import Seen, Start, look, nested, tensors
from coterie.torch.pytorch import pytorch
from coterie.types import Array, Bank, Params

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger(__name__)

#: Where stored images have their channels.
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
    """A task of a module.

    Parameters that require no gradient stay as they are: they are neither trained nor sent. Buffers that training
    changes, such as the running means of batch normalization, are sent and averaged like parameters.

    Args:
        module: Any module that takes a batch of inputs and gives (rows, classes) logits, or (rows,) or (rows, 1)
            numbers. It is copied; `load` brings what was learned back.
        loss: Such as `nn.CrossEntropyLoss()`, `nn.MSELoss()`, or a function of (outputs, targets). The loss of a batch
            is the mean over its examples; a function without `reduction` is called for each example alone.
        shape: The shape of one input as it is stored.
        classes: How many, or None to predict numbers.
        convert: Whether the module becomes Coterie's own layers: `auto` where it can, True to be told why it cannot,
            False to have PyTorch run it in any case. Either way a round gives the same models, up to rounding; but
            where there is dropout, each draws by the seeds in its own way.
        start: Models start `drawn` by the layers' own `reset_parameters`, from the seeds of the run, so that methods
            with several models get several starts and the same seed gives the same run. `given` starts every one of
            them from the module as it is, trained already, say; methods whose models have to differ, such as IFCA,
            then do not part.
        channels: `first`: the module gets inputs as they are stored. `last`: stored are images (height, width) or
            (height, width, channels), as Coterie's own data are, and the module gets (channels, height, width).
        tokens: Inputs are ids below this number, and the module gets them as whole numbers; None for quantities.
        name: What to call it; the module's class by default.
        normalize: A function of the inputs as they are stored, or None.
        l2: Penalty on kernels while training.
    """
    pytorch()
    shape = tuple(shape)
    _check(convert, start, channels, shape)
    losses.check(loss, classes)
    arranged = _arranged(np.zeros((1, *shape), np.float32), channels, None).shape[1:]
    seen = look(module, name, arranged, classes, tokens, start)
    start_jax()
    made = _chain(seen, loss, len(arranged), tokens, convert)
    faults = Faults()
    parts = (
        _by_pytorch(seen, classes, channels, tokens, faults) if made is None else _by_layers(made, classes, channels)
    )
    kind = losses.known(loss)
    return Task(
        seen.name,
        lambda seed: parts.tree(seen.start(seed, start)),
        parts.apply,
        shape,
        classes,
        normalize,
        tuple(key for key in parts.tree(seen.start(Seed(0), start)) if key != "stats"),
        l2,
        random=parts.random,
        learn=parts.learn,
        tokens=tokens,
        loss=_LOSSES[kind] if kind else called_loss(losses.per_example(loss), faults),
        fault=faults.first,
    )


def load(module: nn.Module, params: Params | Bank, *, row: int | None = None) -> nn.Module:
    """The module, with the parameters of a task that was made of it or of one like it.

    Args:
        module: Is changed in place.
        params: A model; or several, stacked, as `record.models()` gives them.
        row: Which of the stacked ones, such as `record.model_of(client)`.
    """
    torch = pytorch()
    values, held = _by_name(module, params if row is None else tree.row(params, row)), tensors(module)
    with torch.no_grad():
        for name, value in values.items():
            held[name].copy_(torch.from_numpy(np.array(value)))
    return module


@dataclass(frozen=True)
class _Parts:
    """What a task is made of, one way or the other; `tree` makes parameters of PyTorch's arrays by name."""

    tree: Callable[[dict[str, Array]], Params]
    apply: Callable[[Params, Any, Any], Any]
    learn: Callable[[Params, Any, Any, Any], tuple[Any, Params]] | None
    random: bool


_LOSSES = {"cross entropy": None, "squared error": losses.squared_error}


def _by_pytorch(seen: Seen, classes: int | None, channels: Channels, tokens: int | None, faults: Faults) -> _Parts:
    import jax

    if jax.default_backend() != "cpu":
        raise SpecError(
            f"Module {seen.name} is run by PyTorch on the CPU, but JAX computes on {jax.default_backend()}: "
            "set JAX_PLATFORMS=cpu"
        )
    host = Host(seen, lambda x: _arranged(x, channels, tokens), classes, faults)
    return _Parts(lambda values: nested(values, seen.stats), *called(host), seen.random)


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

    kinds = {type(step.layer) for step in made.steps}
    return _Parts(
        made.there,
        lambda params, x, key: call(params, x, Context(key)),
        learn if BatchNorm in kinds else None,
        Dropout in kinds,
    )


def _arranged(x: Any, channels: Channels, tokens: int | None) -> Any:
    """Stored inputs as the module gets them."""
    if tokens is not None:
        return x.astype(np.int64)
    if channels == "first":
        return x
    return x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)


def _chain(seen: Seen, loss: Any, axes: int, tokens: int | None, convert: Convert) -> Chain | None:
    """The module's layers where it is to be converted, and can be."""
    if convert is False:
        return None
    try:
        if tokens is not None:
            raise NotConverted("it takes tokens")
        if losses.known(loss) is None:
            raise NotConverted("its loss is neither cross-entropy nor the squared error")
        made = chain(seen.module)
        if made.takes != "either" and axes != (3 if made.takes == "images" else 1):
            raise NotConverted(f"its first layer takes {made.takes}, its inputs have {axes} axes")
        return made
    except NotConverted as reason:
        if convert is True:
            raise SpecError(
                f"Module {seen.name} cannot be converted: {reason}. With convert='auto' PyTorch runs it"
            ) from reason
        log.info("Module %s is run by PyTorch, since %s", seen.name, reason)
        return None


def _by_name(module: Any, model: Params) -> dict[str, Any]:
    """A model's arrays by PyTorch's names, whichever way its task was made."""
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
        _check_shapes(given, dict(tree.paths(made.there(held))))
        return made.back(model)
    raise SpecError(f"The model has the arrays {sorted(given)}, module {type(module).__name__} has {sorted(held)}")


def _check_shapes(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    for path, value in given.items():
        if value.shape != wanted[path].shape:
            raise SpecError(
                f"{path} of the module has shape {wanted[path].shape}, that of the model {value.shape}; of stacked "
                "models say which with row=…"
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
