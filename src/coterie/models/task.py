"""`Task`: what is learned, as pure functions: parameters from a seed, outputs and losses from parameters and examples.

A task takes inputs as they are stored (bytes of an image, say) and normalizes them itself, so that whoever looks at
the data without a model can see them either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.types import Array, Params


@dataclass(frozen=True)
class Normalize:
    """(x - mean) / deviation; numbers, or arrays that broadcast over one example."""

    mean: Any = 0.0
    deviation: Any = 1.0

    def __call__(self, x: Any) -> Any:
        """The inputs as the model sees them."""
        return (x - np.asarray(self.mean, np.float32)) * (1.0 / np.asarray(self.deviation, np.float32))


@dataclass(frozen=True, eq=False)
class Task:
    """A model with its loss.

    Attributes:
        name: What people call it.
        init: Seed → parameters, a nested dict of float32 arrays.
        apply: (parameters, inputs, key) → outputs, (rows, classes) logits or (rows,) predictions. `key` is a
            `jax.random` key while a client trains and None otherwise (dropout happens in training only).
        shape: The shape of one input.
        classes: How many, or None for regression.
        normalize: Applied to the inputs, as float32, before `apply`; None for none.
        layers: The top-level keys of the parameters from input to output.
        l2: Penalty l2·||kernels||², in training only; a kernel is what is called so or has two and more dimensions.
        random: Whether `apply` uses its key.
        learn: For models with running statistics: (parameters, inputs, key, weight) → outputs while training, and the
            new statistics as a part of the parameters. They lie under keys called `stats`, are sent and averaged like
            parameters, and are left out of update vectors (`trainable`).
        tokens: Inputs are ids below this number and reach `apply` as int32, never scaled; None: they are quantities.
        loss: (outputs, labels or numbers) → the loss of each example; None: cross-entropy, or half the squared error.
        fault: For models that compiled code calls: what they raised in there since the last time that anybody asked,
            which compiled code hands on as a text alone.
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

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
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
            raise SpecError(f"{self.name}.normalize must be none: its inputs are ids of tokens, no quantities")

    def outputs(self, params: Params, x: Any, key: Any = None) -> Any:
        """Logits or predictions for stored inputs."""
        return self.apply(params, self.inputs(x), key)

    def inputs(self, x: Any) -> Any:
        """Stored inputs as `apply` takes them."""
        if self.tokens is not None:
            return x.astype(np.int32)
        inputs = x.astype(np.float32)
        return inputs if self.normalize is None else self.normalize(inputs)

    def training_outputs(self, params: Params, x: Any, key: Any, weight: Any) -> tuple[Any, Params]:
        """Outputs while a client trains, and new statistics, an empty dict for most models."""
        if self.learn is None:
            return self.outputs(params, x, key), {}
        return self.learn(params, self.inputs(x), key, weight)

    def losses(self, params: Params, x: Any, y: Any, key: Any = None) -> Any:
        """The data loss of each example."""
        return self.losses_of(self.outputs(params, x, key), y)

    def losses_of(self, outputs: Any, y: Any) -> Any:
        """The data loss of each example from its outputs."""
        import jax
        import jax.numpy as jnp

        y = jnp.asarray(y)
        if self.loss is not None:
            return self.loss(outputs, y)
        if self.classes is None:
            return 0.5 * jnp.square(outputs - y)
        # One-hot instead of a gather by label: its gradient is a subtraction, not a scatter.
        hot = y[:, None] == jnp.arange(self.classes, dtype=y.dtype)
        return jax.nn.logsumexp(outputs, axis=1) - jnp.sum(jnp.where(hot, outputs, 0.0), axis=1)

    def hits(self, outputs: Any, y: Any) -> Any:
        """1 for each example that is classified right, else 0; zeros for regression."""
        import jax.numpy as jnp

        y = jnp.asarray(y)
        if self.classes is None:
            return jnp.zeros(y.shape, jnp.float32)
        return (jnp.argmax(outputs, axis=1).astype(y.dtype) == y).astype(jnp.float32)

    def check(self, x: Array, y: Array, *, shape: tuple[int, ...] | None = None, tokens: int | None = None) -> None:
        """Raise a SpecError where data do not fit this task.

        Args:
            x: Stored inputs.
            y: Labels, or numbers to predict.
            shape: Of one input as the task gets it, where that is not how it is stored.
            tokens: Of how many tokens the inputs are known to be ids; None: nobody says that they are.
        """
        seen = tuple(x.shape[1:]) if shape is None else shape
        if seen != self.shape:
            raise SpecError(f"Model {self.name} takes inputs of shape {self.shape}, the data have {seen}")
        if self.tokens is None and tokens is not None:
            raise SpecError(
                f"Model {self.name} takes quantities, but the inputs are ids of {tokens} tokens; choose a model for "
                "tokens, such as char-lstm"
            )
        if self.tokens is not None:
            self._check_ids(x, self.tokens)
        if self.classes is None and y.dtype.kind != "f":
            raise SpecError(f"Model {self.name} predicts numbers, but the data have labels; choose a classifier")
        if self.classes is not None and y.dtype.kind == "f":
            raise SpecError(f"Model {self.name} predicts classes, but the data have numbers; choose linear-regression")
        if self.classes is not None and len(y) and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
            raise SpecError(
                f"Model {self.name} knows the classes 0 to {self.classes - 1}, the data have labels from {y.min()} "
                f"to {y.max()}; give it more classes"
            )

    def _check_ids(self, x: Array, tokens: int) -> None:
        if x.dtype.kind not in "iu":
            raise SpecError(f"Model {self.name} takes ids of tokens, whole numbers, but the inputs are {x.dtype}")
        if x.size and not 0 <= int(x.min()) <= int(x.max()) < tokens:
            raise SpecError(
                f"Model {self.name} knows the tokens 0 to {tokens - 1}, the data have ids from {x.min()} to {x.max()}; "
                "give it more tokens"
            )


def trainable(params: Params) -> Params:
    """A model, or a bank, without its running statistics: what update vectors are made of."""
    kept = {
        key: trainable(value) if isinstance(value, dict) else value for key, value in params.items() if key != "stats"
    }
    return {key: value for key, value in kept.items() if not isinstance(value, dict) or value}
