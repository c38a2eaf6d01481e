"""Tasks from user-defined models: any flax module, or any pure pair of `init` and `apply`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie import tree
from coterie.errors import SpecError
from coterie.models.task import Task
from coterie.seeds import Seed
from coterie.threads import start_jax
from coterie.types import Params

if TYPE_CHECKING:
    from flax import linen


def from_functions(
    init: Callable[[Any], Params],
    apply: Callable[..., Any],
    shape: tuple[int, ...],
    classes: int | None,
    *,
    name: str = "custom",
    normalize: Any = None,
    l2: float = 0.0,
    tokens: int | None = None,
) -> Task:
    """A task from a pair of pure functions.

    Args:
        init: `jax.random` key → parameters, a nested dict of arrays.
        apply: (parameters, inputs) → logits or predictions. A third argument without a default is a `jax.random` key,
            which is None outside of training.
        shape: Shape of one input.
        classes: Number of classes; None: regression.
        name: Name of the task.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
        tokens: Number of tokens: inputs are ids below it, passed as int32. None: inputs are numbers, passed as float32.
    """
    arguments = list(inspect.signature(apply).parameters.values())
    takes_key = len(arguments) > 2 and arguments[2].default is inspect.Parameter.empty

    def start(seed: Seed) -> Params:
        params = _checked(init(seed.key()), name)
        # A copy, so that parameters are contiguous NumPy arrays.
        return tree.map(lambda leaf: np.array(leaf, np.float32, order="C"), params)

    def call(params: Params, x: Any, key: Any) -> Any:
        outputs = apply(params, x, key) if takes_key else apply(params, x)
        return outputs.reshape(outputs.shape[0]) if classes is None else outputs

    start_jax()
    layers = tuple(_checked(init(Seed(0).key()), name))
    return Task(name, start, call, shape, classes, normalize, layers, l2, random=takes_key, tokens=tokens)


def from_flax(
    module: linen.Module,
    shape: tuple[int, ...],
    classes: int | None,
    *,
    name: str | None = None,
    normalize: Any = None,
    l2: float = 0.0,
    tokens: int | None = None,
) -> Task:
    """A task from a flax linen module that takes a batch of inputs.

    If `__call__` of the module has an argument `train`, it is true in training, and dropout uses the client's seed.

    Args:
        module: The module. It may have only parameters, no other variables.
        shape: Shape of one input.
        classes: Number of classes; None: regression.
        name: Name of the task; default: the name of the module's class.
        normalize: Function applied to the inputs; None: no normalization.
        l2: Coefficient of the l2 penalty on kernels in training.
        tokens: Number of tokens: inputs are ids below it, passed as int32. None: inputs are numbers, passed as float32.
    """
    takes_train = "train" in inspect.signature(type(module).__call__).parameters

    def init(key: Any) -> Params:
        options: dict[str, Any] = {"train": False} if takes_train else {}
        variables = module.init(key, np.zeros((1, *shape), np.float32 if tokens is None else np.int32), **options)
        extra = sorted(set(variables) - {"params"})
        if extra:
            raise SpecError(
                f"Module {type(module).__name__} has variables {', '.join(extra)}; only params are supported"
            )
        return dict(variables["params"])

    def plain(params: Params, x: Any) -> Any:
        return module.apply({"params": params}, x)

    def keyed(params: Params, x: Any, key: Any) -> Any:
        rngs = {} if key is None else {"dropout": key}
        return module.apply({"params": params}, x, train=key is not None, rngs=rngs)

    return from_functions(
        init,
        keyed if takes_train else plain,
        shape,
        classes,
        name=name or type(module).__name__,
        normalize=normalize,
        l2=l2,
        tokens=tokens,
    )


def _checked(params: Any, name: str) -> Params:
    if not isinstance(params, dict) or not params:
        raise SpecError(f"init of model {name} must return a nested dict of arrays, got {params!r:.60}")
    for path, leaf in tree.paths(params):
        if not hasattr(leaf, "dtype"):
            raise SpecError(f"init of model {name} must return a nested dict of arrays, but {path} is {leaf!r:.60}")
    return params
