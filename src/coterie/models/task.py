"""`Task`: a model with its loss, as pure functions.

A task takes inputs as stored, such as the bytes of an image, and normalizes them itself, so that works that do not use
the model can access raw or normalized inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.types import Array, Params

#: Largest width of a layer.
MAX_UNITS = 1_000_000

#: Largest number of parameters of a model from the library: 400 MB. Servers name the sizes of models that clients
#: build, so the limit also protects the memory of a client.
MAX_PARAMETERS = 100_000_000


@dataclass(frozen=True)
class Normalize:
    """Normalization (x - mean) / deviation.

    Attributes:
        mean: A number, or an array that broadcasts over one example.
        deviation: A number, or an array that broadcasts over one example.
    """

    mean: Any = 0.0
    deviation: Any = 1.0

    def __call__(self, x: Any) -> Any:
        """The normalized inputs."""
        return (x - np.asarray(self.mean, np.float32)) * (1.0 / np.asarray(self.deviation, np.float32))


@dataclass(frozen=True, eq=False)
class Task:
    """A model with its loss.

    Attributes:
        name: Name of the task.
        init: Seed → initial parameters, a nested dict of float32 arrays.
        apply: (parameters, inputs, key) → outputs: logits (rows, classes) or predictions (rows,). `key` is a
            `jax.random` key in training, for dropout, and None otherwise.
        shape: Shape of one input.
        classes: Number of classes; None: regression.
        normalize: Function applied to the float32 inputs before `apply`; None: no normalization.
        layers: Top-level keys of the parameters from input to output.
        l2: Coefficient of the penalty l2·||kernels||² in training. Kernels are arrays named `kernel` or with at least
            two dimensions.
        random: Whether `apply` uses its key.
        learn: For models with running statistics: (parameters, inputs, key, weight) → outputs in training, and the new
            statistics as a part of the parameters. Statistics are stored under keys named `stats`, are sent and
            averaged like parameters, and are excluded from update vectors (`trainable`).
        tokens: Number of tokens: inputs are ids below it and are passed as int32 without normalization. None: inputs
            are numbers.
        loss: (outputs, labels or targets) → loss of each example. None: cross-entropy, or half the squared error.
        fault: For models that run in host callbacks: the first exception raised since the last call of `fault`, because
            compiled code reports only its text.
        network: The layers (`coterie.models.layers`) with their keys in the parameters, from input to output, for
            exports to other formats; empty if they are not known.
        recipe: The task as plain data, from which clients on other machines build it (`coterie.models.recipe`); None if
            it was not built by name. `dataclasses.replace` drops it.
    """

    name: str
    init: Callable[[Seed], Params]
    apply: Callable[[Params, Any, Any], Any]
    shape: tuple[int, ...]
    classes: int | None
    normalize: Callable[[Any], Any] | None = None
    layers: tuple[str, ...] = ()
    l2: float = 0.0
    random: bool = False
    learn: Callable[[Params, Any, Any, Any], tuple[Any, Params]] | None = None
    tokens: int | None = None
    loss: Callable[[Any, Any], Any] | None = None
    fault: Callable[[], BaseException | None] | None = None
    network: tuple[tuple[str, Any], ...] = ()
    recipe: dict[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Validate the settings."""
        classes, l2 = self.classes, self.l2
        if classes is not None and (
            isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < 1
        ):
            raise SpecError(f"{self.name}.classes must be a whole number of at least 1, got {classes!r}")
        if isinstance(l2, bool) or not isinstance(l2, int | float) or not 0 <= l2 < math.inf:
            raise SpecError(f"{self.name}.l2 must be a finite number of at least 0, got {l2!r}")
        if self.normalize is not None and not callable(self.normalize):
            raise SpecError(f"{self.name}.normalize must be a function of the inputs, got {self.normalize!r}")
        if self.normalize is not None and self.tokens is not None:
            raise SpecError(f"{self.name}.normalize must be none, because its inputs are token ids")

    def outputs(self, params: Params, x: Any, key: Any = None) -> Any:
        """Logits or predictions for inputs as stored."""
        return self.apply(params, self.inputs(x), key)

    def inputs(self, x: Any) -> Any:
        """Inputs as stored → inputs of `apply`."""
        if self.tokens is not None:
            return x.astype(np.int32)
        inputs = x.astype(np.float32)
        return inputs if self.normalize is None else self.normalize(inputs)

    def training_outputs(self, params: Params, x: Any, key: Any, weight: Any) -> tuple[Any, Params]:
        """Outputs in training, and the new running statistics (empty for models without)."""
        if self.learn is None:
            return self.outputs(params, x, key), {}
        return self.learn(params, self.inputs(x), key, weight)

    def losses(self, params: Params, x: Any, y: Any, key: Any = None) -> Any:
        """The data loss of each example."""
        return self.losses_of(self.outputs(params, x, key), y)

    def losses_of(self, outputs: Any, y: Any) -> Any:
        """The data loss of each example from the outputs."""
        import jax
        import jax.numpy as jnp

        y = jnp.asarray(y)
        if self.loss is not None:
            return self.loss(outputs, y)
        if self.classes is None:
            return 0.5 * jnp.square(outputs - y)
        # One-hot instead of a gather by label: the gradient is a subtraction, not a scatter.
        hot = y[:, None] == jnp.arange(self.classes, dtype=y.dtype)
        return jax.nn.logsumexp(outputs, axis=1) - jnp.sum(jnp.where(hot, outputs, 0.0), axis=1)

    def hits(self, outputs: Any, y: Any) -> Any:
        """1 for each correctly classified example, 0 for others; zeros for regression."""
        import jax.numpy as jnp

        y = jnp.asarray(y)
        if self.classes is None:
            return jnp.zeros(y.shape, jnp.float32)
        return (jnp.argmax(outputs, axis=1).astype(y.dtype) == y).astype(jnp.float32)

    def check(self, x: Array, y: Array, *, shape: tuple[int, ...] | None = None, tokens: int | None = None) -> None:
        """Raise a SpecError if data do not match this task.

        Args:
            x: Inputs as stored.
            y: Labels or targets.
            shape: Shape of one input of the task, if it differs from the stored shape.
            tokens: Number of tokens, if the data declare that inputs are token ids.
        """
        seen = tuple(x.shape[1:]) if shape is None else shape
        if seen != self.shape:
            raise SpecError(
                f"Model {self.name} takes inputs of shape {self.shape}, the data have {seen}{_channel_hint(self, seen)}"
            )
        if self.tokens is None and tokens is not None:
            raise SpecError(
                f"Model {self.name} takes numbers, but the inputs are ids of {tokens} tokens; choose a model for "
                "tokens, such as char-lstm"
            )
        if self.tokens is not None:
            self._check_ids(x, self.tokens)
        if self.classes is None and y.dtype.kind != "f":
            raise SpecError(f"Model {self.name} is a regression, but the data have labels; choose a classifier")
        if self.classes is not None and y.dtype.kind == "f":
            raise SpecError(f"Model {self.name} is a classifier, but the data have targets; choose linear-regression")
        if self.classes is not None and len(y) and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
            raise SpecError(
                f"Model {self.name} has the classes 0 to {self.classes - 1}, the data have labels from {y.min()} "
                f"to {y.max()}; give it more classes"
            )

    def _check_ids(self, x: Array, tokens: int) -> None:
        if x.dtype.kind not in "iu":
            raise SpecError(f"Model {self.name} takes integer token ids, but the inputs are {x.dtype}")
        if x.size and not 0 <= int(x.min()) <= int(x.max()) < tokens:
            raise SpecError(
                f"Model {self.name} has the tokens 0 to {tokens - 1}, the data have ids from {x.min()} to {x.max()}; "
                "give it more tokens"
            )


def trainable(params: Params) -> Params:
    """A model, or a bank, without its running statistics; update vectors are made of these parameters."""
    kept = {
        key: trainable(value) if isinstance(value, dict) else value for key, value in params.items() if key != "stats"
    }
    return {key: value for key, value in kept.items() if not isinstance(value, dict) or value}


def check_size(what: str, parameters: int) -> None:
    """Raise a SpecError if a model, or a part of it, has too many parameters; called before they are allocated."""
    if parameters > MAX_PARAMETERS:
        raise SpecError(
            f"{what} would have {parameters:,} parameters; a model may have at most {MAX_PARAMETERS:,}. Choose smaller "
            "layers or inputs"
        )


def _channel_hint(task: Task, seen: tuple[int, ...]) -> str:
    """What to do if the shapes differ only by a channel."""
    if len(task.shape) != 3 or [n for n in task.shape if n > 1] != [n for n in seen if n > 1]:
        return ""
    return f"; create the task with shape={seen}, for a PyTorch module that takes channels first with channels='last'"
