"""PyTorch losses: recognition of those that Coterie has, and losses per example for others."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal

from coterie.errors import SpecError
from coterie.torch.pytorch import pytorch


def known(loss: Any) -> Literal["cross entropy", "squared error"] | None:
    """The name of Coterie's own loss that equals this one, or None."""
    torch = pytorch()
    if loss is torch.nn.functional.cross_entropy:
        return "cross entropy"
    if loss is torch.nn.functional.mse_loss or type(loss) is torch.nn.MSELoss:
        return "squared error"
    plain = type(loss) is torch.nn.CrossEntropyLoss and loss.weight is None and not loss.label_smoothing
    return "cross entropy" if plain and loss.ignore_index < 0 else None


def check(loss: Any, classes: int | None) -> None:
    """Validate a loss.

    Raises:
        SpecError: If it is not a loss, or does not match the number of classes.
    """
    if not callable(loss) or isinstance(loss, type):
        raise SpecError(
            f"coterie.torch.task takes a loss such as nn.CrossEntropyLoss() or a function of (outputs, targets), "
            f"got {loss!r}"
        )
    if getattr(loss, "reduction", "mean") not in ("mean", "none"):
        raise SpecError(
            f"The loss of a batch is the mean over its examples; {type(loss).__name__} has reduction="
            f"{loss.reduction!r}: use 'mean'"
        )
    kind = known(loss)
    if kind == "cross entropy" and classes is None:
        raise SpecError("Cross-entropy is a loss for classification: give the number of classes with classes=…")
    if kind == "squared error" and classes is not None:
        raise SpecError(
            f"The squared error is a loss for regression, but there are {classes} classes: use classes=None"
        )
    if kind is None:
        _try(loss, classes)


def _try(loss: Any, classes: int | None) -> None:
    torch = pytorch()
    outputs = torch.zeros(2) if classes is None else torch.zeros(2, classes)
    try:
        losses = per_example(loss)(outputs, torch.zeros(2) if classes is None else torch.zeros(2, dtype=torch.int64))
    except Exception as fault:
        raise SpecError(
            f"The loss failed with outputs of shape {tuple(outputs.shape)} and {len(outputs)} targets: "
            f"{fault}{_binary_hint(loss)}"
        ) from fault
    if losses.dtype != torch.float32:
        raise SpecError(f"The loss must return float32, got {losses.dtype}")


def _binary_hint(loss: Any) -> str:
    """What to use instead of a binary cross-entropy, whose models have one output."""
    nn = pytorch().nn
    functions = (nn.functional.binary_cross_entropy_with_logits, nn.functional.binary_cross_entropy)
    if not isinstance(loss, nn.BCEWithLogitsLoss | nn.BCELoss) and loss not in functions:
        return ""
    return (
        ". Two classes need two outputs: let the last layer have two, and use nn.CrossEntropyLoss() with classes=2, "
        "which is the same model"
    )


def squared_error(outputs: Any, y: Any) -> Any:
    """PyTorch's squared error, which is twice that of Coterie's own models."""
    import jax.numpy as jnp

    return jnp.square(outputs - y)


def per_example(loss: Any) -> Callable[[Any, Any], Any]:
    """A function (outputs, targets) → loss of each example, (rows,).

    If the loss has no `reduction`, it is called for each example separately.
    """
    whole = loss
    if hasattr(loss, "reduction"):
        whole = copy.deepcopy(loss)
        whole.reduction = "none"
    elif "reduction" in _parameters(loss):
        whole = functools.partial(loss, reduction="none")
    else:
        return lambda outputs, y: pytorch().stack(
            [loss(outputs[row : row + 1], y[row : row + 1]).reshape(()) for row in range(len(y))]
        )
    return lambda outputs, y: whole(outputs, y).reshape(len(y), -1).mean(dim=1)


def _parameters(loss: Any) -> set[str]:
    try:
        return set(inspect.signature(loss).parameters)
    except ValueError:  # a function in C++ has no signature
        return set()
